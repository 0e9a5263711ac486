"""The workloads: plain functions over an open system, each of which checks its own result.

A workload takes the system and a size, times the work from the first submission to the last result
in hand, compares the result with the known value and returns a `Sample`. The release of the
futures is not timed.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import itertools
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil

from ..framework.work import Sample, Workload, check
from ..tasks import add, add3, ends_of, inc, map_inside
from .actors import run_actor_batch, run_actor_calls
from .coordination import run_lock, run_queue, run_variable
from .faults import run_recovery, run_resets
from .granularity import SHAPES, run_metg, run_shape
from .systems import SYSTEMS, System

#: Calls of one run of `run_argument`.
N_ARGUMENTS = 3
#: Viewers of `run_viewers`.
N_VIEWERS = 3


def run_map(system: System, n: int) -> Sample:
    """`map` of n times `x + 1`, gathered."""
    start = time.perf_counter()
    futures = system.map(inc, range(n))
    submitted = time.perf_counter()
    results = system.gather(futures)
    end = time.perf_counter()
    checksum = check(sum(results), n * (n + 1) // 2)
    return Sample(n / (end - start), checksum, {"submit_s": submitted - start})


def run_submit(system: System, n: int) -> Sample:
    """n times `submit` in a loop, then one gather."""
    start = time.perf_counter()
    futures = [system.submit(inc, i) for i in range(n)]
    submitted = time.perf_counter()
    results = system.gather(futures)
    end = time.perf_counter()
    checksum = check(sum(results), n * (n + 1) // 2)
    return Sample(n / (end - start), checksum, {"submit_s": submitted - start})


def run_round_trip(system: System, n: int) -> Sample:
    """`submit(...).result()`, one by one: median in ms."""
    durations = []
    total = 0
    for i in range(n):
        start = time.perf_counter()
        total += system.call(inc, i)
        durations.append(time.perf_counter() - start)
    checksum = check(total, n * (n + 1) // 2)
    slow = sorted(durations)[int(0.99 * (n - 1))]
    return Sample(statistics.median(durations) * 1e3, checksum, {"p99_ms": slow * 1e3})


def run_chain(system: System, n: int) -> Sample:
    """n tasks, each of which needs the one before."""
    start = time.perf_counter()
    future = system.submit(inc, 0)
    for _ in range(n - 1):
        future = system.submit(inc, future)
    (result,) = system.gather([future])
    return Sample(n / (time.perf_counter() - start), check(result, n))


def run_chain_across(system: System, n: int) -> Sample:
    """The same, each task on the other worker than the one before."""
    workers = itertools.cycle(system.addresses())
    start = time.perf_counter()
    future = system.submit_at(next(workers), inc, 0)
    for _ in range(n - 1):
        future = system.submit_at(next(workers), inc, future)
    (result,) = system.gather([future])
    return Sample(n / (time.perf_counter() - start), check(result, n))


def run_tree(system: System, n: int) -> Sample:
    """n leaves (a power of two), added in pairs down to one value: 2 n - 1 tasks."""
    start = time.perf_counter()
    layer = system.map(inc, range(n))
    n_tasks = n
    while len(layer) > 1:
        layer = system.map(add, layer[::2], layer[1::2])
        n_tasks += len(layer)
    (result,) = system.gather(layer)
    return Sample(n_tasks / (time.perf_counter() - start), check(result, n * (n + 1) // 2))


def run_neighbour(system: System, n: int) -> Sample:
    """A ring of n tasks, then n tasks that each need three neighbours of the first layer."""
    start = time.perf_counter()
    first = system.map(inc, range(n))
    second = system.map(add3, first[-1:] + first[:-1], first, first[1:] + first[:1])
    results = system.gather(second)
    elapsed = time.perf_counter() - start
    return Sample(2 * n / elapsed, check(sum(results), 3 * n * (n + 1) // 2))


def run_as_completed(system: System, n: int) -> Sample:
    """`map` of n, consumed with their results as they complete."""
    start = time.perf_counter()
    total = 0
    for result in system.completed(system.map(inc, range(n))):
        total += result
    elapsed = time.perf_counter() - start
    return Sample(n / elapsed, check(total, n * (n + 1) // 2))


def run_inside(system: System, n: int) -> Sample:
    """One task that submits n times `x + 1` by `map`, and gathers the results."""
    start = time.perf_counter()
    result = system.call(map_inside, system.module, n)
    elapsed = time.perf_counter() - start
    return Sample(n / elapsed, check(result, n * (n + 1) // 2))


def run_awaited(system: System, n: int) -> Sample:
    """n coroutines in one event loop, each of which awaits one `submit`."""
    elapsed, results = asyncio.run(system.awaited(inc, n))
    return Sample(n / elapsed, check(sum(results), n * (n + 1) // 2))


def run_executor_map(system: System, n: int) -> Sample:
    """`Executor.map` of n times `x + 1`, without a chunk size."""
    executor = system.executor()
    start = time.perf_counter()
    total = sum(executor.map(inc, range(n)))
    elapsed = time.perf_counter() - start
    return Sample(n / elapsed, check(total, n * (n + 1) // 2))


def run_joblib(system: System, n: int) -> Sample:
    """n times `x + 1` by `joblib.Parallel`, which batches as it likes."""
    system.parallel(inc, 10)  # processes start
    start = time.perf_counter()
    total = sum(system.parallel(inc, n))
    elapsed = time.perf_counter() - start
    return Sample(n / elapsed, check(total, n * (n + 1) // 2))


def run_argument(system: System, n: int) -> Sample:
    """A call with one argument of n MB, each time of other content: the median of some, in s."""
    import numpy as np

    array = np.random.default_rng(0).random(n * 125_000)
    durations = []
    total = 0.0
    for i in range(N_ARGUMENTS):
        array = array + 1.0
        expected = ends_of(array)
        start = time.perf_counter()
        found = system.call(ends_of, array)
        durations.append(time.perf_counter() - start)
        total += check(found, expected) - expected + i
    return Sample(sorted(durations)[N_ARGUMENTS // 2], int(total), {"max_s": max(durations)})


def run_big_map(system: System, n: int) -> Sample:
    """A very large `map`, and the memory of the scheduler process per task while the futures
    live.
    """
    pid = system.scheduler_pid()
    before = _rss(pid) if pid is not None else None
    start = time.perf_counter()
    futures = system.map(inc, range(n))
    submitted = time.perf_counter()
    results = system.gather(futures)
    elapsed = time.perf_counter() - start
    extra = {"submit_s": submitted - start}
    if pid is not None and before is not None:
        extra["scheduler_rss_before"] = before
        extra["scheduler_rss_after"] = _rss(pid)
        extra["scheduler_rss_peak"] = max(_peak_rss(pid), extra["scheduler_rss_after"])
        extra["scheduler_bytes_per_task"] = (extra["scheduler_rss_after"] - before) / n
        extra["scheduler_peak_bytes_per_task"] = (extra["scheduler_rss_peak"] - before) / n
    checksum = check(sum(results), n * (n + 1) // 2)
    return Sample(n / elapsed, checksum, extra)


def _rss(pid: int) -> int:
    return int(psutil.Process(pid).memory_info().rss)


def _peak_rss(pid: int) -> int:
    """Return the highest resident size so far in bytes, 0 where it is not reported."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
            for line in file:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except FileNotFoundError:
        return 0
    return 0


