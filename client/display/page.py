"""HTML pages that need no other file: the style of the status page, and the script of timelines."""

from __future__ import annotations

from typing import Final

from ...protocol.markup import Markup, element
from ...protocol.page_style import SHEET
from . import timeline

_STYLE: Final = """\
.tiles { grid-template-columns: repeat(auto-fit, minmax(11rem, 1fr)); }
pre { margin: 0; overflow-x: auto; font: .85em/1.5 ui-monospace, "SF Mono", Menlo, Consolas,
  monospace; }
pre code { background: none; padding: 0; font: inherit; }
details summary { cursor: pointer; color: var(--soft); margin-top: .6rem; }
.share { display: inline-flex; gap: .5rem; align-items: center; }
.share .bar { width: 7rem; } .share span { min-width: 2.6rem; }
@media print { section { break-inside: avoid; } }
"""


def standing_alone(title: str, body: Markup) -> str:
    """Return a page with this title and body."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title),
        element("style", Markup(f"{SHEET}{timeline.STYLE}{_STYLE}")),
    )
    script = element("script", Markup(timeline.SCRIPT))
    page = element("html", head, element("body", body, script), lang="en")
    return f"<!DOCTYPE html>\n{page}\n"
