"""HTML elements from Python, escaped by type: text is escaped, `Markup` is not. Pure.

    element("p", "a < b", class_="note")      # <p class="note">a &lt; b</p>

An element is a text of its own type, so what comes from users, as names and messages do, cannot
become markup by an oversight: only `element` and `join` make `Markup`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from html import escape
from typing import Any, Final

#: Elements that have neither content nor an end tag.
_VOID: Final = frozenset(("br", "hr", "img", "input", "link", "meta"))


class Markup(str):
    """HTML that is put out as it is."""

    __slots__ = ()


Content = str | int | Iterable["Content"] | None


def join(*contents: Content) -> Markup:
    """Return contents one behind the other: text escaped, None left out, iterables in order."""
    parts: list[str] = []
    for content in contents:
        if isinstance(content, Markup):
            parts.append(content)
        elif isinstance(content, (str, int)):
            parts.append(escape(str(content)))
        elif content is not None:
            parts.append(join(*content))
    return Markup("".join(parts))


def element(
    name: str, /, *contents: Content, **attributes: str | int | float | bool | None
) -> Markup:
    """Return an element. A `_` at the end of an attribute's name is left out, others become `-`.

    True is an attribute without a value; False and None are no attribute.
    """
    written = []
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        key = key.rstrip("_").replace("_", "-")
        written.append(f" {key}" if value is True else f' {key}="{escape(str(value))}"')
    start = f"<{name}{''.join(written)}>"
    return Markup(start if name in _VOID else f"{start}{join(*contents)}</{name}>")


def embedded(name: str, data: Any) -> Markup:
    """Return plain data as a part of a page, which a script finds by the name of its class."""
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    return element("script", Markup(text), type="application/json", class_=name)
