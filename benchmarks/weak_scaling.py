"""Weak scaling: the same work for each worker, with more and more workers, in virtual time.

    python -m benchmarks.weak_scaling                      # 1, 4, 16, 64 and 256 workers
    python -m benchmarks.weak_scaling --workers 1 16 --only stencil
    python -m benchmarks.weak_scaling --plot docs/images   # weak-scaling.svg; needs matplotlib

Two curves of each workload. The *time* is that of the whole graph in virtual time, as a multiple of
a lower bound: it shows what the decisions and the links cost. The *CPU* is what the scheduler's
core takes for each task, measured while the same run is played: it shows how far one scheduler
goes, because a core has no more than 1 s of it in a second. Each link carries `--gbit` in each
direction; workers have one thread.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from .framework import drawing
from .virtual.cluster import VirtualCluster, Workload
from .virtual.graphs import independent, shuffle, stencil

N_WORKERS: Final = (1, 4, 16, 64, 256)
#: Of `tasks`: tasks of each worker.
_N_TASKS: Final = 200
#: Of `stencil`: columns of each worker, and rows.
_N_COLUMNS, _N_ROWS = 4, 50
_TASK_S: Final = 0.01
_BLOCK_BYTES: Final = 1_000_000
#: Of `shuffle`: each worker makes so much, splits it, and puts together what it gets.
_PARTITION_BYTES: Final = 64_000_000
_MAKE_S, _SPLIT_S, _JOIN_S = 0.1, 0.2, 0.1


@dataclass(frozen=True)
class Case:
    """A workload for a number of workers, and the least time that it can take."""

    workload: Workload
    ideal_s: float


def tasks(n: int, bytes_per_s: float) -> Case:
    """Return tasks of 10 ms that read nothing."""
    workload = Workload(independent(_N_TASKS * n), {"": _TASK_S})
    return Case(workload, _N_TASKS * _TASK_S)


def neighbours(n: int, bytes_per_s: float) -> Case:
    """Return a stencil: each task of 10 ms reads up to three results of 1 MB."""
    graph = stencil(_N_COLUMNS * n, _N_ROWS)
    workload = Workload(graph, {"": _TASK_S}, {"": _BLOCK_BYTES})
    return Case(workload, _N_COLUMNS * _N_ROWS * _TASK_S)


def exchange(n: int, bytes_per_s: float) -> Case:
    """Return a shuffle: each worker's 64 MB are split into parts for all others."""
    seconds = {"in": _MAKE_S, "part": _SPLIT_S / n, "out": _JOIN_S}
    sizes = {"in": _PARTITION_BYTES, "part": _PARTITION_BYTES // n, "out": 28}
    link_s = _PARTITION_BYTES * (n - 1) / n / bytes_per_s
    return Case(Workload(shuffle(n), seconds, sizes), _MAKE_S + max(_SPLIT_S, link_s) + _JOIN_S)


WORKLOADS: Final[dict[str, Callable[[int, float], Case]]] = {
    "tasks": tasks,
    "stencil": neighbours,
    "shuffle": exchange,
}


@dataclass(frozen=True)
class Point:
    """What one run has shown."""

    n_workers: int
    n_tasks: int
    virtual_s: float
    ideal_s: float
    #: CPU time of the scheduler's core
    scheduler_s: float
    fetched_bytes: int

    @property
    def cpu_us(self) -> float:
        """CPU time for each task."""
        return self.scheduler_s / self.n_tasks * 1e6

    @property
    def busy(self) -> float:
        """The part of the time for which the scheduler's core would be busy."""
        return self.scheduler_s / self.virtual_s


def measure(make: Callable[[int, float], Case], n_workers: int, bytes_per_s: float) -> Point:
    """Play one run."""
    case = make(n_workers, bytes_per_s)
    cluster = VirtualCluster(case.workload, n_workers, bytes_per_s)
    cluster.scheduler_s = 0.0  # not that of joining
    cluster.run(releases=True)
    return Point(
        n_workers,
        len(case.workload.graph),
        cluster.now,
        case.ideal_s,
        cluster.scheduler_s,
        cluster.network.nbytes,
    )


def draw(curves: dict[str, list[Point]]) -> Any:
    """Return a figure with the two curves of each workload."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 3.6), layout="constrained")
    both = figure.subplots(1, 2)
    for name, points in curves.items():
        x = [point.n_workers for point in points]
        both[0].plot(x, [p.virtual_s / p.ideal_s for p in points], marker="o", label=name)
        both[1].plot(x, [point.cpu_us for point in points], marker="o")
    both[0].set(title="time, as a multiple of the least", yscale="log")
    both[1].set(title="CPU of the scheduler's core for each task, µs", ylim=(0, None))
    for axes in both:
        axes.set(xscale="log", xlabel="workers", xticks=N_WORKERS)
        axes.minorticks_off()
        axes.xaxis.set_major_formatter(drawing.plain)
        axes.grid(visible=True)
    figure.legend(loc="outside upper center", ncols=len(curves))
    return figure


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.weak_scaling")
    parser.add_argument("--workers", type=int, nargs="+", default=N_WORKERS, metavar="N")
    parser.add_argument("--only", nargs="+", choices=WORKLOADS, default=[*WORKLOADS])
    parser.add_argument("--gbit", type=float, default=10.0, help="of each link, per second")
    parser.add_argument("--plot", type=Path, metavar="FOLDER", help="write weak-scaling.svg there")
    options = parser.parse_args(arguments)
    print("| workload | workers | tasks | time, s | of the least | CPU per task, us | core busy |")
    print("|:--|--:|--:|--:|--:|--:|--:|")
    curves: dict[str, list[Point]] = {}
    for name in options.only:
        for n in options.workers:
            point = measure(WORKLOADS[name], n, options.gbit / 8 * 1e9)
            curves.setdefault(name, []).append(point)
            print(
                f"| {name} | {n} | {point.n_tasks} | {point.virtual_s:.3g} | "
                f"{point.virtual_s / point.ideal_s:.2f} | {point.cpu_us:.1f} | {point.busy:.1%} |",
                flush=True,
            )
    if options.plot:
        print(drawing.write(functools.partial(draw, curves), options.plot / "weak-scaling.svg"))


if __name__ == "__main__":
    main()
