"""Locks, semaphores, events, queues and variables, by events of the scheduler's core."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.scheduler.builders import Board, graph
from tests.scheduler.callers import Caller
from weft.protocol.errors import InvalidState
from weft.protocol.wire import messages as m
from weft.protocol.wire.handshake import Role
from weft.protocol.wire.levels import Level
from weft.protocol.wire.messages import coordination as h
from weft.scheduler.core.coordination import fifo, operating, values
from weft.scheduler.core.coordination.invariants import OBJECT_INVARIANTS
from weft.scheduler.core.coordination.marks import Mark, marks_of
from weft.scheduler.core.coordination.records import Call, Holder, MetadataRecord, objects_of
from weft.scheduler.core.coordination.topics import topics_of
from weft.scheduler.core.coordination.values import values_of
from weft.scheduler.core.invariants.validate import validate
from weft.scheduler.core.members.epochs import Members
from weft.scheduler.core.records.deadlines import Deadline
from weft.scheduler.core.records.peers import ClientHandle

LEASE_S = 60.0


GRANTED = {"granted": True}
LATE = {"granted": False}


@pytest.fixture
def board() -> Board:
    return Board(client_lease_s=LEASE_S)


def is_empty(board: Board) -> bool:
    values = values_of(board.state)
    return not objects_of(board.state).records and not values.n_uses and not values.nbytes


# --- Locks and semaphores -------------------------------------------------------------------------


def test_a_lock_has_one_holder_and_goes_to_those_that_wait_in_order(board, alice, bob):
    carl = Caller(board, "carl")
    assert alice.acquire() == GRANTED
    assert bob.acquire() is None
    assert carl.acquire() is None
    assert alice.release() == {}
    assert bob.answers() == {bob.request: GRANTED}
    assert carl.answers() == {}
    assert bob.release() == {}
    assert carl.answers() == {carl.request: GRANTED}
    assert carl.release() == {}
    assert is_empty(board)


def test_a_lock_that_is_asked_for_without_waiting_is_refused_at_once(board, alice, bob):
    alice.acquire()
    assert bob.acquire(timeout=0) == LATE
    assert alice.call(h.LOCK, "count") == {"n": 1}


def test_a_wait_with_a_time_limit_ends_with_it_and_those_behind_go_on(board, alice, bob):
    carl = Caller(board, "carl")
    alice.acquire()
    bob.acquire(timeout=5)
    carl.acquire(timeout=50)
    board.tick(4.9)
    assert bob.answers() == {}
    board.tick(0.2)
    assert bob.answers() == {bob.request: LATE}
    alice.release()
    assert carl.answers() == {carl.request: GRANTED}
    assert board.state.deadlines.count() == board.state.deadlines.n_pending


def test_a_lock_taken_twice_by_one_owner_is_refused_unless_its_wait_ends(board, alice):
    alice.acquire("1", "thread")
    assert alice.acquire("2", "thread") == h.ALREADY_HELD
    assert alice.acquire("3", "thread", timeout=1) is None
    assert alice.acquire("4", "other") is None
    waiting = alice.request
    board.tick(2)
    alice.release("1")
    assert alice.answers()[waiting] == GRANTED


def test_a_release_by_another_is_refused(board, alice, bob):
    alice.acquire()
    assert bob.release() == h.NOT_HELD
    assert alice.release("another lease") == h.NOT_HELD
    assert alice.release() == {}
    assert alice.release() == h.NOT_HELD


def test_a_semaphore_has_as_many_leases_as_its_limit(board, alice, bob):
    options = {"kind": h.SEMAPHORE, "limit": 2}
    assert alice.acquire("1", "a", **options) == GRANTED
    assert alice.acquire("2", "a", **options) == GRANTED
    assert alice.acquire("3", "a", **options) == h.ALREADY_HELD
    assert bob.acquire("1", "b", **options) is None
    assert alice.call(h.SEMAPHORE, "count", limit=2) == {"n": 2}
    alice.release("1", **options)
    assert bob.answers() == {bob.request: GRANTED}
    assert bob.acquire("2", "b", kind=h.SEMAPHORE, limit=3) == h.OTHER_LIMIT


def test_a_closed_semaphore_refuses_all_that_wait_until_it_is_made_anew(board, alice, bob):
    options = {"kind": h.SEMAPHORE, "limit": 1}
    alice.acquire(**options)
    bob.acquire(**options)
    assert alice.call(h.SEMAPHORE, "close", limit=1) == {}
    assert bob.answers() == {bob.request: h.CLOSED}
    assert bob.acquire(**options) == h.CLOSED
    assert bob.call(h.SEMAPHORE, "create", limit=3) == {}
    assert bob.acquire(kind=h.SEMAPHORE, limit=3) == GRANTED
    for caller in (alice, bob):
        board.send(caller.peer, m.Bye(reason=""))
    assert is_empty(board)


# --- Several locks at once ------------------------------------------------------------------------


def test_several_locks_are_taken_all_or_none_and_no_wait_is_overtaken(board, alice, bob):
    carl, dora = Caller(board, "carl"), Caller(board, "dora")

    def take(caller: Caller, *names: str, **more: Any) -> Any:
        return caller.acquire(kind=h.MULTILOCK, names=[*names], number=len(names), **more)

    assert take(alice, "a", "b") == {**GRANTED, "names": ["a", "b"]}
    assert take(bob, "b", "c") is None
    assert take(carl, "c", "d") is None  # bob waits for c
    assert take(dora, "e") == {**GRANTED, "names": ["e"]}
    alice.release(kind=h.MULTILOCK)
    assert bob.answers() == {bob.request: {**GRANTED, "names": ["b", "c"]}}
    assert carl.answers() == {}
    bob.release(kind=h.MULTILOCK)
    assert carl.answers() == {carl.request: {**GRANTED, "names": ["c", "d"]}}
    for caller in (carl, dora):
        caller.release(kind=h.MULTILOCK)
    assert is_empty(board)


def test_some_of_several_locks_are_enough_if_so_many_are_asked_for(board, alice, bob):
    alice.acquire(kind=h.MULTILOCK, names=["a"], number=1)
    wanted = {"kind": h.MULTILOCK, "names": ["a", "b", "c"], "number": 2}
    assert bob.acquire(**wanted) == {**GRANTED, "names": ["b", "c"]}
    assert bob.acquire("2", "t", **wanted) == h.ALREADY_HELD
    assert bob.acquire("3", "t", **{**wanted, "number": 4}) == h.BAD_CALL


# --- Events ---------------------------------------------------------------------------------------


def test_an_event_lets_all_go_on_that_wait_and_stays_set(board, alice, bob):
    carl = Caller(board, "carl")
    assert bob.call(h.EVENT, "wait") is None
    assert carl.call(h.EVENT, "wait", timeout=3) is None
    assert alice.call(h.EVENT, "set") == {"set": True}
    assert bob.answers() == {bob.request: {"set": True}}
    assert carl.answers() == {carl.request: {"set": True}}
    assert alice.call(h.EVENT, "is_set") == {"set": True}
    board.send(alice.peer, m.Bye(reason=""))
    assert bob.call(h.EVENT, "wait") == {"set": True}
    assert bob.call(h.EVENT, "clear") == {"set": False}
    assert bob.call(h.EVENT, "wait", timeout=0) == {"set": False}
    assert is_empty(board)


# --- Queues ---------------------------------------------------------------------------------------


def test_values_leave_a_queue_in_order_each_to_one_client(board, alice, bob):
    for value in (b"1", b"2", b"3"):
        alice.put(value)
    assert bob.get() == [b"1"]
    assert alice.get() == [b"2"]
    assert bob.drain() == [b"3"]
    assert bob.drain() == {}
    assert bob.get() is None
    assert alice.get() is None
    alice.put(b"4")
    assert bob.answers() == {bob.request: [b"4"]}


def test_all_values_are_taken_without_waiting_also_before_a_batch_that_waits(board, alice, bob):
    bob.get(number=2)
    alice.put(b"1")
    assert alice.drain() == [b"1"]
    assert alice.drain() == {}


def test_a_full_queue_lets_puts_wait_until_there_is_room(board, alice, bob):
    assert alice.put(b"1", maxsize=1) == {}
    assert alice.put(b"2", maxsize=1) is None
    waiting = alice.request
    assert alice.put(b"3", timeout=1) is None
    late = alice.request
    board.tick(2)
    assert alice.answers() == {late: h.LATE}
    assert bob.get() == [b"1"]
    assert alice.answers() == {waiting: {}}
    assert bob.call(h.QUEUE, "count") == {"n": 1}
    assert bob.get(maxsize=2) == h.OTHER_LIMIT
    assert bob.get(number=2) == h.BAD_CALL


def test_a_batch_waits_for_all_of_its_values_and_is_not_overtaken(board, alice, bob):
    assert bob.get(number=2) is None
    assert alice.get() is None
    alice.put(b"1")
    assert bob.answers() == {}
    alice.put(b"2")
    assert bob.answers() == {bob.request: [b"1", b"2"]}


def test_a_batch_that_gives_up_lets_those_behind_have_what_there_is(board, alice, bob):
    bob.get(number=2, timeout=1)
    carl = Caller(board, "carl")
    carl.get()
    alice.put(b"1")
    assert carl.answers() == {}
    board.tick(2)
    assert bob.answers() == {bob.request: h.LATE}
    assert carl.answers() == {carl.request: [b"1"]}


def test_a_closed_queue_drops_its_values_and_refuses_those_that_wait(board, alice, bob):
    alice.put(b"1")
    bob.get()
    bob.get()
    assert alice.call(h.QUEUE, "close") == {}
    assert bob.answers() == {bob.request: h.CLOSED}
    assert alice.put(b"2") == h.CLOSED
    assert alice.call(h.QUEUE, "create") == {}
    assert alice.put(b"2") == {}


def test_an_answer_carries_at_least_one_value_and_not_too_many_bytes(board, alice, monkeypatch):
    monkeypatch.setattr("weft.scheduler.core.coordination.fifo.MAX_ANSWER_NBYTES", 5)
    for value in (b"1234567", b"12", b"34", b"56"):
        alice.put(value)
    assert alice.drain() == [b"1234567"]
    assert alice.drain() == [b"12", b"34"]


# --- Variables ------------------------------------------------------------------------------------


def test_a_variable_has_the_last_value_and_waits_for_the_first(board, alice, bob):
    assert bob.call(h.VARIABLE, "get") is None
    alice.call(h.VARIABLE, "set", values=[b"1"])
    assert bob.answers() == {bob.request: [b"1"]}
    alice.call(h.VARIABLE, "set", values=[b"2"])
    assert bob.call(h.VARIABLE, "get") == [b"2"]
    assert bob.call(h.VARIABLE, "delete") == {}
    assert bob.call(h.VARIABLE, "get", timeout=0) == h.LATE


# --- Values and futures ---------------------------------------------------------------------------


def test_the_future_in_a_queue_is_kept_until_its_reader_wants_it(board, alice, bob):
    worker = board.worker()
    board.send(alice.peer, graph("a"))
    board.finish(worker, "a")
    alice.put(b"future", "a")
    board.send(alice.peer, m.ReleaseKeys(keys=["a"]))
    assert board.states("a") == ["memory"]
    assert bob.get() == [b"future"]
    (answer,) = [x for x in board.out[bob.peer] if isinstance(x, m.Operated)]
    assert answer.keys == [["a"]]
    assert board.states("a") == ["memory"]
    board.send(
        bob.peer,
        m.WantKeys(keys=["a"]),
        m.Operate(request=0, operation=h.NOTE, acknowledged=[bob.request]),
    )
    assert board.states("a") == ["memory"]
    board.send(bob.peer, m.ReleaseKeys(keys=["a"]))
    assert board.states("a") == ["-"]


def test_the_future_in_a_variable_is_kept_until_another_value_is_set(board, alice):
    worker = board.worker()
    board.send(alice.peer, graph("a"))
    alice.call(h.VARIABLE, "set", values=[b"future"], keys=["a", "a"])
    board.send(alice.peer, m.ReleaseKeys(keys=["a"]))
    board.finish(worker, "a")
    assert board.states("a") == ["memory"]
    alice.call(h.VARIABLE, "set", values=[b"plain"])
    assert board.states("a") == ["-"]


def test_the_future_of_an_unknown_task_is_refused(board, alice):
    assert alice.put(b"future", "never submitted") == h.KEY_LOST
    assert alice.call(h.QUEUE, "count") == {"n": 0}


def test_a_future_that_is_cancelled_for_all_leaves_its_value_in_the_queue(board, alice, bob):
    board.send(alice.peer, graph("a"))
    alice.put(b"future", "a")
    board.send(alice.peer, m.CancelKeys(keys=["a"], force=True, reason=""))
    assert board.states("a") == ["-"]
    assert bob.get() == [b"future"]
    board.send(bob.peer, m.WantKeys(keys=["a"]))
    assert [x.keys for x in board.out[bob.peer] if isinstance(x, m.KeysUnknown)] == [["a"]]


def test_a_value_that_is_too_large_is_refused(board, alice, monkeypatch):
    assert alice.put(bytes(values.MAX_VALUE_NBYTES + 1)) == h.TOO_LARGE
    monkeypatch.setattr(values, "MAX_NBYTES", 1000)
    results = [alice.put(bytes(100)) for _ in range(5)]
    assert results == [{}, {}, {}, h.TOO_LARGE, h.TOO_LARGE]
    alice.drain()
    alice.call(h.QUEUE, "count", acknowledged=[alice.request])
    assert alice.put(bytes(100)) == {}


def test_objects_and_waiting_calls_are_bounded(board, alice, bob, monkeypatch):
    monkeypatch.setattr(operating, "MAX_OBJECTS", 2)
    monkeypatch.setattr(operating, "MAX_WAITING", 2)
    alice.call(h.EVENT, "set", "1")
    alice.call(h.EVENT, "set", "2")
    assert alice.call(h.EVENT, "set", "3") == h.TOO_LARGE
    assert [bob.call(h.EVENT, "wait", "3") for _ in range(2)] == [h.TOO_LARGE] * 2
    alice.call(h.EVENT, "clear", "2")
    waits = [bob.call(h.EVENT, "wait", "2") for _ in range(3)]
    assert waits == [None, None, h.BAD_CALL]


# --- Clients that come back, and that do not ------------------------------------------------------


def test_a_client_that_leaves_releases_what_it_holds_and_its_waits_end(board, alice, bob):
    alice.acquire()
    alice.call(h.EVENT, "wait")
    bob.acquire()
    board.send(alice.peer, m.Bye(reason=""))
    assert bob.answers() == {bob.request: GRANTED}
    board.send(bob.peer, m.Bye(reason=""))
    assert is_empty(board)


def test_the_locks_of_a_lost_client_are_released_with_its_lease_and_not_before(board, alice, bob):
    alice.acquire()
    bob.acquire()
    board.close(alice.peer)
    board.tick(LEASE_S - 1)
    assert bob.answers() == {}
    board.tick(2)
    assert bob.answers() == {bob.request: GRANTED}
    again = Caller(board, "alice")
    assert again.call(h.LOCK, "restate", lease="1", owner="t") == h.HOLD_LOST


def test_a_value_is_not_given_to_a_client_without_a_connection(board, alice, bob):
    assert alice.get() is None
    board.close(alice.peer)
    assert bob.put(b"1") == {}
    assert bob.get() == [b"1"]
    board.tick(LEASE_S + 1)
    assert bob.drain() == {}


def test_a_client_that_is_back_has_its_place_in_the_lane_again(board, alice, bob):
    assert alice.get() is None
    waits = alice.request
    assert bob.get() is None
    board.close(alice.peer)
    carl = Caller(board, "carl")
    assert carl.get(number=2) is None
    again = Caller(board, "alice")
    assert again.call(h.QUEUE, "get", request=waits, number=1) is None
    carl.put(b"1")
    assert again.answers() == {waits: [b"1"]}
    carl.put(b"2")
    assert bob.answers() == {bob.request: [b"2"]}


def test_those_behind_a_client_that_goes_have_what_is_enough_for_them(board, alice, bob):
    assert alice.get(number=2) is None
    assert bob.get() is None
    bob.put(b"1")
    assert bob.answers() == {bob.request: {}}
    board.close(alice.peer)
    assert bob.answers() == {bob.request - 1: [b"1"]}


def test_a_client_that_is_back_gets_at_once_what_has_come_meanwhile(board, alice, bob):
    assert alice.get() is None
    waits = alice.request
    board.close(alice.peer)
    bob.put(b"1")
    again = Caller(board, "alice")
    assert again.answers() == {waits: [b"1"]}


def test_a_wait_of_a_client_without_a_connection_ends_in_time(board, alice, bob):
    assert alice.get(timeout=5) is None
    waits = alice.request
    board.close(alice.peer)
    board.tick(6)
    bob.put(b"1")
    again = Caller(board, "alice")
    assert again.call(h.QUEUE, "get", request=waits, number=1, timeout=5) == h.LATE


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (h.LOCK, {}),
        (h.SEMAPHORE, {"limit": 1}),
        (h.LIMIT, {"limit": 1, "per_s": 0}),
        (h.MULTILOCK, {"names": ["a"], "number": 1}),
    ],
)
def test_no_lease_is_given_to_a_client_without_a_connection(board, alice, bob, kind, options):
    assert alice.acquire(kind=kind, **options)["granted"]
    assert bob.acquire(kind=kind, **options) is None
    waits = bob.request
    carl = Caller(board, "carl")
    assert carl.acquire(kind=kind, **options) is None
    board.close(bob.peer)
    alice.release(kind=kind, **options)
    assert carl.answers()[carl.request]["granted"]
    again = Caller(board, "bob")
    carl.release(kind=kind, **options)
    assert again.answers()[waits]["granted"]


def test_a_lock_is_not_given_to_a_client_that_went_during_the_recovery():
    board = Board(expected=Members((), ("alice",)), client_lease_s=600)
    bob, carl = Caller(board, "bob"), Caller(board, "carl")
    assert bob.acquire() is None
    waits = bob.request
    assert carl.acquire() is None
    board.close(bob.peer)
    board.tick(80)
    assert board.state.recovery is None
    assert carl.call(h.LOCK, "count") == {"n": 1}
    assert carl.release() == {}
    assert Caller(board, "bob").answers() == {waits: GRANTED}


def test_those_that_wait_for_no_gift_go_on_while_their_client_is_away(board, alice, bob):
    """A put, an event, a variable: nobody has less by it."""
    alice.put(b"1", maxsize=1)
    alice.put(b"2", maxsize=1)
    put = alice.request
    alice.call(h.EVENT, "wait")
    wait = alice.request
    board.close(alice.peer)
    assert bob.get() == [b"1"]
    assert bob.get() == [b"2"]
    bob.call(h.EVENT, "set")
    again = Caller(board, "alice")
    assert again.call(h.QUEUE, "put", request=put, values=[b"2"], maxsize=1) == {}
    assert again.call(h.EVENT, "wait", request=wait) == {"set": True}


@pytest.mark.parametrize("is_killed", [True, False])
def test_values_that_a_client_has_not_acknowledged_are_in_the_queue_when_it_is_gone(
    board, alice, bob, is_killed
):
    for value in (b"1", b"2", b"3", b"4"):
        bob.put(value)
    assert alice.get() == [b"1"]
    taken = alice.request
    assert alice.get(acknowledged=[taken]) == [b"2"]
    assert alice.drain() == [b"3", b"4"]
    assert bob.get() is None
    if is_killed:
        board.close(alice.peer)
        board.tick(LEASE_S + 1)
    else:
        board.send(alice.peer, m.Bye(reason=""))
    assert bob.answers() == {bob.request: [b"2"]}
    assert bob.drain() == [b"3", b"4"]


def test_a_client_that_is_back_in_time_holds_what_it_held(board, alice, bob):
    alice.acquire()
    board.close(alice.peer)
    again = Caller(board, "alice")
    assert again.call(h.LOCK, "restate", request=5, lease="1", owner="t") == {}
    assert bob.acquire(timeout=0) == LATE


def test_a_call_that_is_sent_again_is_done_once(board, alice, bob):
    alice.put(b"1")
    put = alice.request
    alice.get()
    got = alice.request
    bob.acquire()
    alice.acquire("lease")
    waits = alice.request
    board.close(alice.peer)
    again = Caller(board, "alice")
    board.send(
        again.peer,
        m.Operate(request=0, operation=h.RESUME, arguments={"pending": [put, got, waits]}),
    )
    assert again.call(h.QUEUE, "put", request=put, values=[b"1"]) == {}
    assert again.call(h.QUEUE, "get", request=got) == [b"1"]
    assert again.call(h.LOCK, "acquire", request=waits, lease="lease", owner="t") is None
    assert again.call(h.QUEUE, "count", request=99) == {"n": 0}
    bob.release()
    assert again.answers() == {waits: GRANTED}


def test_a_value_that_the_client_has_not_read_comes_again_when_it_is_back(board, alice):
    alice.put(b"1")
    alice.get()
    got = alice.request
    board.close(alice.peer)
    again = Caller(board, "alice")
    message = m.Operate(request=0, operation=h.RESUME, arguments={"pending": [got]})
    board.send(again.peer, message)
    assert again.call(h.QUEUE, "get", request=got) == [b"1"]


def test_a_get_that_could_be_served_does_not_overtake_one_that_waits_for_more(board, alice, bob):
    assert alice.get(number=2) is None
    waits = alice.request
    bob.put(b"1")
    assert bob.get() is None
    bob.put(b"2")
    assert alice.answers() == {waits: [b"1", b"2"]}
    assert bob.put(b"3") == {}
    assert bob.answers() == {bob.request: {}, bob.request - 2: [b"3"]}


def test_values_that_are_given_back_are_in_the_order_in_which_they_were_put(board, alice, bob):
    for value in (b"1", b"2", b"3"):
        alice.put(value)
    assert bob.get(number=2) == [b"1", b"2"]
    bob.withdraw(bob.request)
    assert alice.drain() == [b"1", b"2", b"3"]


def test_answers_that_the_client_had_are_forgotten_when_it_is_back(board, alice):
    alice.put(b"1")
    alice.get()
    board.close(alice.peer)
    again = Caller(board, "alice")
    board.send(again.peer, m.Operate(request=0, operation=h.RESUME, arguments={"pending": []}))
    (calls,) = objects_of(board.state).calls.values()
    assert calls.answered == {}
    assert values_of(board.state).nbytes == 0


def test_a_client_that_acknowledges_nothing_is_refused_in_the_end(board, alice, bob, monkeypatch):
    monkeypatch.setattr(operating, "MAX_ANSWERED", 10)
    for _ in range(10):
        assert alice.put(b"1") == {}
    for _ in range(5):
        assert alice.put(b"1") == h.BAD_CALL
    calls = objects_of(board.state).calls[board.state.clients["alice"]]
    assert len(calls.answered) == 10
    assert alice.withdraw(1) == {}  # which is not kept either
    assert bob.put(b"1") == {}
    # An honest client acknowledges with its next call.
    assert alice.put(b"1", acknowledged=[*calls.answered]) == {}
    assert len(calls.answered) == 1
    (record,) = objects_of(board.state).records.values()
    assert len(record.items) == 12


def test_an_answer_has_no_more_futures_than_a_message_may_have(board, alice, monkeypatch):
    monkeypatch.setattr(fifo, "MAX_ANSWER_KEYS", 3)
    monkeypatch.setattr(fifo, "MAX_ANSWER_KEYS_NBYTES", 10)
    board.send(alice.peer, graph("a b c d long-key and-a-longer-one"))
    alice.put(b"1", "a", "b", "c", "d")  # alone it came in a message, too
    alice.put(b"2", "a", "b")
    alice.put(b"3", "c")
    alice.put(b"4", "d")
    alice.put(b"5", "long-key")
    alice.put(b"6", "and-a-longer-one")
    assert [alice.drain() for _ in range(4)] == [[b"1"], [b"2", b"3"], [b"4", b"5"], [b"6"]]
    assert alice.drain() == {}


def test_a_withdrawn_wait_is_dropped_and_those_behind_it_go_on(board, alice, bob):
    bob.get(number=2)
    carl = Caller(board, "carl")
    carl.get()
    alice.put(b"1")
    assert bob.withdraw(bob.request) == {}
    assert carl.answers() == {carl.request: [b"1"]}


def test_a_withdrawn_call_gives_back_what_it_has_got(board, alice, bob):
    alice.acquire()
    bob.acquire()
    assert alice.withdraw(alice.request) == {}
    assert bob.answers() == {bob.request: GRANTED}
    alice.put(b"1")
    alice.put(b"2")
    alice.get()
    alice.withdraw(alice.request)
    assert alice.get() == [b"1"]
    several = {"kind": h.MULTILOCK, "names": ["a"], "number": 1}
    alice.acquire(**several)
    alice.withdraw(alice.request)
    assert bob.acquire(**several) == {**GRANTED, "names": ["a"]}


def test_a_new_scheduler_gives_no_lock_before_its_old_holder_could_be_back():
    board = Board(expected=Members((), ("alice", "bob")))
    bob = Caller(board, "bob", last_epoch=1)
    assert bob.acquire(timeout=0) is None
    nonblocking = bob.request
    assert bob.acquire("2", "other") is None
    waits = bob.request
    assert bob.call(h.EVENT, "set", "e") == {"set": True}
    board.send(bob.peer, m.Resubmitted())
    board.tick(1)
    assert board.state.recovery is not None
    alice = Caller(board, "alice", last_epoch=1)
    assert alice.call(h.LOCK, "restate", lease="a", owner="t") == {}
    board.send(alice.peer, m.Resubmitted())
    board.tick(10)
    assert board.state.recovery is None
    assert bob.answers() == {nonblocking: LATE}
    assert alice.release("a") == {}
    assert bob.answers() == {waits: GRANTED}


def test_a_call_that_is_put_off_ends_in_time():
    board = Board(expected=Members((), ("alice",)))
    bob = Caller(board, "bob")
    assert bob.acquire(timeout=2) is None
    assert bob.acquire("2", timeout=90) is None
    assert bob.call(h.EVENT, "wait", timeout=1) is None
    board.tick(1.5)
    assert bob.answers() == {3: {"set": False}}
    board.tick(1)
    assert board.state.recovery is not None
    assert bob.answers() == {1: LATE}
    board.tick(1)
    assert board.state.recovery is None
    assert bob.answers() == {2: GRANTED}


def test_the_time_of_a_call_counts_from_its_begin_also_if_it_was_put_off():
    board = Board(expected=Members((), ("alice",)))
    bob, carl = Caller(board, "bob"), Caller(board, "carl")
    bob.acquire()
    carl.acquire(timeout=10)
    board.tick(9)
    assert board.state.recovery is None
    assert bob.answers() == {1: GRANTED}
    assert carl.answers() == {}
    board.tick(2)
    assert carl.answers() == {1: LATE}


def test_calls_that_are_put_off_can_be_withdrawn_and_end_with_their_client():
    board = Board(expected=Members((), ("alice",)))
    bob, carl = Caller(board, "bob"), Caller(board, "carl")
    bob.acquire()
    carl.acquire()
    bob.withdraw(bob.request)
    board.send(carl.peer, m.Bye(reason=""))
    board.tick(100)
    assert objects_of(board.state).deferred == {}
    assert is_empty(board)


# --- Wrong calls ----------------------------------------------------------------------------------


def test_a_viewer_may_not_operate(board):
    viewer = board.connect(Role.VIEWER)
    out = board.send(viewer, m.Operate(request=3, operation="set", kind=h.EVENT, name="x"))
    assert out[viewer] == [m.Denied(request=3, needed=Level.CLIENT.label, level=Level.VIEW.label)]


@pytest.mark.parametrize(
    ("kind", "operation", "arguments"),
    [
        ("tree", "climb", {}),
        (h.LOCK, "climb", {}),
        (h.LOCK, "create", {}),
        (h.LOCK, "acquire", {}),
        (h.LOCK, "acquire", {"lease": 1, "owner": "t"}),
        (h.LOCK, "acquire", {"lease": "1", "owner": ""}),
        (h.LOCK, "acquire", {"lease": "1", "owner": "t", "timeout": -1}),
        (h.LOCK, "acquire", {"lease": "1", "owner": "t", "timeout": float("nan")}),
        (h.LOCK, "acquire", {"lease": "1", "owner": "t", "timeout": "long"}),
        (h.LOCK, "restate", {"lease": "1"}),
        (h.SEMAPHORE, "acquire", {"lease": "1", "owner": "t", "limit": 0}),
        (h.SEMAPHORE, "create", {"limit": -1}),
        (h.SEMAPHORE, "create", {"limit": True}),
        (h.SEMAPHORE, "create", {"limit": 1 << 50}),
        (h.MULTILOCK, "acquire", {"lease": "1", "owner": "t"}),
        (h.MULTILOCK, "acquire", {"lease": "1", "owner": "t", "names": []}),
        (h.MULTILOCK, "acquire", {"lease": "1", "owner": "t", "names": [1]}),
        (h.MULTILOCK, "acquire", {"lease": "1", "owner": "t", "names": ["a", "a"]}),
        (h.MULTILOCK, "acquire", {"lease": "1", "owner": "t", "names": ["a"], "number": 2}),
        (h.MULTILOCK, "restate", {"lease": "1", "owner": "t", "names": "a"}),
        (h.QUEUE, "create", {"maxsize": -1}),
        (h.QUEUE, "put", {}),
        (h.QUEUE, "put", {"values": [b"1", b"2"]}),
        (h.QUEUE, "get", {"number": 0}),
        (h.QUEUE, "get", {"number": 1 << 30}),
        (h.VARIABLE, "set", {}),
    ],
)
def test_a_wrong_call_is_refused_and_changes_nothing(board, alice, kind, operation, arguments):
    assert alice.call(kind, operation, **arguments) == h.BAD_CALL
    board.send(alice.peer, m.Bye(reason=""))
    assert board.refused() == []
    assert is_empty(board)


@pytest.mark.parametrize("name", ["", "n" * 1025])
def test_a_name_that_is_empty_or_too_long_is_refused(board, alice, name):
    assert alice.call(h.EVENT, "set", name) == h.BAD_CALL


@pytest.mark.parametrize("argument", [None, "1", [1], 10**30, -1, True])
def test_sessions_of_wrong_content_change_nothing(board, alice, argument):
    alice.acquire()
    for operation, name in ((h.WITHDRAW, "request"), (h.RESUME, "pending")):
        message = m.Operate(request=70, operation=operation, arguments={name: argument})
        board.send(alice.peer, message)
    board.send(alice.peer, m.Operate(request=71, operation=h.WITHDRAW, arguments={"request": 71}))
    assert board.refused() == []
    assert alice.call(h.LOCK, "count") == {"n": 1}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30))
def test_any_calls_in_any_order_leave_nothing_behind(seed):
    rng = random.Random(seed)
    board = Board(client_lease_s=5.0)
    worker = board.worker()
    callers = [Caller(board, name) for name in "abc"]
    board.send(callers[0].peer, graph("k1", "k2"))
    operations = [(kind, op) for kind, of in operating.KINDS.items() for op in of.operations]
    for _ in range(300):
        caller = rng.choice(callers)
        roll = rng.random()
        if roll < 0.03:
            board.close(caller.peer)
            if rng.random() < 0.5:
                board.tick(rng.choice([1.0, 6.0]))
            callers[callers.index(caller)] = back = Caller(board, caller.name)
            back._numbers = caller._numbers
        elif roll < 0.1:
            caller.withdraw(rng.randint(1, 300))
        elif roll < 0.15:
            board.tick(rng.random())
        elif roll < 0.17:
            for key in ("k1", "k2"):
                if board.states(key) == ["processing"]:
                    board.finish(worker, key)
        else:
            kind, operation = rng.choice(operations)
            arguments: dict[str, Any] = {"lease": rng.choice("12"), "owner": rng.choice("tu")}
            arguments |= {"limit": 2} if kind == h.SEMAPHORE else {}
            arguments |= {"maxsize": rng.choice([0, 2])} if kind == h.QUEUE else {}
            arguments |= {"number": rng.choice([1, 2])} if kind == h.QUEUE else {}
            if kind == h.MULTILOCK:
                arguments["names"] = rng.sample("wxyz", k=rng.randint(1, 3))
                arguments["number"] = rng.randint(1, len(arguments["names"]))
            arguments["timeout"] = rng.choice([None, 0, 0.5, 3])
            if operation in ("put", "set"):
                arguments["values"] = [b"v"]
                arguments["keys"] = rng.sample(["k1", "k2"], k=rng.randint(0, 2))
            if rng.random() < 0.5:
                arguments["acknowledged"] = [rng.randint(1, 300)]
            caller.call(kind, operation, rng.choice("nm"), **arguments)
        assert not [why for why in board.refused() if "silent" not in why]
    for caller in callers:
        for name in "nm":
            caller.call(h.QUEUE, "close", name)
            caller.call(h.VARIABLE, "delete", name)
            caller.call(h.EVENT, "clear", name)
    for caller in callers:
        board.send(caller.peer, m.Bye(reason=""))
    assert is_empty(board)
    assert objects_of(board.state).calls == {}
    assert board.state.tasks == {}


# --- The invariants -------------------------------------------------------------------------------


class BrokenObjects:
    """A board with objects of each kind, whose state is to be broken by hand."""

    def __init__(self) -> None:
        self.board = Board()
        self.state = self.board.state
        alice, bob = Caller(self.board, "alice"), Caller(self.board, "bob")
        alice.acquire()
        bob.acquire(timeout=100)
        alice.acquire(kind=h.MULTILOCK, names=["a"], number=1)
        alice.call(h.EVENT, "set", "set")
        self.board.send(alice.peer, graph("k"))
        alice.put(b"v", "k")
        bob.call(h.VARIABLE, "get")
        alice.acquire(kind=h.LIMIT, limit=5, per_s=1.0)
        self.objects = objects_of(self.state)
        self.alice, self.bob = self.state.clients.values()
        self.lock, self.multi, self.event, self.queue, self.variable, self.limit = (
            self.objects.records.values()
        )
        self.waiting = next(iter(self.objects.calls[self.bob].waiting.values()))
        self.stranger = ClientHandle("stranger", "stranger", 9)

    def forget_wait(self) -> None:
        self.objects.calls[self.bob].waiting.pop(self.waiting.request)

    def turn_round(self) -> None:
        Caller(self.board, "carl").acquire(timeout=100)
        self.waiting.place += 10

    def put_off(self) -> None:
        self.objects.deferred[Call(self.bob, 77, h.LOCK, "x", "acquire", {})] = None

    def miscount_value(self) -> None:
        self.queue.items[0].n_uses += 1

    def miscount_metadata(self) -> None:
        record = MetadataRecord(h.METADATA, "all")
        record.tree["a"] = 1
        self.objects.records[h.METADATA, "all"] = record

    def miscount_key(self) -> None:
        values_of(self.state).n_uses["k"] += 1

    def want_more(self) -> None:
        values_of(self.state).n_uses.clear()


BREAKAGES = {
    "coordination objects are filed by kind and name": lambda b: setattr(b.lock, "name", "y"),
    "no coordination object is idle": lambda b: setattr(b.event, "is_set", False),
    "a semaphore has at most as many leases as its limit": lambda b: setattr(b.lock, "limit", 0),
    "the due turn of a limit is a deadline": lambda b: setattr(
        b.limit, "due", Deadline(0.0, None, ())
    ),
    "holders are leases of clients that use the object": lambda b: b.lock.holders.update(
        {Holder(b.stranger, "1"): "t"}
    ),
    "each lock of a MultiLock is held by a holder with an owner": lambda b: b.multi.holders.clear(),
    "each owner of a MultiLock holds one of its locks": lambda b: b.multi.holders.update(
        {Holder(b.alice, "2"): "t"}
    ),
    "users of coordination objects are known clients, and have it among their records": lambda b: (
        b.objects.calls[b.alice].records.pop(b.lock)
    ),
    "clients with calls are known": lambda b: b.objects.calls.update(
        {b.stranger: b.objects.calls[b.alice]}
    ),
    "records of a client have it among their users": lambda b: b.event.users.clear(),
    "no lane of a coordination object is empty": lambda b: b.lock.lanes.update({"other": {}}),
    "a call in a lane waits there, and its client has it": lambda b: b.forget_wait(),
    "the calls of a lane are in the order in which they came": lambda b: b.turn_round(),
    "a call that is given something waits aside while its client is away": lambda b: setattr(
        b.bob, "peer", None
    ),
    "waits files calls in lanes by the thread or task that waits": lambda b: b.objects.waits.update(
        {77: b.waiting}
    ),
    "a call that waits is in its lane, or put off": lambda b: b.lock.lanes.clear(),
    "a call is not both answered and waiting": lambda b: b.objects.calls[b.bob].answered.update(
        {b.waiting.request: next(iter(b.objects.calls[b.alice].answered.values()))}
    ),
    "calls are put off only while recovering": lambda b: b.put_off(),
    "a call put off is one that waits": lambda b: b.put_off(),
    "a call with a time limit that waits in a lane has a deadline": lambda b: setattr(
        b.waiting, "deadline", None
    ),
    "no call waits whose turn has come": lambda b: b.lock.holders.clear(),
    "n_uses of a value counts its places": lambda b: b.miscount_value(),
    "held bytes are the sum over the values": lambda b: setattr(values_of(b.state), "nbytes", 0),
    "the size of the metadata is the sum over its items": lambda b: b.miscount_metadata(),
    "marks are filed by the number of what is set, and by the place of what is deleted": lambda b: (
        marks_of(b.state).set.clear()
    ),
    "a mark without a number has marks below it": lambda b: marks_of(b.state).root.below.update(
        {"?": Mark()}
    ),
    "what has the mark of a setting is there": lambda b: setattr(b.event, "is_set", False),
    "events of topics are filed in the order in which they came": lambda b: topics_of(
        b.state
    ).order.update({5: b.queue}),
    "the size of a topic, and of all, is the sum over the events": lambda b: setattr(
        topics_of(b.state), "nbytes", 1
    ),
    "topics with events are filed by name": lambda b: topics_of(b.state).records.update(t=b.queue),
    "n_uses of a key counts the values with it": lambda b: b.miscount_key(),
    "the keeper wants only tasks of values, and they know it": lambda b: b.want_more(),
}


@pytest.mark.parametrize("name", OBJECT_INVARIANTS)
def test_each_broken_invariant_is_named(name):
    broken = BrokenObjects()
    validate(broken.state)
    BREAKAGES[name](broken)
    with pytest.raises(InvalidState) as error:
        validate(broken.state)
    assert name in str(error.value)
