"""Values that are lost with their files on a worker's disk, as a task or a peer is to read them.

A part of the runs has such disks, but none in which what was executed must not be executed again.
What they need is drawn from a source of chance of their own, as for memory limits.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from weft.protocol.wire.failure import reschedule
from weft.worker.core.events import ChunkDone
from weft.worker.core.features.memory import ValueLost

from .graphs import ACTOR

if TYPE_CHECKING:
    from weft.worker.core.tasks import WorkerTask

    from .plan import Plan
    from .worker_node import WorkerNode

#: Share of the runs that have disks which lose values.
P_DISKS = 0.25
#: So many values are lost in one run, at most: what reads one that many read is placed again with
#: each loss, and a run of such tasks would take minutes.
MOST_LOST = 200


class Disks:
    """The chance of one run that a value is lost when it is to be read."""

    def __init__(self, seed: int, plan: Plan) -> None:
        self.rng = Random(f"disks of {seed}")
        self.p_lost = self.rng.choice([0.01, 0.1, 0.3]) if self.rng.random() < P_DISKS else 0.0
        if plan.executes_once:
            self.p_lost = 0.0
        self.n_lost = 0
        #: {attempt: key} of tasks that could not start since an input was lost
        self.stopped: dict[int, str] = {}


class WorkerDisk:
    """The disk of one worker."""

    def __init__(self, worker: WorkerNode, disks: Disks) -> None:
        self._worker = worker
        self._disks = disks
        #: {attempt: None} of values that are in the store, and cannot be read
        self.lost: dict[int, None] = {}

    def fails(self, task: WorkerTask, report: ChunkDone) -> bool:
        """Return whether a task cannot start since an input is lost; report it then."""
        for record in task.inputs:
            if self._loses(record):
                self._worker.world.probes["disk: an input is lost"] += 1
                self._disks.stopped[task.attempt] = task.key
                self._worker._handle(ValueLost(record.attempt))
                report.failed_attempts.append(task.attempt)
                report.failed_durations_us.append(0)
                report.failures.append(reschedule(task.key, "an input is lost"))
                return True
        for record in task.inputs:
            self._worker.spill.note_read(record.attempt)
        return False

    def serves(self, record: WorkerTask) -> bool:
        """Return whether a value can be read for a peer."""
        if self._loses(record):
            self._worker.world.probes["disk: lost for a peer"] += 1
            return False
        return True

    def _loses(self, record: WorkerTask) -> bool:
        sim, disks = self._worker.sim, self._disks
        if record.attempt in self.lost:
            return True
        if self._worker.spill.is_corrupt(record):
            self.lost[record.attempt] = None
            return True
        if sim.is_healed or not disks.p_lost or sim.graph.by_key[record.key].function == ACTOR:
            return False
        if disks.n_lost < MOST_LOST and disks.rng.random() < disks.p_lost:
            disks.n_lost += 1
            self.lost[record.attempt] = None
        return record.attempt in self.lost
