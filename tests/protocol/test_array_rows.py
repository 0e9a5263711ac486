"""The rows of an array: numbers, names and arguments are functions of a position."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.protocol.array_rows import MAX_ROWS, ArrayRows, check_parts, key_of_row, named, row_of_key


@st.composite
def parts(draw):
    """Draw parts in the order of their numbers."""
    first, found = 0, []
    for _ in range(draw(st.integers(1, 4))):
        first += draw(st.integers(0, 1 << 33))
        step, n = draw(st.integers(1, 1000)), draw(st.integers(1, 50))
        found.append([first, first + step * n, step, draw(st.integers(0, 12))])
        first += step * n
    return found


@given(parts())
def test_each_row_has_a_number_by_which_it_is_found(drawn):
    rows = ArrayRows(drawn)
    numbers = [n for first, stop, step, _ in drawn for n in range(first, stop, step)]
    assert rows.n == len(numbers)
    for position, number in enumerate(numbers):
        name = rows.name(position)
        assert int(name) == number
        assert rows.position(name) == position
        (argument,) = pickle.loads(rows.arguments(position))
        assert argument in (number, name)


def test_a_number_with_a_width_is_a_text():
    rows = ArrayRows([[8, 11, 1, 3], [20, 21, 1, 0]])
    assert [rows.name(p) for p in range(4)] == ["008", "009", "010", "20"]
    assert [pickle.loads(rows.arguments(p)) for p in (0, 3)] == [("008",), (20,)]
    for name in ("8", "11", "-8", "x", "", "0020", "9" * 30):
        assert rows.position(name) is None


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ([], "1 to 1000 parts"),
        ([[0, 5, 1]], "a part is"),
        ([[0, 5, 1, -1]], "a part is"),
        ([[0, 5.0, 1, 0]], "a part is"),
        ([[0, 5, 0, 0]], "a part has a step"),
        ([[5, 5, 1, 0]], "a part has a step"),
        ([[0, 5, 1, 0], [4, 6, 1, 0]], "begins before the one before it ends"),
        ([[0, MAX_ROWS + 1, 1, 0]], "at most 10000000 rows"),
    ],
)
def test_parts_that_are_none_are_refused(wrong, text):
    with pytest.raises(ValueError, match=text):
        check_parts(wrong, [])


def test_a_list_of_lists_is_expected():
    with pytest.raises(TypeError, match="a list of parts"):
        check_parts({"a": 1}, [])


def test_the_key_of_a_row_has_that_of_its_array():
    assert row_of_key(key_of_row("a/b", "07")) == ("a/b", "07")
    assert row_of_key("plain")[0] == ""


def test_many_rows_are_named_by_the_first():
    assert named(["1", "2"], 2) == "1, 2"
    assert named(map(str, range(9)), 9) == "0, 1, 2, 3, 4 and 4 more"
