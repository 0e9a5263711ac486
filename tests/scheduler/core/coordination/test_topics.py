"""Topics and their events, by events of the scheduler's core."""

from __future__ import annotations

from typing import Any

import pytest

from tests.scheduler.builders import Board, graph
from tests.scheduler.callers import Caller
from weft.protocol.errors import InvalidState
from weft.protocol.wire import messages as m
from weft.protocol.wire.messages import coordination as h
from weft.protocol.wire.plain import unpack
from weft.scheduler.core.coordination import topics
from weft.scheduler.core.coordination.cluster_events import EVENT_INVARIANTS
from weft.scheduler.core.coordination.records import TopicRecord, objects_of
from weft.scheduler.core.coordination.topics import topics_of
from weft.scheduler.core.invariants.validate import validate


def log(caller: Caller, topic: str, *values: bytes, time: Any = 5.0, keys: Any = ()) -> Any:
    for value in values:
        answer = caller.call(h.TOPIC, "log", topic, time=time, values=[value], keys=[*keys])
    return answer


def last(caller: Caller, topic: str) -> int:
    number: int = caller.call(h.TOPIC, "last", topic)["last"]
    return number


def following(caller: Caller, topic: str, after: int) -> Any:
    return caller.call(h.TOPIC, "next", topic, after=after)


def new(caller: Caller) -> list[m.Operated]:
    out = caller.board.out.get(caller.peer, [])
    return [x for x in out if isinstance(x, m.Operated) and x.values]


def test_the_last_events_are_read_in_order(board, alice, bob):
    assert log(alice, "t", b"a", b"b") == {}
    assert bob.call(h.TOPIC, "all", "t") == [b"a", b"b"]
    assert bob.call(h.TOPIC, "all", "other") == {"numbers": [], "times": []}
    assert bob.call(h.TOPIC, "names", "all") == {"names": ["scheduler", "t"]}


def test_each_subscription_gets_what_comes_after_its_last_event(board, alice, bob):
    carl = Caller(board, "carl")
    log(alice, "t", b"before")
    start = last(bob, "t")
    assert following(bob, "t", start) is None
    assert following(carl, "t", start) is None
    log(alice, "t", b"a")
    (answer,) = new(bob)
    assert answer.values == [b"a"]
    assert answer.info == {"numbers": [start + 1], "times": [5.0], "n_missed": 0}
    assert [x.values for x in new(carl)] == [[b"a"]]
    assert following(carl, "t", start + 1) is None
    log(alice, "t", b"b")
    assert following(bob, "t", start + 1) == [b"b"]
    # One that has caught up and waits does not hold up one that lacks events.
    assert following(bob, "t", start + 2) is None
    assert following(carl, "t", start) == [b"a", b"b"]
    assert board.rest() == ["Operated"]


def test_a_topic_without_events_can_be_subscribed_to(board, alice, bob):
    assert following(bob, "t", last(bob, "t")) is None
    log(alice, "other", b"x", b"y")
    log(alice, "t", b"a")
    assert [x.values for x in new(bob)] == [[b"a"]]
    assert new(bob)[0].info["n_missed"] == 0


def test_the_number_of_missed_events_is_reported(board, alice, bob, monkeypatch):
    monkeypatch.setattr(topics, "MAX_EVENTS", 2)
    start = last(bob, "t")
    log(alice, "t", b"a", b"b", b"c", b"d", b"e")
    assert following(bob, "t", start) == [b"d", b"e"]
    assert new(bob)[0].info["n_missed"] == 3


def test_the_number_of_a_later_scheduler_is_larger(board, alice):
    later = Board(client_lease_s=60.0)
    later.state.first_attempt = board.state.first_attempt + 10**6  # as its epoch is later
    log(alice, "t", b"a")
    assert last(Caller(later, "bob"), "t") > last(alice, "t")


def test_the_sizes_of_topics_are_limited(board, alice, monkeypatch):
    monkeypatch.setattr(topics, "MAX_TOPIC_NBYTES", 1000)
    log(alice, "t", b"a" * 300, b"b" * 300, b"c" * 300)
    assert alice.call(h.TOPIC, "all", "t") == [b"b" * 300, b"c" * 300]
    monkeypatch.setattr(topics, "MAX_NBYTES", 1600)
    log(alice, "u", b"d" * 500)
    assert alice.call(h.TOPIC, "all", "t") == [b"c" * 300]
    monkeypatch.setattr(topics, "MAX_TOPICS", 2)
    log(alice, "v", b"e")
    assert alice.call(h.TOPIC, "names", "all") == {"names": ["scheduler", "u", "v"]}
    alice.call(h.TOPIC, "names", "all", acknowledged=[*range(1, 9)])
    assert log(alice, "u", b"f" * 70_000) == h.TOO_LARGE


