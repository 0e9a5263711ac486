"""The workloads of data that is larger than the memory of all workers. They are in no published
study, but there a system spills, or fails.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..framework.work import Sample, Workload, check
from .arrays import TOP
from .collections import NAIVE, Stopwatch, sample
from .systems import Study

#: Bytes that each of the two workers may use.
LIMIT = 400 * 2**20
#: The side of a chunk: 8 MB.
CHUNK = 1_000


def _on_small_workers(run: Callable[[Study, int], Sample]) -> Callable[[Study, int], Sample]:
    """Return a workload that starts a cluster of its own."""

    @functools.wraps(run)
    def alone(system: Study, n: int) -> Sample:
        system.memory_limit = LIMIT
        system.open()
        try:
            return run(system, n)
        finally:
            system.close()

    return alone


def _random(n: int) -> Any:
    import dask.array as da

    chunk = min(CHUNK, n)
    return da.random.default_rng().integers(0, TOP, size=(n, n), chunks=(chunk, chunk))


def _mean_of_more(n: int) -> Any:
    return (_random(n) + 1).mean()


@_on_small_workers
def run_persist(system: Study, n: int) -> Sample:
    """Persist an array, then add it up from where it lies."""
    watch = Stopwatch(system)
    x = watch.persist(lambda: _random(n))
    mean = float(watch.compute(x.mean))
    check(abs(mean / ((TOP - 1) / 2) - 1) < 0.1, True)
    return sample(system, watch, mean, x.nbytes, None)


@_on_small_workers
def run_stream(system: Study, n: int) -> Sample:
    """Add an array up that is never there as a whole."""
    watch = Stopwatch(system)
    mean = float(watch.compute(lambda: _mean_of_more(n)))
    check(abs(mean / ((TOP + 1) / 2) - 1) < 0.1, True)
    return sample(system, watch, mean, n * n * 8, None)


def _workload(title: str, run: Callable[[Study, int], Sample]) -> Workload:
    return Workload(
        title=title,
        run=run,
        # 2.5 GB, three times what the workers may use.
        size=17_700,
        quick_size=None,
        unit="s",
        systems=NAIVE,
        needs=("dask", "numpy"),
        needs_open=False,
    )


WORKLOADS = {
    "memory-persist": _workload("persist {n} x {n}, then x.mean()", run_persist),
    "memory-stream": _workload("(x + 1).mean() of {n} x {n}, nothing kept", run_stream),
}
