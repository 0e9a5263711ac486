"""Submits tasks again after those of their inputs that the scheduler lacks. A part of the core.

A record keeps the states of its inputs (`lineage`), also when their futures are gone. An input
without a future is submitted for the task that reads it, and released right after. If it or that
task has finished it is not to run for its own sake, and neither is a task whose result is here:
such a row is *delivered*, and runs only when the scheduler needs it for another task.
"""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING

from .recipes import has_recipe, recipe_of
from .releasing import release
from .submitting import add_row, close_submissions, submit
from .tasks import (
    FINISHED,
    GONE,
    KEPT,
    PENDING,
    RELEASED,
    SENT,
    UNSENT,
    FutureState,
    TaskRecord,
    is_unreadable,
)
from .transitions import drop, move

if TYPE_CHECKING:
    from ...protocol.wire.options import TaskOptions
    from .state import ClientState
    from .table import FutureTable


def submit_with_inputs(
    core: ClientState, state: FutureState, caller: tuple[int, str] | None = None
) -> FutureState | None:
    """Submit a state that is unsent or kept, behind its inputs.

    Args:
        core: the client's.
        state: it is unsent or kept.
        caller: on whose behalf all of them are submitted; None = the one of the state, which is
            (0, "") outside of tasks: then there is none.

    Returns:
        None; or an input that failed, because of which the state was not submitted.
    """
    table = core.table.states
    # Depth first, without recursion: a chain may be a million long. The last item: it has no
    # future, and is an input only of tasks that have finished, or has itself.
    stack: list[tuple[FutureState, TaskRecord | None, bool]] = [(state, None, False)]
    while stack:
        current, task, is_done = stack.pop()
        if current.phase == SENT or (current.phase == GONE and current.key in core.temporary):
            continue
        if task is not None:
            options = task.options
            for resubmitting in core.features.resubmitting:
                options = resubmitting(core, options, is_done or current.status == FINISHED)
            is_made = current.status == FINISHED and task.function.id in core.features.unique
            if current.phase == GONE:
                # Not in the table, so nothing else would release it.
                add_row(core, task, current.key, _marked(options, is_done, is_made))
                core.temporary[current.key] = None
            else:
                is_delivered = current.has_data or is_unreadable(current)
                submit(core, current, task, _marked(options, is_delivered, is_made))
                if core.recipes.is_constant(current):
                    # The scheduler may have the key as a task of the user's function, and no other
                    # that needs this one.
                    drop(current)
            continue
        task = recipe_of(core, current)
        if task is None:
            continue
        if caller is None:
            caller = task.options.caller
        elif caller[0] and task.options.caller != caller:
            task = task.for_caller(caller)
        stack.append((current, task, is_done))
        is_done = is_done or current.status == FINISHED
        for needed in reversed(task.lineage):
            again = table.get(needed.key) if needed.phase == GONE else None
            if again is not None and (again.phase == SENT or has_recipe(core, again)):
                needed = again  # it was submitted again, as another state
            if is_doomed(needed):
                return needed
            if needed.phase in (GONE, UNSENT, KEPT) and has_recipe(core, needed):
                stack.append((needed, None, is_done or needed.status == FINISHED))
    return None


def _marked(options: TaskOptions, is_delivered: bool, is_made: bool) -> TaskOptions:
    """Return the options of a task whose result is here, or of a unique one that was made.

    The first does not run before another task needs it; the second never does.
    """
    if is_delivered or is_made:
        return options.changed(delivered=is_delivered, made=is_made)
    return options


def supply(core: ClientState, states: list[FutureState], caller: tuple[int, str]) -> None:
    """Submit those of the inputs of a new task that a new scheduler does not have."""
    for state in states:
        if not core.is_linked and state.phase == SENT:
            core.lent[state] = None
        if state.phase != KEPT:
            continue
        if core.is_linked:
            # Without a failed input that it had, the scheduler fails the new task.
            submit_with_inputs(core, state, caller)
        elif has_recipe(core, state):
            move(core, state, UNSENT)


def supply_again(core: ClientState, states: Container[FutureState]) -> None:
    """Submit those of these states, whose results are here, that tasks wait for which were sent."""
    for reader in core.table.snapshot():
        spec = reader.spec
        if reader.phase != SENT or reader.status != PENDING or spec is None or spec.args is None:
            continue
        task = spec.row(reader.key)
        supply(core, [one for one in task.lineage if one in states], task.options.caller)
    release_temporary(core)


def release_temporary(core: ClientState) -> None:
    """Release the inputs that were submitted for the tasks that read them."""
    temporary, core.temporary = core.temporary, {}
    close_submissions(core)
    # A key that was only requested again, by another future, stays wanted.
    release(core, [key for key in temporary if not is_kept_there(core.table, key)])


def is_doomed(state: FutureState) -> bool:
    """Return whether dependents of this state cannot be computed: it failed, or was cancelled."""
    failure = state.failure
    return (
        state.phase == GONE
        and failure is not None
        and failure[-1] != RELEASED
        and not is_unreadable(state)
    )


def is_kept_there(table: FutureTable, key: str) -> bool:
    """Return whether there is a state of this key for which the scheduler is to keep the task."""
    state = table.states.get(key)
    return state is not None and state.phase not in (GONE, KEPT)
