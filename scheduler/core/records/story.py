"""The latest moves of tasks, for error messages: a bounded ring of batches.

One entry per batch, not per task: an entry refers to the list of keys of a message, so keeping the
story costs the hot path nothing per task but the sum of their lengths. Reading it is
a search over the ring, made only for errors and on request.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Final

#: The ring forgets its oldest entries beyond this many keys, or characters of keys, in all.
MAX_KEYS: Final = 100_000
MAX_CHARS: Final = 16 << 20


class Story:
    """The last transitions: `(time, what, keys)`."""

    __slots__ = ("_entries", "n_chars", "n_gone", "n_keys")

    def __init__(self) -> None:
        self._entries: deque[tuple[float, str, Sequence[str], int]] = deque()
        #: sums over all entries
        self.n_keys = 0
        self.n_chars = 0
        #: entries that were forgotten: the number of the first one that is left
        self.n_gone = 0

    def note(self, now: float, what: str, keys: Sequence[str]) -> None:
        """Remember that `what` happened to `keys` (a list that does not change any more)."""
        n_chars = len(keys[0]) if len(keys) == 1 else sum(map(len, keys))
        if n_chars > MAX_CHARS:
            keys, n_chars = (), 0
        self._entries.append((now, what, keys, n_chars))
        self.n_keys += len(keys)
        self.n_chars += n_chars
        while (self.n_keys > MAX_KEYS or self.n_chars > MAX_CHARS) and len(self._entries) > 1:
            _, _, gone, n_chars = self._entries.popleft()
            self.n_gone += 1
            self.n_keys -= len(gone)
            self.n_chars -= n_chars

    def cut(self, n_keys: int) -> None:
        """Forget the oldest entries, until at most `n_keys` keys are left."""
        while self.n_keys > n_keys:
            _, _, gone, n_chars = self._entries.popleft()
            self.n_gone += 1
            self.n_keys -= len(gone)
            self.n_chars -= n_chars

    def search(
        self, wanted: set[str], start: int, n_keys: int, n_lines: int
    ) -> tuple[list[tuple[float, str, str]], int]:
        """Return `(time, key, what)` of wanted keys, oldest first, from entry `start` on.

        It ends after about `n_keys` keys were looked at or `n_lines` found; the second value is the
        number of the next entry then, 0 after the last.
        """
        found: list[tuple[float, str, str]] = []
        number = max(start, self.n_gone)
        for now, what, keys, _ in islice(self._entries, number - self.n_gone, None):
            if n_keys <= 0 or len(found) >= n_lines:
                return found, number
            number += 1
            n_keys -= len(keys) + 1
            if not wanted.isdisjoint(keys):
                found += [(now, key, what) for key in keys if key in wanted]
        return found, 0

    def of(self, key: str) -> list[str]:
        """Return one task's story, oldest first."""
        return [f"{now:.6f} {what}" for now, what, keys, _ in self._entries if key in keys]
