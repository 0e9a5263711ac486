"""How long attempts run that have a time limit, and the report of those that exceed it.

The shell looks now and then which attempts run, as long as some here have a limit: so tasks without
one cost nothing, and those with one no more than a place in `WorkerState.timeouts`. The time counts
from the look that has seen an attempt first, also while it waits for others. The scheduler decides
what becomes of an attempt that is overdue. It is sent the report again, now and then and in each
session, until it has dropped the attempt: it may not know the task yet.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

from ....protocol.wire.messages import AssignTasks, AttemptsOverdue
from ..events import RunningSeen, WatchRunning
from ..transitions import UNFINISHED

if TYPE_CHECKING:
    from ..state import WorkerState

#: An overdue attempt is reported again after this time, seconds.
REPORT_AGAIN_S: Final = 5.0


class TimeLimit:
    """The limit of one attempt."""

    __slots__ = ("began", "report_at", "timeout_us")

    def __init__(self, timeout_us: int) -> None:
        #: How long it may run.
        self.timeout_us = timeout_us
        #: When it was first seen to run; None = it has not been.
        self.began: float | None = None
        #: When it is reported next; infinite until it was seen.
        self.report_at = inf


def note(state: WorkerState, message: AssignTasks) -> None:
    """Note the limits of attempts that are assigned."""
    if not state.timeouts:
        state.after.append(WatchRunning())
    for attempt, timeout_us in zip(message.attempts, message.timeouts_us, strict=True):
        task = state.by_attempt.get(attempt)
        if timeout_us and task is not None and task.state in UNFINISHED:
            state.timeouts.setdefault(attempt, TimeLimit(timeout_us))


def on_running_seen(state: WorkerState, event: RunningSeen) -> None:
    """Report the attempts that have run for too long."""
    overdue: list[int] = []
    for attempt in event.attempts:
        limit = state.timeouts.get(attempt)
        if limit is None:  # it has ended meanwhile
            continue
        if limit.began is None:
            limit.began = state.now
            limit.report_at = state.now + limit.timeout_us / 1e6
        elif limit.report_at <= state.now:
            limit.report_at = state.now + REPORT_AGAIN_S
            overdue.append(attempt)
    if overdue:
        timeouts_us = [state.timeouts[attempt].timeout_us for attempt in overdue]
        state.to_scheduler.append(AttemptsOverdue(attempts=overdue, timeouts_us=timeouts_us))


def report_again(state: WorkerState) -> None:
    """Begin a session: what was reported in the last one may be lost."""
    for limit in state.timeouts.values():
        if limit.began is not None:
            limit.report_at = limit.began + limit.timeout_us / 1e6


def drop_all(state: WorkerState, attempts: list[int]) -> None:
    """Forget the limits of attempts that have ended."""
    for attempt in attempts:
        state.timeouts.pop(attempt, None)
