"""Recognises a worker whose event loop does not run, and the tasks that were running all the time.

A task that holds the interpreter lock keeps the loop from looking at the time. So the supervisor
reports such workers to the scheduler, which ends the tasks that have a time limit. Pure: the caller
passes time and measurements in, with each heartbeat.

Time is counted in looks at the worker, as in `silence`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ..slots.silence import BEAT_S

#: A loop that has not beaten for so long is held up by the attempts that ran all the time.
_LEAST_S: Final = 2 * BEAT_S
#: The time since the last look counts as at most this.
_MOST_S: Final = 6.0


class HeldUpWatch:
    """The observations of one worker process."""

    __slots__ = ("_held_s", "_last", "_n_beats")

    def __init__(self) -> None:
        self._n_beats = 0
        self._last = 0.0
        #: {attempt: for how long it has been seen to run} since the last beat.
        self._held_s: dict[int, float] = {}

    def look(self, n_beats: int, running: Iterable[int], now: float) -> dict[int, float]:
        """Take in one look; return the attempts that hold the worker up, each with its seconds.

        Args:
            n_beats: of its loop, since it started. A loop that has not beaten yet is not judged.
            running: the attempts that it executes.
            now: seconds, from any fixed point.
        """
        elapsed_s, self._last = min(now - self._last, _MOST_S), now
        before = self._held_s
        if n_beats != self._n_beats or not n_beats:
            self._n_beats, before = n_beats, {}
        self._held_s = {a: before[a] + elapsed_s if a in before else 0.0 for a in running}
        return {a: held_s for a, held_s in self._held_s.items() if held_s >= _LEAST_S}
