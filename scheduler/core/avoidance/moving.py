"""Tasks that leave a worker: they have asked for another one (`Reschedule`), or failed there.

Such a task joins a class that its last workers may not run, while others may. One that asks again
and again pauses in between, so that it does not keep the scheduler busy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ....protocol.wire.failure import RESCHEDULE, Failure
from ..feature import Feature
from ..moves.without_recipe import change_group
from ..requests.retrying import pause_s
from .avoided import Avoided, class_avoiding, left_by, limit_of

if TYPE_CHECKING:
    from ..records.peers import WorkerHandle
    from ..records.tasks import SchedulerTask
    from ..state import SchedulerState

#: A task avoids so many of the workers that it has left: the latest.
MAX_LEFT: Final = 4
#: A task may ask for another worker so often without a pause; the pauses after that.
N_AT_ONCE: Final = 3
RESCHEDULE_PAUSES: Final = (0.05, 2.0, 5.0, 0.0)


class Moves(dict["SchedulerTask", int]):
    """{task: how many workers it has left, those that it has left again included}."""


def is_reschedule(failure: Failure) -> bool:
    """Return whether an attempt has not failed, but asks for another worker."""
    return bool(failure[0] == RESCHEDULE)


def _move_on(state: SchedulerState, task: SchedulerTask, ws: WorkerHandle) -> float:
    """Let a task avoid the worker on which it has asked for another; return its pause, seconds."""
    state.story.note(state.now, f"asked on {ws.name} for another worker", [task.key])
    avoid(state, task, ws)
    n_late = state.record(Moves).get(task, 0) - N_AT_ONCE
    return pause_s(RESCHEDULE_PAUSES, task.key, n_late) if n_late > 0 else 0.0


def avoid(state: SchedulerState, task: SchedulerTask, ws: WorkerHandle) -> None:
    """Let a task avoid a worker. It is processing there, and about to be taken back."""
    old = task.group.task_class
    if task.is_without_recipe or old.is_deferred or not old.takes_thread:
        return  # it stays where it is
    left = (*(one for one in left_by(old) if one != ws.worker_id), ws.worker_id)[-MAX_LEFT:]
    found = class_avoiding(state, old, Avoided(left, limit_of(old)))
    change_group(state, task, task.group.in_class(found))
    moves = state.record(Moves)
    moves[task] = moves.get(task, 0) + 1


FEATURE: Final = Feature(
    name="moving on",
    records=(Moves,),
    notes=(Moves,),
    moves_on={RESCHEDULE: _move_on},
    invariants={
        "tasks that have left workers are known": lambda s: [
            task for task in s.record(Moves) if s.tasks.get(task.key) is not task
        ],
    },
)
