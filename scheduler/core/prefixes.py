"""Measurements of functions by name, bounded, because clients send ever more names.

A name is a *prefix*, as in dask. Names of live functions are all kept, because their durations are
estimated by them; of the others the longest unused are folded into `other`. The first names get a
series of their own in the metrics and keep it; all later ones share `other` there. So a series
neither vanishes nor comes back smaller, which Prometheus would take for a restart.
"""

from __future__ import annotations

from collections.abc import Callable, ItemsView
from typing import Final

#: Names kept beyond those that live functions have.
MAX_IDLE: Final = 1000
#: Names with a series of their own.
MAX_SHOWN: Final = 50
#: A longer name is cut: the rest would cost memory and hardly distinguishes functions.
MAX_NAME_CHARS: Final = 200
#: The common name of the other prefixes.
OTHER: Final = "other"

#: Of prefixes that are dropped, these are added up.
_SUMS: Final = ("n_finished", "n_failed", "compute_ns", "erred_us", "queued_us", "fetched_us")

#: Estimate for a function that never finished here: 2 ms lets a new `map` start with a dozen tasks
#: per thread.
UNKNOWN_DURATION_NS: Final = 2_000_000
#: Least cost of a task for a worker, so that tasks of no duration do not count as free.
MIN_DURATION_NS: Final = 10_000


class Prefix:
    """The measurements of all tasks of one function name."""

    __slots__ = (
        "compute_ns",
        "erred_us",
        "estimate_ns",
        "fetched_us",
        "n_failed",
        "n_finished",
        "n_functions",
        "n_processing",
        "n_unfinished",
        "name",
        "queued_us",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        #: expected duration of the next one, ns, >= MIN_DURATION_NS
        self.estimate_ns = UNKNOWN_DURATION_NS
        self.n_finished = 0
        #: tasks that failed by themselves
        self.n_failed = 0
        #: tasks that are to run, run, or wait for others (see `transitions.ACTIVE`); and those of
        #: them that are at workers
        self.n_unfinished = self.n_processing = 0
        self.compute_ns = 0
        #: of attempts that raised
        self.erred_us = 0
        #: from their arrival at a worker to their start, and of that, until their inputs came
        self.queued_us = self.fetched_us = 0
        #: how many of the scheduler's functions have this name
        self.n_functions = 0

    def finish(self, n: int, total_us: int, queued_us: int) -> None:
        """Note that `n` tasks at workers finished."""
        self.learn(n, total_us * 1000)
        self.queued_us += queued_us
        self.n_unfinished -= n
        self.n_processing -= n

    def learn(self, n: int, total_ns: int) -> None:
        """Add `n` durations that sum to `total_ns`.

        An exponential mean that forgets over about 8 reports.
        """
        mean = max(total_ns // n, MIN_DURATION_NS)
        if self.n_finished == 0:
            self.estimate_ns = mean
        else:
            self.estimate_ns += (mean - self.estimate_ns) // 4
        self.n_finished += n
        self.compute_ns += total_ns


class Prefixes:
    """All prefixes, by name."""

    def __init__(self) -> None:
        self._by_name: dict[str, Prefix] = {}
        #: the first of them, in order: they stay
        self.shown: dict[str, Prefix] = {}
        #: {prefix: None} of those that no function has and that are not shown, longest unused first
        self.idle: dict[Prefix, None] = {}
        #: sums of those that were dropped
        self.dropped = Prefix(OTHER)

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
            prefix = self._by_name[name] = Prefix(name)
            if len(self.shown) < MAX_SHOWN and name != OTHER:
                self.shown[name] = prefix
        elif not prefix.n_functions:
            self.idle.pop(prefix, None)
        prefix.n_functions += 1
        return prefix

    def give_back(self, prefix: Prefix) -> None:
        """Note that one function less has this prefix."""
        prefix.n_functions -= 1
        if prefix.n_functions or prefix.name in self.shown:
            return
        self.idle[prefix] = None
        if len(self.idle) > MAX_IDLE:
            oldest = next(iter(self.idle))
            del self.idle[oldest], self._by_name[oldest.name]
            for name in _SUMS:
                total = getattr(self.dropped, name) + getattr(oldest, name)
                setattr(self.dropped, name, total)

    def totals(self, read: Callable[[Prefix], float]) -> dict[str, float]:
        """Return a number of each prefix that is shown, and the sum of all others as `other`."""
        values = {name: read(prefix) for name, prefix in self.shown.items()}
        others = sum(read(p) for name, p in self._by_name.items() if name not in self.shown)
        return {**values, OTHER: others + read(self.dropped)}
