"""A cluster in virtual time: one scheduler, its workers, and the links between them.

The cores are the real ones; this is their shell. A worker has one thread. Its tasks take the time,
and have results of the size, that the workload says. A run is determined by its arguments: it shows
what the decisions cost, and nothing else. The CPU time of the scheduler's core is measured beside
that; it takes no virtual time.
"""

from __future__ import annotations

import functools
import gc
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from weft.protocol.wire import messages as m
from weft.protocol.wire.levels import Level
from weft.protocol.wire.message import Message
from weft.protocol.wire.roles import Role
from weft.scheduler.core.actions import CloseConnection
from weft.scheduler.core.events import Event, PeerConnected, PeerSent, SchedulerTick
from weft.scheduler.core.features import FEATURES
from weft.scheduler.core.state import SchedulerState
from weft.worker.core.events import (
    ChunkDone,
    CopiesElsewhere,
    CopiesFetched,
    Fetch,
    Run,
    SchedulerSent,
    SessionOpened,
    WorkerEvent,
)
from weft.worker.core.features import FEATURES as WORKER_FEATURES
from weft.worker.core.features.promises import (
    AnswerPromises,
    AskPromised,
    PromiseAsked,
    PromiseEnded,
)
from weft.worker.core.state import WorkerState
from weft.worker.core.tasks import WorkerTask
from weft.worker.data.core.sending import LARGE_BYTES, MEASURED_BYTES, LargeRequest, Sending

from ..bench_scheduler import BATCH, CLIENT, worker_hello
from .clock import VirtualClock
from .graphs import Graph
from .network import MESSAGE_S, Network

__all__ = ["VirtualCluster", "Workload"]

_FIRST_WORKER: Final = 2
_HEARTBEAT_S: Final = 2.0
#: What a report costs a worker, as its shell measures that: reports wait in proportion.
_REPORT_S: Final = 40e-6


@dataclass(frozen=True)
class Workload:
    """Tasks. The function of a task is its key up to the first "-"."""

    graph: Graph
    #: the time that a task takes, and the size of its result, by function; else those of ""
    seconds: dict[str, float]
    nbytes: dict[str, int] = field(default_factory=lambda: {"": 28})
    #: {key: the number of the worker on which it is to run}
    places: dict[str, int] = field(default_factory=dict)

    def seconds_of(self, key: str) -> float:
        """Return how long a task takes."""
        return self.seconds.get(_function(key), self.seconds.get("", 0.0))

    def nbytes_of(self, key: str) -> int:
        """Return the size of its result."""
        return self.nbytes.get(_function(key), self.nbytes.get("", 28))


def _function(key: str) -> str:
    return key.partition("-")[0]


