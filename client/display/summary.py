"""Sums over the attempts of a task stream: by function, span and worker. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from ..insight.attempt_timing import AttemptTiming


@dataclass(slots=True)
class AttemptSums:
    """Attempts that have something in common. Times are seconds, summed over threads."""

    n: int = 0
    n_failed: int = 0
    compute_s: float = 0.0
    waited_s: float = 0.0  #: with their thread given up
    transfer_s: float = 0.0  #: from their arrival until their last input was fetched
    longest_s: float = 0.0
    nbytes: int = 0  #: of their results

    def add(self, one: AttemptTiming) -> None:
        """Count one more."""
        compute_s = one.stop - one.start - one.waited
        self.n += 1
        self.n_failed += one.is_failed
        self.compute_s += compute_s
        self.waited_s += one.waited
        self.longest_s = max(self.longest_s, compute_s)
        self.nbytes += one.nbytes
        if one.transfer is not None:
            self.transfer_s += one.transfer[1] - one.transfer[0]


def sums_by(
    timings: Iterable[AttemptTiming], names_of: Callable[[AttemptTiming], Iterable[str]]
) -> dict[str, AttemptSums]:
    """Return `{name: sums}`, those that took most time first; an attempt may have several names."""
    found: dict[str, AttemptSums] = {}
    for one in timings:
        for name in names_of(one):
            sums = found.get(name)
            if sums is None:
                sums = found[name] = AttemptSums()
            sums.add(one)
    return dict(sorted(found.items(), key=lambda item: (-item[1].compute_s, item[0])))


def by_function(timings: Iterable[AttemptTiming]) -> dict[str, AttemptSums]:
    """Return the sums of each function."""
    return sums_by(timings, lambda one: (one.function,))


def by_worker(timings: Iterable[AttemptTiming]) -> dict[str, AttemptSums]:
    """Return the sums of each worker, by address."""
    return sums_by(timings, lambda one: (one.address,))


def by_span(timings: Iterable[AttemptTiming]) -> dict[str, AttemptSums]:
    """Return the sums of each span, which include those of the spans in it; `a > b` is in `a`."""
    return sums_by(
        timings, lambda one: [" > ".join(one.span[: i + 1]) for i in range(len(one.span))]
    )


def figures_by_function(timings: Iterable[AttemptTiming]) -> dict[str, dict[str, Any]]:
    """Return the sums of each function, and its median, as plain data, for a comparison."""
    found = [*timings]
    seconds: dict[str, list[float]] = {}
    for one in found:
        seconds.setdefault(one.function, []).append(one.stop - one.start - one.waited)
    return {
        name: {**asdict(sums), "median_s": median(seconds[name])}
        for name, sums in by_function(found).items()
    }


def in_total(timings: Iterable[AttemptTiming]) -> AttemptSums:
    """Return the sums of all."""
    return sums_by(timings, lambda _: ("",)).get("") or AttemptSums()
