"""The page of the live task stream, which its script fills, and its style. Pure."""

from __future__ import annotations

from typing import Final

from ...protocol import timelines
from ...protocol.markup import Markup, element, join
from . import live_page
from .documents import document
from .live_page import foot, tools

STYLE: Final = (
    timelines.STYLE
    + live_page.STYLE
    + """\
.legend button { border: 0; background: none; padding: 0 .2rem; text-align: left;
  overflow-wrap: anywhere; }
.legend button:hover { text-decoration: underline; }
.legend button[aria-pressed=true] { font-weight: 600; text-decoration: underline; }
.legend { min-height: 1.3rem; }
.labels { min-width: 5.5rem; } .labels #labels { display: contents; }
.labels .host { color: var(--text); font-weight: 600; }
.labels a { color: inherit; text-decoration: none; }
.labels a:hover { color: var(--link); text-decoration: underline; }
.timeline i.cr { border: 2px solid var(--soft); border-right: 0; border-radius: .15rem 0 0 .15rem; }
.timeline i.cd { background:
  repeating-linear-gradient(135deg, var(--full) 0 1px, transparent 0 4px); }
.plot { position: relative; min-height: 5.5rem; }
.plot.on-bar { cursor: pointer; }
.none { color: var(--soft); margin: 0; padding: 5rem 0; text-align: center; }
.timeline:not(.is-empty) .none, .is-empty .labels, .is-empty canvas, .is-empty .axis {
  display: none; }
.tip { position: absolute; z-index: 1; pointer-events: none; max-width: min(30rem, 90%);
  background: var(--card); border: 1px solid var(--line); border-radius: .35rem;
  box-shadow: 0 .2rem .8rem rgb(0 0 0 / .18); padding: .4rem .6rem; font-size: .8rem;
  overflow-wrap: anywhere; }
.tip b, .tip span, .tip em { display: block; }
.tip em { color: var(--error-text); font-style: normal; }
.tip[hidden] { display: none; }
@media (max-width: 40rem) {
  .lanes { gap: .3rem; } .labels { min-width: 3.2rem; }
}
"""
)


def stream_page(name: str, visitor: str = "") -> str:
    """Return the page of a cluster of this name."""
    content = join(element("section", _tools(), _timeline(), class_="stream"), foot())
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


def _timeline() -> Markup:
    scale = element("div", element("div", "", id="most"), element("div", "0"), class_="of-curve")
    plot = element(
        "div",
        element("canvas", id="curve", role="img", aria_label="How many threads computed"),
        element(
            "canvas", id="lanes", role="img", aria_label="The attempts of each thread, over time"
        ),
        element("div", class_="axis"),
        element("p", "no data yet", class_="none"),
        element("div", class_="tip", hidden=True),
        class_="plot",
        tabindex=0,
        role="group",
        aria_label="Plot: + and - zoom, arrow keys move, 0 shows everything, End is live",
    )
    return element(
        "div",
        element("noscript", element("p", "This page is drawn by a script.", class_="silent")),
        element("ul", class_="legend"),
        element(
            "div",
            element("div", scale, element("div", id="labels"), class_="labels"),
            plot,
            class_="lanes",
        ),
        element("p", class_="soft more", id="more"),
        class_="timeline",
    )
