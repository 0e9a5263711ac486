"""The workloads of arrays: squares of random numbers in square chunks.

Inputs are made and persisted before the clock starts, from a new seed each time, so that no key and
no result is known from an earlier run. Results are checked after it has stopped.
"""

from __future__ import annotations

import functools
import statistics
import time
from typing import Any

from ..framework.work import Sample, check
from ..tasks import inc, inc_after
from .collections import EXPERT, Stopwatch, check_near, sample, workloads
from .systems import Study

#: Numbers are drawn from range(TOP).
TOP = 10_000
#: Each block of `overlap` takes at least so long.
OVERLAP_S = 0.1
#: Elements that are read, one after the other.
N_ACCESSES = 5


def _random(size: int, chunk: int) -> Any:
    import dask.array as da

    return da.random.default_rng().integers(0, TOP, size=(size, size), chunks=(chunk, chunk))


def _persisted(system: Study, size: int, chunk: int) -> Any:
    return Stopwatch(system).persist(lambda: _random(size, chunk))


def slim(size: int) -> int:
    """Return the width of the chunks of `rechunk`, which are as long as the array."""
    return min(max(size // 40, 100), size)


def run_create(system: Study, n: int, *, part_of: Any) -> Sample:
    """Create an array of random numbers."""
    spilled, watch = system.spilled_bytes(), Stopwatch(system)
    x = watch.persist(lambda: _random(n, part_of(n)))
    value = int(x[n // 2, n // 3].compute())
    check(0 <= value < TOP, True)
    return sample(system, watch, value, x.nbytes, spilled)


def run_elementwise(system: Study, n: int, *, part_of: Any) -> Sample:
    """sin(x) ** 2 + cos(x) ** 2."""
    import dask.array as da

    spilled, watch = system.spilled_bytes(), Stopwatch(system)
    x = _persisted(system, n, part_of(n))
    y = watch.persist(lambda: da.sin(x) ** 2 + da.cos(x) ** 2)
    check_near(y[n // 2, n // 3].compute(), 1.0, 1e-9)
    return sample(system, watch, 1, x.nbytes, spilled)


def run_std(system: Study, n: int, *, part_of: Any) -> Sample:
    """x.std()."""
    spilled, watch = system.spilled_bytes(), Stopwatch(system)
    x = _persisted(system, n, part_of(n))
    found = watch.compute(x.std)
    expected = ((TOP**2 - 1) / 12) ** 0.5
    check_near(found, expected, 3 / n)
    return sample(system, watch, found, x.nbytes, spilled)


def run_access(system: Study, n: int, *, part_of: Any) -> Sample:
    """Read one number, some times: the median; beside it, the time of a call of nothing."""
    spilled = system.spilled_bytes()
    x = _persisted(system, n, part_of(n))
    times, round_trips = [], []
    for i in range(N_ACCESSES):
        start = time.perf_counter()
        value = x[(1234 * i) % n, (4567 * i) % n].compute()
        times.append(time.perf_counter() - start)
        check(0 <= int(value) < TOP, True)
        start = time.perf_counter()
        check(system.call(inc, i), i + 1)
        round_trips.append(time.perf_counter() - start)
    watch = Stopwatch(system)
    watch.seconds = statistics.median(times)
    extra = {"round_trip_s": statistics.median(round_trips)}
    return sample(system, watch, 1, x.nbytes, spilled, extra)


def run_transpose(system: Study, n: int, *, part_of: Any) -> Sample:
    """x + x.T, for which half of the chunks move."""
    spilled, watch = system.spilled_bytes(), Stopwatch(system)
    x = _persisted(system, n, part_of(n))
    y = watch.persist(lambda: x + x.T)
    i, j = n // 3, n - 1
    found = int(y[i, j].compute())
    check(found, int(x[i, j].compute()) + int(x[j, i].compute()))
    return sample(system, watch, found, x.nbytes, spilled)


def run_rechunk(system: Study, n: int, *, part_of: Any) -> Sample:
    """From squares to chunks as long as the array, and slim."""
    spilled, watch = system.spilled_bytes(), Stopwatch(system)
    x = _persisted(system, n, part_of(n))
    y = watch.persist(lambda: x.rechunk((n, slim(n))))
    found = int(y[n // 3, n - 1].compute())
    check(found, int(x[n // 3, n - 1].compute()))
    return sample(system, watch, found, x.nbytes, spilled)


def run_rechunk_across(system: Study, n: int, *, part_of: Any) -> Sample:
    """From slim chunks of columns to slim chunks of rows: each needs a part of each."""
    spilled, watch = system.spilled_bytes(), Stopwatch(system)
    x = Stopwatch(system).persist(lambda: _random(n, part_of(n)).rechunk((n, slim(n))))
    y = watch.persist(lambda: x.rechunk((slim(n), n)))
    found = int(y[n // 3, n - 1].compute())
    check(found, int(x[n // 3, n - 1].compute()))
    return sample(system, watch, found, x.nbytes, spilled)


def run_overlap(system: Study, n: int, *, part_of: Any) -> Sample:
    """A function of 100 ms on each chunk and the edges of its neighbours."""
    import numpy as np

    spilled, watch = system.spilled_bytes(), Stopwatch(system)
    x = _persisted(system, n, part_of(n))
    waiting, empty = functools.partial(inc_after, OVERLAP_S), np.array((), int)
    y = watch.persist(lambda: x.map_overlap(waiting, depth=1, boundary="none", meta=empty))
    found = int(y[n // 3, n - 1].compute())
    check(found, int(x[n // 3, n - 1].compute()) + 1)
    return sample(system, watch, found, x.nbytes, spilled)


def run_matmul(system: Study, n: int, *, part_of: Any) -> Sample:
    """x @ x, of floats, so that NumPy's part is fast."""
    spilled, watch = system.spilled_bytes(), Stopwatch(system)
    x = Stopwatch(system).persist(lambda: _random(n, part_of(n)).astype(float))
    y = watch.persist(lambda: x @ x)
    i, j = n // 3, n - 1
    found = float(y[i, j].compute())
    check_near(found, float((x[i, :] * x[:, j]).sum().compute()), 1e-9)
    return sample(system, watch, found, x.nbytes, spilled)


ENTRIES = {
    "create": ("create {n} x {n} random numbers", run_create),
    "elementwise": ("sin(x)**2 + cos(x)**2, {n} x {n}", run_elementwise),
    "std": ("x.std(), {n} x {n}", run_std),
    "access": ("one element of {n} x {n}", run_access),
    "transpose": ("x + x.T, {n} x {n}", run_transpose),
    "rechunk": ("rechunk to columns, {n} x {n}", run_rechunk),
    "rechunk-across": ("rechunk columns to rows, {n} x {n}", run_rechunk_across),
    "overlap": ("map_overlap, 100 ms each, {n} x {n}", run_overlap),
    "matmul": ("x @ x, {n} x {n}", run_matmul),
}

#: The side of a small chunk.
SMALL = 100

#: 4 x 4 chunks, of 2000 x 2000 in a full run: those of dask's study.
USUAL = workloads(
    *("array", ENTRIES),
    suffix="",
    part_of=lambda n: max(n // 4, 1),
    sizes=(8_000, 1_600),
    own_sizes={"matmul": (4_000, 1_200)},
)
WITH_SMALL_CHUNKS = workloads(
    *("array", ENTRIES),
    suffix="-small",
    quick_names=("create", "elementwise", "std", "access", "rechunk-across"),
    part_of=lambda n: min(SMALL, n),
    sizes=(2_000, 500),
    # Each chunk of `overlap` waits, and `matmul` has a task for each pair of chunks.
    own_sizes={"overlap": (1_000, 300), "matmul": (1_000, 400)},
)
#: 2 x 2 chunks.
WITH_LARGE_CHUNKS = workloads(
    *("array", ENTRIES),
    suffix="-expert",
    part_of=lambda n: max(n // 2, 1),
    sizes=(8_000, 1_600),
    names=("elementwise", "rechunk"),
    systems=EXPERT,
)
