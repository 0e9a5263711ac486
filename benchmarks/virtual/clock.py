"""The clock of a cluster in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from math import inf

__all__ = ["VirtualClock"]


class VirtualClock:
    """What is due, and when; what is due at the same time happens in the order of the calls."""

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[tuple[float, int, Callable[[], object]]] = []
        self._n = 0

    def at(self, delay_s: float, what: Callable[[], object]) -> None:
        """Let `what` happen after some time."""
        self.at_time(self.now + delay_s, what)

    def at_time(self, when: float, what: Callable[[], object]) -> None:
        """Let `what` happen at a time that is not over."""
        self._n += 1
        heappush(self._heap, (when, self._n, what))

    @property
    def next_due(self) -> float:
        """When the next thing happens; inf = never."""
        return self._heap[0][0] if self._heap else inf

    def step(self) -> None:
        """Go to that time, and let it happen."""
        self.now, _, what = heappop(self._heap)
        what()
