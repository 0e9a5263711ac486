"""Actors, as far as the scheduler knows them: tasks whose results are made once.

The result is a handle of an object on the worker that made it. Copies of the handle on other
workers are of no use without that, so they are no replicas: each is dropped when the tasks that
read it have ended. Only over a restart, in which the worker of the actor may come back later than
a copy, one may be taken for a replica. If the worker is lost, the object is lost with all that it
has learned, so the task fails, and is not run again by itself. While it was not finished, it is a
task like any other: nothing has used the object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from ....protocol.wire import messages as m
from ....protocol.wire.failure import actor_lost
from ..feature import Feature
from ..moves.transitions import drop_attempt, err
from ..records.tasks import MEMORY, NO_WORKER, QUEUED, RELEASED, WAITING, SchedulerTask

if TYPE_CHECKING:
    from ..records.peers import WorkerHandle
    from ..state import SchedulerState

_NOT_THERE: Final = frozenset((RELEASED, WAITING, QUEUED, NO_WORKER))


def is_actor(task: SchedulerTask) -> bool:
    """Return whether the result of a task is an actor."""
    return task.group.function.function_id == m.ACTOR_FUNCTION


def note_made(state: SchedulerState, message: m.SubmitTasks) -> None:
    """Note the actors that had been made before the scheduler was restarted.

    The holders of their handles must not get other objects. Their workers may be on their way.
    """
    option_of = message.option_of or [0] * len(message.keys)
    for key, place in zip(message.keys, option_of, strict=True):
        if message.options and message.options[place].get("made"):
            task = state.tasks.get(key)
            if task is not None and is_actor(task) and task.state != MEMORY:
                state.made_actors[task] = None
    if state.recovery is None:
        fail_made(state)


def fail_made(state: SchedulerState) -> None:
    """Fail those of these actors that no worker has."""
    made, state.made_actors = state.made_actors, {}
    for task in made:
        if task.state in _NOT_THERE:
            text = (
                "is lost: its worker has not come back since the scheduler was restarted, and its "
                "state is gone with it; make a new actor with submit(..., actor=True)"
            )
            err(state, task, actor_lost(task.key, text))


def living(state: SchedulerState, ws: WorkerHandle, key: str, attempt: int) -> bool:
    """Return whether an attempt has made the actor of this key, which lives on the worker."""
    task = state.tasks.get(key)
    if task is None or not is_actor(task) or task.state != MEMORY:
        return False
    return task.attempt == attempt and task.replicas[0] is ws


def forget_copies(state: SchedulerState, task: SchedulerTask) -> None:
    """Let the other workers drop copies that count as replicas: the actor's worker is lost."""
    if is_actor(task):
        for ws in task.replicas[1:]:
            drop_attempt(state, ws, task.attempt)
            del ws.has_what[task]
            ws.nbytes -= task.nbytes
        task.replicas = task.replicas[:1]


def fail_lost(state: SchedulerState, lost: list[SchedulerTask]) -> list[SchedulerTask]:
    """Fail the actors among tasks whose last copies are gone; return the others."""
    if m.ACTOR_FUNCTION not in state.functions:
        return lost
    for task in lost:
        if is_actor(task) and task.state == MEMORY:
            text = (
                f"is lost with its worker {task.replicas[0].name}, and its state with it; make a "
                "new actor with submit(..., actor=True)"
            )
            err(state, task, actor_lost(task.key, text), reported=True)
    # With a task that has failed, others may have become unneeded.
    return [task for task in lost if task.state == MEMORY]


ACTOR_INVARIANTS: Final[dict[str, Callable[[SchedulerState], Iterable[Any]]]] = {
    "made_actors is empty but while recovering": lambda s: () if s.recovery else s.made_actors,
    "actor_waits lists attempts that have ended": lambda s: [
        (ws, attempt)
        for ws in s.workers.values()
        for attempt in ws.actor_waits
        if attempt in ws.processing or attempt in ws.zombies
    ],
}


FEATURE: Final = Feature(name="actors", invariants=ACTOR_INVARIANTS)
