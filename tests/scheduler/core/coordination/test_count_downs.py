"""Latches, by events of the scheduler's core."""

from __future__ import annotations

import pytest

from tests.scheduler.core.coordination.objects_kit import LEASE_S
from weft.protocol.wire.messages import coordination as h
from weft.scheduler.core.coordination.records import objects_of

OPEN = {"open": True}


def test_those_that_wait_go_on_together_when_all_is_counted_down(alice, bob):
    assert alice.call(h.COUNT_DOWN, "create", n=3) == {}
    assert bob.call(h.COUNT_DOWN, "wait", n=3) is None
    first = bob.request
    assert bob.call(h.COUNT_DOWN, "wait", n=3) is None
    assert alice.call(h.COUNT_DOWN, "count_down", n=3) == {"n": 2}
    assert bob.answers() == {}
    assert alice.call(h.COUNT_DOWN, "count_down", n=3, k=2) == {"n": 0}
    assert bob.answers() == {first: OPEN, bob.request: OPEN}


def test_a_latch_stays_open_and_counts_no_further(alice):
    assert alice.call(h.COUNT_DOWN, "count_down", n=2, k=7) == {"n": 0}
    assert alice.call(h.COUNT_DOWN, "wait", n=2) == OPEN
    assert alice.call(h.COUNT_DOWN, "count_down", n=2) == {"n": 0}
    assert alice.call(h.COUNT_DOWN, "count", n=2) == {"n": 0}


def test_a_latch_has_one_number(alice, bob):
    assert alice.call(h.COUNT_DOWN, "create", n=3) == {}
    for operation in ("create", "count_down", "wait", "count"):
        assert bob.call(h.COUNT_DOWN, operation, n=4) == h.OTHER_LIMIT
    assert bob.call(h.COUNT_DOWN, "count") == {"n": 3}


@pytest.mark.parametrize("arguments", [{"n": 0}, {"n": "2"}, {"k": 0}, {"k": 1.5}, {"k": 1 << 50}])
def test_wrong_numbers_are_refused(board, alice, arguments):
    assert alice.call(h.COUNT_DOWN, "count_down", **arguments) == h.BAD_CALL
    assert board.state.counters.protocol_errors == 0


def test_a_count_stays_until_the_last_user_of_the_latch_is_gone(board, alice, bob):
    alice.call(h.COUNT_DOWN, "count_down", n=2)
    assert bob.call(h.COUNT_DOWN, "count", n=2) == {"n": 1}
    board.close(alice.peer)
    board.tick(LEASE_S + 1)
    assert bob.call(h.COUNT_DOWN, "count", n=2) == {"n": 1}
    board.close(bob.peer)
    board.tick(LEASE_S + 1)
    assert not objects_of(board.state).records
