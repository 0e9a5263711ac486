"""Deadlines: what happens when time has passed and nothing else has happened.

A module that waits for something adds a deadline, with `SchedulerState.call_after`, and cancels it
when that comes. The shell sleeps until the earliest one, then sends a `SchedulerTick`, which does
those that are due. So nothing is looked at while it waits: the cost is that of what ends.

Deadlines are counted in *waking time*. It passes like the clock of the events, but a step from one
tick to the next counts as at most `longest_step_s` (a heartbeat, for which the shell sleeps at
most). A scheduler that was suspended, or held up, therefore reads first what arrived meanwhile: no
peer is silent, and no lease or wait is over, because of time in which the scheduler did not tick.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any, Final

#: Rounding errors of sums of times, seconds.
_TOLERANCE_S: Final = 1e-6
#: Cancelled entries are taken out when there are more of them than this, and than others.
_MAX_CANCELLED: Final = 64


class Deadline:
    """One call that is due at a time. `action` is None once it was done or cancelled."""

    __slots__ = ("action", "args", "when")

    def __init__(self, when: float, action: Callable[..., None], args: tuple[Any, ...]) -> None:
        #: in waking time
        self.when = when
        self.action: Callable[..., None] | None = action
        self.args = args

    @property
    def is_pending(self) -> bool:
        """True until it is done or cancelled."""
        return self.action is not None


class Deadlines:
    """The heap of all deadlines, and the waking time.

    Args:
        longest_step_s: what a step from one tick to the next counts at most.
    """

    __slots__ = (
        "_awake_s",
        "_heap",
        "_next_number",
        "_next_tick",
        "_tick_at",
        "longest_step_s",
        "n_pending",
    )

    def __init__(self, longest_step_s: float) -> None:
        self.longest_step_s = longest_step_s
        #: (when, number, deadline); those of one time in the order in which they were added
        self._heap: list[tuple[float, int, Deadline]] = []
        self._next_number = 0
        #: entries that are pending; the others were cancelled
        self.n_pending = 0
        #: the waking time at the last tick, and the time of that tick; None before all events
        self._awake_s = 0.0
        self._tick_at: float | None = None
        #: the result of `next_tick`; None = something has changed since
        self._next_tick: float | None = None

    def count(self) -> int:
        """Count the pending ones (for checks; O(n))."""
        return sum(entry[2].action is not None for entry in self._heap)

    def awake(self, now: float) -> float:
        """Return the waking time, seconds; it never decreases."""
        if self._tick_at is None:
            self._tick_at = now
            self._next_tick = None
        return self._awake_s + min(now - self._tick_at, self.longest_step_s)

    def add(self, now: float, delay_s: float, action: Callable[..., None], *args: Any) -> Deadline:
        """Let `action` be due after `delay_s` seconds of waking time."""
        deadline = Deadline(self.awake(now) + delay_s, action, args)
        self._next_number += 1
        self._next_tick = None
        self.n_pending += 1
        heappush(self._heap, (deadline.when, self._next_number, deadline))
        return deadline

    def cancel(self, deadline: Deadline | None) -> None:
        """Let a deadline not be done; without effect if it was, or if it is None."""
        if deadline is None or deadline.action is None:
            return
        deadline.action = None
        self._next_tick = None
        self.n_pending -= 1
        n_cancelled = len(self._heap) - self.n_pending
        if n_cancelled > _MAX_CANCELLED and n_cancelled > self.n_pending:
            self._heap = [entry for entry in self._heap if entry[2].action is not None]
            heapify(self._heap)

    def next_tick(self) -> float:
        """Return when the next tick must come at the latest, by the clock of the events."""
        if self._next_tick is not None:
            return self._next_tick
        if self._tick_at is None:
            return float("-inf")
        heap = self._heap
        while heap and heap[0][2].action is None:
            heappop(heap)
        step_s = self.longest_step_s
        if heap:
            step_s = min(step_s, heap[0][0] - self._awake_s)
        self._next_tick = self._tick_at + step_s
        return self._next_tick

    def run(self, now: float, *first: Any) -> None:
        """Note a tick, and do what is due, in order: `action(*first, *args)`.

        What is added meanwhile waits for the next tick, and what is cancelled is not done.
        """
        self._awake_s = self.awake(now)
        self._tick_at = now
        self._next_tick = None
        heap, limit = self._heap, self._awake_s + _TOLERANCE_S
        due = []
        while heap and heap[0][0] <= limit:
            due.append(heappop(heap)[2])
        for deadline in due:
            action = deadline.action
            if action is not None:
                deadline.action = None
                self.n_pending -= 1
                action(*first, *deadline.args)
