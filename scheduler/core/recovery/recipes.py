"""Tasks without a recipe: keys that are wanted or read, and that no client can submit now.

A new scheduler may read of a key before the client comes back that can submit it; and a result that
a worker has kept may outlive each client that could. Scattered data has no recipe as soon as it is
at a worker (`scattered`). The task of such a key belongs to a class that no worker may run, so that
it waits. It gets its recipe when a client submits the key. What is still
without recipe and without data when the recovery ends is unknown, and what loses its only copy
later is lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ....protocol.wire import messages as m
from ....protocol.wire.failure import data_lost
from ..moves.eligibility import fill_class
from ..moves.transitions import (
    abandon,
    activate,
    assigned_behind,
    drop_attempt,
    drop_class,
    err,
    move,
    release_unneeded,
    retire_function,
    revive_function,
    take_back,
)
from ..records.peers import ClientHandle
from ..records.tasks import (
    ERRED,
    MEMORY,
    NO_WORKER,
    PROCESSING,
    RELEASED,
    WITHOUT_RECIPE,
    Function,
    SchedulerTask,
    TaskClass,
    TaskGroup,
)
from ..requests import submission, wants
from . import claims, merging

if TYPE_CHECKING:
    from ..state import SchedulerState

#: Stands for the function of all tasks without recipe.
_FUNCTION_ID: Final = m.NO_HASH
_UNKNOWN: Final = (
    "a task needs it, and neither a worker nor a client of the last scheduler has come back with "
    "it; submit its call again"
)


def make(state: SchedulerState, key: str, spec_hash: bytes) -> SchedulerTask:
    """Make a task without a recipe. It is released: the caller wants it, or ties it to another."""
    function = state.functions.get(_FUNCTION_ID)
    if function is None:
        prefix = state.prefixes.take("(submitted to an earlier scheduler)")
        function = state.functions[_FUNCTION_ID] = Function(_FUNCTION_ID, b"", prefix)
    elif function in state.idle_functions:
        revive_function(state, function)
    task_class = class_without_recipe(state)
    function.n_tasks += 1
    task_class.n_tasks += 1
    group = TaskGroup(function, task_class, state.generation, 0, state.now)
    task = state.tasks[key] = SchedulerTask(key, group, None, 0)
    if spec_hash != m.NO_HASH:
        task.spec_hash = spec_hash
    state.counters.n_released += 1
    return task


def class_without_recipe(state: SchedulerState) -> TaskClass:
    """Return the class of all tasks without a recipe; the caller adds a task to it."""
    task_class = state.classes.get(WITHOUT_RECIPE)
    if task_class is None:
        # No worker has such a name.
        task_class = TaskClass(WITHOUT_RECIPE, ("\0",), False, ())
        state.classes[WITHOUT_RECIPE] = task_class
        fill_class(state, task_class)
    return task_class


def can_make(state: SchedulerState, key: str, spec_hash: bytes = m.NO_HASH) -> bool:
    """Return whether an unknown key may turn out to be known to a worker or a client."""
    return state.recovery is not None or claims.has_use(state, key, spec_hash)


def want(state: SchedulerState, client: ClientHandle, key: str, spec_hash: bytes) -> bool:
    """Let a client want a key without a task; False if it is unknown for good."""
    if not can_make(state, key, spec_hash):
        return False
    task = make(state, key, spec_hash)
    wants.want(client, task)
    start(state, task)
    if task.state == NO_WORKER and state.recovery is None:
        wants.unwant(client, task)
        release_unneeded(state, [task])
        wants.drop_functions(state, client)
        return False
    return True


def start(state: SchedulerState, task: SchedulerTask) -> None:
    """Let a new task without recipe, which is needed now, wait; merge the rows of its key."""
    activate(state, task)
    if task.key in state.claims:
        claims.take(state, task)  # the client is sent its state in any case


def give(
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
    if task.state == MEMORY and not group.task_class.takes_thread:
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
    task.args = message.args[row]
    task.priority = priority
    if message.spec_hashes and not task.spec_hash:
        task.spec_hash = message.spec_hashes[row]
    submission.link(state, task, names)
    claims.take_all(state, [task.key])
    if ws is not None:
        spec_hash = task.spec_hash or m.NO_HASH
        if not merging.adopt(state, ws, task, attempt, spec_hash, 0, is_running=True):
            drop_attempt(state, ws, attempt)


def change_group(state: SchedulerState, task: SchedulerTask, group: TaskGroup) -> None:
    """Give a task another function and other options, with its arguments."""
    old = task.group
    task.group = group
    group.function.n_tasks += 1
    group.task_class.n_tasks += 1
    old.function.n_tasks -= 1
    if not old.function.n_tasks:
        retire_function(state, old.function)
    old.task_class.n_tasks -= 1
    drop_class(state, old.task_class)


def forget_unknown(state: SchedulerState) -> int:
    """Give up the keys that no peer has come back with; return how many clients wanted."""
    task_class = state.classes.get(WITHOUT_RECIPE)
    if task_class is None:
        return 0
    n_lost = 0
    by_client: dict[ClientHandle, list[str]] = {}
    for task in list(task_class.unrunnable):
        if task.state != NO_WORKER:
            continue  # it went with one before it
        n_lost += bool(task.wanted_by)
        for client in task.wanted_by:
            by_client.setdefault(client, []).append(task.key)
            wants.unwant(client, task)
        if task.n_waiters:
            err(state, task, data_lost(task.key, _UNKNOWN))
        else:
            release_unneeded(state, [task])
    for client, keys in by_client.items():
        state.send_client(client, m.KeysUnknown(keys=keys))
        wants.drop_functions(state, client)
    return n_lost
