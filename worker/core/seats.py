"""Seats: a slot whose task waits for something gives its seat to another slot.

A worker has as many *seats* as threads, and only a slot with a seat runs tasks. A slot has one
thread. When its task blocks, the slot gives its seat up: to the slot that has waited longest for a
seat, else to a spare slot, else to a new one. So the worker goes on with other tasks, and a task
may wait for tasks that only this worker can run. When the wait is over the slot takes a seat again
before its task goes on: at once that of an idle slot, else that of the next slot that has done its
chunk, before any other task is started. So never more tasks compute at a time than there are seats;
the number of threads is that of seats and of tasks that wait.

A task may also end without a seat: it has given it up for good (`secede`).

A task that names cores has a seat of its own and keeps others idle, as many as `offered.py` counts
for all such tasks together; or it has a seat beside those of the worker, if that is none. While it
waits it gives its own seat up, as all do. One of less than a core has nothing to give up, and goes
on at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ...protocol.errors import InvalidTransition
from ...protocol.wire.messages import AttemptsBlocked, AttemptsResumed, FailWaits
from .events import (
    FailWait,
    LeaveSeat,
    Run,
    SlotBlocked,
    SlotResumes,
    SlotWaits,
    StartSlot,
    TakeSeat,
)
from .offered import cores_of
from .tasks import BLOCKED, READY, RETURNING, SEATED, SPARE, Place, Slot
from .transitions import move

if TYPE_CHECKING:
    from .state import WorkerState

#: (start, finish) -> why a slot makes such a move
MOVES: Final[dict[tuple[Place, Place], str]] = {
    (SEATED, BLOCKED): "its task waits for something",
    (BLOCKED, SEATED): "the wait is over, and a slot with a seat is idle",
    (BLOCKED, RETURNING): "the wait is over, and each slot with a seat is busy",
    (BLOCKED, SPARE): "its task ended without a seat",
    (RETURNING, SEATED): "another slot has done its chunk, or its task waits",
    (RETURNING, SPARE): "its task ended without a seat, because the worker ends",
    (SEATED, SPARE): "it has nothing to run, and its seat goes to one that returns, or is kept",
    (SPARE, SEATED): "another slot has given its seat up",
}

#: Slots that may be without a seat because their tasks wait: each is a thread. A further task that
#: waits fails.
MAX_BLOCKED: Final = 1000
#: The number of blocked slots from which on no task is started in the place of one that waits for a
#: limit. It would most often wait for the same, so the seat is kept for slots that return.
MANY_BLOCKED: Final = 200
#: The number of further blocked slots from which on the last seat is kept as well: what the holder
#: of the limit waits for, wherever that runs, may be able to run only here.
MORE_BLOCKED: Final = 200


@dataclass(slots=True)
class Seats:
    """The seats that slots have given up, and what their tasks wait for."""

    #: {slot: the attempt that waits there}. All and only slots in place "blocked".
    blocked: dict[Slot, int] = field(default_factory=dict)
    #: {attempt: what it waits for, by kind}, of those of `blocked` of which it is known.
    waits_for: dict[int, dict[str, list[str]]] = field(default_factory=dict)
    #: {attempt: None} of those that are blocked or return and that the scheduler was not sent.
    parked: dict[int, None] = field(default_factory=dict)
    #: Number of seats that no slot has: the next slots that return take them.
    n_kept: int = 0
    #: Number of seats that no slot has because tasks take several cores; minus that of slots that
    #: have one more, because tasks share a core or take none.
    n_held: int = 0
    #: All and only slots in place "spare".
    spare: dict[Slot, None] = field(default_factory=dict)


def place(slot: Slot, finish: Place) -> None:
    """Move a slot; the caller changes the tables."""
    if (slot.place, finish) not in MOVES:
        raise InvalidTransition(f"slot {slot.index}", slot.place, finish, [])
    slot.place = finish


def take_back(state: WorkerState, slot: Slot, n_kept: int = 0) -> None:
    """Make the slot's unstarted tasks ready again, but for the first `n_kept`."""
    chunk = slot.chunk
    while len(chunk) > n_kept:
        try:
            task = chunk.pop()
        except IndexError:  # its thread was faster
            break
        move(state, task, READY)