def test_wrong_events_are_refused(board, alice):
    board.send(alice.peer, graph("a"))
    assert log(alice, "t", b"a", keys=["a"]) == h.BAD_CALL
    assert log(alice, "t", b"a", time="now") == h.BAD_CALL
    assert log(alice, "t", b"a", time=float("nan")) == h.BAD_CALL
    assert following(alice, "t", -1) == h.BAD_CALL
    assert following(alice, "t", "a") == h.BAD_CALL  # type: ignore[arg-type]
    assert not objects_of(board.state).records


def test_an_end_of_subscribers_leaves_nothing(board, alice, bob):
    following(bob, "t", last(bob, "t"))
    board.send(bob.peer, m.Bye(reason=""))
    board.close(bob.peer)
    assert not objects_of(board.state).records


BREAKAGES = {
    "events of topics are filed in the order": lambda r, t: t.order.clear(),
    "the size of a topic, and of all": lambda r, t: setattr(r, "nbytes", 5),
    "topics with events are filed by name": lambda r, t: t.records.clear(),
}


@pytest.mark.parametrize("name", BREAKAGES)
def test_each_broken_invariant_of_topics_is_named(board, alice, name):
    log(alice, "t", b"a")
    record = objects_of(board.state).records[h.TOPIC, "t"]
    assert isinstance(record, TopicRecord)
    BREAKAGES[name](record, topics_of(board.state))
    with pytest.raises(InvalidState) as error:
        validate(board.state)
    assert name in str(error.value)


def plain(answer: m.Operated) -> list[Any]:
    assert answer.info["are_plain"] is True
    return [unpack(blob)["event"] for blob in answer.values]


def test_the_scheduler_s_own_events_are_a_topic(board, alice, bob):
    worker = board.worker("w")
    board.send(alice.peer, graph("a"))
    board.raise_(worker, "a")
    board.close(worker)
    bob.call(h.TOPIC, "all", "scheduler")
    (answer,) = [x for x in board.out[bob.peer] if isinstance(x, m.Operated)]
    assert plain(answer)[-3:] == ["worker-joined", "task-failed", "worker-lost"]
    assert unpack(answer.values[-2]) == {
        "event": "task-failed",
        "key": "a",
        "function": "inc",
        "kind": "exception",
        "text": "ValueError",
        "worker": "w",
    }
    assert answer.info["times"] == sorted(answer.info["times"])
    assert bob.call(h.TOPIC, "names", "all") == {"names": ["scheduler"]}
    assert log(bob, "scheduler", b"a") == h.BAD_CALL
    assert not objects_of(board.state).records


def test_a_worker_that_goes_away_comes_back_and_leaves_is_an_event_each_time():
    board = Board(away_s=5.0)
    bob = Caller(board, "bob")
    first = board.worker("w")
    board.close(first)
    peer = board.come_back("w", last_epoch=board.state.epoch)
    board.send(peer, m.WorkerLeaving(reason="SIGTERM"))
    board.send(peer, m.Bye(reason="SIGTERM"))
    bob.call(h.TOPIC, "all", "scheduler")
    (answer,) = [x for x in board.out[bob.peer] if isinstance(x, m.Operated)]
    assert plain(answer)[-5:] == [
        *("worker-joined", "worker-away", "worker-back", "worker-leaving", "worker-left"),
    ]
    assert unpack(answer.values[-2]) == {
        "event": "worker-leaving",
        "worker": "w",
        "reason": "SIGTERM",
    }


def test_a_worker_that_is_away_without_its_event_breaks_an_invariant():
    board = Board(away_s=5.0)
    board.close(board.worker("w"))
    topics_of(board.state).away.clear()
    (name,) = EVENT_INVARIANTS
    with pytest.raises(InvalidState, match=name):
        validate(board.state)


def test_those_that_wait_get_the_scheduler_s_events_of_one_moment_together(board, bob):
    assert following(bob, "scheduler", last(bob, "scheduler")) is None
    board.worker("v")
    board.client("carl")
    board.tick()
    (answer,) = new(bob)
    assert plain(answer) == ["worker-joined", "client-connected"]
    board.tick()
    assert not objects_of(board.state).records
