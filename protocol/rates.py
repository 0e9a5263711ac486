"""Rates of finished tasks, and how long the rest takes: a decaying mean. Pure.

A rate counts what finished lately: an interval that ended `TIME_CONSTANT_S` ago counts 1/e of one
that ends now, whatever the times between two observations. Two such means, of tasks and of time,
are divided, so that the first seconds are not drawn towards zero. Nor are those after a time in
which nothing was to be done: it is forgotten when something is.
"""

from __future__ import annotations

from math import exp
from typing import Final

#: Tasks per second and the seconds that are left; None = not known (yet).
SeenRate = tuple[float | None, float | None]

#: An interval so long ago, in seconds, counts 1/e of the present one.
TIME_CONSTANT_S: Final = 10.0
#: Shorter intervals are added to the next one: what finishes comes in batches.
LEAST_INTERVAL_S: Final = 0.2


class Rate:
    """How many tasks finish per second, by a count that only grows."""

    __slots__ = ("_n_before", "_seen_s", "_tasks", "_time", "_time_constant_s", "_was_idle")

    def __init__(self, time_constant_s: float = TIME_CONSTANT_S) -> None:
        self._time_constant_s = time_constant_s
        #: the last observation
        self._seen_s: float | None = None
        self._n_before = 0
        #: in the last interval nothing finished, and then nothing was left
        self._was_idle = False
        #: decayed sums of tasks and of seconds
        self._tasks = self._time = 0.0

    def observe(self, now_s: float, n_done: int, n_left: int | None = None) -> None:
        """Note that `n_done` tasks have finished until now, and how many are left, if it is known.

        A count below the last one begins anew: it is of another scheduler, or of other tasks.
        """
        if self._seen_s is None or n_done < self._n_before or now_s < self._seen_s:
            self._tasks = self._time = 0.0
            self._seen_s, self._n_before, self._was_idle = now_s, n_done, n_left == 0
            return
        elapsed_s = now_s - self._seen_s
        if elapsed_s < LEAST_INTERVAL_S:
            return
        is_idle = n_left == 0 and n_done == self._n_before
        if self._was_idle and not is_idle:
            self._tasks = self._time = 0.0
        self._was_idle = is_idle
        kept = exp(-elapsed_s / self._time_constant_s)
        # The interval's own seconds decay as well, evenly over its length.
        weight = self._time_constant_s * (1.0 - kept) / elapsed_s
        self._tasks = self._tasks * kept + (n_done - self._n_before) * weight
        self._time = self._time * kept + elapsed_s * weight
        self._seen_s, self._n_before = now_s, n_done

    @property
    def per_second(self) -> float:
        """The rate; 0 before there were two observations."""
        return self._tasks / self._time if self._time else 0.0

    def eta_s(self, n_left: int) -> float | None:
        """Return how long `n_left` tasks take at this rate; None if that cannot be told."""
        if n_left <= 0:
            return 0.0
        rate = self.per_second
        # Below a thousandth of a task in the time that is remembered, nothing finishes.
        if rate * self._time_constant_s < 1e-3:
            return None
        return n_left / rate

    def seen(self, n_left: int) -> SeenRate:
        """Return the rate and how long `n_left` tasks take; not known before two observations."""
        return (self.per_second, self.eta_s(n_left)) if self._time > 0.0 else (None, None)
