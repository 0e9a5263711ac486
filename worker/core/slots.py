"""Slots: idle ones get chunks of ready tasks, and unstarted tasks can be taken back."""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING

from ...protocol.wire.failure import RESCHEDULE, is_interruption
from ...protocol.wire.messages import INTERRUPTED, RETURNED, AttemptsErred
from . import seats
from .events import ChunkDone, Run
from .inputs import move_waiters, placeholder, unpin, wake
from .offered import cores_of
from .ready import ReadyTasks
from .reports import report_finished
from .tasks import EXECUTING, FORGOTTEN, MEMORY, SEATED, Slot, WorkerTask
from .transitions import move

if TYPE_CHECKING:
    from .state import WorkerState

#: Predicted duration of a chunk, which is also how long a result waits for the rest of its chunk.
CHUNK_US = 1000.0


def dispatch(state: WorkerState, here: Slot | None) -> None:
    """Give idle slots work, first one that asks for it.

    The thread of `here` looks at its chunk next, also if its slot had no seat meanwhile. So it is
    not to be woken: it would wake once more when it has none.
    """
    idle, ready, offered = state.idle, state.ready, state.offered
    while offered.n:
        found = offered.next_queue(len(idle), state.now, may_keep=seats.may_keep(state))
        if found is None:
            if state.seats.n_kept and seats.open_kept(state, offered.n_seats_missing(len(idle))):
                continue
            offered.note_passed(len(idle), state.now)
            return
        amounts, queue = found
        n = queue.n
        takes_seat = cores_of(amounts) is None
        share = -(-n // offered.n_at_once(amounts, len(idle) if takes_seat else n))
        slot = seats.seat_for(state, 1 if takes_seat else offered.n_seats_for(amounts))
        slot.busy = True
        offered.take(slot, amounts)
        fill(state, slot, queue, share)
        offered.served(amounts, n - queue.n)
        if slot is not here:
            state.before.append(Run(slot.index))
    while idle and ready.n:
        share = -(-ready.n // len(idle))
        slot, _ = idle.popitem()
        slot.busy = True
        fill(state, slot, ready, share)
        if slot is not here:
            state.before.append(Run(slot.index))


def fill(state: WorkerState, slot: Slot, ready: ReadyTasks, share: int) -> None:
    """Move ready tasks of one client into an empty chunk: one, or 1 ms of them (a hot lane)."""
    share = min(share, ready.turn())
    left_us = CHUNK_US
    awaited = state.awaited
    tasks: list[WorkerTask] = []
    while len(tasks) < share:
        task = ready.pop()
        estimate_us = task.function.estimate_us
        if tasks and (not estimate_us or estimate_us > left_us):
            ready.push(task)
            break
        task.state = EXECUTING
        task.slot = slot.index
        tasks.append(task)
        if not estimate_us:
            break
        left_us -= estimate_us
        if awaited and task.attempt in awaited:
            break
    slot.n_executing += len(tasks)
    _note_start(state, slot, tasks[0])
    slot.chunk.extend(tasks)


def _note_start(state: WorkerState, slot: Slot, first: WorkerTask) -> None:
    """Note how long the first task of a chunk has waited. The others begin within 1 ms of it."""
    arrived = first.arrived
    slot.queued_us = int((state.now - arrived) * 1e6)
    slot.fetched_us = int((first.fetched - arrived) * 1e6) if first.fetched else 0


def feed(state: WorkerState, asking: Slot) -> None:
    """Take half of another slot's unstarted tasks, for a slot that finds nothing ready.

    The task that the other slot executes may be long.
    """
    if state.offered.passed and seats.may_keep(state) and state.offered.keeps_seats(state.now):
        return
    victim, n_unstarted = asking, 0
    for slot in state.slots:
        if (
            len(slot.chunk) > n_unstarted
            and state.offered.fit(slot.amounts)
            and cores_of(slot.amounts) is None
        ):
            victim, n_unstarted = slot, len(slot.chunk)
    n = -(-n_unstarted // 2)
    if n == n_unstarted and victim.n_executing == n_unstarted:
        return  # it wakes up for its one task; two slots could take that from each other for ever
    taken = 0
    for _ in range(n):
        try:
            task = victim.chunk.pop()
        except IndexError:  # its thread was faster
            break
        task.slot = asking.index
        asking.chunk.appendleft(task)
        taken += 1
    if taken:
        state.offered.take(asking, victim.amounts)
        _note_start(state, asking, asking.chunk[0])
        victim.n_executing -= taken
        asking.n_executing += taken
        asking.busy = True
        del state.idle[asking]


def on_chunk_done(state: WorkerState, event: ChunkDone) -> Slot | None:
    """File the attempts that a slot has finished; return the slot if it asks for more."""
    slot = state.slots[event.slot]
    if state.busy:
        for name, chunk_done in state.features.chunk_done:
            if name in state.busy:
                chunk_done(state, event, slot)
    if state.cancelled:
        _end_cancelled(state, event)
    if event.attempts:
        finish(state, slot, event)
        report_finished(state.to_scheduler, event, slot)
    if event.failed_attempts:
        _end_failed(state, slot, event)
    if not event.finished:
        return None
    if slot.amounts:
        cores = cores_of(slot.amounts)
        n_taken = state.offered.give_back(slot)
        if cores is not None and not seats.on_cores_free(state, slot, cores, n_taken):
            return None
    if slot.place != SEATED:
        return slot if seats.on_done_without_seat(state, slot) else None
    if state.returning:
        seats.pass_on(state, slot)
        return None
    slot.busy = False
    state.idle[slot] = None
    return slot


def finish(state: WorkerState, slot: Slot, event: ChunkDone) -> None:
    """Move the attempts whose values are in the store to memory (a hot lane)."""
    by_attempt = state.by_attempt
    slot.n_executing -= len(event.attempts)
    if state.busy:
        for name, attempts_ended in state.features.attempts_ended:
            if name in state.busy:
                attempts_ended(state, event.attempts)
    if state.offered.asked:
        for attempt in event.attempts:
            state.offered.asked.pop(attempt, None)
    for attempt, nbytes, duration_us in zip(
        event.attempts, event.nbytes, event.durations_us, strict=True
    ):
        task = by_attempt[attempt]
        task.state = MEMORY
        task.nbytes = nbytes
        task.slot = -1
        task.args = b""
        function = task.function
        estimate_us = function.estimate_us
        if duration_us < estimate_us:
            function.estimate_us += (duration_us + 1 - estimate_us) * 0.5
        elif estimate_us:
            function.estimate_us += (duration_us + 1 - estimate_us) * 0.1
        else:
            function.estimate_us = duration_us + 1.0
        if task.inputs:
            unpin(state, task)
        if task.waiters is not None:
            wake(state, task)


def _end_failed(state: WorkerState, slot: Slot, event: ChunkDone) -> None:
    for attempt, failure in zip(event.failed_attempts, event.failures, strict=True):
        task = state.by_attempt[attempt]
        if failure[0] != RESCHEDULE:  # which is no failure: the next scheduler need not know it
            state.failures.keep(task, failure)
        move(state, task, FORGOTTEN)
        if task.pins:
            # The scheduler decides about its dependents; until then they wait.
            move_waiters(task, placeholder(state, task.key))
        if task.inputs:
            unpin(state, task)
    state.to_scheduler.append(
        AttemptsErred(
            attempts=event.failed_attempts,
            durations_us=event.failed_durations_us,
            failures=event.failures,
            queued_us=[slot.queued_us] * len(event.failures),
            fetched_us=[slot.fetched_us] * len(event.failures) if slot.fetched_us else [],
        )
    )


def _end_cancelled(state: WorkerState, event: ChunkDone) -> None:
    for attempt, end in _take_out(event, state.cancelled).items():
        task = state.cancelled[attempt]
        if state.owed.pop(attempt, False) is None:
            state.ended[attempt] = end
        move(state, task, FORGOTTEN)
        if task.inputs:
            unpin(state, task)


def _take_out(event: ChunkDone, cancelled: Container[int]) -> dict[int, int]:
    """Take the attempts that are in `cancelled` out of the event's columns.

    Return them, and how each has ended.
    """
    attempts, failed = event.attempts, event.failed_attempts
    ended = {attempt: RETURNED for attempt in attempts if attempt in cancelled}
    for attempt, failure in zip(failed, event.failures, strict=True):
        if attempt in cancelled:
            ended[attempt] = INTERRUPTED if is_interruption(failure) else RETURNED
    if ended:
        rows = [i for i, attempt in enumerate(attempts) if attempt not in cancelled]
        event.attempts = [attempts[i] for i in rows]
        event.nbytes = [event.nbytes[i] for i in rows]
        event.durations_us = [event.durations_us[i] for i in rows]
        event.results = [event.results[i] for i in rows]
        rows = [i for i, attempt in enumerate(failed) if attempt not in cancelled]
        event.failed_attempts = [failed[i] for i in rows]
        event.failed_durations_us = [event.failed_durations_us[i] for i in rows]
        event.failures = [event.failures[i] for i in rows]
    return ended
