"""Decides which values leave the memory, and when a worker waits for that or takes nothing. Pure.

Sizes, marks and measurements come in; attempts whose values are to be written go out. The order of
use is approximate, because an exact one would cost each read. A value that a task reads while
memory is short gets a mark, and a hand goes round over all values, oldest first: it takes the mark
off where there is one, and chooses the value where there is none. Inputs of tasks that wait here
are read soon, so they are chosen last; those of tasks that run are not, since that frees nothing.

When three rounds have found nothing, the rest cannot leave. It is looked at again after a pause,
which grows while nothing changes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from math import inf
from typing import Final, Protocol

from ...policy import Fractions

#: Smaller values stay: a file for each costs more than it frees.
MIN_NBYTES: Final = 64 << 10
#: After a failure of the disk nothing is written for this time, seconds.
DISK_PAUSE_S: Final = 10.0
#: When nothing was left to be written, it is looked again after this time; twice as long each time.
FIRST_PAUSE_S: Final = 0.1
MAX_PAUSE_S: Final = 5.0

#: How urgently a value is needed in memory.
FREE: Final = 0  #: no task here is known to read it
AWAITED: Final = 1  #: a task that waits here reads it
IN_USE: Final = 2  #: a task that runs reads it, or it is about to be dropped
#: In the first round marks count, in the last one also values are chosen that are read soon.
_LAST_LAP: Final = 2


class Values(Protocol):
    """What the plan is told about values."""

    def in_memory(self) -> Iterable[int]:
        """Return the attempts whose values are in memory, oldest first."""

    def size(self, attempt: int) -> int:
        """Return the bytes of a value in memory; 0 = it is not there any more."""

    def take_mark(self, attempt: int) -> bool:
        """Take the mark off a value; return whether there was one."""

    def need(self, attempt: int) -> int:
        """Return `FREE`, `AWAITED` or `IN_USE`."""


class SpillPlan:
    """When memory is short, and what is written then.

    Attributes:
        is_paused: the process is larger than it may be to take tasks.
        is_pressed: those who add wait, since room is being made.
    """

    def __init__(self, limit: int, fractions: Fractions, max_nbytes: float = inf) -> None:
        """Plan for a memory limit in bytes, and at most `max_nbytes` on disk."""

        def threshold(part: float) -> float:
            return part * limit if part and limit else inf

        self.target = threshold(fractions.target)
        self.spill = threshold(fractions.spill)
        self.pause = threshold(fractions.pause)
        self.max_nbytes = max_nbytes
        self.is_paused = False
        self.is_pressed = False
        #: {attempt: bytes} that are being written
        self.writing: dict[int, int] = {}
        #: {attempt: None} that cannot be written, as long as they are there
        self.stuck: dict[int, None] = {}
        #: bytes that are to leave the memory, those being written not counted
        self._need: float = 0
        self._managed = self._resident = 0
        self._hand: deque[int] = deque()
        #: which round this is; -1 = none has begun
        self._lap = -1
        #: nothing is chosen before then, because the disk failed, or nothing was left
        self._disk_at = self._look_at = -inf
        self._pause_s = FIRST_PAUSE_S

    @property
    def is_short(self) -> bool:
        """Whether values are to leave the memory, or do."""
        return self._need > 0 or bool(self.writing)

    def measured(self, managed: int, resident: int) -> None:
        """Note the bytes of all values in memory, and of the process; 0 = not known."""
        self._managed, self._resident = managed, resident
        over = managed - self.target
        if resident > self.spill:
            over = max(over, resident - min(self.target, self.spill))
        writing = sum(self.writing.values())
        self._need = max(0, min(over, managed) - writing)
        if not self._need and not writing:
            self._look_at, self._pause_s = -inf, FIRST_PAUSE_S
            self._lap = min(self._lap, 0)
        self.is_paused = (resident or managed) > self.pause
        self._press()

    def is_nearly_full(self, managed: int, resident: int) -> bool:
        """Return whether those who add are to wait, if room can be made; see `measured`."""
        return managed > self.spill or resident > self.pause

    def _press(self) -> None:
        is_full = self.is_nearly_full(self._managed, self._resident)
        self.is_pressed = is_full and bool(self.writing)

    def choose(self, values: Values, n: int, now: float) -> list[int]:
        """Choose up to `n` values to be written, as long as more are to leave."""
        chosen: list[int] = []
        if now < self._disk_at or now < self._look_at:
            return chosen
        while self._need > 0 and len(chosen) < n:
            attempt = self._next(values)
            if attempt is None:
                self._look_at = now + self._pause_s
                self._pause_s = min(2 * self._pause_s, MAX_PAUSE_S)
                break
            nbytes = values.size(attempt)
            self.writing[attempt] = nbytes
            self._need -= nbytes
            chosen.append(attempt)
        self._press()
        return chosen

    def _next(self, values: Values) -> int | None:
        """Turn the hand to the next value that may leave; None = a whole round found none."""
        while True:
            while self._hand:
                attempt = self._hand.popleft()
                if values.size(attempt) < MIN_NBYTES:
                    continue
                if attempt in self.writing or attempt in self.stuck:
                    continue
                is_marked = values.take_mark(attempt)
                need = values.need(attempt)
                if need == IN_USE or (need == AWAITED and self._lap < _LAST_LAP):
                    continue
                if is_marked and self._lap <= 0:
                    continue
                return attempt
            self._lap += 1
            if self._lap > _LAST_LAP:
                self._lap = -1
                return None
            self._hand.extend(values.in_memory())
            self.stuck = {attempt: None for attempt in self.stuck if values.size(attempt)}

    def left(self, attempt: int) -> None:
        """Note that the value is on disk, or was dropped meanwhile."""
        self.writing.pop(attempt, None)
        self._look_at, self._pause_s = -inf, FIRST_PAUSE_S

    def stays(self, attempt: int) -> None:
        """Note that this value cannot be written, whatever the disk does."""
        self.writing.pop(attempt, None)
        self.stuck[attempt] = None

    def failed(self, attempt: int, now: float) -> bool:
        """Note that the disk took a value not; return whether that is news."""
        self.writing.pop(attempt, None)
        is_news = now >= self._disk_at
        self._disk_at = now + DISK_PAUSE_S
        return is_news

    def fits_on_disk(self, on_disk: int, nbytes: int) -> bool:
        """Return whether so many bytes more may be on disk."""
        return on_disk + nbytes <= self.max_nbytes
