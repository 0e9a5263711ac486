"""The state of one graph while worker processes run it; decides which worker runs which tasks.

It owns the ready stacks, the places of values and the durations of tasks, and decides which tasks a
worker is sent, and which values are moved and dropped. It does no I/O: events come in by the `on_`
methods, `decide` puts actions into `out`, and the driver turns those into messages.

**Chunks.** A worker is sent many tasks at a time: as many as should take 10 ms, at most its share
of the ready ones, and a second chunk while it works on the first. While a chunk is built, the tasks
on it count as finished: dependents for which the worker will then have all inputs go next. So
chains and subtrees run whole in one worker, depth first, and their values never leave it. That is
correct because a worker runs its tasks in order, and gives them back only from the end.

**Values** stay where they were made. If another worker needs one, it is *exported* to the parent,
which forwards it to the workers that need it (large values as names of files). Small values are
exported with the result if a task outside of the chunk will need them, others on request. A ready
task is kept for the worker that holds most bytes of its inputs, until another worker is idle.

**Estimates may be wrong.** When a worker is idle, others give back tasks that they have not started
and that it could run: at once if they should have work for more than 4 ms, or when they are late.
So a long task never holds back those behind it.

Known methods are used: guided self-scheduling for the share, depth first with stealing from the far
end as in Cilk, and placement by bytes as in dask.distributed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import inf
from typing import Any, TypeAlias

from .tasks import DONE, FETCHING, READY, SENT, VIRTUAL, WAITING, ProcessTask

#: Intended duration of a chunk: long compared with the 0.1 ms until the worker has the next one.
CHUNK_S = 0.010
#: A worker with less work than this is sent a second chunk.
AHEAD_S = 0.010
#: A worker with more work than this gives some back when another is idle.
REVOKE_S = 0.004
#: A worker that is later than estimated by this counts as held up.
LATE_S = 0.002
#: Cost of a task besides its call.
OVERHEAD_S = 3e-6
#: Estimated duration of a task before any was measured.
FIRST_GUESS_S = 0.002
#: Sum of a chunk's payloads beyond which no further task is put on it.
CHUNK_NBYTES = 4 << 20
#: Drops are sent with the next chunk, unless there are many or their values are this large.
DROPS_NBYTES = 1 << 20
MAX_DROPS = 1000
#: Tasks of a worker that wait for values of others; values on their way take memory twice.
MAX_FETCHING = 8
#: Estimated cost of moving a value from worker to worker, to decide whether that is worth it.
TRANSFER_S = 0.001
TRANSFER_BYTES_PER_S = 1e9
#: How often a worker with several tasks reports its progress, if the run is watched.
SHOW_S = 0.020
#: Number of tasks to examine for one that a worker could give back.
MAX_LOOK = 256


@dataclass(slots=True)
class SendChunk:
    """Send these tasks to a worker, which runs them in this order."""

    tasks: list[ProcessTask]
    #: Exported values that it lacks and that these tasks need.
    imports: list[ProcessTask]
    #: Numbers of values that it need not keep any more.
    drops: list[int]


@dataclass(slots=True)
class Export:
    """Ask a worker to export values that it holds."""

    numbers: list[int]


@dataclass(slots=True)
class Report:
    """Ask a worker to report at once which tasks have finished."""


@dataclass(slots=True)
class Revoke:
    """Ask a worker to report, and to give back its tasks from this one on.

    If it has started that task, it gives back those that it has not started. The answer is delayed
    by a task that does not release the interpreter lock.
    """

    first: int


@dataclass(slots=True)
class Drop:
    """Notify a worker of values that it need not keep any more."""

    numbers: list[int]


Action: TypeAlias = "SendChunk | Export | Report | Revoke | Drop"


@dataclass(slots=True)
class WorkerSlot:
    """The record of one worker."""

    index: int
    #: Its bit in the masks `ProcessTask.at`: 1 << index.
    bit: int
    #: READY tasks that are meant for it, because of the values that it holds; the end runs first.
    ready: list[ProcessTask] = field(default_factory=list)
    #: Tasks that can follow those that it was sent; the end runs first. Entries whose state is not
    #: VIRTUAL any more, or whose home is another worker, are skipped.
    virtual: list[ProcessTask] = field(default_factory=list)
    #: Tasks in state SENT with this home, in the order in which it runs them.
    sent: deque[ProcessTask] = field(default_factory=deque)
    #: Chunks that it was sent and has not reported as done.
    n_chunks: int = 0
    #: Estimate of how long `sent` will take from `since_s` on.
    load_s: float = 0.0
    #: Time of its last report, or of the first chunk after it was idle.
    since_s: float = 0.0
    #: It was asked to give tasks back, and has not answered.
    is_revoking: bool = False
    #: Time at which it was last asked for a report.
    asked_s: float = 0.0
    #: It was asked to report or to give back, and has finished nothing since: it gets no tasks.
    is_held_up: bool = False
    #: Tasks in state FETCHING with this home.
    n_fetching: int = 0
    #: Values that it is to drop, and their estimated bytes.
    drops: list[int] = field(default_factory=list)
    drops_nbytes: float = 0.0
    #: Values that it is to export.
    exports: list[int] = field(default_factory=list)


class ProcessRun:
    """One graph, on workers that may join at any time.

    Args:
        tasks: numbered by their index, literals included; see `encoding`.
        ready: those without dependencies other than literals, as a stack.
        n_groups: groups are numbered from 0.
        n_workers: number of workers expected, at least 1; shares are computed for that number.
        chunksize: tasks in a chunk; None = as described above, -1 = all ready ones, spread evenly.
        is_watched: workers report their progress, for callbacks.
    """

    def __init__(
        self,
        tasks: Sequence[ProcessTask],
        ready: list[ProcessTask],
        n_groups: int,
        n_workers: int,
        chunksize: int | None = None,
        *,
        is_watched: bool = False,
    ) -> None:
        self.tasks = tasks
        #: READY tasks that any worker may run, as a stack: the end runs first.
        self.ready = ready
        self.workers: list[WorkerSlot] = []
        self.n_workers = n_workers
        self.chunksize = chunksize
        self._is_watched = is_watched
        #: Tasks that have not finished.
        self.n_unfinished = sum(task.state != DONE for task in tasks)
        #: (index of the worker, action for it), in order. The driver empties it.
        self.out: list[tuple[int, Action]] = []
        #: Tasks whose exported value is no longer needed. The driver empties it.
        self.released: list[ProcessTask] = []
        #: {group: seconds per task}, as far as known.
        self._durations_s: list[float | None] = [None] * n_groups
        #: Seconds per task for the other groups.
        self._guess_s = FIRST_GUESS_S
        #: {number: tasks that wait for the export of this task's value}
        self._fetching: dict[int, list[ProcessTask]] = {}
        #: {number of a FETCHING task: values that are missing}
        self._n_missing: dict[int, int] = {}

    # --- Events -----------------------------------------------------------------------------------

    def add_worker(self, now: float) -> int:
        """Add a worker, which holds no values; return its index."""
        index = len(self.workers)
        self.workers.append(WorkerSlot(index, 1 << index, since_s=now))
        self.n_workers = max(self.n_workers, len(self.workers))
        return index

    def on_finished(
        self,
        worker: int,
        numbers: Sequence[int],
        exported: Mapping[int, Any],
        sizes: Mapping[int, float],
        durations: Mapping[int, tuple[int, float]],
        n_chunks: int,
        now: float,
    ) -> None:
        """Handle a report of a worker.

        Args:
            worker: its index.
            numbers: tasks that have finished, in the order in which they were run.
            exported: {number: value} of those whose value came with it; includes all outputs.
            sizes: {number: bytes} of those that were to come with it if small, and did not.
            durations: {group: (tasks, seconds)}.
            n_chunks: number of chunks that it has finished.
            now: any clock, seconds.
        """
        slot = self.workers[worker]
        slot.n_chunks -= n_chunks
        slot.since_s = now
        slot.is_held_up = False
        popleft = slot.sent.popleft
        load_s = slot.load_s
        for number in numbers:
            task = popleft()
            assert task.number == number, "a worker runs what it is sent, in order"
            task.state = DONE
            task.payload = b""
            load_s -= OVERHEAD_S + (self._durations_s[task.group] or self._guess_s)
            if exported and number in exported:
                task.exported = exported[number]
                if task.is_output:
                    task.is_output = 0
                    task.n_uses -= 1
            elif sizes and number in sizes:
                task.nbytes = sizes[number]
            # The links back to it go: tasks and their dependents would be cycles.
            dependents: list[Any] = task.dependents
            task.dependents = []
            for dependent in dependents:
                n_waiting = dependent.n_waiting = dependent.n_waiting - 1
                if not n_waiting and dependent.state <= VIRTUAL:
                    self._place(dependent)
            dependencies: list[Any] = task.dependencies
            for dependency in dependencies:
                n_uses = dependency.n_uses = dependency.n_uses - 1
                if not n_uses:
                    self._release(dependency)
            if not task.n_uses:
                self._release(task)
        self.n_unfinished -= len(numbers)
        slot.load_s = max(load_s, 0.0) if slot.sent else 0.0
        if durations:
            self._learn(durations)

    def on_returned(self, worker: int, numbers: Sequence[int]) -> None:
        """Take back the last tasks that a worker was sent, in that order."""
        slot = self.workers[worker]
        slot.is_revoking = False
        # From the end, so that the dependents of a task are taken back before it.
        for number in reversed(numbers):
            task = slot.sent.pop()
            assert task.number == number, "a worker gives back from the end"
            task.home = -1
            task.at = 0
            task.drops = []
            slot.load_s -= OVERHEAD_S + (self._durations_s[task.group] or self._guess_s)
            dependents: list[Any] = task.dependents
            for dependent in dependents:
                if dependent.state == VIRTUAL:
                    dependent.state = WAITING
                dependent.n_unassigned += 1
            dependencies: list[Any] = task.dependencies
            for dependency in dependencies:
                dependency.n_open_uses += 1
                if dependency.dropper is task:
                    dependency.dropper = None
            task.state = WAITING
            if not task.n_waiting:
                self._place(task)
        slot.load_s = max(slot.load_s, 0.0) if slot.sent else 0.0
        slot.is_held_up = bool(slot.sent)

    def on_exported(self, worker: int, number: int, exported: Any) -> None:
        """Store a value that was requested."""
        task = self.tasks[number]
        task.exported = exported
        for waiting in self._fetching.pop(number):
            self._n_missing[waiting.number] -= 1
            if not self._n_missing[waiting.number]:
                del self._n_missing[waiting.number]
                home = self.workers[waiting.home]
                home.n_fetching -= 1
                waiting.state = READY
                home.ready.append(waiting)

    # --- Decisions --------------------------------------------------------------------------------

    def decide(self, now: float) -> float | None:
        """Put actions into `out`.

        Returns:
            The time at which to call again even without an event; None = no such time.
        """
        workers = self.workers
        for slot in workers:
            if not slot.sent:
                self._send_chunk(slot, now)
        # Tasks that one worker has got may not come back (see `Revoke`), so some are left for
        # workers that are still to come.
        if len(self.ready) > self.n_workers - len(workers) or len(workers) == self.n_workers:
            for slot in workers:
                if slot.n_chunks == 1 and slot.load_s < AHEAD_S and slot.sent:
                    self._send_chunk(slot, now)
        wake: float | None = None
        idle = [slot for slot in workers if not slot.sent and not slot.n_fetching]
        if idle and self.n_unfinished:
            for slot in idle:
                self._steal(slot, now)
            wake = self._revoke(now)
        if self._is_watched:
            wake = self._ask(now, wake)
        for slot in workers:
            if slot.exports:
                self.out.append((slot.index, Export(slot.exports)))
                slot.exports = []
            if slot.drops_nbytes > DROPS_NBYTES or len(slot.drops) > MAX_DROPS:
                self.out.append((slot.index, Drop(self._take_drops(slot))))
        return wake

    def _send_chunk(self, slot: WorkerSlot, now: float) -> None:
        if slot.is_revoking or slot.is_held_up:
            return
        if not slot.sent:
            slot.since_s = now
            slot.load_s = 0.0
        chunk = self._build_chunk(slot)
        if chunk is not None:
            slot.n_chunks += 1
            slot.sent.extend(chunk.tasks)
            self.out.append((slot.index, chunk))

    def _limits(self) -> tuple[int, int, float]:
        """Return the limits of a chunk: number of ready tasks, number of tasks, and seconds."""
        n_ready = len(self.ready)
        chunksize = self.chunksize
        if chunksize is None:
            # Half of the share: there are two chunks for each worker.
            share = -(-n_ready // (2 * self.n_workers))
            return max(share, 1), 1 << 30, CHUNK_S
        if chunksize < 0:
            chunksize = max(-(-n_ready // self.n_workers), 1)
        return chunksize, chunksize, inf

    def _build_chunk(self, slot: WorkerSlot) -> SendChunk | None:
        """Choose the next tasks of a worker, and mark them as sent. None = there are none."""
        index, bit = slot.index, slot.bit
        ready, own, virtual = self.ready, slot.ready, slot.virtual
        durations_s, guess_s = self._durations_s, self._guess_s
        n_roots, n_left, budget_s = self._limits()
        nbytes_left = CHUNK_NBYTES
        load_s = 0.0
        tasks: list[ProcessTask] = []
        imports: list[ProcessTask] = []
        while n_left > 0 and load_s < budget_s and nbytes_left > 0:
            if virtual:
                task = virtual.pop()
                if task.state != VIRTUAL or task.home != index:
                    continue
            elif own and slot.n_fetching < MAX_FETCHING:
                task = own.pop()
            elif ready and n_roots:
                task = ready.pop()
                n_roots -= 1
            else:
                break
            dependencies: list[Any] = task.dependencies
            if dependencies:
                missing = False
                for dependency in dependencies:
                    if not dependency.at & bit and dependency.exported is None:
                        missing = True
                if missing:
                    self._fetch(task, slot)
                    continue
                drops = []
                for dependency in dependencies:
                    if not dependency.at & bit:
                        dependency.at |= bit
                        imports.append(dependency)
                    n_open_uses = dependency.n_open_uses = dependency.n_open_uses - 1
                    # No other worker has it, so all uses were here, before this one.
                    if not n_open_uses and dependency.at == bit:
                        dependency.dropper = task
                        drops.append(dependency.number)
                task.drops = drops
            tasks.append(task)
            task.state = SENT
            task.home = index
            n_left -= 1
            nbytes_left -= len(task.payload)
            load_s += OVERHEAD_S + (durations_s[task.group] or guess_s)
            dependents: list[Any] = task.dependents
            if dependents:
                task.at = bit
                for dependent in dependents:
                    n_unassigned = dependent.n_unassigned = dependent.n_unassigned - 1
                    if not n_unassigned:
                        self._follow(dependent, slot)
        slot.load_s += load_s
        if not tasks:
            return None
        return SendChunk(tasks, imports, self._take_drops(slot))

    def _follow(self, task: ProcessTask, slot: WorkerSlot) -> None:
        """Let a task follow in a worker that will have all of its inputs."""
        bit = slot.bit
        dependencies: list[Any] = task.dependencies
        for dependency in dependencies:
            if not dependency.at & bit and dependency.exported is None:
                return
        task.state = VIRTUAL
        task.home = slot.index
        slot.virtual.append(task)

    def _place(self, task: ProcessTask) -> None:
        """Put a task, whose dependencies have finished, on the stack from which it is to be run."""
        task.state = READY
        kept: dict[int, float] = {}
        dependencies: list[Any] = task.dependencies
        for dependency in dependencies:
            if dependency.exported is None:
                # Then only the worker that made it has it.
                kept[dependency.at] = kept.get(dependency.at, 0.0) + dependency.nbytes
        if kept:
            bit = max(kept, key=kept.__getitem__)
            task.home = bit.bit_length() - 1
            self.workers[task.home].ready.append(task)
        else:
            task.home = -1
            self.ready.append(task)

    def _fetch(self, task: ProcessTask, slot: WorkerSlot) -> None:
        """Request the inputs of a ready task that a worker lacks; the task runs after that."""
        task.home = slot.index
        n_missing = 0
        dependencies: list[Any] = task.dependencies
        for dependency in dict.fromkeys(dependencies):
            if dependency.at & slot.bit or dependency.exported is not None:
                continue
            n_missing += 1
            waiting = self._fetching.setdefault(dependency.number, [])
            if not waiting:
                holder = self.workers[dependency.at.bit_length() - 1]
                holder.exports.append(dependency.number)
            waiting.append(task)
        if n_missing:
            self._n_missing[task.number] = n_missing
            task.state = FETCHING
            slot.n_fetching += 1
        else:
            slot.ready.append(task)

    def _steal(self, thief: WorkerSlot, now: float) -> None:
        """Move tasks that are kept for another worker to one that is idle."""
        victim = max(self.workers, key=lambda slot: len(slot.ready))
        if victim is thief:
            return
        stolen: list[ProcessTask] = []
        n_stolen = min((len(victim.ready) + 1) // 2, MAX_FETCHING)
        # From the far end, whose tasks would run last.
        for task in victim.ready[:n_stolen]:
            duration_s = self._durations_s[task.group] or self._guess_s
            until_its_turn_s = victim.load_s + duration_s * (len(victim.ready) - 1)
            if until_its_turn_s < self._transfer_s(task, thief):
                break
            stolen.append(task)
        del victim.ready[: len(stolen)]
        for task in stolen:
            self._fetch(task, thief)
        if thief.ready:
            self._send_chunk(thief, now)

    def _transfer_s(self, task: ProcessTask, slot: WorkerSlot) -> float:
        """Estimate the time for moving the inputs of a task to a worker."""
        dependencies: list[Any] = task.dependencies
        nbytes: float = sum(
            dependency.nbytes
            for dependency in dict.fromkeys(dependencies)
            if not dependency.at & slot.bit and dependency.exported is None
        )
        return TRANSFER_S + nbytes / TRANSFER_BYTES_PER_S

    def _revoke(self, now: float) -> float | None:
        """Ask workers to give tasks back, as another is idle; return when to check again."""
        wake: float | None = None
        for slot in self.workers:
            if len(slot.sent) < 2 or slot.is_revoking or slot.is_held_up:
                continue
            should_end_s = slot.since_s + slot.load_s
            is_late = now >= should_end_s + LATE_S
            if is_late or should_end_s - now > REVOKE_S:
                # The first one is probably running.
                for task in islice(slot.sent, 1, MAX_LOOK):
                    if not task.n_waiting:
                        slot.is_revoking = True
                        self.out.append((slot.index, Revoke(task.number)))
                        break
            if slot.is_revoking:
                continue
            if is_late:
                slot.is_held_up = True
                self.out.append((slot.index, Report()))
            elif wake is None or should_end_s + LATE_S < wake:
                wake = should_end_s + LATE_S
        return wake

    def _ask(self, now: float, wake: float | None) -> float | None:
        """Ask workers that have not reported for a while for a report.

        A worker with a single task need not be asked. Estimated durations do not matter here: a
        worker may be in a long task behind many that have finished.
        """
        for slot in self.workers:
            if len(slot.sent) > 1:
                due_s = max(slot.since_s, slot.asked_s) + SHOW_S
                if now >= due_s:
                    slot.asked_s = now
                    due_s = now + SHOW_S
                    self.out.append((slot.index, Report()))
                if wake is None or due_s < wake:
                    wake = due_s
        return wake

    # --- Bookkeeping ------------------------------------------------------------------------------

    def _release(self, task: ProcessTask) -> None:
        """Release a value that is no longer needed."""
        if task.exported is not None:
            self.released.append(task)
        at = task.at
        if at and task.dropper is None:
            for slot in self.workers:
                if at & slot.bit:
                    slot.drops.append(task.number)
                    slot.drops_nbytes += task.nbytes
        task.at = 0
        task.dropper = None  # which refers to this task

    def _take_drops(self, slot: WorkerSlot) -> list[int]:
        drops, slot.drops, slot.drops_nbytes = slot.drops, [], 0.0
        return drops

    def _learn(self, durations: Mapping[int, tuple[int, float]]) -> None:
        known = self._durations_s
        for group, (n_tasks, seconds) in durations.items():
            mean_s = seconds / n_tasks
            before_s = known[group]
            known[group] = mean_s if before_s is None else (before_s + mean_s) / 2
            self._guess_s = (3 * self._guess_s + mean_s) / 4
