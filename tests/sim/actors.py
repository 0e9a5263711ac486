"""The threads of the actors of one worker: they wait now and then, for tasks and for each other.

Calls go past the scheduler and the cores, so there are none here; what the cores see of them is how
long an actor waits, and for what. Each wait ends in any case, as if it had a reason to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.protocol.wire.messages import call_text
from weft.worker.core.events import ActorBlocked, ActorResumes

from .graphs import ACTOR

if TYPE_CHECKING:
    from weft.worker.core.tasks import WorkerTask

    from .worker_node import WorkerNode


class WaitingActors:
    """The actors of one worker."""

    def __init__(self, node: WorkerNode) -> None:
        self._node = node
        self._world = node.world
        #: {attempt that made one: its key}
        self._actors: dict[int, str] = {}

    def made(self, task: WorkerTask) -> None:
        """Let an actor begin to live, and perhaps wait later."""
        self._actors[task.attempt] = task.key
        self._plan_wait(task.attempt)

    def _plan_wait(self, attempt: int) -> None:
        if self._world.chance(self._node.sim.plan.p_block):
            self._world.at(self._world.rng.random(), self._block, attempt)

    def _block(self, attempt: int) -> None:
        node, rng = self._node, self._world.rng
        if not node.when_awake(self._block, attempt):
            return
        if attempt not in node.store:  # it was dropped, and so the actor has ended
            del self._actors[attempt]
            return
        # Where waits of tasks are checked, it waits for something that the scheduler does not know.
        is_alone = not node.sim.plan.p_calls
        tasks = [key for key in node.core.by_key if is_alone and key != self._actors[attempt]]
        keys = rng.sample(tasks, k=min(len(tasks), rng.randint(0, 2)))
        actors = [spec.key for spec in node.sim.graph.specs if is_alone and spec.function == ACTOR]
        called = rng.sample(actors, k=min(len(actors), rng.randint(0, 2)))
        calls = [call_text("holder", 1, rng.randint(0, 9)) for _ in called]
        begun = [call_text("holder", 1, rng.randint(0, 9))]
        is_open = self._world.chance(0.5)
        node._handle(
            ActorBlocked(
                self._actors[attempt], attempt, keys, called, calls, begun, begun * is_open
            )
        )
        self._world.probes["actor waits"] += 1
        seconds = rng.choice([0.1, 1.0, 5.0]) * rng.random()
        self._world.at(seconds, self._resume, attempt)

    def _resume(self, attempt: int) -> None:
        if self._node.when_awake(self._resume, attempt):
            self._node._handle(ActorResumes(attempt))
            self._plan_wait(attempt)