class _VirtualWorker:
    """The shell of a worker's core."""

    def __init__(self, cluster: VirtualCluster, peer: int, address: str) -> None:
        self._cluster = cluster
        self._clock = cluster.clock
        self.peer = peer
        self.core = WorkerState(1, address, WORKER_FEATURES)
        self.core.reporting.cost_s = _REPORT_S
        self._is_watching = False
        self._large = Sending()
        #: of the large fetches: bytes, and the time that they were on their way
        self._large_nbytes, self._large_s = 0, 0.0
        self._looks_at = 0.0
        #: {number: (reader, what it asks for)} of the attempts that others wait for
        self._promised: dict[int, tuple[_VirtualWorker, AskPromised]] = {}
        self._last_promised = peer << 32

    def handle(self, event: WorkerEvent) -> None:
        core, clock = self.core, self._clock
        core.handle(event, clock.now)
        before, core.before = core.before, []
        for action in before:
            if isinstance(action, Run):
                clock.at(0.0, lambda: self._next(ChunkDone(0, [], [], [], [])))
        self._flush()
        after, core.after = core.after, []
        for action in after:
            if isinstance(action, Fetch):
                self._fetch(action)
            elif isinstance(action, AskPromised):
                self._ask_promised(action)
            elif isinstance(action, AnswerPromises):
                for number in action.asked:
                    self._answer_promised(*self._promised.pop(number))

    def status(self) -> Message:
        """Return what it reports about itself with each heartbeat."""
        return m.WorkerStatus(
            state="running",
            nthreads=1,
            n_records=len(self.core.by_key),
            n_ready=self.core.n_ready,
            managed_nbytes=0,
            resident_nbytes=0,
            cpu_percent=0,
            fetched_nbytes=self._large_nbytes,
            fetched_us=int(self._large_s * 1e6),
        )

    # -- reports ----------------------------------------------------------------------------------
    def _flush(self) -> None:
        core, clock = self.core, self._clock
        if not core.to_scheduler:
            return
        if core.reporting.until <= clock.now:
            messages, core.to_scheduler = core.to_scheduler, []
            clock.at(MESSAGE_S, lambda: self._cluster.play(PeerSent(self.peer, messages)))
        elif not self._is_watching:
            self._is_watching = True
            clock.at(core.reporting.until - clock.now, self._look)

    def _look(self) -> None:
        self._is_watching = False
        self._flush()

    # -- tasks ------------------------------------------------------------------------------------
    def _next(self, report: ChunkDone) -> None:
        """Begin the next task of the chunk, or ask for another one."""
        slot = self.core.slots[0]
        if not slot.chunk:
            self.handle(report)
            if not slot.chunk:
                return  # `Run` wakes it
            report = ChunkDone(0, [], [], [], [])
        task = slot.chunk.popleft()
        seconds = self._cluster.workload.seconds_of(task.key)
        self._clock.at(seconds, lambda: self._finish(task.key, task.attempt, seconds, report))

    def _finish(self, key: str, attempt: int, seconds: float, report: ChunkDone) -> None:
        self._cluster.n_done += 1
        self._cluster.finished[key] = self._clock.now
        report.attempts.append(attempt)
        report.nbytes.append(self._cluster.workload.nbytes_of(key))
        report.durations_us.append(int(seconds * 1e6))
        report.results.append(None)
        self._next(report)

    # -- data -------------------------------------------------------------------------------------
    def _fetch(self, action: Fetch) -> None:
        holder = self._cluster.by_address[action.holder]
        self._clock.at(MESSAGE_S, lambda: holder._serve(self, action))

    def _ask_promised(self, asking: AskPromised) -> None:
        def arrive() -> None:
            self._last_promised += 1
            holder._promised[self._last_promised] = self, asking
            holder.handle(PromiseAsked(self._last_promised, asking.attempt))

        holder = self._cluster.by_address[asking.holder]
        self._clock.at(MESSAGE_S, arrive)

    def _answer_promised(self, reader: _VirtualWorker, asking: AskPromised) -> None:
        record = self.core.by_attempt.get(asking.attempt)
        nbytes = record.nbytes if record is not None and record.state == "memory" else None
        self._cluster.n_fetched += nbytes is not None
        event = PromiseEnded(asking.request, nbytes)
        self._cluster.network.send(
            self.peer, reader.peer, nbytes or 0, lambda: reader.handle(event)
        )

    def _serve(self, reader: _VirtualWorker, asked: Fetch) -> None:
        """Answer a request, now or when others are answered."""
        nbytes = sum(record.nbytes for record in self._found(asked.keys))
        address = reader.core.address if asked.nbytes >= LARGE_BYTES else ""
        now = self._clock.now
        one = LargeRequest(reader, asked.request, tuple(asked.keys), nbytes, address, now)
        if nbytes < LARGE_BYTES or self._large.ask(one, now):
            self._send(one)
        self._look_at_large()

    def _found(self, keys: Iterable[str]) -> list[WorkerTask]:
        found = [self.core.by_key.get(key) for key in keys]
        return [record for record in found if record is not None and record.state == "memory"]

    def _send(self, asked: LargeRequest) -> None:
        reader = asked.reader
        assert isinstance(reader, _VirtualWorker)
        records = self._found(asked.keys)
        keys, nbytes = [r.key for r in records], [r.nbytes for r in records]
        self._cluster.n_fetched += len(keys)
        sent = self._clock.now

        def arrive() -> None:
            if sum(nbytes) >= MEASURED_BYTES:
                reader._large_nbytes += sum(nbytes)
                reader._large_s += self._clock.now - sent
            reader.handle(CopiesFetched(self.core.address, asked.request, keys, nbytes))
            self._clock.at(MESSAGE_S, lambda: self._taken(reader, asked.request))

        self._cluster.network.send(self.peer, reader.peer, sum(nbytes), arrive)

    def _taken(self, reader: _VirtualWorker, request: int) -> None:
        for asked, address in self._large.taken(reader, request):
            other = asked.reader
            assert isinstance(other, _VirtualWorker)
            event = CopiesElsewhere(self.core.address, asked.request, address)
            self._clock.at(MESSAGE_S, functools.partial(other.handle, event))
        self._look_at_large()

    def _look_at_large(self) -> None:
        for asked in self._large.next(self._clock.now):
            self._send(asked)
        if self._large.waiting and self._looks_at <= self._clock.now:
            self._looks_at = self._large.next_look()
            self._clock.at_time(self._looks_at, self._look_at_large)


