"""How long tasks wait for a worker that could run them, if their calls do not say it.

`no_worker_timeout=` of a call is a time of that task, which is looked at when it comes. This one is
a setting, for all tasks that have none of their own. A time for each of them would be paid by those
that run. So the classes with tasks that wait are looked at: when the first of these may have waited
for so long, and after the whole time at the latest.

While the number of workers follows the work, a worker for them may be on its way, so this time does
not count. The scheduler knows it from those that ask how many workers are desired: they say with
the question for how long it holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ....protocol.wire.failure import no_worker
from ..feature import Feature
from ..invariants.checking import is_due
from ..job_queues.feature import is_paused
from ..journal.reading import given_in
from ..moves.transitions import err
from ..records.tasks import NO_WORKER, TaskClass
from .records import unrunnable_since

if TYPE_CHECKING:
    from ..records.deadlines import Deadline
    from ..state import SchedulerState

#: A deadline may come a little early.
_EARLY_S: Final = 1e-3


class NoWorkerLimit:
    """The time that tasks wait which no worker could run, and the next look at them."""

    __slots__ = ("adapts_until", "look", "seconds")

    def __init__(self) -> None:
        self.seconds = 0.0  #: 0 = no limit
        #: The number of workers follows the work up to then; a time of `SchedulerState.now`.
        self.adapts_until = 0.0
        #: pending if there is a limit, from the first event on
        self.look: Deadline | None = None


def no_worker_limit_of(state: SchedulerState) -> NoWorkerLimit:
    """Return the limit of how long tasks wait for a worker that could run them."""
    return state.record(NoWorkerLimit)


def note_adapting(state: SchedulerState, seconds: float) -> None:
    """Note that the number of workers follows the work for so long."""
    limit = no_worker_limit_of(state)
    limit.adapts_until = max(limit.adapts_until, state.now + seconds)


def _start(state: SchedulerState) -> None:
    if seconds := no_worker_limit_of(state).seconds:
        no_worker_limit_of(state).look = state.call_after(seconds, _look)


def _look(state: SchedulerState) -> None:
    """Fail the tasks that have waited for too long, and look again when the next may have."""
    limit = no_worker_limit_of(state)
    next_s = limit.seconds
    for task_class in list(state.classes.values()):
        # Values that clients bring take no thread, and have no recipe. Others may get theirs yet.
        is_call = task_class.takes_thread and task_class.has_recipes
        if is_call and task_class.unrunnable and not (task_class.members or state.awaits_peers):
            next_s = min(next_s, _fail(state, task_class))
    limit.look = state.call_after(next_s, _look)


def _fail(state: SchedulerState, task_class: TaskClass) -> float:
    """Fail those tasks of a class that have waited for too long.

    Returns:
        seconds until another one may have.
    """
    limit, given = no_worker_limit_of(state), given_in(state)
    left_s = limit.seconds
    over = []
    for task in task_class.unrunnable:  # about in the order in which they have begun to wait
        if task.group.options.no_worker_ms or task in state.paused or is_paused(state, task):
            continue
        if task in given:
            continue  # its job is done
        since = max(unrunnable_since(task), limit.adapts_until)
        left_s = limit.seconds - (state.now - since)
        if left_s > _EARLY_S:
            break
        over.append(task)
        left_s = limit.seconds
    if over:
        reason = "; ".join(why(state, task_class) for why in state.features.why_unrunnable)
        for task in over:
            if task.state == NO_WORKER:  # else another one of its gang was among them
                err(state, task, no_worker(task.key, round(limit.seconds * 1000), reason))
    return left_s


FEATURE: Final = Feature(
    name="no-worker limit",
    records=(NoWorkerLimit,),
    started=(_start,),
    invariants={
        "tasks that no worker can run are looked at if they may not wait for ever": lambda s: [
            no_worker_limit_of(s).seconds
            for _ in range(bool(no_worker_limit_of(s).seconds) and s.started is not None)
            if not is_due(no_worker_limit_of(s).look)
        ],
    },
)
