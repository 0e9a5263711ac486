"""Memory limits of workers, sizes of results that fill them, and the sizes of their processes.

A part of the runs has limits. What these runs need is drawn from a source of chance of their own,
after everything else: so the other runs do not depend on what is here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

from weft.protocol.wire.failure import MEMORY_EXCEEDED
from weft.protocol.wire.message import Message
from weft.protocol.wire.messages import KeysErred, KeysUnrunnable, ReturnAttempts
from weft.scheduler.core.memory.full import FULL_SHARE
from weft.scheduler.core.memory.records import memory_of
from weft.scheduler.core.records.tasks import PROCESSING, QUEUED

from .graphs import ACTOR, INDEX_NBYTES, PUT, Graph
from .pausing import Assigned
from .sole_copies import SoleCopies

if TYPE_CHECKING:
    from weft.scheduler.core.state import SchedulerState

    from .plan import Plan
    from .simulation import Simulation
    from .worker_node import WorkerNode

#: Share of the runs that have limits.
P_LIMITS = 0.3
MB = 1_000_000
#: The text of a failure has what is used and what there is; a killed worker's has its results.
_NUMBERS = re.compile(
    r"uses [\d.]+ \w+ of [\d.]+ \w+.* results? of this client takes? [\d.]+ \w+"
    r"|\d+ processes .* were killed within .* results? of this client takes? [\d.]+ \w+"
)


@dataclass
class Limits:
    """The memory of the workers of one run."""

    rng: Random
    #: of each worker, bytes; and the share of workers that have none
    limit: int
    p_unlimited: float
    #: of a process without any value
    base: int
    #: for so long a value that was dropped still takes its place
    linger_s: float
    #: a supervisor looks at its workers so often, and kills those above the limit
    look_s: float
    #: see `full.SWING_NBYTES`
    swing: int
    #: {value: its size}
    nbytes: dict[bytes, int]

    def of_new_worker(self) -> int:
        """Draw the limit of a worker; 0 = it has none."""
        return 0 if self.rng.random() < self.p_unlimited else self.limit


def draw(rng: Random, plan: Plan, graph: Graph) -> Limits | None:
    """Draw whether a run has limits; if it has, give the results sizes that fill the workers."""
    if rng.random() >= P_LIMITS:
        return None
    _draw_sizes(rng, graph)
    sizes = sorted(spec.nbytes for spec in graph.by_key.values())
    # Any task fits, with its inputs, into a worker that has nothing else.
    largest = max(
        spec.nbytes + sum(one.nbytes for one in spec.dependencies) for spec in graph.by_key.values()
    )
    base = rng.choice([MB // 10, MB, 5 * MB])
    # Users release results early, and workers come and go: mostly enough of them fit.
    share = rng.choice([0.05, 0.1, 0.2, 0.3, 0.5, 0.8])
    limit = base + max(int(largest / 0.7), int(share * sum(sizes) / plan.n_workers))
    return Limits(
        rng=rng,
        limit=int(limit / FULL_SHARE),
        p_unlimited=rng.choice([0.0, 0.0, 0.0, 0.3]),
        base=base,
        linger_s=rng.choice([0.0, 0.0, 0.3, 2.0]),
        look_s=rng.choice([0.1, 0.5]),
        swing=rng.choice([0, MB, 256 << 20]),
        nbytes={spec.value: spec.nbytes for spec in graph.by_key.values()},
    )


def _draw_sizes(rng: Random, graph: Graph) -> None:
    """Draw the size of the results of each function, and let some results differ from it."""
    means: dict[str, int] = {}
    for spec in graph.by_key.values():
        if spec.function == ACTOR:
            continue  # a handle
        if spec.function not in means:
            large = [MB // 4, MB, 3 * MB]
            means[spec.function] = rng.choice(large if not means else [8, 100_000, *large])
        nbytes = means[spec.function]
        spec.nbytes = int(nbytes * rng.uniform(0.7, 1.3))
        if rng.random() < (0.3 if spec.function == PUT else 0.05):
            spec.nbytes = rng.choice([8, 1000, 2 * nbytes])


class ProcessMemory:
    """The memory of one worker process."""

    def __init__(self, worker: WorkerNode, limits: Limits) -> None:
        self._worker = worker
        self._limits = limits
        self.limit = limits.of_new_worker()
        self._lingering = 0

    def resident_nbytes(self) -> int:
        """Return the size of the process: values, half of those that are being made, garbage."""
        worker = self._worker
        on_disk = worker.spill.on_disk
        in_memory = [value for attempt, value in worker.store.items() if attempt not in on_disk]
        nbytes = sum(self._limits.nbytes.get(value, INDEX_NBYTES) for value in in_memory)
        running = [task for task in worker.running if task is not None]
        nbytes += sum(worker.sim.nbytes(task.key) // 2 for task in running)
        return self._limits.base + nbytes + self._lingering

    def note_dropped(self, value: bytes) -> None:
        """Note that a value is dropped: its memory may be given back later."""
        if self._limits.linger_s:
            nbytes = self._limits.nbytes.get(value, INDEX_NBYTES)
            self._lingering += nbytes
            self._worker.world.at(self._limits.linger_s, self._give_back, nbytes)

    def _give_back(self, nbytes: int) -> None:
        self._lingering -= nbytes


class Watched:
    """What is seen of the brake from outside the core of a scheduler, event by event."""

    def __init__(self, sim: Simulation, core: SchedulerState) -> None:
        self._sim = sim
        self._probes = sim.world.probes
        self._core = core
        self._assigned = Assigned(sim, core)
        self._sole_copies = SoleCopies(sim, core)
        self._aside: list[Any] = []
        self._full: list[Any] = []

    def after_event(self) -> None:
        """Count what has changed."""
        self._assigned.after_event()
        self._sole_copies.after_event()
        memory = memory_of(self._core)
        if memory.aside or self._aside:
            for task in self._aside:
                if task not in memory.aside and task.state in (QUEUED, PROCESSING):
                    self._probes["memory: taken up"] += 1
            for task in memory.aside:
                if task not in self._aside:
                    self._probes["memory: set aside"] += 1
                    if not task.group.task_class.takes_thread:
                        self._probes["memory: scattered data set aside"] += 1
            self._aside = list(memory.aside)
        if self._core.full or self._full:
            for ws in self._full:
                if ws not in self._core.full and ws.peer in self._core.workers:
                    self._probes["memory: room again"] += 1
            self._probes["memory: full"] += sum(ws not in self._full for ws in self._core.full)
            self._full = list(self._core.full)

    def sent(self, peer: int, messages: Iterable[Message]) -> None:
        """Count messages that the brake sends, and note what is given up by it or the journal."""
        self._assigned.sent(peer)
        self._sole_copies.sent(peer)
        for message in messages:
            if isinstance(message, KeysErred):
                for key, n in zip(message.keys, message.failure_of, strict=True):
                    failure = message.failures[n]
                    if failure[0] in (MEMORY_EXCEEDED, "unrecorded"):
                        self._sim.exceeded[key] = self._sim.exceeded[failure[1]] = None
            elif isinstance(message, ReturnAttempts):
                ws = self._core.workers.get(peer)
                if ws is not None and ws.is_full:
                    self._probes["memory: asked back"] += 1
            elif isinstance(message, KeysUnrunnable) and "filled to" in message.reason:
                self._probes["memory: notice"] += 1

    def logged(self, text: str) -> None:
        """Count what the brake decides."""
        if "fail with MemoryExceeded" in text:
            stalled = "nothing has made room" in text
            self._probes["memory: " + ("stalled" if stalled else "killed too often")] += 1


def has_reason(sim: Simulation, text: str) -> bool:
    """Return whether a failure of this kind may come, and whether its text has numbers."""
    return sim.limits is not None and _NUMBERS.search(text) is not None


def check_at_rest(sim: Simulation) -> None:
    """Check that nothing waits for memory, and that only those workers are full that use it."""
    core = sim.scheduler.core
    assert not memory_of(core).aside, f"{list(memory_of(core).aside)} wait for memory for ever"
    assert memory_of(core).look is None or memory_of(core).paused, (
        "nothing waits for memory, and it is looked at"
    )
    assert not memory_of(core).stocked, f"{list(memory_of(core).stocked)} are stocked at rest"
    if sim.limits is None:
        assert not core.full, f"{list(core.full)} are full, and have no limit"
        return
    for worker in sim.workers.values():
        ws, memory = core.workers_by_id[worker.worker_id], worker.memory
        assert memory is not None
        resident, limit = memory.resident_nbytes(), memory.limit
        worker.spill.check_at_rest()
        is_full = resident > FULL_SHARE * limit > 0 and not worker.spill.is_on
        assert ws.processing or ws.is_full is is_full, (
            f"{worker!r} uses {resident} of {limit}, and is {'' if ws.is_full else 'not '}full"
        )
        sim.world.probes["memory: full at rest"] += is_full
