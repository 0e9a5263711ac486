"""A bounded log: the latest entries, with positions to go on reading from.

An entry is anything that stands for a number of rows, one by default. Positions count rows, also
those that are forgotten: a reader keeps the position behind what it has read, goes on there with
`since`, and has missed `first - position` rows if that is above 0. What an entry says, and how it
is shown, is its owner's matter.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from itertools import islice
from operator import itemgetter
from typing import Generic, TypeVar

Entry = TypeVar("Entry")


class Ring(Generic[Entry]):
    """The latest entries: as many as have at most `max_rows` rows and the size `max_size` in all.

    The last entry is kept whatever its size.
    """

    __slots__ = ("_entries", "_grown", "_max_rows", "_max_size", "end")

    def __init__(self, max_rows: float = math.inf, max_size: float = math.inf) -> None:
        self._max_rows = max_rows
        self._max_size = max_size
        #: (position of its first row, sum of the sizes of all entries before it, entry)
        self._entries: deque[tuple[int, int, Entry]] = deque()
        #: position of the next row
        self.end = 0
        #: sum of the sizes of all entries, also of those that are forgotten
        self._grown = 0

    @property
    def first(self) -> int:
        """Position of the first row that is kept, or of the next one if none is."""
        return self._entries[0][0] if self._entries else self.end

    @property
    def n_rows(self) -> int:
        """How many rows are kept."""
        return self.end - self.first

    @property
    def size(self) -> int:
        """Sum of the sizes of the entries that are kept."""
        return self._grown - self._entries[0][1] if self._entries else 0

    def append(self, entry: Entry, n_rows: int = 1, size: int = 0) -> None:
        """Add an entry, and forget the oldest ones beyond the limits."""
        entries = self._entries
        entries.append((self.end, self._grown, entry))
        self.end = end = self.end + n_rows
        self._grown = grown = self._grown + size
        first, before, _ = entries[0]
        while end - first > self._max_rows or grown - before > self._max_size:
            if len(entries) == 1:
                break
            entries.popleft()
            first, before, _ = entries[0]

    def cut(self, n_rows: int) -> None:
        """Forget the oldest entries, until at most `n_rows` rows are kept."""
        while self.n_rows > n_rows:
            self._entries.popleft()

    def clear(self) -> None:
        """Forget all entries."""
        self._entries.clear()

    def skip(self, n_rows: int) -> None:
        """Count rows that nobody has kept. The ring is empty."""
        assert not self._entries
        self.end += n_rows

    def since(self, position: int) -> Iterator[tuple[int, Entry]]:
        """Return `(position, entry)`, oldest first, from the entry with the row `position` on."""
        i = bisect_right(self._entries, position, key=itemgetter(0)) - 1
        left = islice(self._entries, max(i, 0), None) if position < self.end else ()
        return ((first, entry) for first, _, entry in left)

    def __iter__(self) -> Iterator[Entry]:
        return (entry for _, _, entry in self._entries)

    def __reversed__(self) -> Iterator[Entry]:
        return (entry for _, _, entry in reversed(self._entries))
