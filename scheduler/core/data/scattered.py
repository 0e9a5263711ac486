"""Scattered data: values that clients put at workers, and that nothing can make again.

A scattered value comes as a large argument does (`puts`): a task without a function is assigned to
a worker, and its client puts the value there. What differs:

- Its option `scattered` says that it takes no thread of its worker, so it does not wait for one: it
  goes at once to the workers with the fewest bytes, in turns, also where all threads are busy.
- When the value is there, the client keeps it no longer. So the task becomes one without a recipe
  (`moves/without_recipe.py`): if the last copy is lost, the key fails, and so does each task that
  needs it. If a client scatters the same data again, the key has a recipe again until the value is
  there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from ....protocol.wire import messages as m
from ..invariants.checking import differences, tasks_in
from ..memory.set_aside import place_scattered
from ..moves.without_recipe import change_args, change_group, class_without_recipe
from ..records.peers import WorkerHandle
from ..records.tasks import MEMORY, SchedulerTask

if TYPE_CHECKING:
    from ..state import SchedulerState


def place(state: SchedulerState, give: Callable[[SchedulerTask, WorkerHandle], None]) -> None:
    """Give all queued scattered data to workers, whatever these run."""
    for task_class in state.threadless:
        if task_class not in state.ready or task_class.keeps_inputs:
            continue
        place_scattered(state, task_class, give)
        if not task_class.queue.n:
            state.ready.remove(task_class)


def note_stored(state: SchedulerState, tasks: Iterable[SchedulerTask]) -> None:
    """Take the recipes away from scattered data that is at a worker now."""
    for task in tasks:
        group = task.group
        if group.task_class.takes_thread or task.state != MEMORY:
            continue
        if group.function.function_id != m.PUT_FUNCTION:
            continue  # its client has marked a call as data
        task_class = class_without_recipe(state)
        change_group(state, task, group.in_class(task_class))
        change_args(task, None)


# -- invariants ------------------------------------------------------------------------------------
#: {what holds: what breaks it}
SCATTERED_INVARIANTS: Final[dict[str, Callable[[SchedulerState], Iterable[Any]]]] = {
    "threadless lists the classes whose tasks take no thread": lambda s: differences(
        s.threadless, [c for c in s.classes.values() if not c.takes_thread]
    ),
    "a task without a recipe has no arguments": lambda s: [
        t for t in tasks_in(s) if t.is_without_recipe and t.args is not None
    ],
}
