"""The workloads of a manager that accumulates: a client that takes the results as they come, and
needs some time of a processor for each of them.

Four parameters: number of tasks, slots, length of a task, time of the client's step. One point is
the base; the others differ from it in one parameter.
"""

from __future__ import annotations

import functools
import time
from dataclasses import dataclass, replace

from ..framework.work import Sample, Workload, check
from ..tasks import inc_after, work
from .limits import time_of_batches, time_of_steps
from .systems import Limit, Study


@dataclass(frozen=True, slots=True)
class Point:
    """One point of the grid.

    Attributes:
        manner: "each": one step for each result; "batch": one for all that are ready together;
            "growing": one for each, which makes a new task; at first there are two for each slot.
    """

    n_tasks: int = 100
    n_slots: int = 5
    task_s: float = 0.5
    step_s: float = 0.05
    manner: str = "each"


def run_grid(system: Study, n: int, *, point: Point) -> Sample:
    """Run the tasks on one worker with so many threads (Ray: on so many CPUs)."""
    if isinstance(system, Limit):
        limit = time_of_batches if point.manner == "batch" else time_of_steps
        limit_s = limit(n, point.n_slots, point.task_s, point.step_s)
        return Sample(limit_s, 0)
    system.n_workers, system.n_threads = 1, point.n_slots
    system.open()
    try:
        check(
            sum(system.gather(system.map(inc_after, [0.01] * point.n_slots, [0] * point.n_slots))),
            point.n_slots,
        )
        spilled = system.spilled_bytes()
        start = time.perf_counter()
        total = (_growing if point.manner == "growing" else _at_once)(system, n, point)
        elapsed = time.perf_counter() - start
        extra = {"spilled_mib": spilled / 2**20} if spilled is not None else {}
        return Sample(elapsed, check(total, n * (n + 1) // 2), extra)
    finally:
        system.close()


def _at_once(system: Study, n: int, point: Point) -> int:
    handles = system.map(inc_after, [point.task_s] * n, range(n))
    total = 0
    if point.manner == "batch":
        for batch in system.batches(handles):
            total += sum(system.gather(batch))
            work(point.step_s)
        return total
    for result in system.completed(handles):
        total += result
        work(point.step_s)
    return total


def _growing(system: Study, n: int, point: Point) -> int:
    n_first = min(2 * point.n_slots, n)
    batches = system.batches(system.map(inc_after, [point.task_s] * n_first, range(n_first)))
    total, n_made = 0, n_first
    for batch in batches:
        for result in system.gather(batch):
            total += result
            work(point.step_s)
            if n_made < n:
                batches.add(system.submit(inc_after, point.task_s, n_made))
                n_made += 1
    return total


BASE = Point()
POINTS = {
    "base": BASE,
    "batch": replace(BASE, manner="batch"),
    "growing": replace(BASE, manner="growing"),
    "fewer-tasks": replace(BASE, n_tasks=25),
    "more-slots": replace(BASE, n_slots=10),
    "shorter-tasks": replace(BASE, task_s=0.1),
    "no-step": replace(BASE, step_s=0.0),
    "longer-step": replace(BASE, step_s=0.2),
}
#: How the client takes the results, in words.
MANNERS = {
    "each": "s in the client for each result",
    "batch": "s for each batch of results",
    "growing": "s for each result, which makes a new task",
}


def _workload(name: str, point: Point) -> Workload:
    return Workload(
        title=f"{{n}} x {point.task_s:g} s, {point.n_slots} slots, {point.step_s:g} "
        + MANNERS[point.manner],
        run=functools.partial(run_grid, point=point),
        size=point.n_tasks,
        quick_size=10 if name in ("base", "batch") else None,
        unit="s",
        systems=("weft", "dask", "dask-best", "ray", "limit"),
        needs_open=False,
        # A cluster is started for each.
        patience=2.0,
    )


WORKLOADS = {f"grid-{name}": _workload(name, point) for name, point in POINTS.items()}