def on_blocked(state: WorkerState, event: SlotBlocked) -> None:
    """Give the slot's seat to another one, and make its unstarted tasks ready again."""
    slot = state.slots[event.slot]
    take_back(state, slot)
    place(slot, BLOCKED)
    state.seats.blocked[slot] = event.attempt
    state.before.append(LeaveSeat(slot.index))
    if shares_core(slot):
        state.seats.n_held += 1
        if event.waits_for:
            state.seats.waits_for[event.attempt] = event.waits_for
        state.to_scheduler.append(report_of(state, [event.attempt]))
        return
    if event.may_park and _is_enough(state):
        # The scheduler is not to send others: for it, the attempt goes on.
        state.seats.parked[event.attempt] = None
        if state.returning:
            _seat_returning(state)
        else:
            state.seats.n_kept += 1
        return
    if event.waits_for:
        state.seats.waits_for[event.attempt] = event.waits_for
    state.to_scheduler.append(report_of(state, [event.attempt]))
    _give_seat(state)


def _give_seat(state: WorkerState) -> None:
    """Give a seat to the slot that has waited longest for one, else to one that may start tasks."""
    if state.returning:
        _seat_returning(state)
    else:
        state.idle[_seat_other(state)] = None


def _seat_other(state: WorkerState) -> Slot:
    """Let a spare slot, or a new one, take a seat."""
    if state.seats.spare:
        other, _ = state.seats.spare.popitem()
        place(other, SEATED)
    else:
        other = Slot(len(state.slots))
        state.slots.append(other)
        state.before.append(StartSlot(other.index))
    state.before.append(TakeSeat(other.index))
    return other


def shares_core(slot: Slot) -> bool:
    """Return whether the slot's chunk takes less than a core, so that it has no seat to give up."""
    cores = cores_of(slot.amounts) if slot.amounts else None
    return cores is not None and cores < 1


def seat_for(state: WorkerState, n_seats: int) -> Slot:
    """Return a slot for a chunk that takes so many idle seats; 0 = it sits beside them."""
    state.seats.n_held += n_seats - 1
    if not n_seats:
        return _seat_other(state)
    slot, _ = state.idle.popitem()
    for _ in range(n_seats - 1):
        other, _ = state.idle.popitem()
        _retire(state, other)
    return slot


def on_cores_free(state: WorkerState, slot: Slot, cores: float, n_taken: int) -> bool:
    """Give on the seats that a chunk with cores has taken; False = its slot has none now."""
    is_extra = slot.place == SEATED or cores >= 1  # else it left its seat when it blocked
    n_more = n_taken - is_extra
    state.seats.n_held -= n_more
    if n_more < 0:
        slot.busy = False
        _retire(state, slot)
        return False
    for _ in range(n_more):
        _give_seat(state)
    return True


def may_keep(state: WorkerState) -> bool:
    """Return whether amounts may be kept for tasks that were passed over for long."""
    waiting = (*state.seats.blocked, *state.returning)
    return not any(slot.amounts for slot in waiting)


def _is_enough(state: WorkerState) -> bool:
    """Return whether no other task is started in the place of one that waits for a limit."""
    is_last = state.seats.n_kept + 1 >= state.n_seats
    n_blocked = len(state.seats.blocked) + len(state.returning)
    return n_blocked > MANY_BLOCKED + MORE_BLOCKED * is_last


def open_kept(state: WorkerState, n: int) -> bool:
    """Let so many kept seats be idle, for a task with several cores; return whether they are.

    The holder of the limit, at whichever worker, may wait for it. Its parked tasks are blocked
    from now on for the scheduler, too.
    """
    kept = state.seats
    if not 1 <= n <= kept.n_kept or len(kept.blocked) > MANY_BLOCKED + MORE_BLOCKED:
        return False
    kept.n_kept -= n
    parked = [attempt for attempt in kept.blocked.values() if attempt in kept.parked][:n]
    for attempt in parked:
        del kept.parked[attempt]
        _give_seat(state)
    state.to_scheduler.append(report_of(state, parked))
    return True


