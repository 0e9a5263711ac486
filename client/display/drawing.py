"""The picture of a task stream, for notebooks and files."""

from __future__ import annotations

from collections.abc import Sequence

from ...protocol.markup import element, join
from ...protocol.wording import counted, lasting
from ..insight.attempt_timing import AttemptTiming
from . import timeline
from .page import standing_alone

__all__ = ["TaskStreamPicture"]


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
        height = lanes * timeline.LANE + 260
        return element(
            "iframe",
            srcdoc=self.page(),
            style=f"width:100%;height:{height}px;border:0",
            sandbox="allow-scripts",
        )
