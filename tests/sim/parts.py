"""Values with parts in the simulator: indexes of results, and tasks that read a part of each.

A part of the runs has some. The value of an index is the scheduler's, as in the product; a reader
asks the holders that it names, and what it gets must be the parts of the values of the serial
interpreter. What these runs draw comes from a source of chance of its own.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from weft.protocol.values.serialize import loads
from weft.protocol.wire.failure import reschedule
from weft.protocol.wire.part_index import OUT_OF_REACH, PartIndex, read_index
from weft.worker.core.events import ChunkDone
from weft.worker.core.features.memory import PartsMissing
from weft.worker.core.tasks import WorkerTask

from .graphs import ACTOR, INDEX, READ, Graph, Spec, value_of

if TYPE_CHECKING:
    from .plan import Plan
    from .simulation import Simulation
    from .worker_node import WorkerNode

#: Share of the runs that have values with parts.
P_PARTS = 0.2


class Parts:
    """The shuffles of one run, and what becomes of requests for parts."""

    def __init__(self, seed: int, plan: Plan, graph: Graph) -> None:
        self.rng = rng = Random(f"parts of {seed}")
        self.is_on = rng.random() < P_PARTS and not plan.executes_once
        self.p_refused = rng.choice([0.0, 0.0, 0.1, 0.4])
        self.p_missing = rng.choice([0.0, 0.0, 0.1])
        for _ in range(rng.choice([1, 1, 2, 3]) if self.is_on else 0):
            self._add(plan, graph)

    def _add(self, plan: Plan, graph: Graph) -> None:
        """Add a shuffle of results of the graph, perhaps of parts that others have read."""
        rng = self.rng
        able = [spec for spec in graph.specs if spec.function not in (ACTOR, INDEX)]
        if not able:
            return
        inputs = rng.sample(able, k=min(len(able), rng.choice([1, 2, 5, 12])))
        index = self._make(graph, INDEX, inputs, b"", 0.0)
        for part in range(rng.choice([1, 2, 5, 12])):
            args = f"part-{part}-of-{index.key}".encode()
            duration = rng.expovariate(1.0) * plan.duration
            reader = self._make(graph, READ, [index], args, duration)
            reader.value = value_of(READ, args, [part_of(one.value, args) for one in inputs])

    def _make(
        self, graph: Graph, function: str, inputs: list[Spec], args: bytes, duration: float
    ) -> Spec:
        number = len(graph.by_key)
        nbytes = self.rng.choice([8, 1000])
        spec = Spec(
            number, f"{function}-{number}", function, inputs, duration, nbytes, 0, False, None, args
        )
        graph.add(spec)
        return spec


def part_of(value: bytes, args: bytes) -> bytes:
    """Return the part of a value that the reader with these arguments reads."""
    return value_of("part", args.split(b"-of-")[0], [value])


def index_in(blob: bytes) -> PartIndex:
    """Return the index that a value in a store is."""
    index = read_index(loads(blob))
    assert index is not None
    return index


def begin(
    node: WorkerNode,
    slot: int,
    task: WorkerTask,
    inputs: list[bytes],
    report: ChunkDone,
    told: float,
) -> bool:
    """Let a task read its parts, if it reads any."""
    spec = node.sim.graph.spec_of(task.args)
    if spec.function != READ:
        return False
    _Reading(node, slot, task, spec, index_in(inputs[0])).ask(report, told)
    return True


class _Reading:
    """One task that reads a part of all values of an index."""

    def __init__(
        self, node: WorkerNode, slot: int, task: WorkerTask, spec: Spec, index: PartIndex
    ) -> None:
        self.node = node
        self.sim: Simulation = node.sim
        self.slot = slot
        self.task = task
        self.spec = spec
        self.index = index
        self.found: dict[int, bytes] = {}
        self.missed: list[PartsMissing] = []
        self.n_open = 0

    def ask(self, report: ChunkDone, told: float) -> None:
        """Ask all holders at once."""
        self.report, self.told = report, told
        names = [one.key for one in self.spec.dependencies[0].dependencies]
        assert list(self.index.keys) == names, f"{self.task!r} reads an index of other tasks"
        asked: dict[str, list[int]] = {}
        for place, attempt in enumerate(self.index.attempts):
            if attempt in self.node.store:
                self._take(self.node, place)
            else:
                holder = self.index.holder_of(place, self.node.data.failed_holders)
                asked.setdefault(holder, []).append(place)
        self.n_open = len(asked) + 1
        for holder, places in asked.items():
            self.sim.world.probes["parts: asked"] += 1
            self.sim.world.at(self._delay(), self._arrive, holder, places)
        self.sim.world.at(0.0, self._ended)

    def _delay(self) -> float:
        return self.sim.plan.timing.draw(self.sim.world)

    def _take(self, holder: WorkerNode, place: int) -> None:
        self.found[place] = part_of(holder.store[self.index.attempts[place]], self.spec.args)

    def _arrive(self, address: str, places: list[int]) -> None:
        sim, parts = self.sim, self.sim.parts
        holder = sim.by_address.get(address)
        refused = not sim.is_healed and parts.rng.random() < parts.p_refused
        if holder is None or not holder.is_alive or refused:
            if refused:
                sim.refused[repr(self.node)] = None
            sim.world.at(self._delay(), self._answered, address, places, [], True)
        elif holder.when_awake(self._arrive, address, places):
            forgets = not sim.is_healed and parts.rng.random() < parts.p_missing
            missing = [
                place
                for place in places
                if forgets or self.index.attempts[place] not in holder.store
            ]
            if not missing:
                for place in places:
                    self._take(holder, place)
            sim.world.at(self._delay(), self._answered, address, places, missing, False)

    def _answered(
        self, holder: str, places: list[int], missing: list[int], is_unreachable: bool
    ) -> None:
        if not self.node.when_awake(self._answered, holder, places, missing, is_unreachable):
            return
        lost = places if is_unreachable else missing
        if lost:
            self.node.data.failed_holders[holder] = self.sim.world.now
            self.sim.world.probes["parts: unreachable" if is_unreachable else "parts: gone"] += 1
            keys = [self.index.keys[place] for place in lost]
            attempts = [self.index.attempts[place] for place in lost]
            self.missed.append(PartsMissing(keys, attempts, holder, is_unreachable))
        self._ended()

    def _ended(self) -> None:
        if not self.node.when_awake(self._ended):
            return
        self.n_open -= 1
        if self.n_open:
            return
        node, task = self.node, self.task
        if self.missed:
            for missed in self.missed:
                node._handle(missed)
            is_out = any(missed.is_unreachable for missed in self.missed)
            why = f"{OUT_OF_REACH}: simulated" if is_out else "parts are not where they were"
            failure = reschedule(task.key, why)
            inputs: list[bytes] = []
            node._end_task(self.slot, task, inputs, self.report, self.told, failure)
            return
        self.sim.world.probes["parts: read"] += 1
        values = [self.found[place] for place in range(len(self.index.keys))]
        node.world.at(
            self.spec.duration, node._finish, self.slot, task, values, self.report, self.told
        )
