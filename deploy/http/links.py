"""Links between the pages: to a task, to a worker, to what a search finds. Pure."""

from __future__ import annotations

from urllib.parse import urlencode

from ...protocol.markup import Content, Markup, element


def task_link(key: str, text: Content = None) -> Markup:
    """Return a link to the page of a task."""
    return element("a", text or key, href=f"task?{urlencode({'key': key})}")


def graph_link(key: str, text: Content = None) -> Markup:
    """Return a link to the graph of the tasks around one."""
    return element("a", text or key, href=f"graph?{urlencode({'key': key})}")


def worker_link(address: str, text: Content = None) -> Markup:
    """Return a link to the page of a worker, by its address, id or name."""
    return element("a", text or address, href=f"worker?{urlencode({'address': address})}")


def search_link(text: str, shown: Content = None) -> Markup:
    """Return a link to what a search finds."""
    return element("a", shown or text, href=f"search?{urlencode({'q': text})}")
