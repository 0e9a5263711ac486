"""The links of new tasks to what they depend on, also of those that get their recipe late."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ....protocol.wire import messages as m
from ....protocol.wire.failure import data_lost
from ..moves.transitions import (
    abandon,
    activate,
    assigned_behind,
    err,
    move,
    release_unneeded,
    take_back,
)
from ..moves.without_recipe import change_args, change_group, make
from ..records.priority import PLACE_MASK
from ..records.tasks import (
    ERRED,
    MEMORY,
    NO_WORKER,
    PROCESSING,
    RELEASED,
    SchedulerTask,
    TaskGroup,
)
from .wanted_keys import may_come, note_made

if TYPE_CHECKING:
    from ..state import SchedulerState

_UNKNOWN: Final = (
    "task {task!r} needs it, and the scheduler does not have it: its last future was released or "
    "cancelled before this call was submitted, or its client was closed, or it finished before "
    "the scheduler was restarted; submit its call again, and keep the future until this one is"
)
_CIRCLE: Final = (
    "task {task!r} needs it and it needs that task, so neither can run; somebody submitted an "
    "earlier task of this name, so choose another key for one of them"
)


def link(
    state: SchedulerState,
    task: SchedulerTask,
    dependency_keys: list[str],
    *,
    is_ranked: bool = False,
    is_delivered: bool = False,
) -> None:
    """Tie a new task to its dependencies, put it behind the last of them, and start it.

    Inputs of an earlier generation count while they, or others like them, are still to run, unless
    these are known to be small.

    One that `is_ranked` keeps its own place. One that `is_delivered` is not started.
    """
    tasks = state.tasks
    dependencies: dict[SchedulerTask, None] = {}
    unknown: list[SchedulerTask] = []
    generation, is_late = task.group.generation, task.dependents is not None
    place = -1
    for key in dependency_keys:
        dependency = tasks.get(key)
        if dependency is None and may_come(state, key):
            dependency = make(state, key, m.NO_HASH)
            unknown.append(dependency)
        if dependency is None or dependency is task or (is_late and _needs(dependency, task)):
            release_unneeded(state, unknown)
            _fail_unlinked(state, task, key, _UNKNOWN if dependency is None else _CIRCLE)
            return
        dependencies[dependency] = None
        if dependency.group.generation == generation or _is_under_way(dependency, task):
            place = max(place, dependency.priority & PLACE_MASK)
    if place >= 0 and not is_ranked:
        task.priority = task.priority & ~PLACE_MASK | place
    task.dependencies = tuple(dependencies)
    for dependency in dependencies:
        if isinstance(others := dependency.dependents, dict):
            others[task] = None
        else:
            dependency.dependents = {others[0]: None, task: None} if others else (task,)
    if is_delivered:
        return
    activate(state, task)
    if unknown:
        note_made(state, [dependency.key for dependency in unknown])
    if task.waiting_on and next(iter(task.waiting_on)).state == PROCESSING:
        state.ahead[task] = None


def _is_under_way(dependency: SchedulerTask, task: SchedulerTask) -> bool:
    """Return whether an input of an earlier generation is one of many that are made just now.

    How many there are at a time does not matter if they are known to be small.
    """
    prefix = dependency.group.prefix
    if prefix.n_finished and not prefix.result_nbytes:
        return False
    if dependency.state != MEMORY:
        return dependency.state != ERRED
    return prefix is not task.group.prefix and prefix.n_unfinished > 0


def _fail_unlinked(state: SchedulerState, task: SchedulerTask, key: str, text: str) -> None:
    # Without its links it must never run: only a new submission can mend it.
    change_args(task, None)
    err(state, task, data_lost(key, text.format(task=task.key)))


def _needs(task: SchedulerTask, other: SchedulerTask) -> bool:
    """Return whether a task depends on another one, directly or not; O(graph), for a rare case.

    A new task cannot close a cycle. One that is linked late, when others depend on it, can.
    """
    seen = {task: None}
    stack = [task]
    while stack:
        for dependency in stack.pop().dependencies:
            if dependency is other:
                return True
            if dependency not in seen:
                seen[dependency] = None
                stack.append(dependency)
    return False


def give_recipe(
    state: SchedulerState,
    message: m.SubmitTasks,
    task: SchedulerTask,
    row: int,
    group: TaskGroup,
    priority: int,
) -> None:
    """Give a task its recipe, because a client submits its key. The client wants it."""
    names = message.dependencies[row] if message.dependencies else []
    if task.state == MEMORY and any(name not in state.tasks for name in names):
        return  # it cannot be computed again; the data is all that there is
    kind = group.task_class
    if task.state == MEMORY and not (kind.takes_thread or kind.keeps_inputs):
        return  # it is there, so no client need send it
    ws, attempt = task.worker, task.attempt
    if task.state == PROCESSING:
        assert ws is not None
        ws.zombies[attempt] = ()
        behind = list(assigned_behind([task], ws))
        for other in behind:
            abandon(state, other)
        move(state, task, RELEASED)
        take_back(state, behind)
    elif task.state in (NO_WORKER, ERRED):
        move(state, task, RELEASED)
    change_group(state, task, group)
    change_args(task, message.args[row])
    task.priority = priority
    if message.spec_hashes and not task.spec_hash:
        task.spec_hash = message.spec_hashes[row]
    link(state, task, names)
    for recipe_given in state.features.recipe_given:
        recipe_given(state, task, ws, attempt)
