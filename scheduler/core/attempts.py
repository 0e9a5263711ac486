"""How attempts of tasks ended that did not end with a result, for display.

Only attempts that raised, or under which a worker died, are noted; so tasks that run once and
finish cost nothing. The table is bounded: of many failing tasks the latest are kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .tasks import MEMORY, SchedulerTask

if TYPE_CHECKING:
    from ...protocol.wire.failure import Failure
    from .state import SchedulerState

#: Tasks whose attempts are kept, and the ends of one task: the latest.
MAX_TASKS: Final = 10_000
MAX_ENDS: Final = 20
_MAX_TEXT_CHARS: Final = 300


def note_raised(state: SchedulerState, task: SchedulerTask, worker: str, failure: Failure) -> None:
    """Note that an attempt raised, or that its result could not be packed."""
    if failure[0] == "exception" and len(failure) > 4:
        _note(state, task, worker, f"raised {failure[3]}: {failure[4]}")
    else:
        _note(state, task, worker, str(failure[0]))


def note_death(state: SchedulerState, task: SchedulerTask, worker: str, reason: str) -> None:
    """Note that a worker died under an attempt."""
    _note(state, task, worker, f"the worker died: {reason}")


def attempt_ends(state: SchedulerState, key: str) -> list[tuple[str, str]]:
    """Return `(worker, how it ended)` of the attempts of a task, oldest first.

    Those under way are left out, and so are those that were taken back before they ran.
    """
    task = state.tasks.get(key)
    if task is None:
        return []
    ends = list(state.attempt_ends.get(task, ()))
    if task.state == MEMORY:
        ends.append((task.replicas[0].name, "finished"))
    return ends


def _note(state: SchedulerState, task: SchedulerTask, worker: str, end: str) -> None:
    table = state.attempt_ends
    ends = table.setdefault(task, [])
    ends.append((worker, end[:_MAX_TEXT_CHARS]))
    del ends[:-MAX_ENDS]
    if len(table) > MAX_TASKS:
        del table[next(iter(table))]
