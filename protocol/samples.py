"""Rows of whole numbers, column by column: the latest ones, by positions that only grow. Pure.

A row costs eight bytes for each of its numbers, and no object. As in a `Ring`, a reader keeps the
position behind what it has read, and goes on there.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Final

#: Rows that are forgotten at once: the others move then.
_BLOCK: Final = 256


class Samples:
    """The latest rows: at least `max_rows` of those that have come, and at most 256 more."""

    __slots__ = ("_max_rows", "columns", "first")

    def __init__(self, names: Sequence[str], max_rows: int) -> None:
        self._max_rows = max_rows
        #: {name: its numbers}, all of one length
        self.columns: dict[str, array[int]] = {name: array("q") for name in names}
        #: position of the first row that is kept
        self.first = 0

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    @property
    def end(self) -> int:
        """Position of the next row."""
        return self.first + len(self)

    def append(self, row: Sequence[int]) -> None:
        """Add a row, in the order of the names; forget the oldest ones."""
        for column, number in zip(self.columns.values(), row, strict=True):
            column.append(number)
        if len(self) >= self._max_rows + _BLOCK:
            for column in self.columns.values():
                del column[:_BLOCK]
            self.first += _BLOCK

    def extend(self, columns: Mapping[str, Sequence[int]]) -> None:
        """Add the rows of an answer of `since`; of columns that it does not have, zeros."""
        n = max(map(len, columns.values()), default=0)
        rows = zip(*(columns.get(name) or [0] * n for name in self.columns), strict=True)
        for row in rows:
            self.append(row)

    def since(self, position: int, n: int | None = None) -> tuple[dict[str, list[int]], int]:
        """Return the columns of at most `n` rows from a position on, and the position behind."""
        start = min(max(position - self.first, 0), len(self))
        stop = len(self) if n is None else min(start + n, len(self))
        found = {name: column[start:stop].tolist() for name, column in self.columns.items()}
        return found, self.first + stop

    def clear(self) -> None:
        """Forget all rows; positions go on."""
        self.first = self.end
        for column in self.columns.values():
            del column[:]
