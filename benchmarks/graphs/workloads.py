"""The workloads of the graph engines and of the pools inside a process.

A workload builds its graph, times the call alone, compares the results with the known ones and
returns a `Sample`. All figures are times: less is better.
"""

from __future__ import annotations

import functools
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

from ..framework.machine import n_cores
from ..framework.work import Sample, Workload, WrongResult, check
from ..tasks import block, inc, join_blocks, last_of, noted, spin
from . import shapes
from .systems import Bare, Engine, Pool
from .traffic import Traffic

#: A short call is repeated within a run until this has passed, and the run is the median.
SHORT_S = 0.02

#: With the usual limit of 150 s a point may take `child.TOO_LONG_S`, and a little more.
SWEEP_PATIENCE = 0.15

TASK_POINTS = (1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)
EDGE_POINTS = (1, 2, 5, 10, 20, 50, 100)


def timed(call: Callable[[], Any], *, for_s: float = SHORT_S) -> tuple[float, Any]:
    """Return the median of the seconds that a call takes, and its last result."""
    durations = []
    end = time.perf_counter() + for_s
    while True:
        start = time.perf_counter()
        answer = call()
        stop = time.perf_counter()
        durations.append(stop - start)
        if stop >= end:
            return statistics.median(durations), answer


def _run_shape(engine: Engine, shape: shapes.Shape) -> Sample:
    wall_s, results = timed(engine.prepare(shape.graph, shape.keys))
    check(list(results), shape.expected)
    extra = {"wall_s": wall_s, "n_tasks": float(shape.n_tasks)}
    return Sample(wall_s / shape.n_tasks * 1e6, sum(shape.expected), extra)


def run_independent(engine: Engine, n: int) -> Sample:
    """n tasks without dependencies, all results asked for: µs per task."""
    return _run_shape(engine, shapes.independent(n))


def run_trivial(engine: Engine, n: int) -> Sample:
    """n tasks in chains of five: µs per task."""
    return _run_shape(engine, shapes.trivial(n))


def run_crosstalk(engine: Engine, width: int, *, edges: int) -> Sample:
    """Four layers of `width` tasks with `edges` inputs each: µs per task."""
    return _run_shape(engine, shapes.crosstalk(width, edges))


def run_array_overhead(engine: Engine, n: int) -> Sample:
    """Wall time of `get` on the graph of `da.ones(n, chunks=2).sum()` less the bare execution of
    its nodes, in turns: ms. For the bare loop: the latter.
    """
    case = shapes.array_sum(n)
    run, bare = engine.prepare(case.graph, case.keys), shapes.bare_nodes(case.graph, case.keys)
    walls, bares = [], []
    for _ in range(9):
        wall_s, results = timed(run, for_s=0.0)
        check(float(results[0]), float(n))
        walls.append(wall_s)
        bares.append(timed(bare, for_s=0.0)[0])
    wall_ms, bare_ms = statistics.median(walls) * 1e3, statistics.median(bares) * 1e3
    value = bare_ms if isinstance(engine, Bare) else wall_ms - bare_ms
    return Sample(value, n, {"wall_ms": wall_ms, "bare_ms": bare_ms})


def run_array_compute(engine: Engine, n: int) -> Sample:
    """The whole of `x.compute(scheduler=get)`, dask's optimisation included: ms."""
    collection = shapes.array_sum(n).collection
    wall_s, result = timed(lambda: collection.compute(scheduler=engine.get), for_s=0.3)
    check(float(result), float(n))
    return Sample(wall_s * 1e3, n)


def run_start(engine: Any, n: int, *, executor: str) -> Sample:
    """`get` of a graph of one task on a given executor, less `submit(task).result()` of the same
    executor; n of each in turns, medians: µs.
    """
    pool = engine.executor(executor)
    try:
        get = engine.get_on(pool)
        graph, key = {"x": (inc, 1)}, "x"
        raws, submits = [], []
        total = 0
        for _ in range(n):
            start = time.perf_counter()
            total += get(graph, key)
            middle = time.perf_counter()
            total += pool.submit(inc, 1).result()
            end = time.perf_counter()
            raws.append(middle - start)
            submits.append(end - middle)
    finally:
        pool.shutdown()
    check(total, 4 * n)
    raw_us, submit_us = statistics.median(raws) * 1e6, statistics.median(submits) * 1e6
    return Sample(raw_us - submit_us, total, {"raw_us": raw_us, "submit_us": submit_us})


