"""Declarations of metrics, and what counts them: plain whole numbers.

Each metric is declared once: those of the scheduler in `scheduler/core/insight/metrics.py` and
`scheduler/core/records/counters.py`, those of workers and supervisors in `reported.py`. Pages, the
table in docs/monitoring.md and tests read the declarations.

Pure, so cores may count with it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

#: The upper ends of the buckets of all histograms, in microseconds: 0.1 ms to 5 minutes. Each is
#: about 3 times the one before it.
BOUNDS_US: Final = (
    *(100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000),
    *(1_000_000, 3_000_000, 10_000_000, 30_000_000, 100_000_000, 300_000_000),
)
N_BUCKETS: Final = len(BOUNDS_US) + 1


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric's declaration.

    Attributes:
        name: that of a scheduler's metric is without `weft_scheduler_`, any other one is whole.
        text: one sentence, for display.
        labels: the labels that distinguish the values of this metric.
        is_histogram: it has a value per bucket, and a sum of seconds.
    """

    name: str
    text: str
    labels: tuple[str, ...] = ()
    is_histogram: bool = False

    @property
    def full_name(self) -> str:
        """The name on pages."""
        is_whole = self.name.startswith(("weft_", "python_", "process_"))
        return self.name if is_whole else f"weft_scheduler_{self.name}"

    @property
    def kind(self) -> str:
        """The type, as Prometheus names it; a name that ends in `_total` is that of a counter."""
        if self.is_histogram:
            return "histogram"
        return "counter" if self.name.endswith("_total") else "gauge"


class Histogram:
    """Counts of durations by size: whole numbers of microseconds, `BOUNDS_US` their buckets."""

    __slots__ = ("counts", "sum_us")

    def __init__(self) -> None:
        #: one per bucket; the last one is that of all that are above the last bound
        self.counts = [0] * N_BUCKETS
        self.sum_us = 0

    def add(self, duration_us: int, n: int = 1) -> None:
        """Count `n` equal durations."""
        self.counts[bisect_left(BOUNDS_US, duration_us)] += n
        self.sum_us += duration_us * n

    def add_all(self, durations_us: Sequence[int]) -> None:
        """Count a column. It is sorted, so that Python's steps are per bucket and not per row."""
        if len(durations_us) < 4:
            for duration_us in durations_us:
                self.add(duration_us)
            return
        ordered = sorted(durations_us)
        counts, start = self.counts, 0
        bucket, last = (bisect_left(BOUNDS_US, end) for end in (ordered[0], ordered[-1]))
        while bucket < last:
            stop = bisect_left(ordered, BOUNDS_US[bucket] + 1, start)
            counts[bucket] += stop - start
            start = stop
            bucket += 1
        counts[last] += len(ordered) - start
        self.sum_us += sum(ordered)

    def plain(self) -> dict[str, Any]:
        """Return what a page needs, as plain data."""
        return {"counts": list(self.counts), "sum": self.sum_us / 1e6}
