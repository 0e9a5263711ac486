"""Tasks without a recipe: keys that are wanted or read, and that no client can submit now.

The record of such a key is a task of a class that no worker may run, so that it waits. A new
scheduler may read of a key before the client comes back that can submit it, and a result that a
worker has kept may outlive each client that could. A value that clients bring has no recipe as soon
as it is at a worker. The task gets its recipe when a client submits the key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ....protocol.wire import messages as m
from ....protocol.wire.payload import Blob, nbytes_of
from ..records.tasks import Function, SchedulerTask, TaskClass, TaskGroup
from .eligibility import fill_class
from .transitions import drop_class, retire_function, revive_function

if TYPE_CHECKING:
    from ..state import SchedulerState

#: Stands for the function of all tasks without a recipe.
_FUNCTION_ID: Final = m.NO_HASH
#: The key of their class; no submission makes one of this form.
CLASS_KEY: Final[tuple[object, ...]] = ("without a recipe",)


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
    user = state.users[""]
    user.n_rows += 1
    generation = state.ranks.generation
    group = TaskGroup(function, task_class, generation, 0, state.now, user=user)
    task = state.tasks[key] = SchedulerTask(key, group, None, 0)
    if spec_hash != m.NO_HASH:
        task.spec_hash = spec_hash
    state.counters.n_released += 1
    return task


def change_args(task: SchedulerTask, args: Blob | None) -> None:
    """Give a task other arguments, or drop them."""
    task.group.user.nbytes += nbytes_of(args) - nbytes_of(task.args)
    task.args = args


def class_without_recipe(state: SchedulerState) -> TaskClass:
    """Return the class of all tasks without a recipe; the caller adds a task to it."""
    task_class = state.classes.get(CLASS_KEY)
    if task_class is None:
        # No worker has such a name.
        task_class = TaskClass(CLASS_KEY, ("\0",), False, (), has_recipes=False)
        state.classes[CLASS_KEY] = task_class
        fill_class(state, task_class)
    return task_class


def change_group(state: SchedulerState, task: SchedulerTask, group: TaskGroup) -> None:
    """Give a task another function and other options, with its arguments."""
    old = task.group
    task.group = group
    nbytes = nbytes_of(task.args)
    old.user.n_rows -= 1
    old.user.nbytes -= nbytes
    group.user.n_rows += 1
    group.user.nbytes += nbytes
    group.function.n_tasks += 1
    group.task_class.n_tasks += 1
    old.function.n_tasks -= 1
    if not old.function.n_tasks:
        retire_function(state, old.function)
    old.task_class.n_tasks -= 1
    drop_class(state, old.task_class)
