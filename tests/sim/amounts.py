"""The amounts of a worker: what it says of them, and checks of what its running tasks take."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

from weft.protocol.amounts import BESIDE, CORES
from weft.protocol.reported import QUEUES_RESOURCES, SPILLS

if TYPE_CHECKING:
    from weft.worker.core.tasks import WorkerTask

    from .worker_node import WorkerNode


def are_counted_by(worker_id: str) -> bool:
    """Return whether a worker begins tasks when their amounts are free: older ones do not."""
    return zlib.crc32(worker_id.encode()) % 4 > 0


def facts_of(worker: WorkerNode) -> dict[str, Any]:
    """Return the facts that a worker registers with."""
    own = {SPILLS: worker.spill.is_on, QUEUES_RESOURCES: worker.counts_amounts}
    return {"host": worker.host, "python": "3.11", **own, **worker.sim.ends.facts_of(worker)}


def check(worker: WorkerNode) -> None:
    """Check that no more is taken than there is, also by dropped tasks."""
    seats, returning = worker.core.seats, worker.core.returning
    waiting = {*seats.blocked.values(), *returning.values()}
    running = [task for task in worker.running if task is not None]
    if worker.counts_amounts:
        _check_amounts(worker, running)
        n = sum(_cores_of(worker, task) for task in running)
        n -= sum(_cores_of(worker, task) >= 1 for task in running if task.attempt in waiting)
    else:
        n = len(running) - len(waiting)
    assert n <= worker.sim.plan.nthreads + 1e-6, f"tasks with {n} cores compute on {worker!r}"


def _cores_of(worker: WorkerNode, task: WorkerTask) -> float:
    asked = worker.sim.graph.spec_of(task.args).resources
    return 0.0 if BESIDE in asked else asked.get(CORES, 1.0)


def _check_amounts(worker: WorkerNode, running: list[WorkerTask]) -> None:
    used = [worker.sim.graph.spec_of(task.args).resources for task in running]
    for name, amount in worker.offered.items():
        total = sum(one.get(name, 0.0) for one in used)
        assert total <= amount + 1e-6, f"{worker!r} offers {amount} of {name}: {running}"
    if worker.core.offered.n:
        worker.world.probes["tasks wait for resources"] += 1
    if worker.core.seats.n_held:
        worker.world.probes["tasks hold seats or share cores"] += 1
