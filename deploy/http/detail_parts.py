"""Parts that pages of tasks, workers, searches and orders share: facts, badges, buttons. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final
from urllib.parse import urlencode

from ...protocol.markup import Content, Markup, element, join
from .documents import document, live_switch
from .links import task_link
from .visitor import Visitor

STYLE: Final = """\
.facts { display: grid; grid-template-columns: minmax(7rem, max-content) 1fr; gap: .3rem 1.2rem;
  margin: 0; }
.facts dt { color: var(--soft); }
.facts dd { margin: 0; overflow-wrap: anywhere; min-width: 0; }
.key { font: 1.05rem ui-monospace, "SF Mono", Menlo, Consolas, monospace; font-weight: 600;
  margin: 0; overflow-wrap: anywhere; min-width: 0; }
.top { display: flex; flex-wrap: wrap; gap: .5rem .8rem; align-items: center; }
.top .actions { margin-left: auto; }
.state { border-radius: .35rem; padding: .1rem .55rem; font-size: .85rem; font-weight: 600;
  background: var(--track); white-space: nowrap; }
.state.done { background: var(--ok-back); color: var(--ok-text); }
.state.bad { background: var(--error-back); color: var(--error-text); }
.state.wait { background: var(--warning-back); color: var(--warning-text); }
.why { margin: .7rem 0 0; overflow-wrap: anywhere; }
.steps { margin: .5rem 0 0; padding-left: 1.3rem; }
.steps li { margin: .2rem 0; overflow-wrap: anywhere; }
.actions { display: flex; flex-wrap: wrap; gap: .5rem; align-items: center; }
.actions form { margin: 0; display: flex; gap: .4rem; align-items: center; }
a.button { display: inline-block; border: 1px solid var(--line); border-radius: .35rem;
  padding: .3rem .75rem; text-decoration: none; color: inherit; background: var(--card); }
a.button:hover, button:hover { border-color: var(--link); }
button.danger { background: var(--fail); border-color: var(--fail); color: var(--card);
  font-weight: 600; }
pre { background: var(--track); border-radius: .35rem; margin: .4rem 0 0; padding: .6rem .8rem;
  overflow-x: auto; font: .82rem/1.5 ui-monospace, "SF Mono", Menlo, Consolas, monospace; }
.links { columns: 2 18rem; list-style: none; margin: 0; padding: 0; }
.links li { overflow-wrap: anywhere; padding: .1rem 0; }
.half { display: grid; grid-template-columns: 1fr 1fr; gap: 0 1rem; }
.half > * { min-width: 0; }
@media (max-width: 52rem) { .half { grid-template-columns: 1fr; } }
@media (max-width: 40rem) {
  .facts { grid-template-columns: 1fr; gap: 0; }
  .facts dd { margin: 0 0 .45rem; }
  .top .actions { margin-left: 0; }
}
"""
#: {state of a task: how it is shown, and its class}
STATES: Final = {
    "released": ("released", ""),
    "waiting": ("waiting for inputs", "wait"),
    "queued": ("queued", "wait"),
    "no_worker": ("without a worker", "wait"),
    "processing": ("at a worker", ""),
    "memory": ("finished", "done"),
    "erred": ("failed", "bad"),
    "forgotten": ("forgotten", ""),
}


def order_link(label: str, order: str, **fields: str) -> Markup:
    """Return a button that leads to the question whether to give an order."""
    return element(
        "a",
        label,
        href=f"order?{urlencode({'do': order, **fields})}",
        class_="button",
        role="button",
    )


def badge(state: str) -> Markup:
    """Return the state of a task."""
    text, class_ = STATES.get(state, (state, ""))
    return element("span", text, class_=f"state {class_}".strip())


def facts(rows: Iterable[tuple[str, Content]]) -> Markup:
    """Return a list of names and what they are; those without content are left out."""
    parts = [
        (element("dt", name), element("dd", content))
        for name, content in rows
        if content not in (None, "", [], ())
    ]
    return element("dl", parts, class_="facts")


def section(title: str, *content: Content, note: str = "") -> Markup:
    """Return a part of a page with a title."""
    small = element("small", note) if note else None
    return element("section", element("h2", title, small), *content)


def keys_section(title: str, keys: Sequence[str], n_all: int) -> Markup | None:
    """Return links to tasks, of which there are more; None = there is none."""
    if not n_all:
        return None
    rest = element("p", f"and {n_all - len(keys)} more", class_="more soft")
    links = element("ul", (element("li", task_link(key)) for key in keys), class_="links")
    return section(title, links, rest if n_all > len(keys) else None, note=str(n_all))


def lines(text: str, label: str) -> Markup:
    """Return text of several lines, as it is; it scrolls by itself if it is wide."""
    return element("pre", text, tabindex=0, role="region", aria_label=label, class_="scroll")


def detail_document(
    title: str,
    name: str,
    content: Markup,
    visitor: Visitor,
    refresh_s: float = 0.0,
    current: str = "",
    query: str = "",
) -> str:
    """Return a page of details.

    Args:
        title: of the tab.
        name: of the cluster.
        content: what is below the header.
        visitor: who looks.
        refresh_s: it is fetched again so often; 0 = it is not.
        current: the page, as the header knows it.
        query: what was searched for.
    """
    head = element("link", rel="stylesheet", href="details.css")
    if refresh_s:
        again = element("meta", http_equiv="refresh", content=f"{refresh_s:g}")
        head = join(
            head, element("noscript", again), element("script", src="refresh.js", defer=True)
        )
        content = join(content, element("footer", live_switch()))
    return document(
        f"{title} – {name}", name, content, current, refresh_s, head, visitor.name, query
    )