class VirtualCluster:
    """One run of a workload."""

    def __init__(self, workload: Workload, n_workers: int, bytes_per_s: float = 1.25e9) -> None:
        self.workload = workload
        self.clock = VirtualClock()
        self.network = Network(self.clock, bytes_per_s)
        self.state = SchedulerState(epoch=1, features=FEATURES)
        #: CPU time of the scheduler's core
        self.scheduler_s = 0.0
        #: copies that workers have fetched, and tasks that have ended
        self.n_fetched = self.n_done = 0
        #: {key: when its task ended}
        self.finished: dict[str, float] = {}
        self.by_address: dict[str, _VirtualWorker] = {}
        self._workers: dict[int, _VirtualWorker] = {}
        self.play(PeerConnected(CLIENT, Role.CLIENT, Level.CLIENT))
        self.play(PeerSent(CLIENT, [_client_hello()]))
        for peer in range(_FIRST_WORKER, _FIRST_WORKER + n_workers):
            self._join(peer)

    def _join(self, peer: int) -> None:
        hello = worker_hello(peer)
        assert isinstance(hello, m.RegisterWorker)
        ws = _VirtualWorker(self, peer, hello.address)
        self._workers[peer] = self.by_address[hello.address] = ws
        ws.handle(SessionOpened(is_first=True))
        self.play(PeerConnected(peer, Role.WORKER, Level.WORKER))
        self.play(PeerSent(peer, [hello]))
        self.clock.at(_HEARTBEAT_S, lambda: self._beat(peer))

    def _beat(self, peer: int) -> None:
        self.play(PeerSent(peer, [self._workers[peer].status(), m.Heartbeat()]))
        self.clock.at(_HEARTBEAT_S, lambda: self._beat(peer))

    @property
    def now(self) -> float:
        """The virtual time, seconds."""
        return self.clock.now

    def run(self, *, releases: bool = False) -> None:
        """Submit all tasks at once, and let them end.

        Args:
            releases: the client wants only what no task reads.
        """
        self.submit([*self.workload.graph])
        if releases:
            read = dict.fromkeys(key for needs in self.workload.graph.values() for key in needs)
            self.play(PeerSent(CLIENT, [m.ReleaseKeys(keys=[*read])]))
        self.finish(len(self.workload.graph))

    def submit(self, keys: Sequence[str]) -> None:
        """Submit these tasks of the workload."""
        for message in _submissions(self.workload, keys):
            self.play(PeerSent(CLIENT, [message]))

    def finish(self, n_done: int) -> None:
        """Go on until so many tasks have ended."""
        gc.collect()
        gc.disable()  # it would visit the records of all workers, in the time of the scheduler
        try:
            while self.n_done < n_done:
                due = max(self.state.next_deadline, self.clock.now)
                if self.clock.next_due <= due:
                    self.clock.step()
                else:
                    self.clock.now = due
                    self.play(SchedulerTick())
        finally:
            gc.enable()

    def play(self, event: Event) -> None:
        """Let the scheduler handle an event, and send what it has to send."""
        start = time.process_time()
        self.state.handle(event, self.clock.now)
        self.scheduler_s += time.process_time() - start
        refusals = [x.reason for x in self.state.after if isinstance(x, CloseConnection)]
        if refusals:
            raise RuntimeError(f"the scheduler refused a peer: {refusals[0]}")
        self.state.after.clear()
        outboxes, self.state.outboxes = self.state.outboxes, {}
        for peer, messages in outboxes.items():
            if peer in self._workers:
                self.clock.at(MESSAGE_S, self._delivery(peer, messages))

    def _delivery(self, peer: int, messages: list[Message]) -> Callable[[], None]:
        of_core = [x for x in messages if type(x) in self._workers[peer].core.messages]
        return lambda: self._workers[peer].handle(SchedulerSent(of_core)) if of_core else None


def _client_hello() -> Message:
    return m.RegisterClient(client_id="c", name="c", session=1, last_epoch=0, facts={})


def _submissions(workload: Workload, keys: Sequence[str]) -> Iterator[Message]:
    for i in range(0, len(keys), BATCH):
        rows = keys[i : i + BATCH]
        functions = {name: n for n, name in enumerate(dict.fromkeys(map(_function, rows)))}
        places = [workload.places.get(key) for key in rows]
        options = {place: n for n, place in enumerate(dict.fromkeys(places))}
        names = [worker_hello(_FIRST_WORKER + n).name if n is not None else "" for n in options]
        yield m.SubmitTasks(
            functions=[name.encode().ljust(16, b"-") for name in functions],
            function_names=[*functions],
            function_blobs=[b"a function"] * len(functions),
            function_of=[functions[_function(key)] for key in rows],
            keys=[*rows],
            args=[b"\x80\x05K\x01\x85\x94."] * len(rows),
            dependencies=[workload.graph[key] for key in rows],
            spec_hashes=[],
            options=[{"workers": [name]} if name else {} for name in names],
            option_of=[options[place] for place in places] if len(options) > 1 else [],
        )
