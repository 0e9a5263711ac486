"""How long attempts run that have a time limit, and the report of those that exceed it.

The shell looks now and then which attempts run, as long as some here have a limit: so tasks without
one cost nothing, and those with one no more than a place in `TimeLimits`. The time counts
from the look that has seen an attempt first, also while it waits for others. The scheduler decides
what becomes of an attempt that is overdue. It is sent the report again, now and then and in each
session, until it has dropped the attempt: it may not know the task yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Final

from ....protocol.wire.messages import AssignTasks, AttemptsOverdue
from ..events import WorkerAction, WorkerEvent
from ..feature import WorkerFeature
from ..tasks import EXECUTING
from ..transitions import UNFINISHED

if TYPE_CHECKING:
    from ..state import WorkerState

_NAME: Final = "timeouts"
#: An overdue attempt is reported again after this time, seconds.
REPORT_AGAIN_S: Final = 5.0


@dataclass(slots=True)
class RunningSeen(WorkerEvent):
    """These attempts run now; at least all that have a time limit."""

    attempts: Sequence[int]


@dataclass(slots=True)
class WatchRunning(WorkerAction):
    """Look now and then which attempts run, while any has a time limit."""


@dataclass(slots=True)
class TimeLimit:
    """The limit of one attempt."""

    #: How long it may run.
    timeout_us: int
    #: When it was first seen to run; None = it has not been.
    began: float | None = None
    #: When it is reported next; infinite until it was seen.
    report_at: float = inf


class TimeLimits(dict[int, TimeLimit]):
    """{attempt: its time limit} of all unfinished tasks that have one."""


def _note(state: WorkerState, message: AssignTasks) -> None:
    """Note the limits of attempts that are assigned."""
    limits = state.record(TimeLimits)
    if not limits:
        state.after.append(WatchRunning())
    for attempt, timeout_us in zip(message.attempts, message.timeouts_us, strict=True):
        task = state.by_attempt.get(attempt)
        if timeout_us and task is not None and task.state in UNFINISHED:
            limits.setdefault(attempt, TimeLimit(timeout_us))
    state.set_busy(_NAME, bool(limits))


def _on_running_seen(state: WorkerState, event: RunningSeen) -> None:
    """Report the attempts that have run for too long."""
    limits = state.record(TimeLimits)
    overdue: list[int] = []
    for attempt in event.attempts:
        limit = limits.get(attempt)
        if limit is None:  # it has ended meanwhile
            continue
        if limit.began is None:
            limit.began = state.now
            limit.report_at = state.now + limit.timeout_us / 1e6
        elif limit.report_at <= state.now:
            limit.report_at = state.now + REPORT_AGAIN_S
            overdue.append(attempt)
    if overdue:
        timeouts_us = [limits[attempt].timeout_us for attempt in overdue]
        state.to_scheduler.append(AttemptsOverdue(attempts=overdue, timeouts_us=timeouts_us))


def _report_again(state: WorkerState) -> None:
    """Begin a session: what was reported in the last one may be lost."""
    for limit in state.record(TimeLimits).values():
        if limit.began is not None:
            limit.report_at = limit.began + limit.timeout_us / 1e6


def _drop(state: WorkerState, attempts: Sequence[int]) -> None:
    """Forget the limits of attempts that have ended."""
    limits = state.record(TimeLimits)
    for attempt in attempts:
        limits.pop(attempt, None)
    state.set_busy(_NAME, bool(limits))


FEATURE: Final = WorkerFeature(
    name=_NAME,
    records=(TimeLimits,),
    events={RunningSeen: _on_running_seen},
    invariants={
        "timeouts lists unfinished tasks, those that run with their begin": lambda state: (
            attempt
            for attempt, limit in state.record(TimeLimits).items()
            if attempt not in state.by_attempt
            or state.by_attempt[attempt].state not in UNFINISHED
            or (limit.began is not None and state.by_attempt[attempt].state != EXECUTING)
        ),
    },
    columns=(("timeouts_us", _note),),
    attempts_ended=((_NAME, _drop),),
    session_opening=(_report_again,),
)
