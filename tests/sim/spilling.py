"""Workers whose values leave the memory for a disk that may be full, slow, or lose what it has.

A part of the runs with memory limits. The plan (`worker/data/core/spill_plan.py`) is that of the
product; here are its values, its files and its clock. What these runs need is drawn from a source
of chance of their own.
"""

from __future__ import annotations

from math import inf
from random import Random
from typing import TYPE_CHECKING

from weft.protocol.reported import OF_WORKERS, SPILLED_BYTES
from weft.worker.data.core.spill_plan import (
    AWAITED,
    DISK_PAUSE_S,
    FREE,
    IN_USE,
    MIN_NBYTES,
    SpillPlan,
)
from weft.worker.policy import Fractions

from .graphs import ACTOR, INDEX_NBYTES

if TYPE_CHECKING:
    from weft.worker.core.tasks import WorkerTask

    from .memory import Limits
    from .plan import Plan
    from .worker_node import WorkerNode

#: Share of the runs with memory limits.
P_SPILLS = 0.6
#: Values that are written at a time, and how often the memory is looked at.
N_WRITERS = 2
LOOK_S = 0.05
_NAMES = [metric.name for metric in OF_WORKERS for _ in range(metric.n)]


class Spills:
    """What the disks of one run do."""

    def __init__(self, seed: int, plan: Plan, limits: Limits | None) -> None:
        self.rng = rng = Random(f"spilling of {seed}")
        self.is_on = limits is not None and rng.random() < P_SPILLS
        #: a write finds no room on the disk; a value cannot be pickled; a file is corrupt
        self.p_full = rng.choice([0.0, 0.0, 0.1, 0.6])
        self.p_unwritable = rng.choice([0.0, 0.0, 0.1])
        self.p_corrupt = 0.0 if plan.executes_once else rng.choice([0.0, 0.1, 0.5])
        self.write_s = rng.choice([0.0, 0.001, 0.1])
        #: of all files of a worker, as a part of its limit
        self.most = rng.choice([inf, inf, 0.5])


