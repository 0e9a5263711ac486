"""The page of the live task stream, which its script fills, and its style. Pure."""

from __future__ import annotations

from typing import Final

from ...protocol import timelines
from ...protocol.markup import Markup, element, join
from .documents import document

STYLE: Final = (
    timelines.STYLE
    + """\
body:has(.stream) { max-width: 120rem; }
.tools { display: flex; flex-wrap: wrap; gap: .5rem .9rem; align-items: center;
  margin: 0 0 .8rem; }
.tools h2 { margin: 0; }
.tools .shown { color: var(--soft); font-size: .85rem; font-variant-numeric: tabular-nums;
  margin-left: auto; }
.tools .keys { display: inline-flex; }
.tools .keys button { border-radius: 0; margin-left: -1px; min-width: 2.4rem; }
.tools .keys button:first-child { border-radius: .35rem 0 0 .35rem; margin-left: 0; }
.tools .keys button:last-child { border-radius: 0 .35rem .35rem 0; }
#live-button { display: inline-flex; gap: .45rem; align-items: center; }
#live-button::before { content: ""; width: .55rem; height: .55rem; border-radius: 50%;
  background: var(--track); border: 1px solid var(--soft); }
#live-button[aria-pressed=true] { border-color: var(--done); }
#live-button[aria-pressed=true]::before { background: var(--done); border-color: var(--done); }
.legend button { border: 0; background: none; padding: 0 .2rem; text-align: left;
  overflow-wrap: anywhere; }
.legend button:hover { text-decoration: underline; }
.legend button[aria-pressed=true] { font-weight: 600; text-decoration: underline; }
.legend { min-height: 1.3rem; }
.labels { min-width: 5.5rem; } .labels #labels { display: contents; }
.labels .host { color: var(--text); font-weight: 600; }
.plot { position: relative; min-height: 5.5rem; }
.tip { position: absolute; z-index: 1; pointer-events: none; max-width: min(30rem, 90%);
  background: var(--card); border: 1px solid var(--line); border-radius: .35rem;
  box-shadow: 0 .2rem .8rem rgb(0 0 0 / .18); padding: .4rem .6rem; font-size: .8rem;
  overflow-wrap: anywhere; }
.tip b, .tip span, .tip em { display: block; }
.tip em { color: var(--error-text); font-style: normal; }
.tip[hidden] { display: none; }
kbd { font: .85em ui-monospace, "SF Mono", Menlo, Consolas, monospace; padding: 0 .25rem;
  border: 1px solid var(--line); border-radius: .25rem; }
@media (max-width: 40rem) {
  .lanes { gap: .3rem; } .labels { min-width: 3.2rem; }
  .tools .shown { margin-left: 0; flex-basis: 100%; }
}
"""
)


def stream_page(name: str) -> str:
    """Return the page of a cluster of this name."""
    content = join(element("section", _tools(), _timeline(), class_="stream"), _foot())
    head = join(
        element("link", rel="stylesheet", href="timeline.css"),
        element("script", src="timeline.js", defer=True),
        element("script", src="stream.js", defer=True),
    )
    return document(f"Task stream – {name}", name, content, "stream", 0, head)


def _tools() -> Markup:
    buttons = [("out", "−", "show more time"), ("in", "+", "show less time"), ("all", "all", "")]
    return element(
        "div",
        element("h2", "Task stream"),
        element("button", "Live", type="button", id="live-button", aria_pressed="true"),
        element(
            "span",
            (
                element("button", text, type="button", id=name, title=title or None)
                for name, text, title in buttons
            ),
            class_="keys",
            role="group",
            aria_label="Zoom",
        ),
        element(
            "span",
            element("span", id="shown"),
            ", ",
            element("span", id="seconds"),
            class_="shown",
        ),
        class_="tools",
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


def _foot() -> Markup:
    def key(name: str) -> Markup:
        return element("kbd", name)

    return element(
        "footer",
        element("span", id="count", role="status"),
        element(
            "span",
            *("The wheel or ", key("+"), " ", key("−"), " zoom, dragging or "),
            *(key("←"), " ", key("→"), " move, ", key("0"), " shows all, ", key("End"), " is live"),
        ),
    )
