"""Calls and objects of clients that are away, come back, or are gone for good."""

from __future__ import annotations

import pytest

from tests.scheduler.builders import Board, graph
from tests.scheduler.callers import Caller
from tests.scheduler.core.coordination.objects_kit import GRANTED, LATE, LEASE_S
from weft.protocol.wire import messages as m
from weft.protocol.wire.messages import coordination as h
from weft.protocol.wire.session import MOST_DELAY_S
from weft.scheduler.core.coordination import operating, queues
from weft.scheduler.core.coordination.records import objects_of
from weft.scheduler.core.coordination.values import values_of
from weft.scheduler.core.members.epochs import KeepMembers
from weft.scheduler.core.records.presence import Members


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
    monkeypatch.setattr(queues, "MAX_ANSWER_KEYS", 3)
    monkeypatch.setattr(queues, "MAX_ANSWER_KEYS_NBYTES", 10)
    board.send(alice.peer, graph("a b c d long-key and-a-longer-one"))
    alice.put(b"1", "a", "b", "c", "d")  # alone it came in a message, too
    alice.put(b"2", "a", "b")
    alice.put(b"3", "c")
    alice.put(b"4", "d")
    alice.put(b"5", "long-key")
    alice.put(b"6", "and-a-longer-one")
    assert [alice.drain() for _ in range(4)] == [[b"1"], [b"2", b"3"], [b"4", b"5"], [b"6"]]
    assert alice.drain() == {}


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
    assert board.state.awaits_peers
    alice = Caller(board, "alice", last_epoch=1)
    assert alice.call(h.LOCK, "restate", lease="a", owner="t") == {}
    board.send(alice.peer, m.Resubmitted())
    board.tick(10)
    assert not board.state.awaits_peers
    assert bob.answers() == {nonblocking: LATE}
    assert alice.release("a") == {}
    assert bob.answers() == {waits: GRANTED}
    assert board.rest() == ["Recovered", "Recovered"]


@pytest.mark.parametrize("worker_id", ["", "id of w"], ids=["of a user", "in a task"])
def test_a_holder_has_its_lock_still_if_its_next_attempt_to_come_back_is_as_late_as_can_be(
    worker_id,
):
    old = Board(away_s=5.0)
    old.worker("w")
    assert Caller(old, "alice", worker_id=worker_id).acquire() == GRANTED
    Caller(old, "bob")
    old.tick(2)
    expected = [a.members for a in old.actions if isinstance(a, KeepMembers)][-1]

    board = Board(away_s=5.0, expected=expected)
    board.come_back("w", last_epoch=1)
    bob = Caller(board, "bob", last_epoch=1)
    assert bob.acquire() is None
    waits = bob.request
    board.send(bob.peer, m.Resubmitted())
    board.tick(MOST_DELAY_S)
    assert bob.answers() == {}
    alice = Caller(board, "alice", last_epoch=1, worker_id=worker_id)
    assert alice.call(h.LOCK, "restate", lease="1", owner="t") == {}
    board.send(alice.peer, m.Resubmitted())
    board.tick(1)
    assert not board.state.awaits_peers
    assert bob.answers() == {}
    assert alice.release() == {}
    assert bob.answers() == {waits: GRANTED}
    assert board.rest() == ["Recovered", "Recovered"]


def test_the_time_of_a_call_counts_from_its_begin_also_if_it_was_put_off():
    board = Board(expected=Members((), ("alice",)))
    bob, carl = Caller(board, "bob"), Caller(board, "carl")
    bob.acquire()
    carl.acquire(timeout=10)
    board.tick(9)
    assert not board.state.awaits_peers
    assert bob.answers() == {1: GRANTED}
    assert carl.answers() == {}
    board.tick(2)
    assert carl.answers() == {1: LATE}
    assert board.rest() == ["Recovered", "Recovered"]


def test_a_lock_that_was_given_away_after_a_restart_is_not_blamed_on_the_lease_of_its_client(board):
    bob = Caller(board, "bob")
    assert bob.acquire() == GRANTED
    alice = Caller(board, "alice", last_epoch=3)
    assert alice.call(h.LOCK, "restate", lease="a", owner="t") == h.HOLD_LOST
    assert "the scheduler was started again" in alice.text
    board.close(alice.peer)
    alice = Caller(board, "alice", last_epoch=board.state.epoch)  # it has not read the answer
    assert alice.call(h.LOCK, "restate", lease="a", owner="t") == h.HOLD_LOST
    assert "the scheduler was started again" in alice.text