_IMPORT = """\
import time
_start = time.perf_counter()
{code}
print("BENCH", time.perf_counter() - _start)
"""

_FIRST_RESULT = """\
import os, sys, time
from benchmarks.tasks import inc
_out = os.dup(1)
os.dup2(2, 1)
def start():
    global _start
    _start = time.perf_counter()
def done():
    os.write(_out, b"BENCH %f\\n" % (time.perf_counter() - _start))
{code}
{first}
"""


def _fresh_interpreters(code: str, n: int) -> list[float]:
    """Run code in n new interpreters (one more first, which fills the caches) and return the
    seconds that each printed.
    """
    seconds = []
    for _ in range(n + 1):
        out = subprocess.run(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, check=True, env=dict(os.environ)
        ).stdout.decode()
        seconds.append(float(out.rpartition("BENCH ")[2].split()[0]))
    return seconds[1:]


def run_import(system: System, n: int) -> Sample:
    """Seconds to import the system, in n fresh interpreters: the median."""
    assert system.import_code is not None
    seconds = _fresh_interpreters(_IMPORT.format(code=system.import_code), n)
    return Sample(statistics.median(seconds), 0, {"max_s": max(seconds)})


def run_first_result(system: System, n: int) -> Sample:
    """Seconds from `Client()` (imported already) to a first result, in n fresh interpreters: the
    median.
    """
    assert system.import_code is not None
    assert system.first_result_code is not None
    code = _FIRST_RESULT.format(code=system.import_code, first=system.first_result_code)
    seconds = _fresh_interpreters(code, n)
    return Sample(statistics.median(seconds), 2, {"max_s": max(seconds)})


def _run_scheduler(n: int, *, n_workers: int, shape: str) -> Sample:
    # Imported here, so that peers run where weft is not importable.
    from .. import bench_scheduler

    outcome = bench_scheduler.run(n_tasks=n, n_workers=n_workers, shape=shape)
    return Sample(n / outcome.seconds, check(outcome.n_finished, n), outcome.extra)


