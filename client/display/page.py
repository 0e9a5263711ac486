"""HTML pages that need no other file: the style of the status page, and the script of timelines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...protocol import flame_graph, timelines
from ...protocol.markup import Markup, element, join
from ...protocol.page_style import SHEET
from ...protocol.wording import counted, lasting
from ..insight.attempt_timing import AttemptTiming
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


def standing_alone(title: str, body: Markup, *, has_flames: bool = False) -> str:
    """Return a page with this title and body, which may have a flame graph in it."""
    styles, scripts = [timelines.STYLE], [timeline.SCRIPT]
    if has_flames:
        styles.append(flame_graph.STYLE)
        scripts.append(flame_graph.SCRIPT)
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title),
        element("style", Markup("".join([SHEET, *styles, _STYLE]))),
    )
    ends = [element("script", Markup(script)) for script in scripts]
    page = element("html", head, element("body", body, ends), lang="en")
    return f"<!DOCTYPE html>\n{page}\n"


class TaskStreamPicture:
    """The task stream as one line per thread; the last expression of a cell shows it."""

    def __init__(
        self, timings: Sequence[AttemptTiming], begin: float | None, end: float | None
    ) -> None:
        self._timings = timings
        self._begin = begin
        self._end = end

    def __repr__(self) -> str:
        return f"<TaskStreamPicture of {counted(len(self._timings), 'attempt')}>"

    def page(self) -> str:
        """Return an HTML page that needs no other file."""
        starts = [one.start for one in self._timings] or [0.0]
        stops = [one.stop for one in self._timings] or [0.0]
        begin = min(starts) if self._begin is None else self._begin
        end = max(stops) if self._end is None else self._end
        note = f"{counted(len(self._timings), 'attempt')} in {lasting(max(end - begin, 0.0))}"
        body = join(
            element(
                "header", element("h1", "weft task stream"), element("span", note, class_="soft")
            ),
            element("main", element("section", timeline.timeline(self._timings, begin, end))),
        )
        return standing_alone("weft task stream", body)

    def _repr_html_(self) -> str:
        # A frame of its own: the page has a style sheet and a script.
        lanes = min(len({(one.worker, one.thread) for one in self._timings}), timeline.MAX_LANES)
        height = lanes * timelines.LANE + 260
        return element(
            "iframe",
            srcdoc=self.page(),
            style=f"width:100%;height:{height}px;border:0",
            sandbox="allow-scripts",
        )
