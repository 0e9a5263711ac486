"""Data that moves from workers with many bytes to those with few."""

from __future__ import annotations

import pytest

from tests.scheduler.builders import dropped, sent_keys
from weft.protocol.wire import messages as m
from weft.scheduler.core.data.copies import MAX_FAILURES, copies_of

from .test_copies import Copying, answers, refusals, replicate


def rebalance(c, *keys, **arguments):
    wish = m.Ask(name="rebalance", request=1, arguments={"keys": list(keys), **arguments})
    return c.board.send(c.alice, wish)


def test_data_moves_until_workers_have_the_same():
    c = Copying(2, "a", "b", "c", "d")
    asked = c.to_hold(rebalance(c, "a", "b", "c", "d"))
    ((peer, keys),) = asked.items()
    assert peer == c.workers[1]
    assert len(keys) == 2
    out = c.report(peer, *keys)
    attempts = sorted(c.board.attempt(key) for key in keys)
    dropped = [x for x in out[c.workers[0]] if isinstance(x, m.DropAttempts)]
    assert sorted(n for message in dropped for n in message.attempts) == attempts
    assert sorted(sent_keys(out, c.alice, m.KeysInMemory)) == sorted(keys)
    assert answers(out, c.alice) == [dict.fromkeys("abcd", 1)]
    assert all(c.holders(key) == ["w1"] for key in keys)
    assert not copies_of(c.board.state).wishes


def test_balanced_workers_move_nothing():
    c = Copying(2, "a")
    assert answers(rebalance(c, "a", "never heard of"), c.alice) == [{"a": 1}]


def test_the_source_keeps_its_copy_if_the_other_worker_dies():
    c = Copying(2, "a", "b")
    assert c.to_hold(rebalance(c, "a", "b"))
    c.board.close(c.workers[1])
    out = c.board.tick(0.01)
    assert answers(out, c.alice) == [{"a": 1, "b": 1}]
    assert c.holders("a") == c.holders("b") == ["w0"]
    assert dropped(out, c.workers[0]) == []


def test_the_source_keeps_its_copy_if_the_other_worker_cannot_get_one():
    c = Copying(2, "a", "b")
    asked = c.to_hold(rebalance(c, "a", "b"))
    for _ in range(MAX_FAILURES):
        ((peer, keys),) = asked.items()
        attempts = [c.board.attempt(key) for key in keys]
        missing = m.KeysMissing(keys=keys, holder="tcp://w0", unreachable=True, attempts=attempts)
        c.board.send(peer, missing)
        out = c.board.tick(0.01)
        assert dropped(out, c.workers[0]) == []
        asked = c.to_hold(out)
    assert asked == {}
    assert answers(out, c.alice) == [{"a": 1, "b": 1}]
    assert c.holders("a") == c.holders("b") == ["w0"]


def test_a_source_that_is_away_keeps_its_copy():
    """It might be the last one by the time that it is back."""
    c = Copying(2, "a", "b", away_s=5.0)
    ((peer, (key,)),) = c.to_hold(rebalance(c, "a", "b")).items()
    c.board.close(c.workers[0])
    c.report(peer, key)
    assert c.holders(key) == ["w0", "w1"]


def test_the_data_stays_at_the_target_if_the_source_dies():
    c = Copying(2, "a", "b")
    ((peer, (key,)),) = c.to_hold(rebalance(c, "a", "b")).items()
    c.report(peer, key)
    c.board.close(c.workers[0])
    assert c.holders(key) == ["w1"]


def test_only_named_workers_take_part():
    c = Copying(3, "a", "b", "c")
    asked = c.to_hold(rebalance(c, "a", "b", "c", workers=["w0", "w2"]))
    assert list(asked) == [c.workers[2]]


def test_keys_with_wished_copies_stay():
    c = Copying(3, "a", "b", "c", "d")
    c.board.send(c.alice, replicate("a", "b", n=2))
    asked = c.to_hold(rebalance(c, "a", "b", "c", "d"))
    assert not {"a", "b"} & {key for keys in asked.values() for key in keys}


@pytest.mark.parametrize("arguments", [{"workers": "w"}, {"workers": [1]}])
def test_orders_without_sense_are_refused(arguments):
    c = Copying(1)
    (text,) = refusals(rebalance(c, "x", **arguments), c.alice)
    assert "workers= is" in text