def run_submits(pool: Pool, n: int, *, keeps: bool = False) -> Sample:
    """Create a pool, submit `x += y` n times on a captured variable, wait for all, destroy the
    pool: µs per task.

    Args:
        keeps: keep the futures, and ask each for its result before the end.
    """
    x, y = 0, 1

    def add() -> int:
        nonlocal x
        x += y
        return y

    keeps = keeps or not pool.waits_in_destroy
    start = time.perf_counter()
    made = pool.create()
    created = time.perf_counter()
    results = pool.run(made, add, n, keeps=keeps)
    submitted = time.perf_counter()
    pool.destroy(made)
    end = time.perf_counter()
    if keeps:
        check(sum(results), n)
    if pool.shares_memory and _has_lock():
        check(x, n)
    extra = {"create_s": created - start, "run_s": submitted - created, "end_s": end - submitted}
    return Sample((end - start) / n * 1e6, n, extra)


def _has_lock() -> bool:
    """Return whether `x += y` of several threads loses nothing: with the interpreter lock it does
    not, because a thread releases it only between calls and at the ends of loops.
    """
    return bool(getattr(sys, "_is_gil_enabled", lambda: True)())


# --- Limits that dask's documentation names for its shared-memory schedulers ----------------------


def run_spin(engine: Engine, n: int) -> Sample:
    """16 tasks of pure Python for each core: s."""
    graph = {("spin", i): (spin, n) for i in range(16 * n_cores())}
    wall_s, results = timed(engine.prepare(graph, list(graph)), for_s=0.0)
    check(list(results), [spin(n)] * len(graph))
    return Sample(wall_s, sum(results))


def run_blocks(engine: Engine, n: int) -> Sample:
    """16 blocks of n bytes, added pairwise in a ring two times, one number of each asked for: s.

    48 blocks are made. An engine that moves all of them through the caller moves 96: 32 out of its
    workers and 64 into them (those of the last layer stay, where an engine joins a chain of tasks).
    """
    width = 16
    graph: dict[Any, Any] = {("b", 0, i): (block, float(i), n) for i in range(width)}
    expected = [float(i) for i in range(width)]
    for j in (1, 2):
        graph.update(
            {
                ("b", j, i): (join_blocks, ("b", j - 1, i), ("b", j - 1, (i + 1) % width))
                for i in range(width)
            }
        )
        expected = [expected[i] + expected[(i + 1) % width] for i in range(width)]
    keys: list[Any] = [("last", i) for i in range(width)]
    graph.update({("last", i): (last_of, ("b", 2, i)) for i in range(width)})
    call = engine.prepare(graph, keys)
    with Traffic() as traffic:
        wall_s, results = timed(call, for_s=0.0)
    check(list(results), expected)
    extra = {} if traffic.n_bytes is None else {"caller_mib": traffic.n_bytes / 2**20}
    return Sample(wall_s, int(sum(expected)), extra)


