"""validate.py: for each invariant, a state that breaks it by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.worker.builders import SLOW, Hands, assign, drop, locate
from weft.protocol.errors import InvalidState
from weft.protocol.wire.messages import DropAttempts
from weft.worker.core.features import FEATURES
from weft.worker.core.features.categories import MeasuredAttempts
from weft.worker.core.features.desired_copies import DesiredCopies
from weft.worker.core.features.promises import AskPromised, Promises
from weft.worker.core.features.puts import EarlyValues
from weft.worker.core.features.timeouts import TimeLimit, TimeLimits
from weft.worker.core.ready import ReadyTasks
from weft.worker.core.state import WorkerState
from weft.worker.core.tasks import (
    NO_ATTEMPT,
    NO_FUNCTION,
    AttemptUsage,
    WorkerFunction,
    WorkerTask,
)
from weft.worker.core.validate import OF_RECORDS, OF_STATE, validate


def busy_state() -> WorkerState:
    """Return a state with a record in each state but new and forgotten; keys name the states."""
    worker = Hands(2)
    worker.receive(assign("1 released", "2 memory"))
    for slot in (0, 1):
        worker.run_all(slot)
    worker.receive(
        assign(
            "3 cancelled",
            "4 executing <- released",
            "5 ready",
            "6 waiting <- cancelled flight fetch missing",
            located=[("flight", 101, 10, ["tcp://a"])],
            function=SLOW,
        )
    )
    slot = next(s.index for s in worker.state.slots if s.chunk[0].key == "cancelled")
    worker.start(1)
    worker.receive(locate(("fetch", 102, 10, ["tcp://a"])), drop(1, 3))
    return worker.state


def one(state: WorkerState, name: str) -> WorkerTask:
    """Return the record that is in state `name`."""
    records = [*state.by_key.values(), *state.cancelled.values(), *state.released.values()]
    return next(record for record in records if record.state == name)


def peer_of(state: WorkerState):
    return state.fetching.peers["tcp://a"]


def lane_of(state: WorkerState):
    return next(iter(state.ready.rotation.lanes.values()))


def set_to(name: str, field: str, value: object) -> Callable[[WorkerState], None]:
    return lambda state: setattr(one(state, name), field, value)


def stranger() -> WorkerTask:
    return WorkerTask("stranger", 99, 0, WorkerFunction(b"f", b""), b"", 0)


def break_run(state: WorkerState) -> None:
    early = stranger()
    early.priority = -1
    lane_of(state).run.append(early)


def break_chunk_of_idle(state: WorkerState) -> None:
    next(slot for slot in state.slots if slot.chunk).busy = False


def break_idle_slot(state: WorkerState) -> None:
    state.slots[0].busy, state.slots[0].amounts = False, (("gpu", 1.0),)


def break_waiting_report(state: WorkerState) -> None:
    state.to_scheduler.append(DropAttempts(attempts=[]))
    state.reporting.until = 1.0
    state.idle.update(dict.fromkeys(state.slots))


def break_request(state: WorkerState) -> None:
    state.fetching.requests[77] = peer_of(state).request


def break_waiting_peers(state: WorkerState) -> None:
    state.fetching.waiting[peer_of(state)] = None


BREAKS: dict[str, Callable[[WorkerState], object]] = {
    "n_waiting_on counts the inputs that a waiting task waits for": set_to(
        "waiting", "n_waiting_on", 9
    ),
    "a waiting task waits for an input": set_to("waiting", "inputs", ()),
    "a task that may run has its inputs": lambda state: setattr(
        one(state, "ready"), "inputs", [one(state, "missing")]
    ),
    "only an unfinished task has inputs and arguments": set_to("memory", "args", b"args"),
    "a task has a function": set_to("ready", "function", NO_FUNCTION),
    "a copy on its way has no function": set_to("fetch", "function", WorkerFunction(b"f", b"")),
    "slot >= 0 iff executing or cancelled": set_to("cancelled", "slot", -1),
    "peer iff in fetch or flight": set_to("flight", "peer", None),
    "holders iff in fetch or flight": set_to("missing", "holders", ["tcp://a"]),
    "no task waits for a record that is in memory or was dropped": set_to("memory", "waiters", []),
    "a record that is here only for tasks is pinned": set_to("fetch", "pins", 0),
    "only a missing record has an unknown attempt": set_to("fetch", "attempt", NO_ATTEMPT),
    "by_key files current records by key": lambda state: state.by_key.update(
        wrong=one(state, "memory")
    ),
    "by_attempt files the records of by_key": lambda state: state.by_attempt.pop(2),
    "waiting files all waiting tasks": lambda state: state.waiting.clear(),
    "cancelled files cancelled tasks": lambda state: state.cancelled.update({3: stranger()}),
    "released files released records": set_to("released", "attempt", 77),
    "an attempt is filed once": lambda state: state.cancelled.update({2: one(state, "cancelled")}),
    "pins count the inputs of unfinished tasks, and what features want": set_to(
        "memory", "pins", 1
    ),
    "desired copies are on their way": lambda state: state.record(DesiredCopies).update(
        {"gone": None}
    ),
    "inputs are filed": lambda state: one(state, "waiting").inputs.append(stranger()),
    "a waiting task is among the waiters of its inputs": set_to("flight", "waiters", None),
    "the ready queue holds all ready tasks, once": lambda state: lane_of(state).run.clear(),
    "a ready task is in the queue of its amounts": lambda state: state.offered.asked.update(
        {one(state, "ready").attempt: (("gpu", 1.0),)}
    ),
    "n counts the tasks of a queue": lambda state: setattr(state.ready, "n", 0),
    "no queue of amounts is empty": lambda state: state.offered.queues.update(
        {(("gpu", 1.0),): ReadyTasks()}
    ),
    "passed names queues of amounts": lambda state: state.offered.passed.update(
        {(("gpu", 0.5),): 0.0}
    ),
    "asked names unfinished tasks": lambda state: state.offered.asked.update({77: ()}),
    "what slots have and what is free is all that the worker offers": lambda state: (
        state.offered.free.update(gpu=0.5)
    ),
    "a slot has the amounts of the tasks of its chunk": lambda state: setattr(
        state.slots[one(state, "executing").slot], "amounts", (("gpu", 1.0),)
    ),
    "a slot without a chunk to do has no amounts": break_idle_slot,
    "a lane counts its ready tasks": lambda state: setattr(lane_of(state), "n", 5),
    "the run of a lane is sorted": break_run,
    "each lane has one place in the rotation": lambda state: state.ready.rotation.lanes.update(
        {(7, 7): lane_of(state)}
    ),
    "slots are filed by index": lambda state: state.slots.reverse(),
    "n_executing counts the tasks of a slot": lambda state: setattr(
        state.slots[0], "n_executing", 4
    ),
    "idle lists the slots with a seat that are not busy": lambda state: state.idle.update(
        {state.slots[0]: None}
    ),
    "as many slots have a seat as there are seats": lambda state: setattr(state, "n_seats", 3),
    "blocked, returning and spare file the slots without a seat": lambda state: (
        state.seats.spare.update({state.slots[0]: None})
    ),
    "a slot whose task waits executes that alone": lambda state: state.seats.blocked.update(
        {state.slots[0]: 99}
    ),
    "parked lists attempts that wait": lambda state: state.seats.parked.update({99: None}),
    "no more seats are kept than parked tasks are blocked": lambda state: setattr(
        state.seats, "n_kept", 1
    ),
    "a seat is kept only while no slot returns": lambda state: (
        setattr(state.seats, "n_kept", 1),
        state.returning.update({state.slots[0]: 99}),
    ),
    "attempts that wait for tasks are blocked": lambda state: state.seats.waits_for.update(
        {99: {"keys": ["x"]}}
    ),
    "a spare slot has nothing": lambda state: state.seats.spare.update({state.slots[0]: None}),
    "no slot returns while another is idle": lambda state: (
        state.returning.update({state.slots[0]: 99}),
        state.idle.update({state.slots[1]: None}),
    ),
    "a chunk holds executing tasks of its slot": lambda state: state.slots[0].chunk.append(
        one(state, "ready")
    ),
    "a slot with a chunk is busy": break_chunk_of_idle,
    "a worker that leaves starts nothing": lambda state: setattr(state, "is_leaving", True),
    "a worker has left if it may leave and executes nothing": lambda state: setattr(
        state, "has_left", True
    ),
    "no slot is idle while a task may begin": lambda state: state.idle.update(
        {state.slots[0]: None}
    ),
    "reports wait only while a slot is busy": break_waiting_report,
    "requests are filed by number, at their peers": break_request,
    "a request has an attempt for each copy": lambda state: peer_of(state).request.attempts.clear(),
    "fetching.nbytes is the sum over its requests": lambda state: setattr(
        state.fetching, "nbytes", 0
    ),
    "peers are filed by address, with a queue or a request": lambda state: setattr(
        peer_of(state), "address", "tcp://b"
    ),
    "peer.nbytes is the sum over its queue and request": lambda state: setattr(
        peer_of(state), "nbytes", 0
    ),
    "peers that wait have a queue and no request": break_waiting_peers,
    "each copy is at its peer, once": lambda state: peer_of(state).queue.clear(),
    "a peer is asked while any waits": lambda state: (
        break_waiting_peers(state),
        state.fetching.requests.clear(),
    ),
    "functions are filed by id": lambda state: state.functions.update(
        {b"wrong": state.functions[SLOW]}
    ),
    "kept failures are of attempts that have ended": lambda state: state.failures.keep(
        one(state, "ready"), ["exception", "ready"]
    ),
    "failures.nbytes is the sum over the kept failures": lambda state: setattr(
        state.failures, "nbytes", 1
    ),
    "early values are of attempts to come": lambda state: state.record(EarlyValues).update({0: 1}),
    "owed names cancelled attempts": lambda state: state.owed.update({4: None}),
    "timeouts lists unfinished tasks, those that run with their begin": (
        lambda state: state.record(TimeLimits).update({2: TimeLimit(5)})
    ),
    "measured attempts are unfinished, and those that have used memory run": (
        lambda state: state.record(MeasuredAttempts).update({2: AttemptUsage(5)})
    ),
    "awaited attempts are unfinished here, or early": lambda state: state.awaited.update({99: [1]}),
    "early attempts are awaited, and above all that were assigned": (
        lambda state: state.record(Promises).early.update({99: None})
    ),
    "requests are the open ones by attempt": (
        lambda state: state.record(Promises).open.update({1: AskPromised("tcp://b", 1, "x", 9)})
    ),
    "somebody waits for what is awaited": lambda state: state.awaited.update({99: []}),
    "forget, missing and ended are empty between events": lambda state: state.ended.update({1: 0}),
}


def test_the_busy_state_has_a_record_in_each_state_and_is_valid():
    state = busy_state()
    for name in ("waiting", "ready", "executing", "memory", "missing", "fetch", "flight"):
        assert one(state, name) in state.by_key.values()
    assert one(state, "cancelled").key == "cancelled"
    assert one(state, "released").key == "released"
    assert list(state.owed) == [3]
    validate(state)


def test_each_invariant_is_broken_once():
    of_features = WorkerState(1, "", FEATURES).features.invariants
    assert BREAKS.keys() == OF_RECORDS.keys() | OF_STATE.keys() | of_features.keys()


@pytest.mark.parametrize("name", BREAKS)
def test_a_broken_invariant_is_named(name):
    state = busy_state()
    BREAKS[name](state)
    with pytest.raises(InvalidState) as caught:
        validate(state)
    assert f"{name}: found " in str(caught.value)


def test_the_error_describes_the_records_concerned():
    state = busy_state()
    one(state, "memory").pins = 1
    with pytest.raises(InvalidState) as caught:
        validate(state)
    (line,) = caught.value.story
    assert "'memory' attempt 2 memory" in line
    assert "pinned 1 times" in line
