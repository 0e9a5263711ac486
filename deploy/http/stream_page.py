"""The page of the live task stream, which its script fills, and its style. Pure."""

from __future__ import annotations

from typing import Final

from ...protocol import stream_plot
from ...protocol.markup import Markup, element, join
from . import live_page
from .documents import document
from .live_page import foot, tools

STYLE: Final = stream_plot.STYLE + live_page.STYLE


def stream_page(name: str, visitor: str = "") -> str:
    """Return the page of a cluster of this name."""
    content = join(
        element("section", _tools(), stream_plot.plot(keys=", End is live"), class_="stream"),
        foot(),
    )
    head = join(
        element("link", rel="stylesheet", href="timeline.css"),
        element("script", src="timeline.js", defer=True),
        element("script", src="stream.js", defer=True),
    )
    return document(f"Task stream – {name}", name, content, "stream", 0, head, visitor)


def _tools() -> Markup:
    buttons = [("out", "−", "show more time"), ("in", "+", "show less time"), ("all", "all", "")]
    return tools(
        "Task stream",
        [
            element("button", text, type="button", id=name, title=title or None)
            for name, text, title in buttons
        ],
        "Zoom",
        element("a", "history of this time", id="other", href="history"),
    )
