"""The parts that pages over time share: the tools above, and the keys below. Pure."""

from __future__ import annotations

from typing import Final

from ...protocol.markup import Content, Markup, element

STYLE: Final = """\
.tools { display: flex; flex-wrap: wrap; gap: .5rem .9rem; align-items: center;
  margin: 0 0 .8rem; }
.tools h2 { margin: 0; }
.tools .shown { color: var(--soft); font-size: .85rem; font-variant-numeric: tabular-nums;
  margin-left: auto; }
.tools .keys { display: inline-flex; }
.tools .keys button { border-radius: 0; margin-left: -1px; min-width: 2.4rem; }
.tools .keys button:first-child { border-radius: .35rem 0 0 .35rem; margin-left: 0; }
.tools .keys button:last-child { border-radius: 0 .35rem .35rem 0; }
.tools .keys button[aria-pressed=true] { background: var(--track); font-weight: 600; }
#other { font-size: .85rem; }
#live-button { display: inline-flex; gap: .45rem; align-items: center; }
#live-button::before { content: ""; width: .55rem; height: .55rem; border-radius: 50%;
  background: var(--track); border: 1px solid var(--soft); }
#live-button[aria-pressed=true] { border-color: var(--done); }
#live-button[aria-pressed=true]::before { background: var(--done); border-color: var(--done); }
kbd { font: .85em ui-monospace, "SF Mono", Menlo, Consolas, monospace; padding: 0 .25rem;
  border: 1px solid var(--line); border-radius: .25rem; }
@media (max-width: 40rem) {
  .tools .shown { margin-left: 0; flex-basis: 100%; }
}
"""


def tools(title: str, buttons: Content, label: str, other: Markup) -> Markup:
    """Return the title, the button that follows the present, and buttons of one group."""
    return element(
        "div",
        element("h2", title),
        element("button", "Live", type="button", id="live-button", aria_pressed="true"),
        element("span", buttons, class_="keys", role="group", aria_label=label),
        other,
        element(
            "span",
            element("span", id="shown"),
            ", ",
            element("span", id="seconds"),
            class_="shown",
        ),
        class_="tools",
    )


def foot(*more: Content) -> Markup:
    """Return how much is shown, which the script says, and which keys there are."""

    def key(name: str) -> Markup:
        return element("kbd", name)

    return element(
        "footer",
        element("span", id="count", role="status"),
        element(
            "span",
            *("The wheel or ", key("+"), " ", key("−"), " zoom, dragging or "),
            *(key("←"), " ", key("→"), " move, ", key("0"), " shows all, ", key("End"), " is live"),
            *more,
        ),
    )
