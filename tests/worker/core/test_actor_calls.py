"""Which calls of actors are done: those over the last connection of their holder."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from weft.worker.core.actor_calls import HolderLines


def test_an_earlier_connection_is_given_up_with_the_first_calls_over_a_later_one():
    lines: HolderLines[str] = HolderLines()
    assert lines.accept("first", "h", 1)
    assert lines.accept("first", "h", 1)
    assert lines.accept("second", "h", 2)
    assert not lines.accept("first", "h", 1)
    assert lines.accept("second", "h", 2)


def test_holders_count_for_themselves():
    lines: HolderLines[str] = HolderLines()
    assert lines.accept("of one", "one", 7)
    assert lines.accept("of another", "another", 1)


def test_the_number_of_a_connection_outlives_it_until_it_is_forgotten():
    lines: HolderLines[str] = HolderLines()
    lines.accept("second", "h", 2)
    assert lines.end("second") == [("h", 2)]
    assert not lines.accept("first", "h", 1)
    lines.forget("h", 2)
    assert not len(lines)


def test_a_holder_that_has_another_connection_is_not_forgotten():
    lines: HolderLines[str] = HolderLines()
    lines.accept("first", "h", 1)
    lines.end("first")
    lines.accept("second", "h", 2)
    lines.forget("h", 1)
    assert not lines.accept("first", "h", 1)


@given(st.lists(st.tuples(st.sampled_from(["calls", "end"]), st.integers(1, 4), st.integers(1, 2))))
def test_the_numbers_of_a_holder_whose_calls_are_done_never_decrease(steps):
    lines: HolderLines[tuple[int, int]] = HolderLines()
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
