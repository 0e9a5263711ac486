"""HTML pages that need no other file, and may load none: their style and scripts are in them."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from typing import Final

from ...protocol import flame_graph, stream_plot, timelines
from ...protocol.markup import Markup, element, join
from ...protocol.page_style import SHEET
from ...protocol.tables import tile
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


def standing_alone(
    title: str, body: Markup, *, has_stream: bool = False, has_flames: bool = False
) -> str:
    """Return a page with this title and body, which may have drawings in it.

    Browsers run no script in it but those of the drawings, and let it load nothing.
    """
    styles, scripts = [], []
    if has_stream:
        styles.append(stream_plot.STYLE)
        scripts += [timelines.SCRIPT, stream_plot.SCRIPT]
    if has_flames:
        styles.append(flame_graph.STYLE)
        scripts.append(flame_graph.SCRIPT)
    allowed = " ".join(f"'sha256-{_digest(script)}'" for script in scripts) or "'none'"
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src {allowed}"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title),
        element("style", Markup("".join([SHEET, *styles, _STYLE]))),
    )
    ends = [element("script", Markup(script)) for script in scripts]
    page = element("html", head, element("body", body, ends), lang="en")
    return f"<!DOCTYPE html>\n{page}\n"


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


#: Stands where a front end leaves out frames.
_NO_FRAME: Final = (
    "The drawing is not shown: this notebook is not trusted. Trust it, or run the cell again."
)


def in_cell(page: str, height: int) -> Markup:
    """Return a page for the cell of a notebook, in a frame: it has a style sheet and scripts.

    Browsers show nothing of a frame's own text. What takes frames away from a notebook that was
    made elsewhere leaves it.
    """
    style = f"width:100%;height:{height}px;border:0"
    return element("iframe", _NO_FRAME, srcdoc=page, style=style, sandbox="allow-scripts")


#: Bars of the picture of a cell, which is sent again and again.
_MAX_LIVE_BARS: Final = 5000


def live_page(
    timings: Sequence[AttemptTiming],
    begin: float,
    end: float,
    tiles: Sequence[tuple[str, str, str]],
    note: str,
) -> str:
    """Return a page for a cell: some numbers with titles and notes, and the latest attempts."""
    drawn = timeline.timeline(timings, begin, end, max_bars=_MAX_LIVE_BARS)
    body = element(
        "main",
        element("dl", (tile(name, big, note=text) for name, big, text in tiles), class_="tiles"),
        element(
            "section", element("h2", "Task stream", element("small", "the last minute")), drawn
        ),
        element("p", note, class_="soft") if note else None,
    )
    return standing_alone("weft", body, has_stream=bool(timings))


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
        return standing_alone("weft task stream", body, has_stream=bool(self._timings))

    def _repr_html_(self) -> str:
        n_lanes = len({(one.address, one.thread) for one in self._timings})
        lanes = min(n_lanes, stream_plot.MAX_LANES) * timelines.LANE
        return in_cell(self.page(), max(lanes, 96) + 260)