def run_unpicklable(engine: Engine, n: int) -> Sample:
    """n tasks, the one in the middle of which has a lock as argument, which cannot be pickled: how
    many tasks have run when the error arrives, and whether it names the key.
    """
    with tempfile.NamedTemporaryFile() as file:
        graph: dict[Any, Any] = {("x", i): (noted, file.name, i) for i in range(n)}
        bad_key = ("x", n // 2)
        graph[bad_key] = (noted, file.name, threading.Lock())
        start = time.perf_counter()
        try:
            engine.get(graph, list(graph))
        except Exception as error:
            seconds = time.perf_counter() - start
            text = "\n".join(map(str, (error, *getattr(error, "__notes__", ()))))
            if "pickle" not in text:
                raise
            is_named = str(bad_key) in text
        else:
            raise WrongResult("a lock came back from another process")
        n_run = os.stat(file.name).st_size
    return Sample(float(n_run), n, {"error_s": seconds, "is_named": float(is_named)})


SYNC, THREADED, PROCESSES = (
    ("weft-sync", "dask-sync"),
    ("weft-threaded", "dask-threaded"),
    ("weft-processes", "dask-processes"),
)
KEPT = "dask-processes-kept"
ENGINES = (
    *("weft-sync", "weft-threaded", "weft-processes"),
    *("dask-sync", "dask-threaded", "dask-processes"),
)
ALL_ENGINES = (*ENGINES, KEPT, "bare")
POOLS = ("weft-pool", "weft-own-pool", "weft-client", "threads", "bare-calls")
LIMITS = (
    *("weft-threaded", "weft-interpreters", "weft-processes", "weft-cluster"),
    *("dask-threaded", KEPT, "bare"),
)
#: Tasks per layer in the sweep over edges.
EDGES_WIDTH = 500


def _task_point(n: int) -> Workload:
    return Workload(
        title="{n} tasks" if n > 1 else "1 task",
        run=run_trivial,
        size=n,
        quick_size=n if n <= 100 else None,
        systems=ALL_ENGINES if n == 10_000 else (*ENGINES, "bare"),
        patience=SWEEP_PATIENCE,
        point=n,
        sweep="tasks",
        unit="µs/task",
    )


def _edge_point(edges: int) -> Workload:
    return Workload(
        title=f"{edges} edges per task",
        run=functools.partial(run_crosstalk, edges=edges),
        size=EDGES_WIDTH,
        quick_size=8,
        systems=ALL_ENGINES if edges in (1, 10, 50) else (*ENGINES, "bare"),
        patience=SWEEP_PATIENCE,
        point=edges,
        sweep="edges",
        unit="µs/task",
    )


def _start(title: str, executor: str, systems: tuple[str, ...]) -> Workload:
    return Workload(
        title=title,
        run=functools.partial(run_start, executor=executor),
        size=3_000,
        quick_size=20,
        systems=systems,
        unit="µs",
    )


def _submits(n: int, *, keeps: bool = False) -> Workload:
    return Workload(
        title="{n} submits" + (", each result asked for" if keeps else ""),
        run=functools.partial(run_submits, keeps=keeps),
        size=n,
        quick_size=n // 100,
        systems=POOLS,
        unit="µs/task",
    )


WORKLOADS: dict[str, Workload] = {
    "independent": Workload(
        title="{n} independent tasks",
        run=run_independent,
        size=10_000,
        quick_size=200,
        systems=ALL_ENGINES,
        unit="µs/task",
    ),
    "array-overhead": Workload(
        title="da.ones({n}, chunks=2).sum(): get less bare execution",
        run=run_array_overhead,
        size=1_000,
        quick_size=20,
        systems=(*THREADED, "bare"),
        unit="ms",
        needs=("dask", "numpy"),
    ),
    "array-compute": Workload(
        title="the whole of its x.compute()",
        run=run_array_compute,
        size=1_000,
        quick_size=20,
        systems=THREADED,
        unit="ms",
        needs=("dask", "numpy"),
    ),
    "start-sync": _start("SynchronousExecutor", "sync", THREADED),
    "start-weft": _start("weft.ThreadPool", "weft", ("weft-threaded",)),
    "start-threads": _start("ThreadPoolExecutor", "threads", THREADED),
    "submits-10000": _submits(10_000),
    "submits-100000": _submits(100_000),
    "results-100000": _submits(100_000, keeps=True),
    **{f"tasks-{n}": _task_point(n) for n in TASK_POINTS},
    **{f"edges-{edges}": _edge_point(edges) for edges in EDGE_POINTS},
    "limit-machine": Workload(
        title="{n} tasks in chains of five",
        run=run_trivial,
        size=10_000,
        quick_size=100,
        systems=LIMITS,
        unit="µs/task",
    ),
    "limit-lock": Workload(
        title="16 pure Python tasks per core",
        run=run_spin,
        size=300_000,
        quick_size=1_000,
        systems=LIMITS,
        unit="s",
    ),
    "limit-pickle": Workload(
        title="tasks that ran before one of {n} was found unpicklable",
        run=run_unpicklable,
        size=1_000,
        quick_size=20,
        systems=("weft-processes", "weft-cluster", KEPT),
        unit="tasks",
    ),
    "limit-data": Workload(
        title="48 blocks of {n} bytes between tasks",
        run=run_blocks,
        size=8 * 2**20,
        quick_size=8 * 2**10,
        systems=("weft-threaded", "weft-processes", "weft-cluster", KEPT),
        unit="s",
        needs=("numpy",),
    ),
}
