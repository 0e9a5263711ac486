"""What happened to a task lately, for error messages and `explain`: a bounded ring of batches.

One entry a batch, not one a task: an entry refers to the very list of keys that a message carried,
so keeping the story costs the hot path nothing a task. Asking is a search over the ring, which only
people and errors do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

#: The ring forgets its oldest entries beyond this many keys in all.
MAX_KEYS = 100_000


class Story:
    """The last transitions: `(time, what, keys)`."""

    __slots__ = ("_entries", "_n_keys")

    def __init__(self) -> None:
        self._entries: deque[tuple[float, str, Sequence[str]]] = deque()
        self._n_keys = 0

    def note(self, now: float, what: str, keys: Sequence[str]) -> None:
        """Remember that `what` happened to `keys` (a list that nobody changes any more)."""
        self._entries.append((now, what, keys))
        self._n_keys += len(keys)
        while self._n_keys > MAX_KEYS and len(self._entries) > 1:
            self._n_keys -= len(self._entries.popleft()[2])

    def of(self, key: str) -> list[str]:
        """Tell one task's story, oldest first."""
        return [f"{now:.6f} {what}" for now, what, keys in self._entries if key in keys]
