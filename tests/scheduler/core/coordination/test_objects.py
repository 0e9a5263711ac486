"""Coordination objects: what each kind does while its clients are there."""

from __future__ import annotations

from typing import Any

from tests.scheduler.builders import graph
from tests.scheduler.callers import Caller
from tests.scheduler.core.coordination.objects_kit import GRANTED, is_empty
from weft.protocol.wire import messages as m
from weft.protocol.wire.messages import coordination as h
from weft.scheduler.core.coordination import operating, values

# --- Locks and semaphores -------------------------------------------------------------------------


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


def test_a_closed_semaphore_may_be_made_anew_with_another_limit(board, alice, bob):
    options = {"kind": h.SEMAPHORE, "limit": 1}
    alice.acquire(**options)
    assert alice.call(h.SEMAPHORE, "close", limit=1) == {}
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


def test_an_answer_carries_at_least_one_value_and_not_too_many_bytes(board, alice, monkeypatch):
    monkeypatch.setattr("weft.scheduler.core.coordination.queues.MAX_ANSWER_NBYTES", 5)
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
    assert board.rest() == ["Operated"]


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
    assert board.rest() == ["DropAttempts", "DropFunctions"]


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
