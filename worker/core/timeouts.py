"""How long attempts run that have a time limit, and the report of those that exceed it.

The thread of a slot passes the begin of an attempt that has a limit, and the time counts from then,
also while the task waits for others. The shell looks which attempts run when the earliest limit
passes of those that have begun, and not while none has. A begin whose limit passes later than the
planned look plans nothing, so many short tasks with one limit cause one look each time that it
passes. A task without a limit costs its thread a test of `WorkerState.timeouts`.

The scheduler decides what becomes of an attempt that is overdue. It is sent the report again, now
and then and in each session, until it has dropped the attempt: it may not know the task yet.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

from ...protocol.wire.messages import AssignTasks, AttemptsOverdue
from .events import LimitBegins, RunningSeen, WatchRunning
from .transitions import UNFINISHED

if TYPE_CHECKING:
    from .state import WorkerState

#: An overdue attempt is reported again after this time, seconds.
REPORT_AGAIN_S: Final = 5.0


class TimeLimit:
    """The limit of one attempt."""

    __slots__ = ("began", "report_at", "timeout_us")

    def __init__(self, timeout_us: int) -> None:
        #: How long it may run.
        self.timeout_us = timeout_us
        #: When it began to run; None = it has not begun.
        self.began: float | None = None
        #: When it is reported next; infinite until it began.
        self.report_at = inf


def note(state: WorkerState, message: AssignTasks) -> None:
    """Note the limits of attempts that are assigned."""
    for attempt, timeout_us in zip(message.attempts, message.timeouts_us, strict=True):
        task = state.by_attempt.get(attempt)
        if timeout_us and task is not None and task.state in UNFINISHED:
            state.timeouts.setdefault(attempt, TimeLimit(timeout_us))


def on_limit_begins(state: WorkerState, event: LimitBegins) -> None:
    """Count the time of an attempt from now on."""
    limit = state.timeouts.get(event.attempt)
    if limit is not None and limit.began is None:  # else it was dropped, or began before
        limit.began = state.now
        limit.report_at = state.now + limit.timeout_us / 1e6
        _look_by(state, limit.report_at)


def _look_by(state: WorkerState, at: float) -> None:
    """Have the shell look which attempts run, at this time or before."""
    if at < state.look_at:
        state.look_at = at
        state.after.append(WatchRunning(at))


def on_running_seen(state: WorkerState, event: RunningSeen) -> None:
    """Report the attempts that have run for too long; look again when the next one has."""
    overdue: list[int] = []
    next_at = inf
    for attempt in event.attempts:
        limit = state.timeouts.get(attempt)
        if limit is None:  # it has ended meanwhile
            continue
        if limit.report_at <= state.now:
            limit.report_at = state.now + REPORT_AGAIN_S
            overdue.append(attempt)
        next_at = min(next_at, limit.report_at)
    state.look_at = inf
    _look_by(state, next_at)
    if overdue:
        timeouts_us = [state.timeouts[attempt].timeout_us for attempt in overdue]
        state.to_scheduler.append(AttemptsOverdue(attempts=overdue, timeouts_us=timeouts_us))


def report_again(state: WorkerState) -> None:
    """Begin a session: what was reported in the last one may be lost."""
    for limit in state.timeouts.values():
        if limit.began is not None:
            limit.report_at = limit.began + limit.timeout_us / 1e6
            _look_by(state, limit.report_at)


def drop_all(state: WorkerState, attempts: list[int]) -> None:
    """Forget the limits of attempts that have ended."""
    for attempt in attempts:
        state.timeouts.pop(attempt, None)
