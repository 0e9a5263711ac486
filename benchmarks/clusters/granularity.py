"""Workloads of tasks that compute for a given time: how short may they be?

Their functions use a processor for that time, by the clock of their thread, so a task takes as long
on a busy machine.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import psutil

from ..framework.work import Sample, TooLong, check
from ..tasks import inc_in, total_in
from ..virtual.graphs import Graph, fork_join, independent, layers, n_steps, stencil, tree
from .systems import N_WORKERS, System

#: Tasks per row of the stencil, and of a fork.
WIDTH = 16
#: The efficiency of METG(50 %), and how near to it the search ends.
TARGET, TOLERANCE = 0.5, 0.02
MAX_POINTS, MAX_STEP = 8, 4.0
#: A system that needs longer tasks than this has no figure: a point takes half a minute and more.
MAX_LENGTH_S = 0.03
FIRST_LENGTH_S = 0.001
#: The tasks that show how much of its cores the system gets, and their length.
N_LONG, LONG_S = 16, 0.02
#: How far back the inputs of a task of a random graph are.
REACH = 100


@dataclass(frozen=True, slots=True)
class Shape:
    """How tasks of one length depend on each other."""

    title: str
    #: Makes the graph of a size.
    make: Callable[[int], Graph]
    size: int
    #: The sizes with --quick, of tasks of 0.1 ms and of 1 ms.
    quick_sizes: tuple[int, int] = (96, 32)
    #: The client keeps and gathers all results, not only those that no task reads.
    keeps_all: bool = False


SHAPES: Final = {
    "independent": Shape("{n} tasks without inputs", independent, 1_000),
    "stencil": Shape(
        "stencil of {n}", lambda n: stencil(WIDTH, max(2, n // WIDTH)), WIDTH * 60, (96, 48)
    ),
    "fork-join": Shape(
        "fork-join of {n}",
        lambda n: fork_join(WIDTH, max(1, n // (WIDTH + 1))),
        (WIDTH + 1) * 60,
        (102, 34),
    ),
    "tree": Shape("tree of {n} leaves", tree, 1_024, (64, 16)),
    "random": Shape("random graph of {n}", lambda n: layers(n, REACH), 2_000, keeps_all=True),
}


def run_metg(system: System, n: int) -> Sample:
    """METG(50 %) of a 1-D stencil, n tasks in rows of 16: the length of tasks, in microseconds, at
    which half of the workers' time is spent in them.

    Each task reads its left neighbour, itself and its right neighbour of the row before. This is
    Task Bench's measure (Slaughter et al., SC 2020). The workers' time is what long tasks without
    dependencies get just before, so that another process on the machine does not count.
    """
    plan = Plan.of(SHAPES["stencil"].make(n))
    n_tasks = len(plan.graph)
    shares = []

    def efficiency(length_s: float) -> float:
        shares.append(N_LONG * LONG_S / N_WORKERS / time_long(system))
        share = n_tasks * length_s / N_WORKERS / time_graph(system, plan, length_s)
        return share / shares[-1]

    length_s, found = find_metg(efficiency, FIRST_LENGTH_S)
    extra = {"efficiency": found, "n_points": len(shares), "share": statistics.median(shares)}
    return Sample(length_s * 1e6, plan.expected, extra)


def time_long(system: System) -> float:
    """Return the seconds that long tasks without dependencies take."""
    start = time.perf_counter()
    results = system.gather([system.submit(inc_in, LONG_S, i) for i in range(N_LONG)])
    elapsed = time.perf_counter() - start
    check(sum(results), N_LONG * (N_LONG + 1) // 2)
    return elapsed


@dataclass(frozen=True, slots=True)
class Plan:
    """A graph whose tasks are submitted one by one, and what is expected of it."""

    graph: Graph
    #: {key: the results that the client lets go once it has submitted this task}
    dropped: dict[str, list[str]]
    #: The sum of the results that it keeps.
    expected: int

    @classmethod
    def of(cls, graph: Graph, *, keeps_all: bool = False) -> Plan:
        """Return the plan of a graph; results that tasks read are let go after the last of them."""
        last_reader = {} if keeps_all else {i: key for key in graph for i in graph[key]}
        dropped: dict[str, list[str]] = {key: [] for key in graph}
        for key, reader in last_reader.items():
            dropped[reader].append(key)
        values: dict[str, int] = {}
        for key, inputs in graph.items():
            values[key] = total_in(0.0, *[values[i] for i in inputs])
        expected = sum(value for key, value in values.items() if key not in last_reader)
        return cls(graph, dropped, expected)


def time_graph(system: System, plan: Plan, seconds: float) -> float:
    """Return the seconds from the first submission to all results that the client keeps; each task
    takes `seconds`.
    """
    handles: dict[str, Any] = {}
    start = time.perf_counter()
    for key, inputs in plan.graph.items():
        handles[key] = system.submit(total_in, seconds, *[handles[i] for i in inputs])
        for old in plan.dropped[key]:
            del handles[old]
    results = system.gather([*handles.values()])
    elapsed = time.perf_counter() - start
    check(sum(results), plan.expected)
    return elapsed


def find_metg(efficiency: Callable[[float], float], length_s: float) -> tuple[float, float]:
    """Return the length of tasks at which the efficiency is nearest to `TARGET`, and that.

    The time on top of each task hardly depends on its length, so each point leads to a better one.

    Raises:
        TooLong: that length is above `MAX_LENGTH_S`.
    """
    points = []
    for _ in range(MAX_POINTS):
        found = min(max(efficiency(length_s), 0.001), 0.999)
        points.append((abs(found - TARGET), length_s, found))
        if abs(found - TARGET) <= TOLERANCE:
            break
        if length_s == MAX_LENGTH_S and found < TARGET:
            raise TooLong(f"above {MAX_LENGTH_S * 1e6:.0f} us")
        # With an overhead of o, the efficiency of the length l is l / (l + o). A point in a moment
        # in which the machine did other things must not lead too far.
        step = min(max((1 / found - 1) * TARGET / (1 - TARGET), 1 / MAX_STEP), MAX_STEP)
        length_s = min(length_s * step, MAX_LENGTH_S)
    _, length_s, found = min(points)
    return length_s, found


def run_shape(system: System, n: int, *, shape: Shape, seconds: float) -> Sample:
    """A graph of this shape; each of its tasks takes so many seconds of a processor.

    Beside the rate: the part of the workers' time that tasks take; that part of the rate that two
    workers have if nothing else takes time; and the CPU time, of all processes, beside the tasks.
    """
    plan = Plan.of(shape.make(n), keeps_all=shape.keeps_all)
    n_tasks = len(plan.graph)
    cpu = cpu_of_all_s()
    elapsed = time_graph(system, plan, seconds)
    cpu = cpu_of_all_s() - cpu
    extra = {
        "efficiency": n_tasks * seconds / N_WORKERS / elapsed,
        "of_ideal": n_steps(plan.graph, N_WORKERS) * seconds / elapsed,
        "others_us": (cpu / n_tasks - seconds) * 1e6,
    }
    return Sample(n_tasks / elapsed, plan.expected, extra)


def cpu_of_all_s() -> float:
    """Return the CPU time so far of this process and its descendants: client, scheduler, workers.

    The system counts it in steps of 10 ms for each process.
    """
    me = psutil.Process()
    total = 0.0
    for process in [me, *me.children(recursive=True)]:
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            total += times.user + times.system
    return total
