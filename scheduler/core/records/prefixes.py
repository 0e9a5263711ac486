"""Measurements of functions by name, bounded, because clients send ever more names.

A name is a *prefix*, as in dask. Names of live functions are all kept, because their durations are
estimated by them; of the others the longest unused are forgotten.

Of the metrics at most `MAX_SHOWN` names have a series of their own, and keep it for ever: half of
the places are for the first names, the others for names that take a good part of the time of all
tasks. All other names count in the series `other`. A name that gets its series later begins it at
zero: what it had counted stays in `other`. So no series ever vanishes or comes back smaller, which
Prometheus would take for a restart, and their sum is that of all tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, ItemsView
from itertools import islice
from typing import Final

from ....protocol.metrics import Histogram

#: Names kept beyond those that live functions have.
MAX_IDLE: Final = 1000
#: Names with a series of their own, and those that get it because they come first.
MAX_SHOWN: Final = 50
MAX_EARLY: Final = 25
#: A later name gets a series when its tasks have taken more than one part in so many of the time of
#: all tasks.
MERIT: Final = 100
#: Names without work that the overview looks at.
MAX_SEEN: Final = 200
#: A longer name is cut: the rest would cost memory and hardly distinguishes functions.
MAX_NAME_CHARS: Final = 200
#: The common name of the other prefixes.
OTHER: Final = "other"

#: Of prefixes that are dropped, these are added up.
_SUMS: Final = ("n_finished", "n_failed", "n_before", "n_failed_before", "compute_ns")

#: Estimate for a function that never finished here.
UNKNOWN_DURATION_NS: Final = 2_000_000
#: A function of which more tasks than this come ready at once starts with one for each thread: each
#: counts as long as the backlog of a thread. Neither their duration nor their size is known. Those
#: that wait for inputs do not count: their order spreads them, and a stencil would lose its place.
MANY_UNKNOWN: Final = 16
UNKNOWN_OF_MANY_NS: Final = 30_000_000
#: Results that are smaller on average do not count as data that fills a worker's memory.
LARGE_NBYTES: Final = 64 << 10
#: Least cost of a task for a worker, so that tasks of no duration do not count as free.
MIN_DURATION_NS: Final = 10_000


class Series:
    """The numbers of one name, or of all that share `other`; none ever decreases."""

    __slots__ = (
        "compute_ns",
        "erred_us",
        "fetched_us",
        "n_finished",
        "n_raised",
        "nbytes",
        "queued_us",
    )

    def __init__(self) -> None:
        self.n_finished = 0
        self.compute_ns = 0
        #: bytes of their results
        self.nbytes = 0
        #: attempts that raised, and their time
        self.n_raised = self.erred_us = 0
        #: from the arrival of attempts at a worker to their start, and of that, until their inputs
        #: came
        self.queued_us = self.fetched_us = 0


class Prefix:
    """The measurements of all tasks of one function name."""

    __slots__ = (
        "compute_ns",
        "estimate_ns",
        "family",
        "n_before",
        "n_failed",
        "n_failed_before",
        "n_finished",
        "n_functions",
        "n_processing",
        "n_unfinished",
        "name",
        "result_nbytes",
        "series",
    )

    def __init__(self, name: str, family: Prefixes | None = None) -> None:
        """Begin with no task. Without a family it has a series of its own."""
        self.name = name
        self.family = family
        #: where the metrics count it; that of `family` if it shares it with others
        self.series = Series() if family is None else family.other
        #: expected duration of the next one, ns, >= MIN_DURATION_NS
        self.estimate_ns = UNKNOWN_DURATION_NS
        #: expected size of the next result, bytes; 0 = below LARGE_NBYTES, or not known
        self.result_nbytes = 0
        #: counts of this name alone, since it is known; a failed task is one that failed by itself
        self.n_finished = self.n_failed = self.compute_ns = 0
        #: tasks that are to run, run, or wait for others (see `transitions.ACTIVE`); and those of
        #: them that are at workers
        self.n_unfinished = self.n_processing = 0
        #: finished and failed tasks when it last began to have unfinished ones, and of these, those
        #: that had failed
        self.n_before = self.n_failed_before = 0
        #: how many of the scheduler's functions have this name
        self.n_functions = 0

    def begin(self, n: int = 1) -> None:
        """Note that `n` tasks are to run."""
        if not self.n_unfinished:  # at each call of a client that waits for every single one
            n_more = self.n_finished + self.n_failed - self.n_before
            self.n_before += n_more
            family = self.family
            if family is not None:
                family.n_before += n_more
                family.active[self] = None
            if self.n_failed != self.n_failed_before:
                if family is not None:
                    family.n_failed_before += self.n_failed - self.n_failed_before
                self.n_failed_before = self.n_failed
        self.n_unfinished += n
        if n > MANY_UNKNOWN and not self.n_finished:
            self.estimate_ns = UNKNOWN_OF_MANY_NS

    def finish(self, n: int, total_us: int, queued_us: int, nbytes: int) -> None:
        """Note that `n` tasks at workers finished, and the sums of their times and results."""
        self.learn(n, total_us * 1000)
        self.series.queued_us += queued_us
        self.series.nbytes += nbytes
        if nbytes >= n * LARGE_NBYTES or self.result_nbytes:
            self._learn_size(nbytes // n)
        self.n_unfinished -= n
        self.n_processing -= n

    def _learn_size(self, mean: int) -> None:
        """Take the mean size of the results of a report into the estimate, as of the durations."""
        known = self.result_nbytes
        nbytes = known + (mean - known) // 4 if known else mean
        self.result_nbytes = nbytes if nbytes >= LARGE_NBYTES else 0
        if self.family is not None:
            self.family.has_large = True

    def learn(self, n: int, total_ns: int) -> None:
        """Add `n` durations that sum to `total_ns`.

        The estimate is an exponential mean that forgets over about 8 reports.
        """
        mean = max(total_ns // n, MIN_DURATION_NS)
        if self.n_finished == 0:
            self.estimate_ns = mean
        else:
            self.estimate_ns += (mean - self.estimate_ns) // 4
        self.n_finished += n
        self.compute_ns += total_ns
        family = self.family
        if family is not None:
            family.compute_ns += total_ns
            if self.series is family.other and self.compute_ns * MERIT > family.compute_ns:
                family.show(self)
        series = self.series
        series.n_finished += n
        series.compute_ns += total_ns

    def note_raised(self, duration_us: int, queued_us: int) -> None:
        """Add an attempt that raised."""
        series = self.series
        series.n_raised += 1
        series.erred_us += duration_us
        series.queued_us += queued_us


class Prefixes:
    """All prefixes, by name."""

    def __init__(self) -> None:
        self._by_name: dict[str, Prefix] = {}
        #: prefixes with a series of their own: they stay
        self.shown: dict[str, Prefix] = {}
        #: {prefix: None} of those that no function has and that are not shown, longest unused first
        self.idle: dict[Prefix, None] = {}
        #: sums of those that were forgotten
        self.dropped = Prefix(OTHER)
        #: the series of all that are not shown, also of those that were forgotten
        self.other = Series()
        #: the time of all tasks, and the sums over all prefixes
        self.compute_ns = self.n_before = self.n_failed_before = 0
        #: one of them has, or has had, large results
        self.has_large = False
        #: {prefix: None} of those with unfinished tasks, and of some that had
        self.active: dict[Prefix, None] = {}
        #: durations of all finished attempts, also if their results were not needed any more
        self.durations = Histogram()
        #: from when tasks last began to wait for a worker to the start of the attempt that finished
        self.queue_times = Histogram()

    def __getitem__(self, name: str) -> Prefix:
        return self._by_name[name]

    def __len__(self) -> int:
        return len(self._by_name)

    def items(self) -> ItemsView[str, Prefix]:
        """Return the known names, each with its measurements."""
        return self._by_name.items()

    def take(self, name: str) -> Prefix:
        """Return the prefix of one function more."""
        name = name[:MAX_NAME_CHARS]
        prefix = self._by_name.get(name)
        if prefix is None:
            prefix = self._by_name[name] = Prefix(name, self)
            if len(self.shown) < MAX_EARLY:
                self.show(prefix)
        elif not prefix.n_functions:
            self.idle.pop(prefix, None)
        prefix.n_functions += 1
        return prefix

    def show(self, prefix: Prefix) -> None:
        """Give a prefix a series of its own, if there is a place for one more."""
        if len(self.shown) < MAX_SHOWN and prefix.name != OTHER:
            self.shown[prefix.name] = prefix
            prefix.series = Series()

    def give_back(self, prefix: Prefix) -> None:
        """Note that one function less has this prefix."""
        prefix.n_functions -= 1
        if prefix.n_functions or prefix.name in self.shown:
            return
        self.idle[prefix] = None
        if len(self.idle) > MAX_IDLE:
            oldest = next(iter(self.idle))
            del self.idle[oldest], self._by_name[oldest.name]
            self.active.pop(oldest, None)
            for name in _SUMS:
                total = getattr(self.dropped, name) + getattr(oldest, name)
                setattr(self.dropped, name, total)

    def with_work(self) -> list[Prefix]:
        """Return those that have unfinished tasks."""
        found = [prefix for prefix in self.active if prefix.n_unfinished]
        if len(found) < len(self.active):
            self.active = dict.fromkeys(found)
        return found

    def of_interest(self, with_work: list[Prefix]) -> Collection[Prefix]:
        """Return all prefixes; of many those with unfinished tasks, most time, or a new name."""
        if len(with_work) >= MAX_SHOWN:
            return with_work
        if len(self._by_name) <= MAX_SEEN:
            return self._by_name.values()
        newest = islice(reversed(self._by_name.values()), MAX_SEEN)
        return dict.fromkeys((*with_work, *self.shown.values(), *newest))

    def totals(self, read: Callable[[Series], float]) -> dict[str, float]:
        """Return a number of each prefix that is shown, and that of all others as `other`."""
        values = {name: read(prefix.series) for name, prefix in self.shown.items()}
        return {**values, OTHER: read(self.other)}
