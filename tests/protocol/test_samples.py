"""samples.py: the latest rows of numbers, in columns."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from weft.protocol.samples import Samples


def test_a_reader_gets_each_row_once_in_pages():
    samples = Samples(("at", "n"), 1000)
    for i in range(5):
        samples.append((i, 10 * i))
    assert samples.since(0, 3) == ({"at": [0, 1, 2], "n": [0, 10, 20]}, 3)
    assert samples.since(3, 3) == ({"at": [3, 4], "n": [30, 40]}, 5)
    assert samples.since(5) == ({"at": [], "n": []}, 5)
    assert samples.since(99) == ({"at": [], "n": []}, 5)


def test_rows_of_a_reader_that_lacks_a_column_have_zeros_there():
    samples = Samples(("at", "new"), 10)
    samples.extend({"at": [1, 2], "unknown": [3, 4]})
    assert samples.since(0)[0] == {"at": [1, 2], "new": [0, 0]}


def test_positions_go_on_when_all_rows_are_forgotten():
    samples = Samples(("at",), 10)
    samples.extend({"at": [1, 2]})
    samples.clear()
    samples.append((3,))
    assert samples.since(0) == ({"at": [3]}, 3)
    assert samples.first == 2


@given(st.integers(1, 300), st.integers(0, 1200))
def test_at_least_the_wanted_rows_are_kept_and_not_many_more(max_rows, n):
    samples = Samples(("at",), max_rows)
    for i in range(n):
        samples.append((i,))
    assert min(n, max_rows) <= len(samples) <= max_rows + 256
    assert samples.end == n
    assert samples.since(0) == ({"at": list(range(samples.first, n))}, n)
