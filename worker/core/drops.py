"""The end of records: dropped attempts and functions, returned tasks, a worker that ends."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ...protocol.wire.messages import (
    NOT_BEGUN,
    AttemptsReturned,
    AttemptsWithdrawn,
    DropAttempts,
    DropFunctions,
    InterruptAttempts,
    KeysUnknown,
    ReturnAttempts,
    WithdrawAttempts,
)
from .events import ForgetFunctions, InterruptRunning, WorkerEnding
from .inputs import is_awaited, move_waiters, note_missing, placeholder, settle, unpin
from .ready import worst_first
from .seats import take_back
from .tasks import (
    CANCELLED,
    EXECUTING,
    FORGOTTEN,
    MEMORY,
    MISSING,
    READY,
    RELEASED,
    WAITING,
    WorkerTask,
)
from .transitions import UNFINISHED, move

if TYPE_CHECKING:
    from .state import WorkerState


def drop(state: WorkerState, record: WorkerTask) -> None:
    """Give up an attempt. Tasks that wait for its value go on waiting."""
    if record.state == EXECUTING:
        # The slot's unstarted tasks come back; if this task is not among them, it has started.
        take_back(state, state.slots[record.slot])
    if record.state == MEMORY:
        move(state, record, RELEASED if record.pins else FORGOTTEN)
        return
    move(state, record, CANCELLED if record.state == EXECUTING else FORGOTTEN)
    if record.pins:
        move_waiters(record, placeholder(state, record.key))
    record.waiters = None
    if record.inputs and record.state == FORGOTTEN:
        unpin(state, record)


def supersede(state: WorkerState, old: WorkerTask, new: WorkerTask) -> None:
    """Make the tasks that wait for `old` wait for `new`; drop what no task uses of `old`."""
    if state.busy:
        settle(state, old, forget=False)
    if old.pins and old.state != MEMORY:
        move_waiters(old, new)
    drop(state, old)


def on_drop_attempts(state: WorkerState, message: DropAttempts) -> None:
    """Drop attempts, and report those that had not finished when no thread runs them any more.

    The scheduler drops the tasks that wait for an attempt with it, as far as it knows them. If
    others are left, it is asked for what they wait for.
    """
    by_key, by_attempt, forget = state.by_key, state.by_attempt, state.forget
    awaited: list[str] = []
    for attempt in message.attempts:
        record = by_attempt.get(attempt)
        if record is None:
            state.failures.drop(attempt)
            continue
        if record.state == MEMORY and not record.pins:  # a hot lane
            record.state = FORGOTTEN
            del by_key[record.key], by_attempt[attempt]
            forget.append(attempt)
            continue
        if state.busy:
            settle(state, record)
            if record.state == FORGOTTEN:
                continue
        is_unfinished = record.state in UNFINISHED
        if record.pins and is_unfinished:
            awaited.append(record.key)
        drop(state, record)
        if record.state == CANCELLED:
            state.owed[attempt] = None
        elif is_unfinished:
            state.ended[attempt] = NOT_BEGUN
    for key in awaited:
        left = by_key.get(key)
        if left is not None and left.state == MISSING:
            note_missing(state, left)


def on_drop_functions(state: WorkerState, message: DropFunctions) -> None:
    """Forget functions. Tasks that are here may use them until they end."""
    functions = [state.functions.pop(id) for id in message.functions if id in state.functions]
    if functions:
        state.before.append(ForgetFunctions(functions))


def on_return_attempts(state: WorkerState, message: ReturnAttempts) -> None:
    """Give back the unstarted tasks that would run last, a task only after its dependents."""
    for slot in state.slots:
        take_back(state, slot)
    # A task that waits for an unstarted task is unstarted too, so each is reached at last.
    waiting: Iterable[WorkerTask] = state.waiting.values()
    if not state.is_leaving:
        # Half of a value may have come; another worker would get it from the start.
        waiting = (task for task in waiting if not is_awaited(task))
    heap = worst_first(itertools.chain(state.offered, waiting))
    returned: list[int] = []
    while heap and len(returned) < message.count:
        attempt = -heapq.heappop(heap)[1]
        task = state.by_attempt[attempt]
        inputs = task.inputs
        drop(state, task)
        returned.append(attempt)
        for record in dict.fromkeys(inputs):
            if (
                not record.pins
                and record.state in {READY, WAITING}
                and (state.is_leaving or not is_awaited(record))
            ):
                heapq.heappush(heap, (-record.priority, -record.attempt))
    state.to_scheduler.append(AttemptsReturned(attempts=returned))


def on_withdraw_attempts(state: WorkerState, message: WithdrawAttempts) -> None:
    """Give back these attempts, those that have not started and that no task here reads.

    The first task of a thread that wakes up for it counts as started. Else a call that could begin
    at once would be cancelled or not, depending on how fast the threads of this machine wake up.
    """
    returned: list[int] = []
    started: list[int] = []
    for attempt in message.attempts:
        task = state.by_attempt.get(attempt)
        if task is not None and task.state == EXECUTING:
            slot = state.slots[task.slot]
            wakes_up = len(slot.chunk) == slot.n_executing
            take_back(state, slot, n_kept=int(wakes_up))  # the others are ready again
        if task is None or task.pins or task.state not in {READY, WAITING}:
            started.append(attempt)
            continue
        drop(state, task)
        returned.append(attempt)
    state.to_scheduler.append(AttemptsWithdrawn(attempts=returned, started=started))


def on_interrupt_attempts(state: WorkerState, message: InterruptAttempts) -> None:
    """Have dropped attempts interrupted that still run."""
    running = [attempt for attempt in message.attempts if attempt in state.cancelled]
    if running:
        state.after.append(InterruptRunning(running))


def on_keys_unknown(state: WorkerState, message: KeysUnknown) -> None:
    """Give back the tasks that wait for keys which are nowhere, directly or not.

    The scheduler does not know what they read: it has adopted them without their recipes.
    """
    lacking = [state.by_key[key] for key in message.keys if key in state.by_key]
    stack = [record for record in lacking if record.state == MISSING]
    tasks: dict[WorkerTask, None] = {}
    while stack:
        for task in stack.pop().waiters or ():
            if task.state == WAITING and task not in tasks:
                tasks[task] = None
                stack.append(task)
    for task in tasks:
        drop(state, task)
    if tasks:
        returned = [task.attempt for task in tasks]
        state.to_scheduler.append(AttemptsReturned(attempts=returned))


def on_ending(state: WorkerState, event: WorkerEnding) -> None:
    """Forget everything. Tasks that are being executed are cancelled; no other is started."""
    state.owed.clear()
    for end_feature in state.features.ending:
        end_feature(state)
    # Tasks first: their pins on copies, and the placeholders, go with them.
    records = list(state.by_attempt.values())
    for of_tasks in (True, False):
        for record in records:
            is_task = record.state in UNFINISHED
            if is_task is of_tasks and state.by_attempt.get(record.attempt) is record:
                drop(state, record)
    for attempt in list(state.failures.by_attempt):
        state.failures.drop(attempt)
    functions = list(state.functions.values())
    state.functions.clear()
    if functions:
        state.before.append(ForgetFunctions(functions))
    state.to_scheduler.clear()
    state.missing.clear()
    state.ended.clear()
