"""The workloads of data frames: ten columns of random whole numbers, in equal partitions.

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
COLUMNS = list("abcdefghij")
#: Each partition of `map_partitions` takes at least so long.
MAP_S = 0.1
#: Rows that are read, one after the other.
N_ACCESSES = 5


def _random(n: int, part: int) -> Any:
    import dask.array as da
    import dask.dataframe as dd

    numbers = da.random.default_rng().integers(
        0, TOP, size=(n, len(COLUMNS)), chunks=(part, len(COLUMNS))
    )
    return dd.from_dask_array(numbers, columns=COLUMNS)


def _keyed(n: int, part: int, name: str) -> Any:
    """Return a frame of a key, of which each value is there once in the mean, and one column."""
    import dask.array as da
    import dask.dataframe as dd

    numbers = da.random.default_rng().integers(0, n, size=(n, 2), chunks=(part, 2))
    return dd.from_dask_array(numbers, columns=["key", name])


def _persisted(system: Study, n: int, part: int) -> Any:
    return Stopwatch(system).persist(lambda: _random(n, part))


def _n_bytes(n: int) -> int:
    return n * len(COLUMNS) * 8


def run_create(system: Study, n: int, *, part_of: Any) -> Sample:
    """Create a frame of random numbers."""
    spilled, watch = system.spilled_bytes(), Stopwatch(system)
    df = watch.persist(lambda: _random(n, part_of(n)))
    return sample(system, watch, check(len(df), n), _n_bytes(n), spilled)


def run_map(system: Study, n: int, *, part_of: Any) -> Sample:
    """A function of 100 ms on each partition."""
    spilled, watch = system.spilled_bytes(), Stopwatch(system)
    df = _persisted(system, n, part_of(n))
    waiting = functools.partial(inc_after, MAP_S)
    # The metadata is given: otherwise the client would call the function once.
    after = watch.persist(lambda: df.map_partitions(waiting, meta=df._meta))
    found = int(after["a"].sum().compute())
    check(found, int(df["a"].sum().compute()) + n)
    return sample(system, watch, found, _n_bytes(n), spilled)


def run_elementwise(system: Study, n: int, *, part_of: Any) -> Sample:
    """Ten additions to one column."""
    spilled, watch = system.spilled_bytes(), Stopwatch(system)
    df = _persisted(system, n, part_of(n))
    y = watch.persist(lambda: functools.reduce(lambda s, i: s + i, range(1, 11), df["a"]))
    found = int(y.sum().compute())
    check(found, int(df["a"].sum().compute()) + 55 * n)
    return sample(system, watch, found, _n_bytes(n), spilled)


def run_access(system: Study, n: int, *, part_of: Any) -> Sample:
    """Read one row by `loc`, some times: the median; beside it, the time of a call of nothing."""
    spilled = system.spilled_bytes()
    df = _persisted(system, n, part_of(n))
    times, round_trips = [], []
    for i in range(N_ACCESSES):
        at = (123_456 * i) % n
        start = time.perf_counter()
        row = df.loc[at].compute()
        times.append(time.perf_counter() - start)
        check(list(row.index), [at])
        start = time.perf_counter()
        check(system.call(inc, i), i + 1)
        round_trips.append(time.perf_counter() - start)
    watch = Stopwatch(system)
    watch.seconds = statistics.median(times)
    extra = {"round_trip_s": statistics.median(round_trips)}
    return sample(system, watch, 1, _n_bytes(n), spilled, extra)


def run_std(system: Study, n: int, *, part_of: Any) -> Sample:
    """The standard deviation of all columns."""
    spilled, watch = system.spilled_bytes(), Stopwatch(system)
    df = _persisted(system, n, part_of(n))
    found = watch.compute(df.std)
    return sample(system, watch, _check_std(found["a"], n), _n_bytes(n), spilled)


def run_std_of_one(system: Study, n: int, *, part_of: Any) -> Sample:
    """The standard deviation of one column."""
    spilled, watch = system.spilled_bytes(), Stopwatch(system)
    df = _persisted(system, n, part_of(n))
    found = watch.compute(df["a"].std)
    return sample(system, watch, _check_std(found, n), _n_bytes(n), spilled)


def _check_std(found: Any, n: int) -> float:
    return check_near(found, ((TOP**2 - 1) / 12) ** 0.5, 6 / n**0.5)


def run_groupby(system: Study, n: int, *, part_of: Any) -> Sample:
    """The mean of one column in the groups of another."""
    spilled, watch = system.spilled_bytes(), Stopwatch(system)
    df = _persisted(system, n, part_of(n))
    found = watch.compute(df.groupby("a")["b"].mean)
    check(len(found), int(df["a"].nunique().compute()))
    return sample(system, watch, len(found), _n_bytes(n), spilled)


def run_apply(system: Study, n: int, *, part_of: Any) -> Sample:
    """A function of each group: all rows of a group move to one worker."""
    spilled, watch = system.spilled_bytes(), Stopwatch(system)
    df = _persisted(system, n, part_of(n))
    found = watch.compute(lambda: df.groupby("a").apply(len, meta=("n", "int64")))
    return sample(system, watch, check(int(found.sum()), n), _n_bytes(n), spilled)


def run_set_index(system: Study, n: int, *, part_of: Any) -> Sample:
    """Sort by another column."""
    spilled, watch = system.spilled_bytes(), Stopwatch(system)
    df = _persisted(system, n, part_of(n))
    y = watch.persist(lambda: df.set_index("b"))
    if y.npartitions > 1:
        check(list(y.divisions), sorted(y.divisions))
    return sample(system, watch, check(len(y), n), _n_bytes(n), spilled)


def run_merge(system: Study, n: int, *, part_of: Any) -> Sample:
    """Merge two frames by a column that is no index."""
    import numpy as np

    spilled, watch = system.spilled_bytes(), Stopwatch(system)
    left = Stopwatch(system).persist(lambda: _keyed(n, part_of(n), "left"))
    right = Stopwatch(system).persist(lambda: _keyed(n, part_of(n), "right"))
    y = watch.persist(lambda: left.merge(right, on="key"))
    counts = [np.bincount(frame["key"].compute(), minlength=n) for frame in (left, right)]
    expected = int((counts[0] * counts[1]).sum())
    return sample(system, watch, check(len(y), expected), 4 * n * 8, spilled)


def run_rolling(system: Study, n: int, *, part_of: Any) -> Sample:
    """The mean of five rows, which needs the end of the partition before."""
    spilled, watch = system.spilled_bytes(), Stopwatch(system)
    df = _persisted(system, n, part_of(n))
    y = watch.persist(lambda: df.rolling(5).mean())
    n_missing = int(y["a"].isna().sum().compute())
    check(n_missing, min(4, n))
    return sample(system, watch, n_missing, _n_bytes(n), spilled)


ENTRIES = {
    "create": ("create {n} rows", run_create),
    "map": ("map_partitions, 100 ms each, {n} rows", run_map),
    "elementwise": ("ten additions to a column, {n} rows", run_elementwise),
    "access": ("one row of {n}", run_access),
    "std": ("std of all columns, {n} rows", run_std),
    "std-one": ("std of one column, {n} rows", run_std_of_one),
    "groupby": ("groupby, mean, {n} rows", run_groupby),
    "apply": ("groupby.apply, {n} rows", run_apply),
    "set-index": ("set_index, {n} rows", run_set_index),
    "merge": ("merge, {n} rows with {n}", run_merge),
    "rolling": ("rolling(5).mean(), {n} rows", run_rolling),
}

#: The rows of a small partition.
SMALL = 10_000

#: Four partitions, of 1 000 000 rows in a full run: those of dask's study.
USUAL = workloads(
    *("frame", ENTRIES),
    suffix="",
    part_of=lambda n: max(n // 4, 1),
    sizes=(4_000_000, 200_000),
)
WITH_SMALL_PARTITIONS = workloads(
    *("frame", ENTRIES),
    suffix="-small",
    quick_names=("create", "elementwise", "groupby", "set-index", "merge"),
    part_of=lambda n: min(SMALL, n),
    sizes=(500_000, 80_000),
)
#: Two partitions.
WITH_LARGE_PARTITIONS = workloads(
    *("frame", ENTRIES),
    suffix="-expert",
    part_of=lambda n: max(n // 2, 1),
    sizes=(4_000_000, 200_000),
    names=("elementwise", "set-index"),
    systems=EXPERT,
)
