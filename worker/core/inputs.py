"""The inputs of tasks: links to them, pins on them, and placeholders for unknown ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .tasks import (
    FETCH,
    FORGOTTEN,
    MEMORY,
    MISSING,
    NO_ATTEMPT,
    NO_FUNCTION,
    READY,
    RELEASED,
    WAITING,
    WorkerTask,
)
from .transitions import move

if TYPE_CHECKING:
    from .state import WorkerState


#: States of records that are here only because tasks read them.
_KEPT_BY_PINS: Final = frozenset((RELEASED, FETCH, MISSING))


def link(state: WorkerState, task: WorkerTask, keys: list[str], unknown: list[WorkerTask]) -> None:
    """Let a new task read `keys`, and wait for those that are not in memory (a hot lane).

    Placeholders are made for keys that are not here, and appended to `unknown`.
    """
    by_key = state.by_key
    inputs = []
    n_waiting_on = 0
    for key in keys:
        record = by_key.get(key)
        if record is None:
            record = placeholder(state, key)
            unknown.append(record)
        inputs.append(record)
        record.pins += 1
        if record.state != MEMORY:
            n_waiting_on += 1
            if record.waiters is None:
                record.waiters = [task]
            else:
                record.waiters.append(task)
    task.inputs = inputs
    if n_waiting_on:
        task.n_waiting_on = n_waiting_on
        task.state = WAITING
        state.waiting[task.attempt] = task
    else:
        task.state = READY
        if state.offered.asked:
            state.offered.push(task)
        else:
            state.ready.push(task)


def placeholder(state: WorkerState, key: str) -> WorkerTask:
    """Return a new record in state "missing", for a key that no record is filed under."""
    record = WorkerTask(key, NO_ATTEMPT, 0, NO_FUNCTION, b"", 0)
    move(state, record, MISSING)
    return record


def note_missing(
    state: WorkerState, record: WorkerTask, holder: str = "", *, unreachable: bool = False
) -> None:
    """Report, at the end of the event, that `holder` did not give what `record` stands for.

    Without a holder: none is known.
    """
    keys, attempts = state.missing.setdefault((holder or state.address, unreachable), ([], []))
    keys.append(record.key)
    attempts.append(0 if record.attempt == NO_ATTEMPT else record.attempt)


def settle(state: WorkerState, record: WorkerTask, *, forget: bool = True) -> None:
    """Let features know that a record is in memory, dropped or replaced, or will not come."""
    for name, settled in state.features.settled:
        if name in state.busy:
            settled(state, record, forget)


def is_awaited(task: WorkerTask) -> bool:
    """Return whether a task waits for a value that an event of a feature brings."""
    return task.state == WAITING and task.function.filing is not None


def move_waiters(old: WorkerTask, new: WorkerTask) -> None:
    """Let the tasks that wait for `old` wait for `new`. Neither is in memory, or only `new` is.

    All tasks that pin a record that is not in memory are waiting for it.
    """
    waiters = [task for task in old.waiters or () if task.state == WAITING]
    old.waiters = None
    for task in waiters:
        task.inputs = [new if record is old else record for record in task.inputs]
    new.pins += old.pins
    old.pins = 0
    new.waiters = waiters if new.waiters is None else new.waiters + waiters


def wake(state: WorkerState, record: WorkerTask) -> None:
    """Count `record`, now in memory, as arrived for the tasks that wait for it (a hot lane)."""
    waiters = record.waiters
    record.waiters = None
    for task in waiters or ():
        if task.state == WAITING:
            task.n_waiting_on -= 1
            if not task.n_waiting_on:
                del state.waiting[task.attempt]
                task.state = READY
                if state.offered.asked:
                    state.offered.push(task)
                else:
                    state.ready.push(task)


def unpin(state: WorkerState, task: WorkerTask) -> None:
    """Release the inputs of a task that no longer needs them."""
    inputs = task.inputs
    task.inputs = ()
    for record in inputs:
        record.pins -= 1
        if record.pins or record.state == MEMORY:
            continue
        if record.state in _KEPT_BY_PINS:
            move(state, record, FORGOTTEN)
