"""`weft.Retries`: how often a task that raises is run again, and after which pauses."""

from __future__ import annotations

import math

from ...protocol.durations import Duration, seconds_of
from ...protocol.wire.columns import MAX_PAUSE_S


class Retries:
    """A value of `retries=`: run the task again if it raises, after a pause that grows.

    The n-th pause is `delay * factor ** (n - 1)`, at most `max_delay`, of which up to the share
    `jitter` is left out, so that tasks that failed together are not tried together. The worker does
    other work meanwhile. `retries=3` is `Retries(3, delay=0)`.

    Args:
        n: how often to run it again.
        delay: the first pause, in seconds or as "500 ms", ...
        factor: by which each pause is longer than the one before it, at least 1.
        max_delay: the longest pause.
        jitter: from 0 (all pauses are as computed) to 1 (a pause is anything up to that).

    Example:
        >>> patiently = weft.Retries(5, delay="1 s", factor=2, max_delay="1 min")
        >>> client.submit(pow, 2, 10, retries=patiently).result()
        1024
    """

    __slots__ = ("delay_s", "factor", "jitter", "max_delay_s", "n")

    def __init__(
        self,
        n: int,
        delay: Duration = 1.0,
        factor: float = 2.0,
        max_delay: Duration = 60.0,
        jitter: float = 0.25,
    ) -> None:
        if type(n) is not int or not 0 <= n < 1 << 31:
            raise ValueError(f"the number of retries is a whole number >= 0, not {n!r}")
        self.n = n
        self.delay_s = seconds_of(delay, "delay")
        self.max_delay_s = seconds_of(max_delay, "max_delay")
        self.factor = _number("factor", factor, 1, MAX_PAUSE_S)
        self.jitter = _number("jitter", jitter, 0, 1)

    def __repr__(self) -> str:
        return (
            f"Retries({self.n}, delay={self.delay_s:g}, factor={self.factor:g}, "
            f"max_delay={self.max_delay_s:g}, jitter={self.jitter:g})"
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Retries) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))

    def as_pauses(self) -> list[float]:
        """Return what is sent beside the number; [] if there are no pauses."""
        if not self.n or not self.delay_s or not self.max_delay_s:
            return []
        longest_s = min(self.max_delay_s, MAX_PAUSE_S)
        return [min(self.delay_s, longest_s), self.factor, longest_s, self.jitter]


def _number(name: str, value: object, low: float, high: float) -> float:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not low <= value <= high or value == math.inf:  # type: ignore[operator]
        limits = f"from {low:g} to {high:g}" if high == 1 else f">= {low:g}"
        raise ValueError(f"{name}= is a number {limits}, not {value!r}")
    return float(value)  # type: ignore[arg-type]
