"""How much memory, and how many cores, a task of a category is given, by what others have used.

Owns the measured peaks of one amount of one category, and chooses its *first allocation*. A task
that needs more memory is run again with the largest one. A task that needs more cores goes on. No
clock, no state of the scheduler: numbers come in, and a number comes out.

The modes are those of Work Queue and TaskVine. The model is that of B. Tovar and others, "A Job
Sizing Strategy for High-Throughput Scientific Workflows", IEEE Transactions on Parallel and
Distributed Systems 29(2), 2018.
"""

from __future__ import annotations

from math import ceil
from typing import Final

from ....protocol.wire.options import FIXED, MAX_SEEN, MIN_WASTE

#: So many tasks have to be measured before their peaks count.
FIRST_REVIEW: Final = 5
#: After a review the next one comes when so many times as many tasks are measured.
GROWTH: Final = 1.25
#: Peaks between a power of two and the next one are rounded up to one of so many steps.
STEPS: Final = 16
#: No allocation of memory is smaller, bytes.
LEAST_NBYTES: Final = 1 << 20
#: An attempt that ran for a shorter time does not show how many cores it needs, microseconds.
LEAST_WALL_US: Final = 100_000
#: So much of a further core is not counted: the work beside that of a program with one thread.
SPARE_CORES: Final = 0.2


class LearnedPeaks:
    """The peaks of one amount, of the measured tasks of a category."""

    __slots__ = ("is_limit", "least", "n_measured", "next_review", "peaks")

    def __init__(self, least: int, *, is_limit: bool) -> None:
        """Prepare.

        Args:
            least: no peak and no allocation is smaller.
            is_limit: a task that uses more than it was given is ended, and run again.
        """
        self.least = least
        self.is_limit = is_limit
        #: {peak, rounded up: [number of tasks, sum of their seconds]}
        self.peaks: dict[int, list[float]] = {}
        #: The sum of these numbers.
        self.n_measured = 0
        #: As soon as so many are measured, the allocation is chosen anew.
        self.next_review = FIRST_REVIEW

    def note(self, peak: int, wall_s: float) -> bool:
        """Note what a task has used that ended well; return whether the allocation is to change."""
        row = self.peaks.setdefault(rounded_up(peak, self.least), [0, 0.0])
        row[0] += 1
        row[1] += max(wall_s, 1e-6)
        self.n_measured += 1
        if self.n_measured < self.next_review:
            return False
        self.next_review = int(self.n_measured * GROWTH) + 1
        return True

    def rows(self) -> list[tuple[int, int, float]]:
        """Return what was noted, as `restore` takes it."""
        return [(peak, int(n), sum_s) for peak, (n, sum_s) in self.peaks.items()]

    def restore(self, rows: list[tuple[int, int, float]]) -> None:
        """Begin with what was noted before: (peak, number of tasks, sum of their seconds)."""
        self.peaks = {peak: [n, sum_s] for peak, n, sum_s in rows}
        self.n_measured = sum(n for _, n, _ in rows)
        self.next_review = max(FIRST_REVIEW, int(self.n_measured * GROWTH) + 1)

    def first(self, mode: str, largest: int) -> int:
        """Return the allocation of the first attempt of a task; O(number of peaks).

        Let a be an allocation, m the largest one, r the peak of a task and t its time; P is the
        share of tasks, and E[t; r > a] the sum of the times of those with r > a, divided by the
        number of all. A task that needs more than a has run in vain for its whole time, and then
        runs with m. So the mean use of memory over time by a task is

            U(a) = a E[t] + m E[t; r > a]

        "min waste" takes the a with the least U(a): what tasks really use does not depend on a, so
        what is wasted is least as well. "max throughput" takes the a with the greatest

            T(a) = (m/a P(r <= a) + P(r > a)) / (E[t] + E[t; r > a])

        the number of tasks that end in the place of one with m, by the time that each takes with
        its repetition. "max" takes the greatest peak that was seen, and "fixed" takes m. The
        candidates are the peaks that were seen: between two of them only a grows.

        An amount that is no limit is taken from others on the worker by a task that needs more than
        a. U(a) counts that as all that the worker has. T(a) would give too little: where half of
        the tasks use 1 of 16 cores, and half of them 4, it takes 1. So "max throughput" takes the
        least U(a), too. Until enough is known, and with "fixed", such an a is `least`.

        Args:
            mode: one of `protocol.wire.options.MODES`.
            largest: m: the category's maximum, or a whole worker.
        """
        if mode == FIXED or self.n_measured < FIRST_REVIEW:
            return largest if self.is_limit else self.least
        peaks = sorted(self.peaks.items())
        if mode == MAX_SEEN:
            return min(peaks[-1][0], largest)
        total_s = sum(row[1] for _, row in peaks)
        n_below, above_s = 0.0, total_s
        chosen, best = largest, float("-inf")
        for peak, (n, sum_s) in peaks:
            size = min(peak, largest)
            n_below += n
            above_s = max(above_s - sum_s, 0.0)
            if mode == MIN_WASTE or not self.is_limit:
                value = -(size * total_s + largest * above_s)
            else:
                share = n_below / self.n_measured
                value = (largest / size * share + 1 - share) / (total_s + above_s)
            if value > best:
                chosen, best = size, value
            if size == largest:
                break
        return chosen


def rounded_up(peak: int, least: int) -> int:
    """Return the next of the peaks that are told apart: little more, or the least one."""
    if peak <= least:
        return least
    step = max((1 << ((peak - 1).bit_length() - 1)) // STEPS, 1)
    return -(-peak // step) * step


def cores_used(cpu_us: int, wall_us: int) -> int:
    """Return how many cores an attempt has kept busy, at least 1; 0 = that is not known."""
    if not cpu_us or wall_us < LEAST_WALL_US:
        return 0
    return max(ceil(cpu_us / wall_us - SPARE_CORES), 1)
