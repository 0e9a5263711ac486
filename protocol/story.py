"""The latest moves of tasks, for error messages: a bounded ring of batches.

One entry per batch, not per task: an entry refers to the list of keys of a message, so keeping the
story costs the hot path nothing per task but the sum of their lengths. Reading it is
a search over the ring, made only for errors and on request.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from .ring import Ring

#: The ring forgets its oldest entries beyond this many keys, or characters of keys, in all.
MAX_KEYS: Final = 100_000
MAX_CHARS: Final = 16 << 20


class Story:
    """The last transitions: `(time, what, keys)`."""

    __slots__ = ("ring",)

    def __init__(self) -> None:
        #: its rows are keys, and their characters its size
        self.ring: Ring[tuple[float, str, Sequence[str]]] = Ring(MAX_KEYS, MAX_CHARS)

    def note(self, now: float, what: str, keys: Sequence[str]) -> None:
        """Remember that `what` happened to `keys` (a list that does not change any more)."""
        n_chars = len(keys[0]) if len(keys) == 1 else sum(map(len, keys))
        if n_chars <= MAX_CHARS:
            self.ring.append((now, what, keys), len(keys), n_chars)

    def search(
        self, wanted: set[str], start: int, n_keys: int, n_lines: int
    ) -> tuple[list[tuple[float, str, str]], int]:
        """Return `(time, key, what)` of wanted keys, oldest first, from position `start` on.

        It ends after about `n_keys` keys were looked at or `n_lines` found; the second value is the
        position of the next entry then, 0 after the last.
        """
        found: list[tuple[float, str, str]] = []
        for position, (now, what, keys) in self.ring.since(start):
            if n_keys <= 0 or len(found) >= n_lines:
                return found, position
            n_keys -= len(keys) + 1
            if not wanted.isdisjoint(keys):
                found += [(now, key, what) for key in keys if key in wanted]
        return found, 0

    def of(self, key: str) -> list[str]:
        """Return one task's story, oldest first."""
        return [f"{now:.6f} {what}" for now, what, keys in self.ring if key in keys]
