"""Queues of jobs: users put tasks into some, and pause and resume them, in a part of the runs.

In these they block workers as well, each for a while, and hosts on which tasks fail are blocked.

No task of a paused queue may be queued, which the invariants say; all end when they are resumed.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

from weft.protocol.wire.messages import Ask
from weft.scheduler.core.blocking.failing import FailingHosts
from weft.scheduler.core.blocking.feature import blocks_of, on_block, on_unblock
from weft.scheduler.core.events import SchedulerTick
from weft.scheduler.core.job_queues.feature import on_pause, on_resume, paused_queues_of

if TYPE_CHECKING:
    from weft.protocol.wire.options import TaskOptions

    from .scheduler_node import SchedulerNode
    from .simulation import Simulation

#: Share of the runs with queues, and of their submissions that are in one.
P_QUEUES: Final = 0.3
P_QUEUED: Final = 0.5
#: A block lasts so long at most.
MAX_BLOCK_MS: Final = 3000
NAMES: Final = ("q0", "q1")


class Queues:
    """The queues of a run."""

    def __init__(self, seed: int) -> None:
        self._rng = rng = Random(f"queues of {seed}")
        self.are_some = rng.random() < P_QUEUES

    def put(self, options: TaskOptions) -> TaskOptions:
        """Return the options of some tasks of a user, perhaps in a queue."""
        if not self.are_some or self._rng.random() >= P_QUEUED:
            return options
        return options.changed(job_queue=self._rng.choice(NAMES))

    def act(self, sim: Simulation) -> None:
        """Let a user pause or resume a queue."""
        node, name = sim.scheduler, self._rng.choice(NAMES)
        if node.is_alive and not node.is_frozen:
            self._turn(node, name)

    def _turn(self, node: SchedulerNode, name: str) -> None:
        sim, paused = node.sim, paused_queues_of(node.core)
        sim.world.probes["queue resumed" if name in paused else "queue paused"] += 1
        if paused.get(name):
            sim.world.probes["queue resumed: tasks were held"] += 1
        follow = on_resume if name in paused else on_pause
        follow(node.core, 0, Ask(request=0, name="", arguments={"name": name}))
        node._handle(SchedulerTick())

    def block(self, sim: Simulation) -> None:
        """Let a user block a worker for a while, or take a block back."""
        node, workers = sim.scheduler, [worker.name for worker in sim.workers.values()]
        if not (node.is_alive and not node.is_frozen and workers):
            return
        blocked = [*blocks_of(node.core)]
        if blocked and self._rng.random() < 0.5:
            sim.world.probes["worker unblocked"] += 1
            names, follow = blocked[:1], on_unblock
        else:
            sim.world.probes["worker blocked"] += 1
            names, follow = [self._rng.choice(workers)], on_block
        for_ms = self._rng.randint(1, MAX_BLOCK_MS)
        arguments = {"names": names, "for_ms": for_ms, "reason": ""}
        follow(node.core, 0, Ask(request=0, name="", arguments=arguments))
        node._handle(SchedulerTick())

    def limit_failures(self, failing: FailingHosts) -> None:
        """Have hosts blocked after a few failures, for a while."""
        if self.are_some:
            failing.limit = self._rng.choice([1, 1, 2])
            failing.for_s = self._rng.uniform(0.1, MAX_BLOCK_MS / 1000)

    def resume_all(self, node: SchedulerNode) -> None:
        """Resume what is paused when a scheduler is awake; those that begin later do the same."""
        if node.when_awake(self.resume_all, node):
            for name in list(paused_queues_of(node.core)):
                self._turn(node, name)
