"""How the attempts of tasks ended, for display.

Attempts that raised are noted, those under which a worker died, and those whose result was lost
later; so tasks that run once, finish and keep their result cost nothing. Where a result was made is
not on record, but copies are listed behind it: its worker is the first holder, and is noted when it
ceases to be that. The table is bounded: the latest tasks are kept.

A new scheduler does not know the ends that the one before it has noted, but for the number of the
exceptions, nor which of the workers that hold a result has made it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ...protocol.wire.failure import RESCHEDULE
from .tasks import MEMORY, SchedulerTask

if TYPE_CHECKING:
    from ...protocol.wire.failure import Failure
    from .state import SchedulerState

#: Tasks whose attempts are kept, and the ends of one task: the latest.
MAX_TASKS: Final = 10_000
MAX_ENDS: Final = 20
_MAX_TEXT_CHARS: Final = 300

_FINISHED: Final = "finished"
_LOST: Final = "finished; its result was lost later"
_RAISED_BEFORE: Final = "raised an exception, before the scheduler was restarted"


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


def note_death(
    state: SchedulerState, task: SchedulerTask, worker: str, reason: str, *, is_served: bool
) -> None:
    """Note that a worker died under an attempt, or (`is_served`) while it served the result."""
    if is_served:
        ends = state.attempt_ends.get(task)
        if ends is not None and ends[-1][:2] == (worker, _LOST):
            ends.pop()
        _note(state, task, worker, f"{_LOST}: the worker died: {reason}")
    else:
        _note(state, task, worker, f"the worker died: {reason}")


def note_copied(state: SchedulerState, task: SchedulerTask) -> None:
    """Note where a task has finished, before its first holder is forgotten; copies are left."""
    if not _is_noted(state, task):
        _note(state, task, task.replicas[0].name, _FINISHED, task.attempt)


def note_lost(state: SchedulerState, tasks: list[SchedulerTask]) -> None:
    """Note that the last copies of results are lost, before the tasks leave the memory."""
    for task in tasks[-MAX_TASKS:]:
        ends = state.attempt_ends.get(task)
        if ends is not None and _is_noted(state, task):
            _note(state, task, ends.pop()[0], _LOST)
        else:
            _note(state, task, task.replicas[0].name, _LOST)


def attempt_ends(state: SchedulerState, key: str) -> list[tuple[str, str]]:
    """Return `(worker, how it ended)` of the attempts of a task, oldest first.

    Those under way are left out, and so are those that were taken back before they ran.
    """
    task = state.tasks.get(key)
    if task is None:
        return []
    ends = [(worker, end) for worker, end, _ in state.attempt_ends.get(task, ())]
    if task.state == MEMORY and not _is_noted(state, task):
        ends.append((task.replicas[0].name, _FINISHED))
    return ends


def _is_noted(state: SchedulerState, task: SchedulerTask) -> bool:
    """Return whether the attempt that made the present result is on record."""
    ends = state.attempt_ends.get(task)
    return ends is not None and ends[-1][1:] == (_FINISHED, task.attempt)


def _note(
    state: SchedulerState, task: SchedulerTask, worker: str, end: str, attempt: int = 0
) -> None:
    table = state.attempt_ends
    ends = table.get(task)
    if ends is None:
        ends = table[task] = []
        if len(table) > MAX_TASKS:
            table.popitem(last=False)
    ends.append((worker, end[:_MAX_TEXT_CHARS], attempt))
    del ends[:-MAX_ENDS]
