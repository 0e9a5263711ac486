"""Actors, as far as the scheduler knows them: tasks whose results are made once.

The result is a handle of an object on the worker that made it. Copies of the handle on other
workers are of no use without that, so they are no replicas: each is dropped when the tasks that
read it have ended. Only over a restart, in which the worker of the actor may come back later than
a copy, one may be taken for a replica, and for the home of the actor until the true one shows that
the actor lives there. If the worker is lost, the object is lost with all that it has learned, so
the task fails, and is not run again by itself. While it was not finished, it is a task like any
other: nothing has used the object.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

from ....protocol.wire import messages as m
from ....protocol.wire.failure import Failure, actor_lost, not_understood
from ....protocol.wire.options import TaskOptions
from ....protocol.wire.question_arguments import Info
from ..moves.transitions import err
from ..records.tasks import MEMORY, NO_WORKER, QUEUED, RELEASED, WAITING, SchedulerTask

if TYPE_CHECKING:
    from ..records.peers import ClientHandle, WorkerHandle
    from ..state import SchedulerState

_NOT_THERE: Final = frozenset((RELEASED, WAITING, QUEUED, NO_WORKER))


def is_actor(task: SchedulerTask) -> bool:
    """Return whether the result of a task is an actor."""
    return task.group.function.function_id == m.ACTOR_FUNCTION


def refuse(
    state: SchedulerState,
    client: ClientHandle,
    message: m.SubmitTasks,
    refused: Collection[int],
) -> Mapping[int, Failure]:
    """Return the actors that are to be of a category: how much memory they will use is not known.

    Their clients refuse that before.
    """
    if m.ACTOR_FUNCTION not in message.functions or not any(map(_has_category, message.options)):
        return {}
    option_of = message.option_of or [0] * len(message.keys)
    return {
        row: not_understood(message.keys[row], ["an actor's category"])
        for row, (place, function) in enumerate(zip(option_of, message.function_of, strict=True))
        if message.functions[function] == m.ACTOR_FUNCTION
        and _has_category(message.options[place])
        and row not in refused
    }


def _has_category(record: Mapping[str, Any]) -> bool:
    return bool(record.get("category"))


class NamedActors(dict[SchedulerTask, None]):
    """{task: None} of actors of which a holder has come, also of those without a recipe yet."""


def on_wanted(state: SchedulerState, task: SchedulerTask) -> None:
    """Note an actor: its owner, with which its recipe comes, may come later than a holder."""
    if not is_actor(task):
        state.record(NamedActors)[task] = None


def may_have_copies(state: SchedulerState, task: SchedulerTask) -> bool:
    """Return whether another worker's copy of a result is as good as the first one."""
    return not (is_actor(task) or task in state.record(NamedActors))


def on_submitted(state: SchedulerState, message: m.SubmitTasks) -> None:
    """Fail the submitted actors that had been made before the scheduler was restarted.

    The holders of their handles must not get other objects. Their workers may be on their way.
    """
    if not state.awaits_peers:
        _fail_made(state, [state.tasks[key] for key in message.keys if key in state.tasks])


def on_assignment_begun(state: SchedulerState) -> None:
    """Fail the actors that had been made before, and that no worker has come back with.

    A worker that has made one has the function of actors. Others have copies of its handle.
    """
    if m.ACTOR_FUNCTION not in state.functions:
        return
    _fail_made(state, list(state.tasks.values()))
    for task in state.tasks.values():
        if task.state == MEMORY and len(task.replicas) > 1 and is_actor(task):
            makers = task.group.function.workers
            task.replicas = tuple(sorted(task.replicas, key=lambda ws: ws not in makers))


def _fail_made(state: SchedulerState, tasks: list[SchedulerTask]) -> None:
    for task in tasks:
        if task.group.options.made and task.state in _NOT_THERE and is_actor(task):
            text = (
                "is lost: its worker has not come back since the scheduler was restarted, and its "
                "state is gone with it; make a new actor with submit(..., actor=True)"
            )
            err(state, task, actor_lost(task.key, text))


def confirm_living(state: SchedulerState, ws: WorkerHandle, key: str, attempt: int) -> bool:
    """Return whether an attempt has made the actor of this key, which lives on this worker.

    The worker states that, as only the one can where the actor is: it is the first replica from now
    on. Over a restart a copy may have come first.
    """
    task = state.tasks.get(key)
    if task is None or not is_actor(task) or task.state != MEMORY:
        return False
    if task.attempt != attempt or ws not in task.replicas:
        return False
    if task.replicas[0] is not ws:
        task.replicas = (ws, *(other for other in task.replicas if other is not ws))
    return True


def maker_of(state: SchedulerState, options: TaskOptions) -> SchedulerTask | None:
    """Return the task that has made the actor whose method submits."""
    return state.tasks.get(options.actor)


def may_submit(state: SchedulerState, ws: WorkerHandle, options: Info, attempt: int) -> bool:
    """Return whether an attempt has made the actor that these options of a submission name."""
    return "actor" in options and confirm_living(state, ws, options["actor"], attempt)


def fail_lost(state: SchedulerState, lost: list[SchedulerTask]) -> list[SchedulerTask]:
    """Fail the actors among tasks whose last copies are gone; return the others."""
    if m.ACTOR_FUNCTION not in state.functions:
        return lost
    for task in lost:
        if is_actor(task) and task.state == MEMORY:
            ws = task.replicas[0]
            how = (
                f"has ended with its worker {ws.name}, which had to leave: an actor cannot be moved"
                if ws.is_leaving
                else f"is lost with its worker {ws.name}"
            )
            text = f"{how}, and its state with it; make a new actor with submit(..., actor=True)"
            err(state, task, actor_lost(task.key, text), reported=True)
    # With a task that has failed, others may have become unneeded.
    return [task for task in lost if task.state == MEMORY]
