"""The page of the tasks around one: boxes in layers, coloured by state, as SVG. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from ...protocol.markup import Markup, element, join
from ...protocol.wording import counted
from .documents import document, live_switch
from .graph_layout import BOX_HEIGHT, BOX_WIDTH, Box, Edge, Layout, Neighbours, layout

#: The page is fetched again so often: it asks the scheduler a dozen questions.
REFRESH_S: Final = 5.0
#: Characters of a line in a box.
_N_CHARS: Final = 23
#: {state: the class of its colour, and its name}
_STATES: Final = {
    "memory": ("memory", "result in memory"),
    "processing": ("processing", "runs, or is assigned"),
    "waiting": ("waiting", "waits for inputs"),
    "queued": ("queued", "waits for a free thread"),
    "no-worker": ("stuck", "no worker may run it"),
    "erred": ("erred", "failed"),
    "released": ("released", "not in memory"),
}

STYLE: Final = """\
.graph .of { display: flex; flex-wrap: wrap; gap: .3rem .9rem; align-items: baseline;
  margin: 0 0 .6rem; }
.graph .of h2 { margin: 0; overflow-wrap: anywhere; }
.graph .scroll { border-radius: .35rem; background: var(--page); }
.graph .scroll:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
.graph svg { display: block; margin: 0 auto; }
.graph .memory { --c: var(--done); } .graph .processing { --c: var(--run); }
.graph .waiting { --c: #8a94a2; } .graph .queued { --c: #9a7b4f; }
.graph .stuck { --c: var(--full); } .graph .erred { --c: var(--fail); }
.graph .released { --c: var(--line); }
.graph rect.box { fill: color-mix(in srgb, var(--c) 14%, var(--card)); stroke: var(--c);
  transition: none; }
.graph rect.mark { fill: var(--c); transition: none; }
.graph .chosen rect.box { stroke: var(--link); stroke-width: 3; }
.graph text { fill: var(--text); font-size: 12px; }
.graph text.small { fill: var(--soft); font-size: 10.5px; }
.graph .chosen text:not(.small) { font-weight: 600; }
.graph a:hover rect.box, .graph a:focus-visible rect.box { stroke-width: 3; }
.graph a:focus-visible { outline: none; }
.graph path { fill: none; stroke: var(--soft); stroke-opacity: .45; stroke-width: 1.2; }
.graph path.near { stroke: var(--link); stroke-opacity: .9; stroke-width: 1.8; }
.graph .states { display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; list-style: none;
  margin: .7rem 0 0; padding: 0; font-size: .82rem; color: var(--soft); }
.graph .states li { display: inline-flex; gap: .4rem; align-items: center; }
.graph .states i { width: .8rem; height: .8rem; border-radius: .15rem; background: var(--c); }
.graph form { display: flex; gap: .5rem; flex-wrap: wrap; }
.graph form .field { width: min(30rem, 100%); margin: 0; }
"""


@dataclass(frozen=True)
class GraphContent:
    """What the page shows: the name of the cluster, a key, and the tasks around it."""

    name: str
    key: str
    found: Neighbours
    visitor: str = ""  #: who looks, for display


def graph_link(key: str) -> str:
    """Return the address of the page of a key."""
    return f"graph?{urlencode({'key': key})}"


def graph_page(shown: GraphContent) -> str:
    """Return the page."""
    task = shown.found.tasks.get(shown.key)
    head = join(
        element("link", rel="stylesheet", href="graph.css"),
        element("noscript", element("meta", http_equiv="refresh", content=f"{REFRESH_S:g}")),
        element("script", src="refresh.js", defer=True),
    )
    if task is None:
        text = f"The scheduler knows no task {shown.key!r}." if shown.key else "Which task?"
        content = join(
            element("section", element("h2", "Graph"), element("p", text), _form(), class_="graph"),
            element("footer", live_switch()),
        )
    else:
        content = join(
            element("section", _title(shown), _picture(shown), _legend(shown), class_="graph"),
            element("footer", element("span", _missing(shown.found)), live_switch()),
        )
    return document(
        f"Graph – {shown.name}",
        shown.name,
        content,
        "graph",
        REFRESH_S,
        head,
        visitor=shown.visitor,
    )


def _form() -> Markup:
    field = element(
        "input", name="key", class_="field", placeholder="future.key", aria_label="Key of a task"
    )
    return element("form", field, element("button", "Show", type="submit"), action="graph")


def _title(shown: GraphContent) -> Markup:
    n = len(shown.found.tasks)
    return element(
        "div",
        element("h2", "Graph of ", element("code", shown.key)),
        element("span", f"{counted(n, 'task')}; inputs are left, dependents right", class_="soft"),
        class_="of",
    )


def _missing(found: Neighbours) -> str:
    n = found.n_missing
    return f"At least {counted(n, 'dependency')} to further tasks not drawn." if n else ""


def _legend(shown: GraphContent) -> Markup:
    there = {task.state for task in shown.found.tasks.values()}
    entries = [
        element("li", element("i", class_=kind), text)
        for state, (kind, text) in _STATES.items()
        if state in there
    ]
    return element("ul", entries, class_="states", aria_label="Colours of states")


# -- the picture -----------------------------------------------------------------------------------
def _picture(shown: GraphContent) -> Markup:
    placed: Layout = layout(shown.found, shown.key)
    svg = element(
        "svg",
        *map(_path, sorted(placed.edges, key=lambda edge: edge.is_of_chosen)),
        *(_box(box, shown.key) for box in placed.boxes),
        xmlns="http://www.w3.org/2000/svg",
        width=f"{placed.width:.0f}",
        height=f"{placed.height:.0f}",
        viewBox=f"0 0 {placed.width:.0f} {placed.height:.0f}",
        role="group",
        aria_label="Tasks and their dependencies",
    )
    return element("div", svg, class_="scroll", tabindex=0, role="region", aria_label="Graph")


def _path(edge: Edge) -> Markup:
    (x, y), *points = edge.points
    parts = [f"M{x:.0f} {y:.0f}"]
    for i, (x2, y2) in enumerate(points):
        if i % 2 == 0:  # from the right of a layer to the left of the next one
            middle = (x + x2) / 2
            parts.append(f"C{middle:.0f} {y:.0f} {middle:.0f} {y2:.0f} {x2:.0f} {y2:.0f}")
        else:
            parts.append(f"L{x2:.0f} {y2:.0f}")
        x, y = x2, y2
    return element("path", d="".join(parts), class_="near" if edge.is_of_chosen else None)


def _box(box: Box, chosen: str) -> Markup:
    is_one = len(box.keys) == 1
    key = box.keys[0]
    state = max(box.states, key=box.states.__getitem__)
    kind = _STATES.get(state, ("released", state))[0]
    x, y = box.x, box.y
    if is_one:
        title = f"{key}\n{box.function}: {_STATES.get(state, ('', state))[1]}"
        lines = _shortened(box.function), _shortened(_rest_of(key, box.function))
    else:
        states = ", ".join(f"{n} {state}" for state, n in box.states.items())
        title = f"{counted(len(box.keys), 'task')} of {box.function}: {states}"
        lines = f"{_shortened(box.function, 17)} ×{len(box.keys)}", _shortened(states, 25)
    link = f"task?{urlencode({'key': key})}" if key == chosen else graph_link(key)
    return element(
        "a",
        element("title", title),
        element(
            "rect",
            class_="box",
            x=f"{x:.0f}",
            y=f"{y:.0f}",
            width=BOX_WIDTH,
            height=BOX_HEIGHT,
            rx=5,
        ),
        _marks(box, x, y),
        element("text", lines[0], x=f"{x + 12:.0f}", y=f"{y + 16:.0f}"),
        element("text", lines[1], x=f"{x + 12:.0f}", y=f"{y + 30:.0f}", class_="small"),
        href=link,
        class_=f"{kind} chosen" if chosen in box.keys else kind,
        aria_current="true" if chosen in box.keys else None,
    )


def _marks(box: Box, x: float, y: float) -> Markup:
    """Return the strip at the left of a box: of each state its part."""
    total = sum(box.states.values())
    strips, top = [], y + 1
    for state, n in box.states.items():
        height = (BOX_HEIGHT - 2) * n / total
        strips.append(
            element(
                "rect",
                class_=f"mark {_STATES.get(state, ('released', ''))[0]}",
                x=f"{x + 1:.0f}",
                y=f"{top:.1f}",
                width=5,
                height=f"{height:.1f}",
            )
        )
        top += height
    return join(*strips)


def _rest_of(key: str, function: str) -> str:
    """Return a key without the name of its function in front, which stands above it."""
    return key[len(function) :].lstrip("-") or key if key.startswith(function) else key


def _shortened(text: str, n: int = _N_CHARS) -> str:
    return text if len(text) <= n else f"{text[: n - 1]}…"
