"""The latest moves of tasks, for error messages: a bounded ring of batches.

One entry per batch, not per task: an entry refers to the list of keys of a message, so keeping the
story costs the hot path nothing per task but the sum of their lengths. Reading it is
a search over the ring, made only for errors and on request.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

#: The ring forgets its oldest entries beyond this many keys, or characters of keys, in all.
MAX_KEYS: Final = 100_000
MAX_CHARS: Final = 16 << 20


class Story:
    """The last transitions: `(time, what, keys)`."""

    __slots__ = ("_entries", "n_chars", "n_keys")

    def __init__(self) -> None:
        self._entries: deque[tuple[float, str, Sequence[str], int]] = deque()
        #: sums over all entries
        self.n_keys = 0
        self.n_chars = 0

    def note(self, now: float, what: str, keys: Sequence[str]) -> None:
        """Remember that `what` happened to `keys` (a list that does not change any more)."""
        n_chars = sum(map(len, keys))
        if n_chars > MAX_CHARS:
            keys, n_chars = (), 0
        self._entries.append((now, what, keys, n_chars))
        self.n_keys += len(keys)
        self.n_chars += n_chars
        while (self.n_keys > MAX_KEYS or self.n_chars > MAX_CHARS) and len(self._entries) > 1:
            _, _, gone, n_chars = self._entries.popleft()
            self.n_keys -= len(gone)
            self.n_chars -= n_chars

    def cut(self, n_keys: int) -> None:
        """Forget the oldest entries, until at most `n_keys` keys are left."""
        while self.n_keys > n_keys:
            _, _, gone, n_chars = self._entries.popleft()
            self.n_keys -= len(gone)
            self.n_chars -= n_chars

    def of(self, key: str) -> list[str]:
        """Return one task's story, oldest first."""
        return [f"{now:.6f} {what}" for now, what, keys, _ in self._entries if key in keys]