class WorkerSpill:
    """The values of one worker, in memory and on its disk."""

    def __init__(self, worker: WorkerNode, spills: Spills) -> None:
        self._worker = worker
        self._spills = spills
        limit = 0 if worker.memory is None else worker.memory.limit
        self.is_on = spills.is_on and limit > 0
        self.plan = SpillPlan(limit if self.is_on else 0, Fractions(), spills.most * limit)
        #: {attempt: bytes} of values that are in files only
        self.on_disk: dict[int, int] = {}
        #: {attempt: None} of values that were read while memory was short
        self._marks: dict[int, None] = {}
        #: the disk failed less than `DISK_PAUSE_S` before this time: nothing is written until then
        self._disk_at = -inf
        if self.is_on:
            worker.world.at(LOOK_S, self._look, is_work=False)

    # -- values -----------------------------------------------------------------------------------
    def size_of(self, attempt: int) -> int:
        """Return the bytes of a value, wherever it is."""
        limits = self._worker.sim.limits
        assert limits is not None
        return limits.nbytes.get(self._worker.store[attempt], INDEX_NBYTES)

    def note_dropped(self, attempt: int) -> None:
        """Note that a value is about to be dropped, with its file."""
        self.on_disk.pop(attempt, None)
        self._marks.pop(attempt, None)

    def is_corrupt(self, record: WorkerTask) -> bool:
        """Return whether the file of a value turns out to be lost."""
        if record.attempt not in self.on_disk or self._worker.sim.is_healed:
            return False
        is_lost = self._spills.rng.random() < self._spills.p_corrupt
        self._worker.world.probes["spill: a file is corrupt"] += is_lost
        return is_lost

    def note_read(self, attempt: int) -> None:
        """Note that a task reads a value: it is in memory again."""
        if self.on_disk.pop(attempt, None) is not None:
            self._worker.world.probes["spill: read again"] += 1
        if self.plan.is_short:
            self._marks[attempt] = None

    # -- see `Values` -----------------------------------------------------------------------------
    def in_memory(self) -> list[int]:
        """Return the attempts whose values are in memory, oldest first."""
        return [a for a in self._worker.store if a not in self.on_disk]

    def size(self, attempt: int) -> int:
        """Return the bytes of a value in memory; 0 = it is not there any more."""
        if attempt in self.on_disk or attempt not in self._worker.store:
            return 0
        return self.size_of(attempt)

    def take_mark(self, attempt: int) -> bool:
        """Take the mark off a value; return whether there was one."""
        return self._marks.pop(attempt, self) is None

    def need(self, attempt: int) -> int:
        """Return `FREE`, `AWAITED` or `IN_USE`."""
        worker = self._worker
        running = [task for task in worker.running if task is not None]
        if any(record.attempt == attempt for task in running for record in task.inputs):
            return IN_USE
        record = worker.core.by_attempt.get(attempt)
        if record is None:
            return IN_USE  # it is dropped soon
        return AWAITED if record.pins else FREE

    # -- what the thread that spills does ---------------------------------------------------------
    def _look(self) -> None:
        worker, plan = self._worker, self.plan
        if not worker.is_alive or not worker.when_awake(self._look):
            return
        assert worker.memory is not None
        was_paused = plan.is_paused
        managed = sum(map(self.size, worker.store))
        plan.measured(managed, worker.memory.resident_nbytes())
        if plan.is_short:
            for attempt in plan.choose(self, N_WRITERS - len(plan.writing), worker.world.now):
                seconds = self._spills.rng.random() * self._spills.write_s
                worker.world.at(seconds, self._write, attempt, worker.store[attempt])
        self.check()
        if plan.is_paused is not was_paused:
            worker.world.probes["spill: paused"] += plan.is_paused
            if worker.session.is_open:
                worker.session.send(worker.heartbeat())
        # While it is paused all may wait for this, unless it is full of what cannot leave. After a
        # failure, the disk is tried again later.
        waits = plan.is_short and worker.world.now < self._disk_at
        is_work = bool(plan.writing) or waits or (plan.is_paused and bool(self._leaving()))
        worker.world.at(LOOK_S, self._look, is_work=is_work)

    def _write(self, attempt: int, value: bytes) -> None:
        worker, plan, spills = self._worker, self.plan, self._spills
        if not worker.is_alive or not worker.when_awake(self._write, attempt, value):
            return
        probes, is_healed = worker.world.probes, worker.sim.is_healed
        nbytes = self.size(attempt)
        record = worker.core.by_attempt.get(attempt)
        is_actor = record is not None and worker.sim.graph.by_key[record.key].function == ACTOR
        on_disk = sum(self.on_disk.values())
        if not nbytes or worker.store[attempt] != value:
            plan.left(attempt)  # it was dropped meanwhile
        elif is_actor or (not is_healed and spills.rng.random() < spills.p_unwritable):
            probes["spill: unwritable"] += 1
            plan.stays(attempt)
        elif not is_healed and (
            not plan.fits_on_disk(on_disk, nbytes) or spills.rng.random() < spills.p_full
        ):
            probes["spill: disk full"] += 1
            plan.failed(attempt, worker.world.now)
            self._disk_at = worker.world.now + DISK_PAUSE_S
        else:
            probes["spill: written"] += 1
            self.on_disk[attempt] = nbytes
            plan.left(attempt)
        self.check()

    def _leaving(self) -> list[int]:
        """Return the attempts whose values can leave the memory."""
        return [
            attempt
            for attempt in self.in_memory()
            if self.size(attempt) >= MIN_NBYTES
            and attempt not in self.plan.stuck
            and self.need(attempt) != IN_USE
        ]

    # -- reports and checks -----------------------------------------------------------------------
    def managed_nbytes(self) -> int:
        """Return the bytes of values in memory that a worker reports, if it spills."""
        return sum(map(self.size, self._worker.store)) if self.is_on else 0

    def numbers(self) -> list[int]:
        """Return what a worker reports of its disk, if it spills."""
        if not self.is_on:
            return []
        numbers = [0] * len(_NAMES)
        numbers[_NAMES.index(SPILLED_BYTES)] = sum(self.on_disk.values())
        return numbers

    def check(self) -> None:
        """Check that the bytes that are counted are those that are held."""
        store = self._worker.store
        assert all(attempt in store for attempt in self.on_disk), "a file without a value"
        held = {a: self.size_of(a) for a in store}
        assert self.on_disk == {a: held[a] for a in self.on_disk}
        in_memory = sum(map(self.size, store))
        assert in_memory + sum(self.on_disk.values()) == sum(held.values())
        assert len(self.plan.writing) <= N_WRITERS

    def check_at_rest(self) -> None:
        """Check that, with a disk that works, what had to leave the memory has left."""
        if not self.is_on:
            return
        self.check()
        assert not self.plan.writing, f"{self._worker!r} writes for ever"
        rest = self._leaving()
        over = sum(map(self.size, self._worker.store)) - self.plan.target
        assert over <= 0 or not rest, f"{self._worker!r} keeps {rest} in memory, {over} too much"
        assert self._worker.memory is not None
        used = self._worker.memory.resident_nbytes()
        is_paused = used > self.plan.pause and not rest
        assert self.plan.is_paused is is_paused, f"{self._worker!r} is paused at rest, of {rest}"
