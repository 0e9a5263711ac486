"""The size that a cluster should have, from what its scheduler desires, with hysteresis.

A pure core: `Sizing.decide(now, desired, n_workers)` returns the size to scale to, or None. The
number that the scheduler desires (`scheduler/core/insight/desired.py`) goes up and down with
each batch of work; processes should not. So a cluster grows to the least number that was desired
during `wait_up_s`, and shrinks to the greatest of the last `wait_down_s`. It follows that it never
grows and shrinks again for one short peak or gap, and that work which comes back within
`wait_down_s` finds its workers still there.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import isfinite
from typing import Final

from ..protocol.errors import ConfigError

#: A shorter interval would only ask the scheduler more often.
LEAST_INTERVAL_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class AdaptiveConfig:
    """The limits and times of an adaptation.

    Attributes:
        minimum: the least number of workers.
        maximum: the greatest; None = no limit.
        interval_s: how often the scheduler is asked.
        wait_up_s: how long more must have been desired.
        wait_down_s: how long fewer must have been desired.
        target_s: time in which the workers should finish the work that is there.
    """

    minimum: int = 0
    maximum: int | None = None
    interval_s: float = 1.0
    wait_up_s: float = 2.0
    wait_down_s: float = 30.0
    target_s: float = 5.0

    def check(self) -> None:
        """Check the values.

        Raises:
            ConfigError: one is not valid, or they contradict each other.
        """
        for name, value in (("minimum", self.minimum), ("maximum", self.maximum)):
            if value is not None and (type(value) is not int or value < 0):
                raise ConfigError(f"{value!r} is not a number of workers >= 0", name)
        if self.maximum is not None and self.maximum < max(1, self.minimum):
            raise ConfigError(
                f"{self.maximum} is fewer than minimum={self.minimum}; give "
                "the smaller number first"
                if self.maximum
                else "0 workers at most would never do anything; give 1 or more",
                "maximum",
            )
        for name, seconds, least in (
            ("interval", self.interval_s, LEAST_INTERVAL_S),
            ("wait_up", self.wait_up_s, 0.0),
            ("wait_down", self.wait_down_s, 0.0),
            ("target_duration", self.target_s, 0.001),
        ):
            if not (isfinite(seconds) and seconds >= least):
                raise ConfigError(f"{seconds:g} s is below the least, {least:g} s", name)


class Sizing:
    """The sizes that were desired lately, and the one that follows from them."""

    def __init__(self, config: AdaptiveConfig) -> None:
        self.config = config
        #: (when, desired within the limits), oldest first: of the longer of the two waits, and one
        #: before it, which was valid when the wait began
        self.seen: deque[tuple[float, int]] = deque()

    def decide(self, now: float, desired: int, n_workers: int) -> int | None:
        """Note what is desired; return the size to scale to, None = leave it as it is.

        Args:
            now: seconds, by any clock that does not go back.
            desired: by the scheduler.
            n_workers: that the cluster has, those that are being started included.
        """
        config = self.config
        wanted = max(config.minimum, desired)
        if config.maximum is not None:
            wanted = min(wanted, config.maximum)
        self.seen.append((now, wanted))
        longest_s = max(config.wait_up_s, config.wait_down_s)
        while len(self.seen) > 1 and self.seen[1][0] <= now - longest_s:
            self.seen.popleft()
        if n_workers < config.minimum:
            return config.minimum  # which needs no reason
        if config.maximum is not None and n_workers > config.maximum:
            return config.maximum
        low = min(self._during(now, config.wait_up_s, n_workers))
        high = max(self._during(now, config.wait_down_s, n_workers))
        if low > n_workers:
            return low
        if high < n_workers:
            return high
        return None

    def _during(self, now: float, wait_s: float, n_workers: int) -> list[int]:
        """Return all that was desired within a time; before the first time, what there is."""
        since = now - wait_s
        found = [wanted for when, wanted in self.seen if when > since]
        before = [wanted for when, wanted in self.seen if when <= since]
        if before:
            found.append(before[-1])
        elif wait_s:
            found.append(n_workers)
        return found