def report_of(state: WorkerState, attempts: list[int]) -> AttemptsBlocked:
    """Return the report of these attempts, each of which waits."""
    waits = [state.seats.waits_for.get(attempt, {}) for attempt in attempts]
    kinds = dict.fromkeys(kind for wait in waits for kind in wait)
    columns = {kind: [wait.get(kind, []) for wait in waits] for kind in kinds}
    return AttemptsBlocked(attempts=attempts, **columns)


def on_waits(state: WorkerState, event: SlotWaits) -> None:
    """Report what a task waits for that has given its seat up for good, or that it does not."""
    attempt = state.seats.blocked.get(state.slots[event.slot])
    if attempt is None:  # it takes a seat again
        return
    if event.waits_for:
        state.seats.waits_for[attempt] = event.waits_for
    else:
        state.seats.waits_for.pop(attempt, None)
    state.to_scheduler.append(report_of(state, [attempt]))


def on_resumes(state: WorkerState, event: SlotResumes) -> None:
    """Give the slot a seat, now or later: `Run` wakes its thread then."""
    slot = state.slots[event.slot]
    state.seats.waits_for.pop(state.seats.blocked[slot], None)
    if shares_core(slot):
        state.seats.n_held -= 1
        _sit_down(state, slot)
        return
    if state.seats.n_kept:
        state.seats.n_kept -= 1
        _sit_down(state, slot)
        return
    if state.idle:
        other, _ = state.idle.popitem()
        _retire(state, other)
        _sit_down(state, slot)
        return
    place(slot, RETURNING)
    state.returning[slot] = state.seats.blocked.pop(slot)
    for other in state.slots:
        if other.chunk:
            take_back(state, other)  # so that its thread asks when its present task has ended


def on_done_without_seat(state: WorkerState, slot: Slot) -> bool:
    """Let a slot rest whose task has ended without a seat; True = it has taken a kept one."""
    if slot.place == RETURNING:
        attempt = state.returning.pop(slot)
    else:
        attempt = state.seats.blocked.pop(slot)
    state.seats.waits_for.pop(attempt, None)
    place(slot, SPARE)
    slot.busy = False
    if state.seats.parked.pop(attempt, state) is None and state.seats.n_kept:
        state.seats.n_kept -= 1
        place(slot, SEATED)
        state.before.append(TakeSeat(slot.index))
        state.idle[slot] = None
        return True
    state.seats.spare[slot] = None
    return False


def pass_on(state: WorkerState, slot: Slot) -> None:
    """Give the seat of a slot that has done its chunk to the one that has waited longest."""
    slot.busy = False
    _retire(state, slot)
    _seat_returning(state)


def on_fail_waits(state: WorkerState, message: FailWaits) -> None:
    """End waits that would have no end; those that are over by now are left alone."""
    for attempt, text in zip(message.attempts, message.texts, strict=True):
        if attempt in state.seats.waits_for or any(w(state, attempt) for w in state.features.waits):
            state.before.append(FailWait(attempt, text))


def _seat_returning(state: WorkerState) -> None:
    _sit_down(state, next(iter(state.returning)))


def _retire(state: WorkerState, slot: Slot) -> None:
    place(slot, SPARE)
    state.seats.spare[slot] = None
    state.before.append(LeaveSeat(slot.index))


def _sit_down(state: WorkerState, slot: Slot) -> None:
    attempt = (state.seats.blocked if slot.place == BLOCKED else state.returning).pop(slot)
    place(slot, SEATED)
    state.before.append(TakeSeat(slot.index))
    state.before.append(Run(slot.index))
    if state.seats.parked.pop(attempt, state) is state:
        state.to_scheduler.append(AttemptsResumed(attempts=[attempt]))
