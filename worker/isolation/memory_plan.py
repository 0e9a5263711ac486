"""Decides which children end since memory is short, or since they are not needed. A core."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from ...protocol.errors import MemoryExceeded, Reschedule
from ...protocol.wording import counted, sized
from ..policy import Fractions

#: How often a task is placed again that was ended here to make room for others; then it fails.
MAX_AGAIN: Final = 3
#: More idle children than a worker has threads are kept for this time, seconds.
SPARE_S: Final = 10.0
#: Tasks that are remembered for that.
_MAX_KEYS: Final = 10_000


@dataclass(frozen=True, slots=True)
class ChildSeen:
    """One child, as it was measured.

    Attributes:
        slot: that it belongs to.
        attempt: that it runs; 0 = it is idle. A smaller number began earlier.
        nbytes: of its memory, without what its worker shares with it; 0 = not known.
        is_ending: it was killed, and its memory is on its way back.
        idle_s: for how long it has waited for a call, seconds.
    """

    slot: int
    attempt: int
    nbytes: int
    is_ending: bool = False
    idle_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ChildEnd:
    """A child that is to end: an idle one (attempt 0), or one in the middle of a call.

    `is_alone` says that it alone takes more than it may, so it would do so again.
    """

    slot: int
    attempt: int
    text: str = ""
    is_alone: bool = False


class MemoryPlan:
    """The children of one worker.

    A child that alone takes more than may be fails its task. If all together do, the largest one
    makes room, but not the one that has run for longest: so some task always ends. That task is
    placed again, a few times.
    """

    def __init__(self, limit: int, fractions: Fractions, n_kept: int) -> None:
        """Plan for a memory limit in bytes, 0 = none, and so many idle children."""
        self._limit = limit
        self._n_kept = n_kept
        self._most = fractions.terminate * limit or inf
        #: idle children would keep the worker from taking tasks
        self._most_idle = min(fractions.pause * limit or inf, self._most)
        #: {key: how often its task was ended to make room}
        self._n_ended: dict[str, int] = {}

    def choose(self, own_nbytes: int, children: Sequence[ChildSeen]) -> list[ChildEnd]:
        """Return what is to end; `own_nbytes` is the memory of the worker's own process."""
        total = own_nbytes + sum(child.nbytes for child in children)
        # Tasks that wait for others have had children for these.
        idle = sorted((c for c in children if not c.attempt), key=lambda c: (c.idle_s, c.slot))
        if total <= self._most_idle:
            idle = [child for child in idle[self._n_kept :] if child.idle_s > SPARE_S]
        ends = [ChildEnd(child.slot, 0) for child in idle]
        total -= sum(child.nbytes for child in idle)
        running = [child for child in children if child.attempt and not child.is_ending]
        large = [child for child in running if child.nbytes > self._most]
        ends += [self._end(child, child.nbytes, is_alone=True) for child in large]
        is_ending = any(child.is_ending for child in children) or large
        if total > self._most and running and not is_ending:
            oldest = min(child.attempt for child in running)
            others = [child for child in running if child.attempt != oldest]
            child = max(others or running, key=lambda child: child.nbytes)
            ends.append(self._end(child, total, is_alone=False))
        return ends

    def _end(self, child: ChildSeen, nbytes: int, *, is_alone: bool) -> ChildEnd:
        who = "its process takes" if is_alone else "the processes of its worker take"
        text = f"{who} {sized(nbytes)} of the memory limit of {sized(self._limit)}"
        if not is_alone:
            text += f", and its own {sized(child.nbytes)} of that"
        return ChildEnd(child.slot, child.attempt, text, is_alone)

    def error_of(self, key: str, end: ChildEnd) -> MemoryExceeded | Reschedule:
        """Return what the call of a task raises that was ended."""
        n = self._n_ended.pop(key, 0) + 1
        if not end.is_alone and n <= MAX_AGAIN:
            if len(self._n_ended) >= _MAX_KEYS:
                self._n_ended.clear()
            self._n_ended[key] = n
            return Reschedule(f"its process was ended to make room: {end.text}")
        text = f"{end.text}; give the worker more memory, or let the task need less of it"
        if not end.is_alone:
            text = f"its process was ended {counted(n, 'time')} to make room: {text}"
        return MemoryExceeded(key, text)
