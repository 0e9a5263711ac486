"""How long the latest attempts took: a bounded ring of the columns of workers' reports.

One entry per report, not per task: it refers to the lists of the message. So it costs a finished
task nothing, and reading it is a search over the ring, made only on request.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from ....protocol.wire import messages as m
from ..feature import Feature

if TYPE_CHECKING:
    from ..records.peers import WorkerHandle
    from ..state import SchedulerState

#: Attempts that are remembered; the oldest reports are forgotten first. More would leave the
#: processor's cache: with 20 000, a loop of submits cost a fifth more.
MAX_ATTEMPTS: Final = 2_000


class Timing(NamedTuple):
    """A worker's report of an attempt that has ended, and its time."""

    reported: float
    worker: str
    duration_us: int
    #: from its arrival at the worker to its start, and the part of it until its last fetched input
    #: came; of the first attempt of its chunk
    queued_us: int
    fetched_us: int


class Timings:
    """The latest reports.

    No `Ring`: nobody goes on reading here, and its `append` would cost each message of one task 39
    bytecodes more.
    """

    __slots__ = ("_entries", "n")

    def __init__(self) -> None:
        self._entries: deque[
            tuple[float, str, Sequence[int], Sequence[int], Sequence[int], Sequence[int]]
        ] = deque()
        #: attempts in all entries
        self.n = 0

    def note(self, now: float, worker: str, message: m.AttemptsFinished | m.AttemptsErred) -> None:
        """Remember a report; its lists must not change any more."""
        attempts = message.attempts
        entries = self._entries
        entries.append(
            (now, worker, attempts, message.durations_us, message.queued_us, message.fetched_us)
        )
        self.n += len(attempts)
        while self.n > MAX_ATTEMPTS and len(entries) > 1:
            self.n -= len(entries.popleft()[2])

    def of(self, attempt: int) -> Timing | None:
        """Return what was reported of an attempt, None if it is not known (any more)."""
        for now, worker, attempts, durations, queued, fetched in reversed(self._entries):
            if attempt in attempts:
                i = attempts.index(attempt)
                return Timing(
                    now,
                    worker,
                    durations[i],
                    queued[i] if queued else 0,
                    fetched[i] if fetched else 0,
                )
        return None


def timings_of(state: SchedulerState) -> Timings:
    """Return the latest reports."""
    return state.record(Timings)


def _on_report(
    state: SchedulerState, ws: WorkerHandle, message: m.AttemptsFinished | m.AttemptsErred
) -> None:
    timings_of(state).note(state.now, ws.name, message)


FEATURE: Final = Feature(
    name="timings",
    records=(Timings,),
    attempts_finished=(_on_report,),
    attempts_erred=(_on_report,),
)
