"""Workers that end at a time that they know, and tasks with limits, in a part of the runs.

Limits are so long that hardly a task exceeds them, and most ends are about as far: workers become
too short for a limit while users work. Some workers end in that time, and leave before. All this is
drawn from sources of chance of its own.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any, Final

from weft.protocol.reported import TIME_LEFT
from weft.protocol.wire.messages import AssignTasks
from weft.scheduler.core.avoidance.avoided import left_by, limit_of
from weft.scheduler.core.avoidance.ending import LOOK_S, worker_ends_of
from weft.scheduler.core.invariants.checking import is_due
from weft.scheduler.core.moves.eligibility import may_run
from weft.scheduler.core.records.tasks import TaskClass

from .graphs import ACTOR, INDEX, PUT

if TYPE_CHECKING:
    from weft.scheduler.core.records.peers import WorkerHandle
    from weft.scheduler.core.records.tasks import SchedulerTask
    from weft.scheduler.core.state import SchedulerState

    from .simulation import Simulation
    from .worker_node import WorkerNode

#: Share of the runs that have ends, of their tasks that have a limit, and of their workers that
#: have an end; and of those the share that ends while users work.
P_ENDS: Final = 0.3
P_TASK: Final = 0.6
P_WORKER: Final = 0.7
P_SOON: Final = 0.2
#: The least limit, seconds.
LEAST_S: Final = 20.0
#: A worker that ends leaves so long before.
GRACE_S: Final = 5.0


class SimulatedEnds:
    """The ends of workers and the limits of tasks of a run."""

    def __init__(self, seed: int, sim: Simulation) -> None:
        rng = Random(f"ends of {seed}")
        self._sim = sim
        self._seed = seed
        self.are_on = rng.random() < P_ENDS
        self._limits_s = [rng.uniform(LEAST_S, 10 * LEAST_S) for _ in range(rng.choice([1, 2, 30]))]
        #: {worker id: when it ends}
        self._ends: dict[str, float] = {}
        for spec in sim.graph.specs if self.are_on else ():
            is_plain = spec.function not in (PUT, ACTOR, INDEX) and not (
                spec.scattered or spec.gang
            )
            has_limit = spec.timeout_us or spec.calls or spec.given_up or spec.n_raises
            limit_s = rng.choice(self._limits_s)
            if is_plain and not has_limit and spec.duration * 10 < limit_s:
                spec.timeout_us = int(limit_s * 1e6) if rng.random() < P_TASK else 0

    def facts_of(self, worker: WorkerNode) -> dict[str, Any]:
        """Return what a worker reports of its end when it registers."""
        if not self.are_on:
            return {}
        if worker.worker_id not in self._ends:
            self._draw_end(worker)
        end = self._ends[worker.worker_id]
        return {TIME_LEFT: max(end - worker.world.now, 0.0)} if end else {}

    def _draw_end(self, worker: WorkerNode) -> None:
        rng = Random(f"end of {worker.worker_id} of {self._seed}")
        now, time_s = worker.world.now, self._sim.plan.time
        end = 0.0
        if rng.random() < P_WORKER:
            end = now + rng.choice(self._limits_s) + rng.uniform(-0.2, 1.0) * time_s
            if rng.random() < P_SOON and not self._sim.plan.executes_once:
                end = now + GRACE_S + rng.uniform(0.0, time_s)
                worker.world.at(end - GRACE_S - now, self._leave, worker)
        self._ends[worker.worker_id] = end

    def _leave(self, worker: WorkerNode) -> None:
        if not self._sim.is_healed and worker.when_awake(self._leave, worker):
            worker.world.probes["end: a worker leaves before"] += 1
            worker.drain(GRACE_S)

    def check(self, core: SchedulerState, ws: WorkerHandle, messages: list[AssignTasks]) -> None:
        """Check what a scheduler has just assigned to a worker."""
        for attempt in (one for message in messages for one in message.attempts):
            if self.are_on and (task := ws.processing.get(attempt)) is not None:
                self._check(core, task, ws)

    def _check(self, core: SchedulerState, task: SchedulerTask, ws: WorkerHandle) -> None:
        """Check that no other worker has time for a task that its own has no time for."""
        task_class = task.group.task_class
        limit = limit_of(task_class)
        if limit is None or task_class.is_unbound:
            return
        look = worker_ends_of(core).next_look
        if look is not None and is_due(look) and look.when <= core.awake_s:
            return  # the scheduler is late itself
        if self._left_s(core, ws) >= limit.limit_s - 2 * LOOK_S:
            self._sim.world.probes["end: assigned to a worker with enough time"] += 1
            return
        others = TaskClass((), task_class.workers, False, task_class.resources)
        able = [
            other
            for other in core.staying.values()
            if may_run(other, others)
            and other.worker_id not in left_by(task_class)
            and self._left_s(core, other) >= limit.limit_s + 2 * LOOK_S
        ]
        assert not able, f"{task!r} is assigned to {ws}, which ends too early, and not to {able}"
        self._sim.world.probes["end: no worker has enough time"] += 1

    def _left_s(self, core: SchedulerState, ws: WorkerHandle) -> float:
        end = self._ends.get(ws.worker_id, 0.0)
        return end - core.now if end else 1e9


__all__ = ["SimulatedEnds"]
