"""What the workloads of arrays and of data frames share."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ..framework.work import Sample, Workload, check
from .systems import Study

#: Systems that run dask's collections.
NAIVE = ("weft", "dask", "dask-best")
EXPERT = ("weft-expert", "dask-expert")


class Stopwatch:
    """Adds up the time of the parts of a workload that count."""

    def __init__(self, system: Study) -> None:
        self._system = system
        self.seconds = 0.0
        #: the time that tasks have run meanwhile; not known of every system
        self.computed_s = 0.0

    def persist(self, make: Callable[[], Any]) -> Any:
        """Make a collection, and have its parts computed and kept on the workers."""
        with self._running():
            collection = make().persist()
            self._system.wait(collection)
        return collection

    def compute(self, make: Callable[[], Any]) -> Any:
        """Make a collection, and compute its value."""
        with self._running():
            return make().compute()

    @contextmanager
    def _running(self) -> Iterator[None]:
        before = self._system.computed_s()
        start = time.perf_counter()
        yield
        self.seconds += time.perf_counter() - start
        after = self._system.computed_s()
        if before is not None and after is not None:
            self.computed_s += after - before


def sample(
    system: Study,
    watch: Stopwatch,
    checksum: Any,
    n_bytes: int,
    spilled_before: float | None,
    extra: Mapping[str, float] | None = None,
) -> Sample:
    """Return the figures of a run that went right."""
    figures = {"data_mib": n_bytes / 2**20, **(extra or {})}
    if watch.computed_s:
        figures["tasks_s"] = watch.computed_s / (system.n_workers * system.n_threads)
    spilled = system.spilled_bytes()
    if spilled is not None:
        figures["spilled_mib"] = max(spilled - (spilled_before or 0.0), 0.0) / 2**20
    return Sample(watch.seconds, int(checksum), figures)


def check_near(found: Any, expected: float, tolerance: float) -> float:
    """Return what was found, if it differs from what was expected by at most this share."""
    if abs(float(found) - expected) > tolerance * abs(expected):
        check(found, expected)
    return float(found)


def workloads(
    kind: str,
    entries: Mapping[str, tuple[str, Callable[..., Sample]]],
    *,
    suffix: str,
    part_of: Callable[[int], int],
    sizes: tuple[int, int],
    own_sizes: Mapping[str, tuple[int, int]] | None = None,
    names: tuple[str, ...] | None = None,
    quick_names: tuple[str, ...] | None = None,
    systems: tuple[str, ...] = NAIVE,
) -> dict[str, Workload]:
    """Return the workloads of one kind of collection, with parts of one size.

    Args:
        part_of: {size: that of a chunk, along each axis, or of a partition}
        own_sizes: of workloads that take too long with the usual ones.
        names: of the workloads that are wanted; None: all.
        quick_names: of those that a quick run has; None: all.
    """
    found = {}
    for name in names or tuple(entries):
        title, run = entries[name]
        size, quick_size = (own_sizes or {}).get(name, sizes)
        found[f"{kind}-{name}{suffix}"] = Workload(
            title=title,
            run=functools.partial(run, part_of=part_of),
            size=size,
            quick_size=quick_size if name in (quick_names or entries) else None,
            unit="s",
            systems=systems,
            needs=("dask", "numpy") if kind == "array" else ("dask", "pandas", "pyarrow"),
        )
    return found
