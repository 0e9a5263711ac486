"""The bounded log, beside a plain list of all that was ever added."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.protocol.ring import Ring


class Model:
    """Every entry that came, and which of them are still there."""

    def __init__(self, max_rows: int, max_size: int) -> None:
        self.max_rows = max_rows
        self.max_size = max_size
        #: (position, entry, rows, size)
        self.kept: list[tuple[int, int, int, int]] = []
        self.end = 0
        self.n_appended = 0

    @property
    def n_rows(self) -> int:
        return sum(n for _, _, n, _ in self.kept)

    @property
    def size(self) -> int:
        return sum(size for *_, size in self.kept)

    def append(self, n_rows: int, size: int) -> int:
        entry = self.n_appended
        self.n_appended += 1
        self.kept.append((self.end, entry, n_rows, size))
        self.end += n_rows
        while len(self.kept) > 1 and (self.n_rows > self.max_rows or self.size > self.max_size):
            del self.kept[0]
        return entry

    def cut(self, n_rows: int) -> None:
        while self.n_rows > n_rows:
            del self.kept[0]


steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 5), st.integers(0, 8)),
        st.tuples(st.just("cut"), st.integers(0, 12), st.just(0)),
        st.tuples(st.just("clear"), st.integers(0, 3), st.just(0)),
    ),
    max_size=40,
)


@given(st.integers(1, 12), st.integers(0, 20), steps, st.integers(-1, 150))
def test_a_ring_has_the_latest_entries_and_their_positions(max_rows, max_size, steps, position):
    ring: Ring[int] = Ring(max_rows, max_size)
    model = Model(max_rows, max_size)
    for kind, n, size in steps:
        if kind == "append":
            ring.append(model.append(n, size), n, size)
        elif kind == "cut":
            ring.cut(n)
            model.cut(n)
        else:
            ring.clear()
            model.kept.clear()
            ring.skip(n)
            model.end += n
        kept = [entry for _, entry, _, _ in model.kept]
        assert ([*ring], [*reversed(ring)]) == (kept, kept[::-1])
        assert (ring.end, ring.n_rows, ring.size) == (model.end, model.n_rows, model.size)
        assert ring.first == (model.kept[0][0] if model.kept else model.end)
    found = [(first, entry) for first, entry, n, _ in model.kept if first + n > position]
    assert [*ring.since(position)] == found


def test_an_entry_above_the_limits_is_kept_alone():
    ring: Ring[str] = Ring(2, 10)
    ring.append("a")
    ring.append("rows", 5)
    assert [*ring] == ["rows"]
    ring.append("size", 1, 99)
    assert [*ring] == ["size"]
    ring.append("b")
    assert [*ring] == ["b"]


def test_a_reader_that_goes_on_at_the_end_of_what_it_has_misses_what_was_forgotten():
    ring: Ring[str] = Ring(4)
    for entry in "abc":
        ring.append(entry, 2)
    assert [*ring.since(2)] == [(2, "b"), (4, "c")]
    position = ring.end
    for entry in "defg":
        ring.append(entry, 2)
    assert [*ring.since(position)] == [(10, "f"), (12, "g")]
    assert ring.first - position == 4


def test_rows_are_skipped_only_in_an_empty_ring():
    ring: Ring[str] = Ring()
    ring.skip(3)
    ring.append("a")
    assert [*ring.since(0)] == [(3, "a")]
    with pytest.raises(AssertionError):
        ring.skip(1)
