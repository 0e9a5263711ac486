"""Categories: tasks that use different amounts of memory, in a part of the runs.

Each task has processes of its own, so what one uses is known; others may run beside it. What a task
uses does not change from one execution to the next. The tasks and amounts are drawn from a source
of chance of their own.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

from weft.protocol.amounts import MEMORY
from weft.protocol.wire.failure import Failure
from weft.protocol.wire.messages import OWN_PROCESS
from weft.protocol.wire.options import MODES
from weft.scheduler.core.categories.stragglers import stragglers_of
from weft.scheduler.core.interruption.interrupted import interruptions_of
from weft.worker.core.features.categories import MeasuredAttempts, MemorySeen
from weft.worker.slots.usage import LOOK_S

from .graphs import ACTOR, INDEX, PUT, Graph, Spec

if TYPE_CHECKING:
    from weft.scheduler.core.state import SchedulerState

    from .simulation import Simulation
    from .worker_node import WorkerNode

#: Share of the runs that have categories, and of their tasks that are in one.
P_CATEGORIES: Final = 0.3
P_TASK: Final = 0.7
#: The share of these that use little memory, and how much.
P_SMALL: Final = 0.8
SMALL: Final = 4 << 20
#: The share of categories whose stragglers are begun elsewhere.
P_STRAGGLERS: Final = 0.5
#: The share of these whose first attempts go on beside the others.
P_COPIES: Final = 0.5
#: What workers offer.
OFFERED: Final = 1 << 30


class SimulatedCategories:
    """The categories of a run."""

    def __init__(self, seed: int, sim: Simulation) -> None:
        rng = Random(f"categories of {seed}")
        self._sim = sim
        self.are_on = rng.random() < P_CATEGORIES
        #: {key: bytes that the task uses}
        self._uses: dict[str, int] = {}
        #: {key: {attempt: None}} of executions that were reported to use too much
        self.exceeded: dict[str, dict[int, None]] = {}
        if self.are_on:
            self._draw(seed, rng, sim.graph)

    def _draw(self, seed: int, rng: Random, graph: Graph) -> None:
        chance = Random(f"stragglers of {seed}")
        categories = [
            {
                "name": f"category-{i}",
                "mode": rng.choice(MODES),
                "max_nbytes": rng.choice([0, 0, OFFERED // 2, 4 * OFFERED]),
            }
            for i in range(rng.choice([1, 1, 2]))
        ]
        for category in categories:
            if chance.random() < P_STRAGGLERS:
                category["straggler_multiple"] = chance.choice([1.0, 1.5])
                category["copies_stragglers"] = Random(f"copies of {seed}").random() < P_COPIES
        for spec in graph.specs:
            if (
                spec.scattered
                or spec.gang
                or spec.function in (PUT, ACTOR, INDEX)
                or rng.random() > P_TASK
            ):
                continue
            spec.category = rng.choice(categories)
            large = min(int(OFFERED * 0.1 * rng.paretovariate(0.7)), 2 * OFFERED)
            self._uses[spec.key] = SMALL if rng.random() < P_SMALL else large

    def offered(self) -> dict[str, float]:
        """Return what each worker offers for them."""
        return {MEMORY: float(OFFERED)} if self.are_on else {}

    def look(self, worker: WorkerNode) -> None:
        """Let a worker see what its tasks use, now and while some are measured."""
        if worker.sees_memory or not worker.is_alive:
            return
        measured = worker.core.record(MeasuredAttempts)
        running = [task for task in worker.running if task is not None]
        for task in running:
            usage = measured.get(task.attempt)
            nbytes = self._uses.get(task.key, 0)
            if usage is not None and nbytes:
                usage.kind, usage.peak_nbytes = OWN_PROCESS, nbytes
                self._sim.world.probes["category: measured"] += 1
                if task.attempt not in self.exceeded.get(task.key, {task.attempt: None}):
                    self._sim.world.probes["category: repeated"] += 1
        worker.see(MemorySeen(OFFERED, [task.attempt for task in running]))
        if measured and worker.is_alive:
            worker.sees_memory = True
            self._sim.world.at(LOOK_S, self._look_again, worker, is_work=False)

    def _look_again(self, worker: WorkerNode) -> None:
        if worker.when_awake(self._look_again, worker):
            worker.sees_memory = False
            self.look(worker)

    def note_exceeded(self, attempts: list[int]) -> None:
        """Note that executions were reported, which count no more if the scheduler hears of it."""
        self._sim.world.probes["category: exceeded"] += len(attempts)
        for attempt in attempts:
            key = self._sim.executed[attempt]
            self.exceeded.setdefault(key, {})[attempt] = None
            self._sim.timed_out.setdefault(key, {})[attempt] = None

    def note_stragglers(self, core: SchedulerState) -> None:
        """Note which executions a scheduler has ended or copied: they count no more."""
        for attempt, found in interruptions_of(core).items() if self.are_on else ():
            if "others of its category" in found.cause:
                ended = self._sim.timed_out.setdefault(found.key, {})
                self._sim.world.probes["category: straggler"] += attempt not in ended
                ended[attempt] = None
        for attempt, (_, task) in stragglers_of(core).copies.items():
            copied = self._sim.timed_out.setdefault(task.key, {})
            self._sim.world.probes["category: copy"] += attempt not in copied
            copied[attempt] = None

    def has_failed(self, spec: Spec, failure: Failure) -> bool:
        """Return whether there was a reason for `AllotmentExceeded`."""
        _, culprit, name, allotted, used, _, is_own = failure
        of = self._sim.graph.by_key[culprit]
        return (
            culprit in spec.ancestors
            and culprit in self.exceeded
            and of.category["name"] == name
            and used == self._uses[culprit] > allotted
            and (allotted == of.category["max_nbytes"] if is_own else allotted == OFFERED)
        )


__all__ = ["SimulatedCategories"]
