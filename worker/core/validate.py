"""Assert every invariant that the comments of `tasks`, `state` and `fetching` state.

For tests and the simulator, after each event; O(everything). A failure is a bug of ours: nothing
that the scheduler or a peer sends may lead to it.
"""

from __future__ import annotations

from collections import Counter

from .state import WorkerState
from .tasks import NO_ATTEMPT, WorkerTask

_CURRENT = {"waiting", "ready", "executing", "memory", "fetch", "flight", "missing"}


def validate(state: WorkerState) -> None:
    """Raise AssertionError if `state` contradicts itself."""
    _validate_indexes(state)
    records = [*state.by_key.values(), *state.cancelled.values(), *state.released.values()]
    for record in records:
        _validate_record(record)
    _validate_pins(records)
    _validate_queues(state)
    _validate_slots(state)
    _validate_fetching(state)
    assert not state.forget
    assert not state.missing


def _validate_indexes(state: WorkerState) -> None:
    for key, record in state.by_key.items():
        assert record.key == key
        assert record.state in _CURRENT, record
        if record.attempt == NO_ATTEMPT:
            assert record.state == "missing", record
        else:
            assert state.by_attempt[record.attempt] is record
    for attempt, record in state.by_attempt.items():
        assert record.attempt == attempt
        assert state.by_key[record.key] is record
    for attempt, record in state.cancelled.items():
        assert record.attempt == attempt
        assert record.state == "cancelled"
        assert attempt not in state.by_attempt
    for attempt, record in state.released.items():
        assert record.attempt == attempt
        assert record.state == "released"
        assert record.pins > 0
        assert attempt not in state.by_attempt


def _validate_record(record: WorkerTask) -> None:
    state = record.state
    n_waiting_on = sum(task.state not in {"memory", "released"} for task in record.inputs)
    assert record.n_waiting_on == (n_waiting_on if state == "waiting" else 0), record
    if state == "waiting":
        assert n_waiting_on > 0, record
    elif state in {"ready", "executing", "cancelled"}:
        # Inputs of what may run are here, and stay until it has ended.
        assert n_waiting_on == 0, record
    else:
        assert record.inputs == (), record
        assert record.args == b"", record
    assert (record.slot >= 0) == (state in {"executing", "cancelled"}), record
    assert (record.peer is not None) == (state in {"fetch", "flight"}), record
    assert bool(record.holders) == (state in {"fetch", "flight"}), record
    if state in {"memory", "released", "cancelled"}:
        assert record.waiters is None, record
    if state in {"fetch", "missing"}:
        assert record.pins > 0, record


def _validate_pins(records: list[WorkerTask]) -> None:
    users: Counter[WorkerTask] = Counter()
    waiters: Counter[tuple[WorkerTask, WorkerTask]] = Counter()
    for record in records:
        users.update(record.inputs)
        waiters.update((task, record) for task in record.waiters or () if task.state == "waiting")
    for record in records:
        assert record.pins == users.pop(record, 0), record
    assert not users, "inputs that are in no index"
    for record in records:
        for task in record.inputs if record.state == "waiting" else ():
            if task.state not in {"memory", "released"}:
                assert waiters[record, task] == record.inputs.count(task)


def _validate_queues(state: WorkerState) -> None:
    by_state: dict[str, list[WorkerTask]] = {name: [] for name in _CURRENT}
    for record in state.by_key.values():
        by_state[record.state].append(record)
    assert set(state.waiting.values()) == set(by_state["waiting"])
    assert all(attempt == task.attempt for attempt, task in state.waiting.items())
    ready = list(state.ready)
    assert len(ready) == len(set(ready)) == state.ready.n == len(by_state["ready"])
    assert set(ready) == set(by_state["ready"])
    state.ready.rotation.validate()
    for lane in state.ready.rotation.lanes.values():
        run = [(task.priority, task.attempt) for task in lane.run]
        assert run == sorted(run)
        assert lane.n == len(list(lane))


def _validate_slots(state: WorkerState) -> None:
    n_executing = Counter(task.slot for task in state.cancelled.values())
    for record in state.by_key.values():
        if record.state == "executing":
            n_executing[record.slot] += 1
    for slot in state.slots:
        assert slot is state.slots[slot.index]
        assert slot.n_executing == n_executing[slot.index]
        assert slot.busy == (slot not in state.idle)
        # Whatever a slot has not started is a current task of its own.
        for task in slot.chunk:
            assert task.state == "executing", task
            assert task.slot == slot.index, task
        assert slot.busy or not slot.chunk
    if state.is_leaving:
        assert not any(slot.chunk for slot in state.slots), "a worker that leaves starts something"
    else:
        assert not (state.idle and state.ready.n), "somebody sleeps while there is work"


def _validate_fetching(state: WorkerState) -> None:
    fetching = state.fetching
    copies = {r for r in state.by_key.values() if r.state in {"fetch", "flight"}}
    assert fetching.nbytes == sum(request.nbytes for request in fetching.requests.values())
    for number, request in fetching.requests.items():
        assert request.number == number
        assert request.peer.request is request
        assert fetching.peers[request.peer.address] is request.peer
        assert list(request.attempts) == list(request.copies)
    for address, peer in fetching.peers.items():
        assert peer.address == address
        assert peer.queue or peer.request
        assert (peer in fetching.waiting) == (bool(peer.queue) and peer.request is None)
        in_flight = [] if peer.request is None else list(peer.request.copies.values())
        asked = 0 if peer.request is None else peer.request.nbytes
        assert peer.nbytes == sum(copy.nbytes for copy in peer.queue) + asked
        # Each copy is at one peer, once: every fetch ends, and ends once.
        for expected, listed in (("fetch", list(peer.queue)), ("flight", in_flight)):
            for copy in listed:
                if copy is not None:
                    assert copy.state == expected, copy
                    assert copy.peer is peer, copy
                    copies.remove(copy)
    assert all(fetching.peers[peer.address] is peer for peer in fetching.waiting)
    assert not copies, "copies that nobody is asked for"
    assert not fetching.waiting or fetching.requests, "nobody is asked, and somebody could be"
