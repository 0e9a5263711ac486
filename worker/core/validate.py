"""The invariants that the comments of `tasks`, `state`, `ready` and `fetching` state, by name.

For tests and the simulator, after each event; O(everything). A failure is a bug of weft: nothing
that the scheduler or a peer sends may lead to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from ...protocol.errors import InvalidState
from .inputs import is_awaited
from .ready import ReadyLane
from .seats import may_keep
from .state import WorkerState
from .tasks import (
    BLOCKED,
    CANCELLED,
    EXECUTING,
    FETCH,
    FLIGHT,
    MEMORY,
    MISSING,
    NO_ATTEMPT,
    NO_FUNCTION,
    READY,
    RELEASED,
    RETURNING,
    SEATED,
    SPARE,
    WAITING,
    WorkerTask,
)
from .transitions import AT_PEER, CURRENT, UNFINISHED, describe

#: States of a task whose function may still run.
_WITH_FUNCTION = UNFINISHED | {CANCELLED}
#: Differences of rounded amounts are below this.
_TOLERANCE: Final = 1e-6


def validate(state: WorkerState) -> None:
    """Check every invariant.

    Raises:
        InvalidState: some do not hold. The text names each, with the item that breaks it.
    """
    broken = list(violations(state))
    if broken:
        found = [item for _, item in broken if isinstance(item, WorkerTask)]
        story = [line for record in found[:10] for line in describe(record)]
        raise InvalidState("; ".join(f"{name}: found {item!r}" for name, item in broken), story)


def violations(state: WorkerState) -> Iterator[tuple[str, object]]:
    """Yield the name of each invariant that does not hold, with each item that breaks it."""
    records = _records(state)
    for name, holds in OF_RECORDS.items():
        for record in records:
            if not holds(record):
                yield name, record
    for name, broken_by in (*OF_STATE.items(), *state.features.invariants.items()):
        for item in broken_by(state):
            yield name, item


# --- Counting and comparing -----------------------------------------------------------------------


def _records(state: WorkerState) -> list[WorkerTask]:
    return [*state.by_key.values(), *state.cancelled.values(), *state.released.values()]


def _in(state: WorkerState, *names: str) -> list[WorkerTask]:
    return [record for record in _records(state) if record.state in names]


def _n_absent(task: WorkerTask) -> int:
    n_absent = sum(record.state not in {MEMORY, RELEASED} for record in task.inputs)
    return n_absent + is_awaited(task)


def _differences(found: dict[Any, Any], expected: dict[Any, Any]) -> list[Any]:
    """Return the values that only one of the two has."""
    places = {**found, **expected}
    return [value for place, value in places.items() if found.get(place) is not expected.get(place)]


def _by_attempt(records: Iterable[WorkerTask]) -> dict[int, WorkerTask]:
    return {record.attempt: record for record in records if record.attempt != NO_ATTEMPT}


def _pins(state: WorkerState) -> Iterator[WorkerTask]:
    users = Counter(read for record in _records(state) for read in record.inputs)
    for pins in state.features.pins:
        users.update(pins(state))
    return (record for record in _records(state) if record.pins != users[record])


def _waiters(state: WorkerState) -> Iterator[WorkerTask]:
    for task in state.waiting.values():
        for read in task.inputs:
            if read.state not in {MEMORY, RELEASED}:
                waits = sum(waiter is task for waiter in read.waiters or ())
                if waits != sum(other is read for other in task.inputs):
                    yield task


def _lanes(state: WorkerState) -> Iterator[tuple[object, ReadyLane]]:
    for queue in state.offered.queues.values():
        yield from queue.rotation.lanes.items()


def _misheld(state: WorkerState) -> Iterator[object]:
    offered = state.offered
    for name, free in offered.free.items():
        taken = sum(amount for slot in state.slots for n, amount in slot.amounts if n == name)
        if free < 0 or abs(free + taken - offered.total[name]) > _TOLERANCE:
            yield name, free, taken


def _rotation(state: WorkerState) -> Iterator[object]:
    try:
        for queue in state.offered.queues.values():
            queue.rotation.validate()
    except AssertionError as error:
        yield error


def _n_executing(state: WorkerState) -> Iterator[object]:
    n = Counter(task.slot for task in _in(state, EXECUTING, CANCELLED))
    return (
        (slot.index, slot.n_executing) for slot in state.slots if slot.n_executing != n[slot.index]
    )


def _running(state: WorkerState) -> set[int]:
    """Return the attempts that slots execute."""
    return {task.attempt for task in _in(state, EXECUTING, CANCELLED)}


def _at_peers(state: WorkerState) -> list[tuple[object, ...]]:
    """Return each copy that is not exactly where its state says, with the places where it is."""
    places: dict[WorkerTask, list[tuple[object, str]]] = {}
    for copy in _in(state, FETCH, FLIGHT):
        places[copy] = []
    for peer in state.fetching.peers.values():
        for copy in peer.queue:
            places.setdefault(copy, []).append((peer, FETCH))
        for asked in () if peer.request is None else peer.request.copies.values():
            if asked is not None:
                places.setdefault(asked, []).append((peer, FLIGHT))
    return [(copy, found) for copy, found in places.items() if found != [(copy.peer, copy.state)]]


# --- The invariants -------------------------------------------------------------------------------

#: {name: whether it holds for a record}
OF_RECORDS: Final[dict[str, Callable[[WorkerTask], bool]]] = {
    "n_waiting_on counts the inputs that a waiting task waits for": lambda record: (
        record.n_waiting_on == (_n_absent(record) if record.state == WAITING else 0)
    ),
    "a waiting task waits for an input": lambda record: (
        record.state != WAITING or _n_absent(record) > 0
    ),
    "a task that may run has its inputs": lambda record: (
        record.state not in {READY, EXECUTING, CANCELLED} or not _n_absent(record)
    ),
    "only an unfinished task has inputs and arguments": lambda record: (
        record.state in _WITH_FUNCTION or (record.inputs == () and record.args == b"")
    ),
    "a task has a function": lambda record: (
        record.state not in _WITH_FUNCTION or record.function is not NO_FUNCTION
    ),
    "a copy on its way has no function": lambda record: (
        record.state not in {MISSING, FETCH, FLIGHT} or record.function is NO_FUNCTION
    ),
    "slot >= 0 iff executing or cancelled": lambda record: (
        (record.slot >= 0) == (record.state in {EXECUTING, CANCELLED})
    ),
    "peer iff in fetch or flight": lambda record: (
        (record.peer is not None) == (record.state in AT_PEER)
    ),
    "holders iff in fetch or flight": lambda record: (
        bool(record.holders) == (record.state in AT_PEER)
    ),
    "no task waits for a record that is in memory or was dropped": lambda record: (
        record.waiters is None or record.state not in {MEMORY, RELEASED, CANCELLED}
    ),
    "a record that is here only for tasks is pinned": lambda record: (
        record.pins > 0 or record.state not in {FETCH, MISSING, RELEASED}
    ),
    "only a missing record has an unknown attempt": lambda record: (
        record.attempt != NO_ATTEMPT or record.state == MISSING
    ),
}

#: {name: what breaks it}
OF_STATE: Final[dict[str, Callable[[WorkerState], Iterable[object]]]] = {
    "by_key files current records by key": lambda state: (
        (key, record)
        for key, record in state.by_key.items()
        if record.key != key or record.state not in CURRENT
    ),
    "by_attempt files the records of by_key": lambda state: _differences(
        state.by_attempt, _by_attempt(state.by_key.values())
    ),
    "waiting files all waiting tasks": lambda state: _differences(
        state.waiting, _by_attempt(_in(state, WAITING))
    ),
    "cancelled files cancelled tasks": lambda state: _differences(
        state.cancelled, _by_attempt(_in(state, CANCELLED))
    ),
    "released files released records": lambda state: _differences(
        state.released, _by_attempt(_in(state, RELEASED))
    ),
    "an attempt is filed once": lambda state: (
        attempt
        for attempt, n in Counter([*state.by_attempt, *state.cancelled, *state.released]).items()
        if n > 1
    ),
    "pins count the inputs of unfinished tasks, and what features want": _pins,
    "inputs are filed": lambda state: (
        {read for record in _records(state) for read in record.inputs} - {*_records(state)}
    ),
    "a waiting task is among the waiters of its inputs": _waiters,
    "the ready queue holds all ready tasks, once": lambda state: (
        (Counter(state.offered) - Counter(_in(state, READY)))
        + (Counter(_in(state, READY)) - Counter(state.offered))
    ),
    "a ready task is in the queue of its amounts": lambda state: (
        task
        for amounts, queue in state.offered.queues.items()
        for task in queue
        if state.offered.asked.get(task.attempt, ()) != amounts
    ),
    "n counts the tasks of a queue": lambda state: (
        [state.offered.n]
        if any(queue.n != len([*queue]) for queue in state.offered.queues.values())
        or state.offered.n != sum(q.n for q in state.offered.queues.values()) - state.ready.n
        else []
    ),
    "no queue of amounts is empty": lambda state: (
        amounts for amounts, queue in state.offered.queues.items() if amounts and not queue.n
    ),
    "passed names queues of amounts": lambda state: (
        amounts for amounts in state.offered.passed if amounts not in state.offered.queues
    ),
    "asked names unfinished tasks": lambda state: (
        attempt
        for attempt in state.offered.asked
        if attempt not in state.by_attempt or state.by_attempt[attempt].state not in UNFINISHED
    ),
    "what slots have and what is free is all that the worker offers": _misheld,
    "a slot has the amounts of the tasks of its chunk": lambda state: (
        (slot.index, task)
        for slot in state.slots
        for task in (*slot.chunk, *(t for t in _in(state, EXECUTING) if t.slot == slot.index))
        if state.offered.asked.get(task.attempt, ()) != slot.amounts
    ),
    "a slot without a chunk to do has no amounts": lambda state: (
        slot.index for slot in state.slots if slot.amounts and not slot.busy
    ),
    "a lane counts its ready tasks": lambda state: (
        (place, lane.n) for place, lane in _lanes(state) if lane.n != len(list(lane))
    ),
    "the run of a lane is sorted": lambda state: (
        place for place, lane in _lanes(state) if list(lane.run) != sorted(lane.run)
    ),
    "each lane has one place in the rotation": _rotation,
    "slots are filed by index": lambda state: (
        slot.index for index, slot in enumerate(state.slots) if slot.index != index
    ),
    "n_executing counts the tasks of a slot": _n_executing,
    "idle lists the slots with a seat that are not busy": lambda state: (
        slot.index
        for slot in state.slots
        if (slot.place == SEATED and not slot.busy) != (slot in state.idle)
    ),
    "as many slots have a seat as there are seats": lambda state: (
        [n]
        if (n := sum(slot.place == SEATED for slot in state.slots))
        != state.n_seats - state.seats.n_kept - state.seats.n_held
        else []
    ),
    "blocked, returning and spare file the slots without a seat": lambda state: (
        slot.index
        for slot in state.slots
        if [slot in state.seats.blocked, slot in state.returning, slot in state.seats.spare]
        != [slot.place == place for place in (BLOCKED, RETURNING, SPARE)]
    ),
    "a slot whose task waits executes that alone": lambda state: (
        (slot.index, attempt)
        for slot, attempt in (*state.seats.blocked.items(), *state.returning.items())
        if slot.n_executing != 1 or slot.chunk or not slot.busy or attempt not in _running(state)
    ),
    "parked lists attempts that wait": lambda state: (
        attempt
        for attempt in state.seats.parked
        if attempt not in (*state.seats.blocked.values(), *state.returning.values())
    ),
    "no more seats are kept than parked tasks are blocked": lambda state: (
        [state.seats.n_kept]
        if state.seats.n_kept > sum(a in state.seats.parked for a in state.seats.blocked.values())
        else []
    ),
    "a seat is kept only while no slot returns": lambda state: (
        [state.seats.n_kept] if state.seats.n_kept and state.returning else []
    ),
    "attempts that wait for tasks are blocked": lambda state: (
        attempt
        for attempt, wait in state.seats.waits_for.items()
        if attempt not in state.seats.blocked.values() or not wait
    ),
    "a spare slot has nothing": lambda state: (
        slot.index for slot in state.seats.spare if slot.busy or slot.chunk or slot.n_executing
    ),
    "no slot returns while another is idle": lambda state: (
        (slot.index for slot in state.returning) if state.idle else []
    ),
    "a chunk holds executing tasks of its slot": lambda state: (
        task
        for slot in state.slots
        for task in slot.chunk
        if task.state != EXECUTING or task.slot != slot.index
    ),
    "a slot with a chunk is busy": lambda state: (
        slot.index for slot in state.slots if slot.chunk and not slot.busy
    ),
    "a worker that leaves starts nothing": lambda state: (
        slot.index for slot in state.slots if slot.chunk and state.is_leaving
    ),
    "a worker has left if it may leave and executes nothing": lambda state: (
        [state.may_leave]
        if max(state.may_leave, state.has_left) > state.is_leaving
        or (state.may_leave > state.has_left and not any(s.n_executing for s in state.slots))
        else []
    ),
    "no slot is idle while a task may begin": lambda state: (
        []
        if state.is_leaving
        or state.offered.next_queue(len(state.idle), state.now, may_keep=may_keep(state)) is None
        else (slot.index for slot in state.idle)
    ),
    "reports wait only while a slot is busy": lambda state: (
        state.to_scheduler if state.reporting.until and len(state.idle) == state.n_seats else []
    ),
    "requests are filed by number, at their peers": lambda state: (
        number
        for number, request in state.fetching.requests.items()
        if request.number != number
        or request.peer.request is not request
        or state.fetching.peers.get(request.peer.address) is not request.peer
    ),
    "a request has an attempt for each copy": lambda state: (
        number
        for number, request in state.fetching.requests.items()
        if list(request.attempts) != list(request.copies)
    ),
    "fetching.nbytes is the sum over its requests": lambda state: (
        [state.fetching.nbytes]
        if state.fetching.nbytes != sum(r.nbytes for r in state.fetching.requests.values())
        else []
    ),
    "peers are filed by address, with a queue or a request": lambda state: (
        address
        for address, peer in state.fetching.peers.items()
        if peer.address != address or not (peer.queue or peer.request)
    ),
    "peer.nbytes is the sum over its queue and request": lambda state: (
        (peer.address, peer.nbytes)
        for peer in state.fetching.peers.values()
        if peer.nbytes
        != sum(copy.nbytes for copy in peer.queue) + (peer.request.nbytes if peer.request else 0)
    ),
    "peers that wait have a queue and no request": lambda state: (
        peer.address
        for peer in {**dict.fromkeys(state.fetching.peers.values()), **state.fetching.waiting}
        if (peer in state.fetching.waiting) != (bool(peer.queue) and peer.request is None)
    ),
    "each copy is at its peer, once": _at_peers,
    "a peer is asked while any waits": lambda state: (
        []
        if state.fetching.requests or state.fetching.is_held_back
        else (peer.address for peer in state.fetching.waiting)
    ),
    "functions are filed by id": lambda state: (
        id for id, function in state.functions.items() if function.id != id
    ),
    "kept failures are of attempts that have ended": lambda state: (
        attempt
        for attempt in state.failures.by_attempt
        if attempt in state.by_attempt or attempt in state.cancelled or attempt in state.released
    ),
    "failures.nbytes is the sum over the kept failures": lambda state: (
        [state.failures.nbytes]
        if state.failures.nbytes != sum(entry[3] for entry in state.failures.by_attempt.values())
        else []
    ),
    "owed names cancelled attempts": lambda state: (
        attempt for attempt in state.owed if attempt not in state.cancelled
    ),
    "forget, missing and ended are empty between events": lambda state: (
        [*state.forget, *state.missing, *state.ended]
    ),
}
