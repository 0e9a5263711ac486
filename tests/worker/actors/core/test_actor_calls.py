"""Which calls of actors are done: those over the last connection of their holder."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from weft.protocol.errors import RemoteProtocolError
from weft.worker.actors.core.actor_calls import HolderConnections


def test_an_earlier_connection_is_given_up_with_the_first_calls_over_a_later_one():
    lines: HolderConnections[str] = HolderConnections()
    assert lines.accept("first", "h", 1)
    assert lines.accept("first", "h", 1)
    assert lines.accept("second", "h", 2)
    assert not lines.accept("first", "h", 1)
    assert lines.accept("second", "h", 2)


def test_holders_count_for_themselves():
    lines: HolderConnections[str] = HolderConnections()
    assert lines.accept("of one", "one", 7)
    assert lines.accept("of another", "another", 1)


def test_the_number_of_a_connection_outlives_it_until_it_is_forgotten():
    lines: HolderConnections[str] = HolderConnections()
    lines.accept("second", "h", 2)
    assert lines.end("second") == ("h", 2)
    assert not lines.accept("first", "h", 1)
    lines.forget("h", 2)
    assert not len(lines)


def test_a_holder_that_has_another_connection_is_not_forgotten():
    lines: HolderConnections[str] = HolderConnections()
    lines.accept("first", "h", 1)
    lines.end("first")
    lines.accept("second", "h", 2)
    lines.forget("h", 1)
    assert not lines.accept("first", "h", 1)


def test_a_connection_is_of_one_holder():
    lines: HolderConnections[str] = HolderConnections()
    lines.accept("first", "h", 1)
    with pytest.raises(RemoteProtocolError, match="second holder"):
        lines.accept("first", "other", 1)
    assert len(lines) == 1
    lines.end("first")
    lines.forget("h", 1)
    assert not len(lines)


def test_the_end_of_a_connection_that_was_given_up_is_none_of_its_holder():
    lines: HolderConnections[str] = HolderConnections()
    lines.accept("first", "h", 1)
    lines.accept("second", "h", 2)
    assert lines.end("first") is None
    assert lines.end("unused") is None
    assert lines.end("second") == ("h", 2)


def test_a_connection_that_was_given_up_may_outlive_the_number_of_its_holder():
    lines: HolderConnections[str] = HolderConnections()
    lines.accept("first", "h", 1)
    lines.accept("second", "h", 2)
    lines.end("second")
    lines.forget("h", 2)
    assert lines.end("first") is None
    assert not len(lines)


@given(st.lists(st.tuples(st.sampled_from(["calls", "end"]), st.integers(1, 4), st.integers(1, 2))))
def test_the_numbers_of_a_holder_whose_calls_are_done_never_decrease(steps):
    lines: HolderConnections[tuple[int, int]] = HolderConnections()
    highest = {1: 0, 2: 0}
    for kind, number, holder in steps:
        connection = holder, number
        if kind == "end":
            lines.end(connection)
        elif lines.accept(connection, f"h{holder}", number):
            assert number >= highest[holder]
            highest[holder] = number
        else:
            assert number < highest[holder]