def run_scheduler(system: System, n: int) -> Sample:
    """The scheduler's core with two workers that answer at once: no sockets, no processes."""
    return _run_scheduler(n, n_workers=2, shape="map")


def run_scheduler_graph(system: System, n: int) -> Sample:
    """The same with the neighbour graph."""
    return _run_scheduler(n, n_workers=2, shape="neighbour")


def run_scheduler_wide(system: System, n: int) -> Sample:
    """The same as the first with a thousand workers: a task must not cost more."""
    return _run_scheduler(n, n_workers=1000, shape="map")


def run_joins(system: System, n: int) -> Sample:
    """CPU seconds in which n workers join a scheduler's core that has 200 clients."""
    from .. import scaling

    return Sample(scaling.join_seconds(n, 200), 0)


def run_scheduler_widest(system: System, n: int) -> Sample:
    """The first of the scheduler's rows with ten thousand workers, and 200 tasks for each."""
    from .. import scaling

    bench = scaling.mapped(n, max(2, n // scaling.TASKS_PER_WORKER))
    return Sample(n / bench.seconds, n)


def run_scheduler_longest(system: System, n: int) -> Sample:
    """The same with ten million tasks: neither their time nor their memory may grow with them."""
    from .. import scaling

    seconds, nbytes = scaling.mapped_and_kept(n, 2)
    return Sample(n / seconds, n, {"bytes_per_task": nbytes})


def run_viewers(system: System, n: int) -> Sample:
    """Percent of a core that three viewers of the task stream cost the scheduler, at n tasks per
    second.
    """
    # Imported here, so that peers run where weft is not importable.
    from .viewing import watchable

    with watchable(n) as scene:
        time.sleep(2.0)  # the load is steady
        pair = scene.pair(N_VIEWERS, 10.0 if n >= 10_000 else 0.5)
    return Sample(
        100 * pair.more,
        0,
        {
            "tasks_per_s": min(pair.alone_per_s, pair.watched_per_s),
            "alone_percent": 100 * pair.alone,
            "pages_percent": 100 * pair.pages,
        },
    )


#: Systems that cannot run graphs, and why.
_NO_GRAPHS = {
    name: "no tasks that depend on tasks"
    for name, system in SYSTEMS.items()
    if not system.has_dependencies
}


def _rate(title: str, run: Callable[[Any, int], Sample], size: int, quick: int) -> Workload:
    return Workload(title=title, run=run, size=size, quick_size=quick, unit="tasks/s")


def _graph(title: str, run: Callable[[Any, int], Sample], size: int, quick: int) -> Workload:
    return dataclasses.replace(_rate(title, run, size, quick), refusals=_NO_GRAPHS)


#: The lengths of short tasks: {name: (seconds, text)}.
LENGTHS = {"100us": (1e-4, "100 us"), "1ms": (1e-3, "1 ms")}


def _short_tasks() -> Iterator[tuple[str, Workload]]:
    """Yield the graphs of tasks that compute for a given time."""
    for name, shape in SHAPES.items():
        for (length, (seconds, text)), quick in zip(
            LENGTHS.items(), shape.quick_sizes, strict=True
        ):
            workload = _rate(
                f"{shape.title}, each task {text}",
                functools.partial(run_shape, shape=shape, seconds=seconds),
                shape.size,
                quick,
            )
            refusals = {} if name == "independent" else _NO_GRAPHS
            yield f"{name}-{length}", dataclasses.replace(workload, refusals=refusals)


def _fault(
    title: str, run: Callable[[Any, int], Sample], size: int, quick: int, unit: str
) -> Workload:
    """Return a workload that starts a cluster of daemons, and breaks it."""
    return Workload(
        title=title,
        run=run,
        size=size,
        quick_size=quick,
        unit=unit,
        needs_open=False,
        systems=("weft",),
        patience=2.0,
    )


def _pairs(title: str, run: Callable[[Any, int], Sample]) -> Workload:
    return Workload(
        title=f"{title}, one by one",
        run=run,
        size=300,
        quick_size=20,
        unit="ms",
        systems=("weft", "dask", "dask-best"),
    )


def _scheduler_alone(title: str, run: Callable[[Any, int], Sample]) -> Workload:
    return dataclasses.replace(
        _rate(title, run, 200_000, 2_000), needs_open=False, systems=("weft",)
    )


def _fresh(title: str, run: Callable[[Any, int], Sample], n: int) -> Workload:
    """Return a workload that runs in n fresh interpreters."""
    return Workload(
        title=title,
        run=run,
        size=n,
        quick_size=1,
        unit="s",
        needs_open=False,
        systems=("weft", "dask", "ray"),
    )


WORKLOADS: dict[str, Workload] = {
    "map": _rate("map of {n}", run_map, 20_000, 400),
    "submit": _rate("loop of {n} submit", run_submit, 5_000, 200),
    "awaited": dataclasses.replace(
        _rate("{n} x await submit, one loop", run_awaited, 10_000, 200),
        systems=("weft", "dask", "dask-best", "floor"),
    ),
    "round-trip": Workload(
        title="submit().result() one by one", run=run_round_trip, size=300, quick_size=20, unit="ms"
    ),
    "lock": _pairs("lock: acquire and release", run_lock),
    "queue": _pairs("queue: put and get", run_queue),
    "variable": _pairs("variable: set and get", run_variable),
    "actor-call": Workload(
        title="actor call, one by one",
        run=run_actor_calls,
        size=300,
        quick_size=20,
        unit="ms",
        systems=("weft", "dask", "dask-best", "ray"),
    ),
    "actor-batch": dataclasses.replace(
        _rate("{n} calls of one actor", run_actor_batch, 2_000, 100),
        systems=("weft", "dask", "dask-best", "ray"),
        unit="calls/s",
    ),
    "chain": _graph("chain of {n}", run_chain, 1_000, 50),
    "chain-across": dataclasses.replace(
        _rate("chain of {n}, each task on the other worker", run_chain_across, 1_000, 50),
        systems=("weft", "dask", "dask-best"),
    ),
    "tree": _graph("tree of {n} leaves", run_tree, 2**13, 2**6),
    "neighbour": _graph("neighbours, 2 x {n}", run_neighbour, 4_000, 100),
    "as-completed": _rate("as_completed with results, {n}", run_as_completed, 5_000, 200),
    "inside": dataclasses.replace(
        _rate("map of {n} in a task", run_inside, 1_000, 50), systems=("weft", "dask", "dask-best")
    ),
    "executor-map": dataclasses.replace(
        _rate("Executor.map of {n}", run_executor_map, 100_000, 400),
        systems=("weft", "processes", "threads"),
    ),
    "joblib": dataclasses.replace(
        _rate("joblib of {n} (ProcessPool: loky)", run_joblib, 100_000, 200),
        systems=("weft", "processes"),
        needs=("joblib",),
    ),
    "big-map": dataclasses.replace(
        _rate("map of {n}", run_big_map, 1_000_000, 2_000),
        is_fresh=True,
        too_slow=("dask", "dask-best", "ray", "processes"),
        small="map",
        patience=3.0,
    ),
    "argument": Workload(
        title="one argument of {n} MB",
        run=run_argument,
        size=160,
        quick_size=4,
        unit="s",
        systems=("weft", "dask", "ray", "processes"),
        needs=("numpy",),
    ),
    "metg": Workload(
        title="METG(50 %), stencil of {n} tasks",
        run=run_metg,
        size=16 * 60,
        quick_size=16 * 3,
        unit="us",
        systems=("weft", "dask", "dask-best", "ray"),
        patience=2.0,
    ),
    **dict(_short_tasks()),
    "recovery": _fault(
        "new scheduler with {n} tasks, 1 % of them held", run_recovery, 100_000, 400, "s"
    ),
    "resets": _fault(
        "map of {n}, all connections reset: finished tasks run again",
        run_resets,
        20_000,
        2_000,
        "tasks",
    ),
    "scheduler": _scheduler_alone("scheduler alone, map of {n}", run_scheduler),
    "scheduler-graph": _scheduler_alone("scheduler alone, neighbours {n}", run_scheduler_graph),
    "scheduler-wide": _scheduler_alone("scheduler alone, 1 000 workers", run_scheduler_wide),
    "scheduler-widest": dataclasses.replace(
        _scheduler_alone("scheduler alone, 10 000 workers", run_scheduler_widest),
        size=2_000_000,
        patience=2.0,
    ),
    "scheduler-longest": dataclasses.replace(
        _scheduler_alone("scheduler alone, map of {n}", run_scheduler_longest),
        size=10_000_000,
        is_fresh=True,  # its memory is measured
        patience=5.0,
    ),
    "joins": Workload(
        title="scheduler alone, {n} workers join",
        run=run_joins,
        size=10_000,
        quick_size=50,
        unit="s",
        needs_open=False,
        systems=("weft",),
        is_fresh=True,  # else the collector visits what the rows before have made
    ),
    "viewers": Workload(
        title=f"scheduler's CPU for {N_VIEWERS} viewers at {{n}} tasks/s",
        run=run_viewers,
        size=10_000,
        quick_size=500,
        unit="% of a core",
        needs_open=False,
        systems=("weft",),
    ),
    "import": _fresh("import", run_import, 7),
    "first-result": _fresh("Client() to first result", run_first_result, 3),
}
