"""How the attempts of tasks ended, for display.

Attempts that raised are noted, those under which a worker died or had to leave, and those whose
result was lost later; so tasks that run once, finish and keep their result cost nothing. Where a
result was made is not on record, but copies are listed behind it: its worker is the first holder,
and is noted when it ceases to be that. The table is bounded: the latest tasks are kept.

Attempts that are interrupted are noted with how they ended then. A cancelled task is forgotten at
once: those of the latest are kept by key.

A new scheduler does not know the ends that the one before it has noted, but for the number of the
exceptions, nor which of the workers that hold a result has made it.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from ....protocol.wire.failure import RESCHEDULE, Failure
from ..feature import Departure, Feature
from ..records.tasks import MEMORY, SchedulerTask

if TYPE_CHECKING:
    from ..records.peers import WorkerHandle
    from ..state import SchedulerState

#: Tasks whose attempts are kept, and the ends of one task: the latest.
MAX_TASKS: Final = 10_000
MAX_ENDS: Final = 20
#: Cancelled tasks whose interrupted attempts are kept.
MAX_CANCELLED: Final = 1_000
_MAX_TEXT_CHARS: Final = 300

_FINISHED: Final = "finished"
_LOST: Final = "finished; its result was lost later"
_LEFT: Final = "finished; its worker left, and its result with it"
_RAISED_BEFORE: Final = "raised an exception, before the scheduler was restarted"


class AttemptEnds(OrderedDict["SchedulerTask", list[tuple[str, str, int]]]):
    """How attempts ended: {task: [(worker, how it ended, attempt or 0)]}, the latest tasks."""

    def __init__(self) -> None:
        super().__init__()
        #: {key: the same} of attempts of cancelled tasks that were interrupted; the latest ones
        self.cancelled: OrderedDict[str, list[tuple[str, str, int]]] = OrderedDict()


def ends_of(state: SchedulerState) -> AttemptEnds:
    """Return how attempts ended."""
    return state.record(AttemptEnds)


def note_raised(state: SchedulerState, task: SchedulerTask, worker: str, failure: Failure) -> None:
    """Note that an attempt raised, or that its result could not be packed."""
    if failure[0] == "exception" and len(failure) > 4:
        _note(state, task, worker, f"raised {failure[3]}: {failure[4]}")
    elif failure[0] == RESCHEDULE:
        reason = f": {failure[2]}" if failure[2:] and failure[2] else ""
        _note(state, task, worker, f"asked for another worker{reason}")
    else:
        _note(state, task, worker, str(failure[0]))


def note_raised_before(state: SchedulerState, task: SchedulerTask, n_raised: int) -> None:
    """Note exceptions that only an earlier scheduler has read of."""
    for _ in range(min(n_raised, MAX_ENDS)):
        _note(state, task, "", _RAISED_BEFORE)


def _note_death(
    state: SchedulerState, task: SchedulerTask, worker: str, reason: str, is_served: bool
) -> None:
    """Note that a worker died under an attempt, or (`is_served`) while it served the result."""
    if is_served:
        ends = ends_of(state).get(task)
        if ends is not None and ends[-1][:2] == (worker, _LOST):
            ends.pop()
        _note(state, task, worker, f"{_LOST}: the worker died: {reason}")
    else:
        _note(state, task, worker, f"the worker died: {reason}")


def note_interrupted(
    state: SchedulerState, task: SchedulerTask, worker: str, cause: str, attempt: int
) -> None:
    """Note why an attempt is interrupted; the end of that replaces it."""
    _note(state, task, worker, cause, attempt)


def note_interrupted_end(
    state: SchedulerState, task: SchedulerTask | None, key: str, worker: str, end: str, attempt: int
) -> None:
    """Note how an interrupted attempt has ended; None = its task was cancelled."""
    noted = worker, end[:_MAX_TEXT_CHARS], attempt
    if task is None:
        known = state.tasks.get(key)
        if known is not None:
            _note(state, known, *noted)
            return
        cancelled = ends_of(state).cancelled
        ends = cancelled.setdefault(key, [])
        cancelled.move_to_end(key)
        ends.append(noted)
        del ends[:-MAX_ENDS]
        if len(cancelled) > MAX_CANCELLED:
            cancelled.popitem(last=False)
        return
    ends = ends_of(state).get(task, [])
    for i, (_, _, other) in enumerate(ends):
        if other == attempt:
            ends[i] = noted


def _note_copied(state: SchedulerState, task: SchedulerTask, ws: WorkerHandle) -> None:
    """Note where a task has finished, before its first holder is forgotten; copies are left."""
    if len(task.replicas) > 1 and task.replicas[0] is ws and not _is_noted(state, task):
        _note(state, task, task.replicas[0].name, _FINISHED, task.attempt)


def _note_lost(state: SchedulerState, tasks: list[SchedulerTask]) -> list[SchedulerTask]:
    """Note that the last copies of results are lost, before the tasks leave the memory."""
    for task in tasks[-MAX_TASKS:]:
        ends = ends_of(state).get(task)
        end = _LEFT if task.replicas[0].is_leaving else _LOST
        if ends is not None and _is_noted(state, task):
            _note(state, task, ends.pop()[0], end)
        else:
            _note(state, task, task.replicas[0].name, end)
    return tasks


def _note_unfinished(state: SchedulerState, ws: WorkerHandle, departure: Departure) -> None:
    """Note the attempts that had not ended when their worker left."""
    for task in [*departure.running][-MAX_TASKS:]:
        if state.tasks.get(task.key) is task:
            end = f"did not end before its worker had to leave ({departure.reason})"
            _note(state, task, ws.name, end)


def attempt_ends(state: SchedulerState, key: str) -> list[tuple[str, str]]:
    """Return `(worker, how it ended)` of the attempts of a task, oldest first.

    Those under way are left out, and so are those that were taken back before they ran. Of a task
    that was cancelled and is forgotten they are those that were interrupted.
    """
    task = state.tasks.get(key)
    if task is None:
        return [(worker, end) for worker, end, _ in ends_of(state).cancelled.get(key, ())]
    ends = [(worker, end) for worker, end, _ in ends_of(state).get(task, ())]
    if task.state == MEMORY and not _is_noted(state, task):
        ends.append((task.replicas[0].name, _FINISHED))
    return ends


def _is_noted(state: SchedulerState, task: SchedulerTask) -> bool:
    """Return whether the attempt that made the present result is on record."""
    ends = ends_of(state).get(task)
    return ends is not None and ends[-1][1:] == (_FINISHED, task.attempt)


def _note(
    state: SchedulerState, task: SchedulerTask, worker: str, end: str, attempt: int = 0
) -> None:
    table = ends_of(state)
    ends = table.get(task)
    if ends is None:
        ends = table[task] = []
        if len(table) > MAX_TASKS:
            table.popitem(last=False)
    ends.append((worker, end[:_MAX_TEXT_CHARS], attempt))
    del ends[:-MAX_ENDS]


FEATURE: Final = Feature(
    name="ends of attempts",
    records=(AttemptEnds,),
    notes=(AttemptEnds,),
    invariants={
        "cancelled attempts that are noted are few": lambda s: [*ends_of(s).cancelled][
            MAX_CANCELLED:
        ],
        "ends of attempts are noted of few tasks, all known": lambda s: [
            *(task for task in ends_of(s) if s.tasks.get(task.key) is not task),
            *[*ends_of(s)][MAX_TASKS:],
        ],
    },
    attempt_raised=(note_raised,),
    attempt_died=(_note_death,),
    replica_lost=(_note_copied,),
    results_lost=(_note_lost,),
    worker_gone=(_note_unfinished,),
)
