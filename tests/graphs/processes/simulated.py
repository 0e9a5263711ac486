"""The real core and simulated workers, clock and connections: one seed, one run.

Messages are delayed at will, but those of one connection keep their order. Workers do what
`serving` does: two activities, one of which runs tasks in order while the other one obeys.
"""

from __future__ import annotations

import pickle
from collections import Counter, deque
from random import Random
from typing import Any

from weft.graphs.core.reading import read_graph
from weft.graphs.processes.core.state import Drop, Export, ProcessRun, Report, Revoke, SendChunk
from weft.graphs.processes.core.tasks import ProcessTask
from weft.graphs.processes.core.validate import validate
from weft.graphs.processes.encoding import Encoded, Unpacked


def call_of(key: Any, *args: Any) -> Any:
    """The function of every task of these graphs: returns an expression of its arguments."""
    return (key, *args)


def encoded_graph(dsk: dict[Any, Any], keys: Any) -> Encoded:
    return Encoded(read_graph(dsk, keys, task_class=ProcessTask))


class SimulatedWorker:
    def __init__(self, world: World, index: int) -> None:
        self.world = world
        self.index = index
        self.inbox: deque[Any] = deque()
        self.outbox: deque[Any] = deque()
        self.values: dict[int, Any] = {}
        self.chunks: deque[deque[Any]] = deque()
        self.finished: list[Any] = []
        self.n_chunks_done = 0
        #: (item, when it ends)
        self.running: tuple[Any, float] | None = None
        self.max_held = 0

    # --- The thread that obeys --------------------------------------------------------------------

    def obey(self) -> None:
        op, content = self.inbox.popleft()
        if op == "run":
            imports, items, drops = content
            for number in drops:
                del self.values[number]
            for number, value in imports:
                assert number not in self.values, "imported twice"
                self.values[number] = value
            self.chunks.append(deque(items))
        elif op == "export":
            for number in content:
                self.outbox.append(("exported", number, self.values[number]))
        elif op == "report":
            self.report()
        elif op == "revoke":
            returned: list[int] = []
            for items in reversed(self.chunks):
                while items and content not in returned:
                    returned.append(items.pop()[0])
            self.report()
            self.outbox.append(("returned", returned[::-1]))
        elif op == "drop":
            for number in content:
                del self.values[number]

    def report(self) -> None:
        if self.finished or self.n_chunks_done:
            self.outbox.append(("finished", self.finished, self.n_chunks_done))
            self.finished, self.n_chunks_done = [], 0

    # --- The thread that runs tasks ---------------------------------------------------------------

    @property
    def can_start(self) -> bool:
        return self.running is None and bool(self.chunks)

    def start(self) -> None:
        """Start the next task; or notice the end of a chunk."""
        if not self.chunks[0]:
            self.chunks.popleft()
            self.n_chunks_done += 1
            self.report()
            return
        item = self.chunks[0].popleft()
        self.running = (item, self.world.now + self.world.duration_of(item[0]))

    def finish(self) -> None:
        assert self.running is not None
        (number, payload, is_output, is_wanted, is_kept, drops), _ = self.running
        self.running = None
        _func, args, *refs = pickle.loads(payload)
        for i, ref in refs[0] if refs else ():
            args[i] = self.values[ref]
        value = call_of(*args)
        self.world.n_runs[number] += 1
        if is_kept:
            self.values[number] = value
        self.max_held = max(self.max_held, len(self.values))
        self.world.max_held = max(self.world.max_held, self.world.n_held())
        for other in drops:
            del self.values[other]
        size = self.world.size_of(number)
        if is_output or (is_wanted and size < 100):
            self.finished.append((number, value, None))
        else:
            self.finished.append((number, None, size if is_wanted else None))
        if self.world.rng.random() < self.world.reporting:
            self.report()


