"""One virtual world: a clock, a heap of future events, one seeded source of chance, and a record.

Everything that happens in a simulated run is an entry of the heap, in the order of (time, number).
Nothing here or behind it may look at the real clock, draw from another source of chance, or iterate
over a set, so that a seed determines its run. Nor may it depend on when cycles of garbage are
collected: clients are told of records that are gone. So that happens after so many events.
"""

from __future__ import annotations

import gc
import heapq
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

#: Entries of the record that are kept for the report of a failure.
RECORD_LENGTH = 20_000
#: Garbage of the two younger generations is collected after so many events.
COLLECTION_EVENTS = 1000


class World:
    """Virtual time and chance.

    Args:
        seed: of the run.
        traced: whether to keep `trace`, a checksum of all events.
    """

    def __init__(self, seed: int, *, traced: bool = False) -> None:
        self.seed = seed
        self.rng = Random(seed)
        #: Virtual seconds since the start.
        self.now = 0.0
        self.trace = 0
        self.n_events = 0
        #: Number of events in the heap without ticks and heartbeats.
        self.n_busy = 0
        #: Number of times that each rare situation and each fault occurred.
        self.probes: Counter[str] = Counter()
        #: Nodes whose core handled something in the present event.
        self.touched: dict[Any, None] = {}
        self._traced = traced
        self._heap: list[tuple[float, int, bool, Callable[..., None], tuple[Any, ...]]] = []
        self._n_scheduled = 0
        self._record: deque[tuple[float, str, Any]] = deque(maxlen=RECORD_LENGTH)

    def at(
        self, delay: float, what: Callable[..., None], *args: Any, is_work: bool = True
    ) -> float:
        """Call `what(*args)` after `delay` seconds; return the time of the call.

        `is_work=False` marks events that repeat for ever (ticks, heartbeats) and keep no run going.
        """
        when = self.now + delay
        self._n_scheduled += 1
        self.n_busy += is_work
        heapq.heappush(self._heap, (when, self._n_scheduled, is_work, what, args))
        return when

    def step(self) -> None:
        """Do the next event."""
        self.now, _, is_work, what, args = heapq.heappop(self._heap)
        self.n_busy -= is_work
        self.n_events += 1
        if self.n_events % COLLECTION_EVENTS == 0:
            gc.collect(1)
        what(*args)

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Collect garbage as events pass, and not as memory is allocated."""
        was_enabled = gc.isenabled()
        gc.disable()
        gc.collect(1)
        try:
            yield
        finally:
            if was_enabled:
                gc.enable()

    def chance(self, probability: float) -> bool:
        """Draw a truth value."""
        return probability > 0 and self.rng.random() < probability

    def note(self, what: str, about: Any = "") -> None:
        """Add an entry to the record. `about` must not change any more."""
        self._record.append((self.now, what, about))
        if self._traced:
            line = f"{self.now:.9f} {what} {about!r}"
            self.trace = zlib.crc32(line.encode(), self.trace)

    def story(self, *words: str, limit: int = 60) -> list[str]:
        """Return the last entries on record in which one of `words` occurs."""
        lines: list[str] = []
        for now, what, about in reversed(self._record):
            line = f"{now:.6f} {what} {about!r}"
            if any(word in line for word in words):
                lines.append(line if len(line) < 500 else line[:500] + " ...")
                if len(lines) == limit:
                    break
        return lines[::-1]
