"""The workloads of plain tasks: independent, tree, neighbours, sequential, client in the loop.

Tasks of 0.01 ms compute; longer ones sleep, so that the number of slots is a limit also where
client, scheduler and workers share the processors.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

from ..framework.work import Sample, Workload, check
from ..tasks import add_after, add_in, inc_after, inc_in, sum_after, sum_in
from .limits import time_of_sums, time_of_tasks
from .systems import Limit, Study

#: Tasks of at most this length compute.
SHORT_S = 0.0001
#: The client's own work is short beside tasks of this length.
LONG_S = 0.1

Function = Callable[..., Any]


def functions(seconds: float) -> tuple[Function, Function, Function]:
    """Return "add one", "add two" and "add all", whose first argument is this length."""
    is_short = seconds <= SHORT_S
    return (inc_in, add_in, sum_in) if is_short else (inc_after, add_after, sum_after)


def _limit(system: Study, n_tasks: int, depth: int, seconds: float) -> Sample | None:
    """Return the sample of the limit, None for a system that can run."""
    if not isinstance(system, Limit):
        return None
    return Sample(time_of_tasks(n_tasks, depth, seconds, system.n_workers * system.n_threads), 0)


def run_independent(system: Study, n: int, *, seconds: float) -> Sample:
    """n tasks, waited for."""
    if limit := _limit(system, n, 1, seconds):
        return limit
    inc, _, _ = functions(seconds)
    start = time.perf_counter()
    handles = system.map(inc, [seconds] * n, range(n))
    system.wait(handles)
    elapsed = time.perf_counter() - start
    return Sample(elapsed, check(sum(system.gather(handles)), n * (n + 1) // 2))


def run_tree(system: Study, n: int, *, seconds: float) -> Sample:
    """n numbers (a power of two), added in pairs by n - 1 delayed calls."""
    if limit := _limit(system, n - 1, (n - 1).bit_length(), seconds):
        return limit
    _, add, _ = functions(seconds)
    start = time.perf_counter()
    layer: list[Any] = list(range(n))
    while len(layer) > 1:
        layer = [
            system.delayed(add, seconds, a, b) for a, b in zip(layer[::2], layer[1::2], strict=True)
        ]
    found = system.value(layer[0])
    return Sample(time.perf_counter() - start, check(found, n * (n - 1) // 2))


def run_neighbours(system: Study, n: int, *, seconds: float) -> Sample:
    """n numbers, each added to the one beside it, two times: 2 n - 3 tasks."""
    if limit := _limit(system, 2 * n - 3, 2, seconds):
        return limit
    _, add, _ = functions(seconds)
    start = time.perf_counter()
    layer: list[Any] = list(range(n))
    for _ in range(2):
        layer = system.map(add, [seconds] * (len(layer) - 1), layer[:-1], layer[1:])
    system.wait(layer)
    elapsed = time.perf_counter() - start
    expected = sum(4 * i + 4 for i in range(n - 2))
    return Sample(elapsed, check(sum(system.gather(layer)), expected))


def run_sequential(system: Study, n: int, *, seconds: float) -> Sample:
    """n delayed calls, each of which needs the one before."""
    if limit := _limit(system, n, n, seconds):
        return limit
    inc, _, _ = functions(seconds)
    start = time.perf_counter()
    call: Any = 1
    for _ in range(n):
        call = system.delayed(inc, seconds, call)
    found = system.value(call)
    return Sample(time.perf_counter() - start, check(found, n + 1))


def run_client(system: Study, n: int, *, seconds: float) -> Sample:
    """n tasks; what has ended since the last look is added up by one more task, until one value is
    left.
    """
    if isinstance(system, Limit):
        n_slots = system.n_workers * system.n_threads
        # Beside short tasks the client takes more at once, and makes fewer sums: one at least.
        if seconds < LONG_S:
            return Sample(time_of_tasks(n, 1, seconds, n_slots) + seconds, 0)
        return Sample(time_of_sums(n, n_slots, seconds), 0)
    inc, _, total = functions(seconds)
    start = time.perf_counter()
    batches = system.batches(system.map(inc, [seconds] * n, range(n)))
    n_sums = 0
    for batch in batches:
        if len(batch) == 1:
            more = next(batches, None)
            if more is None:
                break
            batch = [*batch, *more]
        batches.add(system.submit(total, seconds, *batch))
        n_sums += 1
    elapsed = time.perf_counter() - start
    (found,) = system.gather(batch)
    return Sample(elapsed, check(found, n * (n + 1) // 2), {"n_sums": float(n_sums)})


#: {name: (seconds, text)}
LENGTHS = {
    "10us": (1e-5, "0.01 ms"),
    "1ms": (1e-3, "1 ms"),
    "100ms": (0.1, "100 ms"),
    "1s": (1.0, "1 s"),
}

#: {shape: (title, run, {length: (size, size with --quick)})}; a tree has powers of two.
SHAPES: dict[str, tuple[str, Callable[..., Sample], dict[str, tuple[int, int | None]]]] = {
    "independent": (
        "{n} tasks of %s",
        run_independent,
        {"10us": (2_000, 200), "1ms": (2_000, 200), "100ms": (200, 10), "1s": (8, 2)},
    ),
    "tree": (
        "tree of {n} numbers, tasks of %s",
        run_tree,
        {"10us": (1_024, 64), "1ms": (1_024, 64), "100ms": (256, 8), "1s": (16, None)},
    ),
    "neighbours": (
        "neighbours of {n} numbers, tasks of %s",
        run_neighbours,
        {"10us": (1_000, 60), "1ms": (1_000, 60), "100ms": (40, 6), "1s": (8, None)},
    ),
    "sequential": (
        "{n} tasks of %s, one after the other",
        run_sequential,
        {"10us": (200, 30), "1ms": (200, 30), "100ms": (20, 3), "1s": (4, None)},
    ),
    "client": (
        "client in the loop, {n} tasks of %s",
        run_client,
        {"10us": (400, 60), "1ms": (400, 60), "100ms": (40, 6), "1s": (8, None)},
    ),
}


def _workload(shape: str, length: str) -> Workload:
    title, run, sizes = SHAPES[shape]
    seconds, text = LENGTHS[length]
    size, quick_size = sizes[length]
    return Workload(
        title=title % text,
        run=functools.partial(run, seconds=seconds),
        size=size,
        quick_size=quick_size,
        unit="s",
        systems=("weft", "dask", "dask-best", "ray", "limit"),
        needs=("dask",),
        # Long tasks were warmed up by short ones.
        warm_up_size=8 if seconds < 0.01 else 0,
    )


WORKLOADS = {
    f"{shape}-{length}": _workload(shape, length) for shape in SHAPES for length in LENGTHS
}