class World:
    """One run.

    Args:
        encoded: the graph.
        rng: decides everything that is not fixed.
        n_workers: all of them come, at some time.
        chunksize: see `ProcessRun`.
        durations_s: durations of tasks; chosen from by number.
        sizes: of values, likewise. From 100 on they are large.
        reporting: how often a worker reports after a task that does not end a chunk.
        is_watched: see `ProcessRun`.
    """

    def __init__(
        self,
        encoded: Encoded,
        rng: Random,
        *,
        n_workers: int = 3,
        chunksize: int | None = None,
        durations_s: tuple[float, ...] = (1e-5,),
        sizes: tuple[int, ...] = (1,),
        reporting: float = 0.2,
        is_watched: bool = False,
    ) -> None:
        self.rng = rng
        self.now = 0.0
        self.reporting = reporting
        self.run = ProcessRun(
            encoded.tasks,
            encoded.ready,
            encoded.n_groups,
            n_workers,
            chunksize,
            is_watched=is_watched,
        )
        self.workers: list[SimulatedWorker] = []
        self.n_absent = n_workers
        self.n_runs: Counter[int] = Counter()
        self.n_exports = 0
        #: Values in all workers at once, copies included.
        self.max_held = 0
        self.n_revocations = 0
        self.n_returned = 0
        self.outputs: dict[Any, Any] = {}
        self.wake: float | None = None
        self._durations_s = durations_s
        self._sizes = sizes

    def n_held(self) -> int:
        """Return the number of values in workers, copies included."""
        return sum(len(worker.values) for worker in self.workers)

    def duration_of(self, number: int) -> float:
        return self._durations_s[number % len(self._durations_s)]

    def size_of(self, number: int) -> int:
        return self._sizes[number % len(self._sizes)]

    def go(self) -> None:
        """Run everything; fail if it stops before the end."""
        while self.run.n_unfinished or any(w.inbox or w.outbox for w in self.workers):
            steps: list[Any] = []
            for worker in self.workers:
                if worker.inbox:
                    steps.append(worker.obey)
                if worker.outbox:
                    steps.append(lambda worker=worker: self.hear(worker))
                if worker.can_start:
                    steps.append(worker.start)
                elif worker.running and worker.running[1] <= self.now:
                    steps.append(worker.finish)
            if self.n_absent:
                steps.append(self.join)
            if not steps:
                self.advance()
            elif self.wake is not None and self.wake <= self.now:
                self.decide()
            else:
                self.rng.choice(steps)()
        for worker, slot in zip(self.workers, self.run.workers, strict=True):
            assert not worker.running
            # Values that are left are about to be dropped with the next message.
            assert {*worker.values} == {*slot.drops}

    def advance(self) -> None:
        """Let time pass until something happens."""
        times = [worker.running[1] for worker in self.workers if worker.running]
        if self.wake is not None:
            times.append(self.wake)
        assert times, "nothing will ever happen"
        self.now = max(self.now, min(times))
        if self.wake is not None and self.wake <= self.now:
            self.decide()

    def join(self) -> None:
        self.n_absent -= 1
        index = self.run.add_worker(self.now)
        self.workers.append(SimulatedWorker(self, index))
        self.decide()

    def hear(self, worker: SimulatedWorker) -> None:
        op, *content = worker.outbox.popleft()
        run = self.run
        if op == "finished":
            entries, n_chunks = content
            numbers = [number for number, _, _ in entries]
            exported = {number: (value,) for number, value, _ in entries if value is not None}
            sizes = {number: size for number, _, size in entries if size is not None}
            for number, (value,) in exported.items():
                if run.tasks[number].is_output:
                    self.outputs[run.tasks[number].key] = value
            mean_s = sum(map(self.duration_of, numbers))
            durations = {0: (len(numbers), mean_s)} if numbers else {}
            run.on_finished(worker.index, numbers, exported, sizes, durations, n_chunks, self.now)
        elif op == "returned":
            self.n_returned += len(content[0])
            run.on_returned(worker.index, content[0])
        elif op == "exported":
            self.n_exports += 1
            number, value = content
            run.on_exported(worker.index, number, (value,))
        for task in run.released:
            task.exported = None
        run.released.clear()
        validate(run)
        self.decide()

    def decide(self) -> None:
        self.wake = self.run.decide(self.now)
        validate(self.run)
        for index, action in self.run.out:
            worker = self.workers[index]
            if isinstance(action, SendChunk):
                worker.inbox.append(("run", self._as_sent(action)))
            elif isinstance(action, Drop):
                worker.inbox.append(("drop", action.numbers))
            elif isinstance(action, Export):
                worker.inbox.append(("export", action.numbers))
            elif isinstance(action, Report):
                worker.inbox.append(("report", None))
            elif isinstance(action, Revoke):
                self.n_revocations += 1
                worker.inbox.append(("revoke", action.first))
        self.run.out.clear()

    def _as_sent(self, chunk: SendChunk) -> Any:
        imports = []
        for task in chunk.imports:
            if isinstance(task.exported, Unpacked):
                task.exported = (task.exported.value,)
            imports.append((task.number, task.exported[0]))
        items = [
            (
                task.number,
                task.payload,
                task.is_output,
                task.n_open_uses > 0,
                bool(task.dependents),
                list(task.drops),
            )
            for task in chunk.tasks
        ]
        return imports, items, chunk.drops
