"""The fused lanes of the worker's core once more, as plain moves of the table, one task at a time.

`TwinHands` gives each event to the real core and to a twin that uses these, and compares the two.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from tests.worker.builders import Hands
from weft.protocol.wire.messages import NOT_BEGUN, AssignTasks, DropAttempts
from weft.worker.core import assignment, copies, slots
from weft.worker.core.drops import drop
from weft.worker.core.events import ChunkDone, ForgetFunctions, WorkerEvent
from weft.worker.core.features import FEATURES
from weft.worker.core.features.timeouts import TimeLimits
from weft.worker.core.inputs import note_missing, placeholder, unpin
from weft.worker.core.offered import amounts_of
from weft.worker.core.ready import ReadyTasks
from weft.worker.core.state import WorkerState
from weft.worker.core.tasks import (
    CANCELLED,
    EXECUTING,
    MEMORY,
    MISSING,
    READY,
    WAITING,
    Slot,
    WorkerTask,
)
from weft.worker.core.transitions import UNFINISHED, move
from weft.worker.core.validate import validate


def slow_on_assign_tasks(state: WorkerState, message: AssignTasks) -> None:
    """Create each task, tie it to its inputs, move it to waiting or ready."""
    assignment._check(message)
    functions = [
        assignment.function_of(state, id, blob)
        for id, blob in zip(message.functions, message.function_blobs, strict=True)
    ]
    unknown = []
    options = message.function_options or [{}] * len(functions)
    amounts = [amounts_of(each.get("resources", {})) for each in options]
    for row, key in enumerate(message.keys):
        attempt, index = message.attempts[row], message.function_of[row]
        if attempt in {*state.by_attempt, *state.cancelled, *state.released}:
            continue
        task = WorkerTask(
            key,
            attempt,
            message.priorities[row],
            functions[index],
            message.args[row] or b"",
            message.wanted[row],
            message.function_clients[index],
        )
        task.arrived = state.now
        if amounts[index]:
            state.offered.asked[attempt] = amounts[index]
        if key in state.by_key:
            assignment.supersede(state, state.by_key[key], task)
        inputs = []
        for name in message.dependencies[row] if message.dependencies else []:
            if name not in state.by_key:
                unknown.append(placeholder(state, name))
            inputs.append(state.by_key[name])
        for record in inputs:
            record.pins += 1
            if record.state != MEMORY:
                record.waiters = [*(record.waiters or ()), task]
                task.n_waiting_on += 1
        task.inputs = inputs or ()
        move(state, task, WAITING if task.n_waiting_on else READY)
    for column, follow in state.features.columns:
        if getattr(message, column):
            follow(state, message)
    assignment.report_unknown(state, message, unknown)


def slow_wake(state: WorkerState, record: WorkerTask) -> None:
    waiters, record.waiters = record.waiters, None
    for task in waiters or ():
        if task.state == WAITING:
            task.n_waiting_on -= 1
            if not task.n_waiting_on:
                move(state, task, READY)


def slow_fill(state: WorkerState, slot: Slot, ready: ReadyTasks, share: int) -> None:
    """Move tasks one by one until the chunk is full."""
    left_us = slots.CHUNK_US
    for n in range(min(share, ready.turn())):
        task = ready.pop()
        estimate_us = task.function.estimate_us
        if n and not 0 < estimate_us <= left_us:
            ready.push(task)
            return
        move(state, task, EXECUTING)
        task.slot = slot.index
        slot.n_executing += 1
        if not n:
            slots._note_start(state, slot, task)
        slot.chunk.append(task)
        left_us -= estimate_us
        if not estimate_us:
            return


def slow_finish(state: WorkerState, slot: Slot, event: ChunkDone) -> None:
    """Move finished tasks one by one, and learn the duration of each."""
    for attempt, nbytes, duration_us in zip(
        event.attempts, event.nbytes, event.durations_us, strict=True
    ):
        task = state.by_attempt[attempt]
        move(state, task, MEMORY)
        task.nbytes = nbytes
        task.args = b""
        function = task.function
        error_us = duration_us + 1.0 - function.estimate_us
        share = 1.0 if not function.estimate_us else 0.5 if error_us < 1 else 0.1
        function.estimate_us += error_us * share
        unpin(state, task)
        slow_wake(state, task)


def slow_on_drop_attempts(state: WorkerState, message: DropAttempts) -> None:
    awaited = []
    for attempt in message.attempts:
        record = state.by_attempt.get(attempt)
        if record is not None:
            is_unfinished = record.state in UNFINISHED
            if is_unfinished and record.pins:
                awaited.append(record.key)
            drop(state, record)
            if record.state == CANCELLED:
                state.owed[attempt] = None
            elif is_unfinished:
                state.ended[attempt] = NOT_BEGUN
    for key in awaited:
        left = state.by_key.get(key)
        if left is not None and left.state == MISSING:
            note_missing(state, left)


@contextmanager
def slow_lanes(state: WorkerState) -> Iterator[None]:
    """Let a core use these instead of the fused lanes."""
    handlers = {AssignTasks: slow_on_assign_tasks, DropAttempts: slow_on_drop_attempts}
    with (
        patch.dict(state.messages, handlers),
        patch.object(slots, "fill", slow_fill),
        patch.object(slots, "finish", slow_finish),
        patch.object(copies, "wake", slow_wake),
    ):
        yield


def shown(state: WorkerState) -> list[Any]:
    """Return a description that is equal for two equal cores."""
    records = [*state.by_key.values(), *state.cancelled.values(), *state.released.values()]
    return [
        sorted(
            (
                *(record.key, record.attempt, record.state, record.pins, record.n_waiting_on),
                *(record.slot, record.nbytes, record.args, list(record.holders)),
                [(read.key, read.attempt) for read in record.inputs],
                [task.key for task in record.waiters or () if task.state == WAITING],
                record.function.estimate_us,
            )
            for record in records
        ),
        *(list(index) for index in (state.waiting, state.cancelled, state.released, state.owed)),
        sorted(task.attempt for task in state.offered),
        sorted(state.offered.free.items()),
        [(attempt, limit.timeout_us) for attempt, limit in state.record(TimeLimits).items()],
        [(slot.busy, slot.n_executing, repr(slot.chunk)) for slot in state.slots],
        [slot.index for slot in state.idle],
        [(peer.address, list(map(repr, peer.queue))) for peer in state.fetching.waiting],
        [
            action if not isinstance(action, ForgetFunctions) else [f.id for f in action.functions]
            for action in state.before
        ],
        state.to_scheduler,
        state.after,
    ]


class TwinHands(Hands):
    """Hands that lead a second core, without fused lanes, through the same events."""

    def __init__(self, nthreads: int = 1) -> None:
        super().__init__(nthreads)
        self.twin = WorkerState(nthreads, "tcp://me", FEATURES, self.state.offered.total)

    def take_in(self, event: WorkerEvent) -> None:
        with slow_lanes(self.twin):
            self.twin.handle(copy.deepcopy(event), 0.0)
        super().take_in(event)
        assert repr(shown(self.twin)) == repr(shown(self.state))
        validate(self.twin)
        self.twin.before, self.twin.to_scheduler, self.twin.after = [], [], []

    def start(self, slot: int = 0) -> WorkerTask | None:
        task = super().start(slot)
        if task is not None:
            assert self.twin.slots[slot].chunk.popleft().attempt == task.attempt
        return task
