"""A worker process and its supervisor: the real core, with a simulated executor.

Each slot takes tasks from its chunk, one after the other, and reports them at the end of the
chunk or when the last report is long ago, as `worker/executor.py` does. Values are kept in a store
under the attempt that made them; a value that is missing when a task starts or ends is a bug.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from weft.protocol.wire.failure import reschedule
from weft.protocol.wire.handshake import Role
from weft.protocol.wire.message import Message
from weft.protocol.wire.messages import (
    Bye,
    EndWorkers,
    FetchKeys,
    GetData,
    Heartbeat,
    KeysData,
    LeaveCluster,
    Put,
    Reconciled,
    RegisterSupervisor,
    RegisterWorker,
    SetUpPlugin,
    TearDownPlugin,
    WorkerExited,
    WorkersAlive,
    WorkerStatus,
)
from weft.worker.core.events import (
    ChunkDone,
    CopiesFetched,
    CopiesNotFetched,
    EndWorker,
    Event,
    FailWait,
    Fetch,
    ForgetValues,
    InterruptRunning,
    Leave,
    Run,
    SchedulerLost,
    SchedulerSent,
    SessionOpened,
    SlotBlocked,
    SlotResumes,
    StartSlot,
    ValueExpired,
    ValuePut,
)
from weft.worker.core.state import WorkerState
from weft.worker.core.tasks import WorkerTask
from weft.worker.core.validate import validate
from weft.worker.executor import WATCH_S
from weft.worker.family.supervisor_link import SupervisorPolicy
from weft.worker.server import WorkerPolicy

from .graphs import ACTOR, packed, unpacked, value_of
from .plugins import WorkerPluginsNode
from .session import SimulatedSession

if TYPE_CHECKING:
    from .simulation import Simulation


class WorkerNode:
    """One worker process, from its start to its end."""

    def __init__(
        self, sim: Simulation, name: str, address: str, resources: dict[str, float], host: str
    ) -> None:
        self.sim = sim
        self.world = sim.world
        self.name = name
        self.address = address
        self.host = host
        self.resources = resources
        self.worker_id = sim.new_id("worker")
        self.core = WorkerState(sim.plan.nthreads, address)
        self.store: dict[int, bytes] = {}
        self.is_alive = True
        self.is_leaving = False
        self.is_frozen = False
        self._last_epoch = 0
        self._deferred: list[tuple[Any, tuple[Any, ...]]] = []
        self.supervisor: SupervisorNode | None = None
        self._flush_scheduled = False
        #: `_look` will be called.
        self._watching = False
        #: {holder: callable that takes its answer}
        self._asked: dict[str, Callable[[KeysData | None], None]] = {}
        #: The tasks that each slot executes.
        self.running: list[WorkerTask | None] = [None] * sim.plan.nthreads
        #: `Run` actions that a sleeping slot has not handled.
        self._woken = [False] * sim.plan.nthreads
        #: {slot: what its task goes on with} of those that wait for a seat.
        self._returning: dict[int, tuple[WorkerTask, list[bytes], float]] = {}
        self.plugins = WorkerPluginsNode(self)
        self.session = SimulatedSession(sim, self, Role.WORKER, WorkerPolicy())

    def __repr__(self) -> str:
        return self.worker_id

    # -- the process ------------------------------------------------------------------------------
    def when_awake(self, what: Any, *args: Any) -> bool:
        """Put an event off while the process is stopped. False = it is dead or asleep."""
        if self.is_alive and self.is_frozen:
            self._deferred.append((what, args))
        return self.is_alive and not self.is_frozen

    def freeze(self, seconds: float) -> None:
        """Stop the process for a while (SIGSTOP)."""
        if not self.is_frozen:
            self.is_frozen = True
            self.world.at(seconds, self.thaw)

    def thaw(self) -> None:
        """Go on, first with the events that came meanwhile, in order (SIGCONT)."""
        self.is_frozen = False
        deferred, self._deferred = self._deferred, []
        for what, args in deferred:
            what(*args)

    def kill(self, reason: str, *, on_request: bool = False) -> None:
        """End the process at once (SIGKILL); `on_request` of the scheduler no task is at fault."""
        if not self.is_alive:
            return
        self.is_alive = False
        self.world.note(f"{self!r} is killed", reason)
        running = []
        for task in self.running:
            if task is not None:
                if not on_request:
                    running.append(task.attempt)
                    self.sim.died[task.key] = self.sim.died.get(task.key, 0) + 1
                self.sim.on_stop(self, task)
        del self.sim.workers[self.worker_id]
        if self.sim.by_address.get(self.address) is self:
            del self.sim.by_address[self.address]
        self.session.abort()
        self.thaw()  # callers that waited for an answer are notified that there is none
        if self.supervisor is not None:
            self.supervisor.on_exit(self, reason, running)

    def leave(self) -> None:
        """End the process in order."""
        if self.is_alive and self.session.is_open:
            self.session.leave([*self._take(), Bye(reason="retired")])
            self.is_leaving = True
            self.kill("left")

    def drain(self, seconds: float) -> None:
        """Leave when the running tasks have ended, within some time (SIGTERM)."""
        if self.is_alive and self.session.is_open and not self.core.is_leaving:
            self.world.probes["drain"] += 1
            self._handle(Leave("drained"))
            self.world.at(seconds, self.end)

    def end(self) -> None:
        """End the process, in order if it can."""
        if self.when_awake(self.end):
            self.leave()
            self.is_leaving = True
            self.kill("left")

    # -- the session ------------------------------------------------------------------------------
    def registration(self, number: int, last_epoch: int) -> Message:
        """See `SessionOwner`."""
        self._last_epoch = last_epoch
        return RegisterWorker(
            worker_id=self.worker_id,
            name=self.name,
            session=number,
            last_epoch=last_epoch,
            address=self.address,
            nthreads=self.sim.plan.nthreads,
            memory_limit=0,
            resources=self.resources,
            supervisor_id=self.supervisor.supervisor_id if self.supervisor else "",
            facts={"host": self.host, "python": "3.11"},
        )

    def heartbeat(self) -> list[Message]:
        """See `SessionOwner`."""
        status = WorkerStatus(
            state="leaving" if self.core.is_leaving else "running",
            nthreads=self.sim.plan.nthreads,
            n_records=len(self.core.by_key),
            n_ready=self.core.ready.n,
            managed_nbytes=0,
            resident_nbytes=0,
            cpu_percent=0,
        )
        return [status, Heartbeat()]

    def on_welcome(self) -> None:
        """See `SessionOwner`."""
        self._handle(SessionOpened(not self._last_epoch))

    def on_messages(self, messages: list[Message]) -> None:
        """See `SessionOwner`."""
        batch = []
        for message in messages:
            if isinstance(message, FetchKeys):
                self._relay(message)
            elif isinstance(message, Put):
                self.world.probes["put through the scheduler"] += 1
                self.take_put(message)
            elif isinstance(message, (SetUpPlugin, TearDownPlugin)):
                self.plugins.on_message(message)
            elif isinstance(message, LeaveCluster):
                self._handle(Leave(message.reason))
            elif isinstance(message, Reconciled):
                self.world.probes["reconciled"] += 1
                self.world.probes["results kept"] += message.n_kept
                self.world.probes["attempts adopted"] += message.n_adopted
                self.world.probes["rows dropped"] += message.n_dropped
            else:
                batch.append(message)
        if batch:
            self._handle(SchedulerSent(batch))

    def on_lost(self) -> None:
        """See `SessionOwner`."""
        self._handle(SchedulerLost())

    def _relay(self, message: FetchKeys) -> None:
        keys, blobs = self.read(message.keys)
        missing = [key for key in message.keys if key not in keys]
        answer = KeysData(request=message.request, keys=keys, results=blobs, missing=missing)
        self.session.send([*self._take(), answer])

    # -- the core ---------------------------------------------------------------------------------
    def _handle(self, event: Event) -> None:
        self.core.handle(event, self.world.now)
        self.world.touched[self] = None
        before, self.core.before = self.core.before, []
        for action in before:
            if isinstance(action, StartSlot):
                self.running.append(None)
                self._woken.append(False)
            elif isinstance(action, FailWait):
                self.world.probes["wait failed"] += 1  # a user's task may catch the error
            elif isinstance(action, Run) and action.slot in self._returning:
                self._go_on(action.slot, *self._returning.pop(action.slot))
            elif isinstance(action, Run):
                self._woken[action.slot] = True
                self.world.at(self.world.rng.random() * 0.00005, self._wake, action.slot)
            elif isinstance(action, ForgetValues):
                for attempt in action.attempts:
                    self.store.pop(attempt, None)
        if self.core.to_scheduler and self.core.reporting.until > self.world.now:
            if not self._watching:
                self._watching = True
                self.world.at(self.world.rng.random() * WATCH_S, self._look)
        elif self.core.to_scheduler and not self._flush_scheduled:
            if self.sim.plan.flush_delay == 0.0:
                self._flush()
            else:
                self._flush_scheduled = True
                self.world.at(self.world.rng.random() * self.sim.plan.flush_delay, self._flush)
        after, self.core.after = self.core.after, []
        for action in after:
            if isinstance(action, Fetch):
                self._fetch(action)
            elif isinstance(action, EndWorker):
                self.world.at(0.0, self.end)
            elif isinstance(action, InterruptRunning):
                # Tasks of this world do not let themselves be interrupted; most end soon.
                self.world.probes["interrupt"] += 1
            else:
                self.world.probes["fetch given up"] += 1
                self.world.at(0.0, self._asked[action.holder], None)

    def _flush(self) -> None:
        self._flush_scheduled = False
        if self.is_alive:
            self.session.send(self._take())

    def _look(self) -> None:
        """See to it that reports do not wait for too long."""
        self._watching = False
        if self.is_alive and self.core.to_scheduler:
            if self.core.reporting.until > self.world.now:
                self._watching = True
                self.world.at(self.world.rng.random() * WATCH_S, self._look)
            elif not self._flush_scheduled:
                self.world.probes["reports waited"] += 1
                self._flush()

    def _take(self) -> list[Message]:
        messages, self.core.to_scheduler = self.core.to_scheduler, []
        return messages

    # -- slots ------------------------------------------------------------------------------------
    def _wake(self, slot: int) -> None:
        if self.when_awake(self._wake, slot):
            assert self._woken[slot]
            self._woken[slot] = False
            assert self.running[slot] is None
            self._next(slot, ChunkDone(slot, [], [], [], []), self.world.now)

    def _next(self, slot: int, report: ChunkDone, told: float) -> None:
        """Take the next task of the chunk and start it, or ask for another chunk."""
        while True:
            chunk = self.core.slots[slot].chunk
            if chunk:
                break
            self._handle(report)
            if not self.is_alive or not self.core.slots[slot].busy:
                return
            report = ChunkDone(slot, [], [], [], [])
            told = self.world.now
        assert not self.core.is_leaving, f"{self!r} leaves and starts something"
        task = chunk.popleft()
        spec = self.sim.graph.spec_of(task.args)
        self.sim.on_start(self, task, spec)
        self.plugins.check()
        self.running[slot] = task
        assert task.function.blob is not None, f"{self!r} runs {task!r} without its function"
        assert task.function.blob == spec.function.encode()
        assert [record.key for record in task.inputs] == [d.key for d in spec.dependencies]
        inputs = [self.store[record.attempt] for record in task.inputs]
        for value, dependency in zip(inputs, spec.dependencies, strict=True):
            assert value == dependency.value, f"{task!r} reads a wrong value of {dependency!r}"
        if spec.kills:
            self.world.probes["poison"] += 1
            self.world.at(0.0, self.kill, f"by {spec.key}")
            return
        if self.world.chance(self.sim.plan.p_block):
            seconds = spec.duration * self.world.rng.random()
            self.world.at(seconds, self._block, slot, task, inputs, report)
            return
        self.world.at(spec.duration, self._finish, slot, task, inputs, report, told)

    def _block(self, slot: int, task: WorkerTask, inputs: list[bytes], report: ChunkDone) -> None:
        """Let a task wait for a while; some end without a seat."""
        if not self.when_awake(self._block, slot, task, inputs, report):
            return
        report.finished = False
        self._handle(report)
        rng = self.world.rng
        # It goes on in any case, so not all that it reports to wait for need to be done then.
        others = [key for key, record in self.core.by_key.items() if record is not task]
        keys = rng.sample(others, k=min(len(others), rng.randint(0, 2)))
        self._handle(SlotBlocked(slot, task.attempt, keys))
        self.world.probes["blocked"] += 1
        seconds = rng.choice([0.0, 0.001, 0.1, 1.0, 3.0]) * rng.random()
        if self.world.chance(0.2):
            self.world.probes["ended without a seat"] += 1
            fresh = ChunkDone(slot, [], [], [], [])
            self.world.at(seconds, self._finish, slot, task, inputs, fresh, float("inf"))
        else:
            self.world.at(seconds, self._resume, slot, task, inputs)

    def _resume(self, slot: int, task: WorkerTask, inputs: list[bytes]) -> None:
        if self.when_awake(self._resume, slot, task, inputs):
            seconds = self.sim.graph.spec_of(task.args).duration * self.world.rng.random()
            self._returning[slot] = task, inputs, seconds
            self._handle(SlotResumes(slot))
            if slot in self._returning:
                self.world.probes["waited for a seat"] += 1

    def _go_on(self, slot: int, task: WorkerTask, inputs: list[bytes], seconds: float) -> None:
        report = ChunkDone(slot, [], [], [], [])
        self.world.at(seconds, self._finish, slot, task, inputs, report, self.world.now)

    def _finish(
        self, slot: int, task: WorkerTask, inputs: list[bytes], report: ChunkDone, told: float
    ) -> None:
        if not self.when_awake(self._finish, slot, task, inputs, report, told):
            return
        plan = self.sim.plan
        spec = self.sim.graph.spec_of(task.args)
        for record in task.inputs:  # pinned until the end
            assert record.attempt in self.store, f"{record!r} went while {task!r} used it"
        self.running[slot] = None
        self.sim.on_stop(self, task)
        duration_us = int(spec.duration * 1e6)
        if self.world.chance(plan.p_reschedule):
            self.world.probes["reschedule"] += 1
            report.failed_attempts.append(task.attempt)
            report.failed_durations_us.append(duration_us)
            report.failures.append(reschedule(task.key, "why"))
        elif self.sim.raises(spec):
            report.failed_attempts.append(task.attempt)
            report.failed_durations_us.append(duration_us)
            report.failures.append(["exception", task.key, "type", "text"])
        else:
            value = value_of(spec.function, task.args or b"", inputs)
            self.store[task.attempt] = value
            rides = task.wanted and spec.nbytes <= plan.ride_along and spec.function != ACTOR
            report.attempts.append(task.attempt)
            report.nbytes.append(spec.nbytes)
            report.durations_us.append(duration_us)
            report.results.append(packed(value, spec.nbytes) if rides else None)
        if self.world.now - told > plan.chunk_told_after and self.world.chance(0.8):
            told = self.world.now
            report.finished = False
            self._handle(report)
            report = ChunkDone(slot, [], [], [], [])
        self._next(slot, report, told)

    # -- data -------------------------------------------------------------------------------------
    def read(self, keys: list[str]) -> tuple[list[str], list[Any]]:
        """Return those keys that are in memory here, and their pickles, as `Executor.lookup`."""
        found, blobs = [], []
        for key in keys:
            record = self.core.by_key.get(key)
            if record is not None and record.state == "memory":
                found.append(key)
                nbytes = self.sim.nbytes(key)
                blobs.append(packed(self.store[record.attempt], nbytes))
        return found, blobs

    def serve(self, message: GetData) -> KeysData:
        """Answer a request on the data port."""
        keys, blobs = self.read(message.keys)
        missing = [key for key in message.keys if key not in keys]
        return KeysData(request=message.request, keys=keys, results=blobs, missing=missing)

    def take_put(self, message: Put) -> None:
        """Take values that a client puts."""
        for key, attempt, args in zip(message.keys, message.attempts, message.values, strict=True):
            if attempt not in self.store:
                spec = self.sim.graph.spec_of(args)
                assert spec.key == key
                self.store[attempt] = spec.value
                self._handle(ValuePut(key, attempt, spec.nbytes))
                if attempt in self.core.early:
                    self.world.probes["put early"] += 1
                    seconds = self.world.rng.choice([0.01, 1.0])
                    self.world.at(seconds, self._expire, attempt, is_work=False)

    def _expire(self, attempt: int) -> None:
        if self.is_alive:
            self._handle(ValueExpired(attempt))

    def _fetch(self, action: Fetch) -> None:
        attempts = dict(zip(action.keys, action.attempts, strict=True))
        request = GetData(request=action.request, keys=action.keys)

        def on_answer(answer: KeysData | None) -> None:
            if self._asked.get(action.holder) is not on_answer:
                return  # it was given up
            if not self.when_awake(on_answer, answer):
                return
            del self._asked[action.holder]
            if answer is None:
                self._handle(CopiesNotFetched(action.holder, action.request))
                return
            for key, blob in zip(answer.keys, answer.results, strict=True):
                self.store[attempts[key]] = unpacked(blob)
            nbytes = [self.sim.nbytes(key) for key in answer.keys]
            self._handle(CopiesFetched(action.holder, action.request, answer.keys, nbytes))

        assert action.holder not in self._asked
        self._asked[action.holder] = on_answer
        self.sim.ask(self, action.holder, request, on_answer)

    # -- checks -----------------------------------------------------------------------------------
    def check(self) -> None:
        """Validate the core, and the store beside it."""
        core = self.core
        validate(core)
        for records in (core.by_attempt, core.released):
            for attempt, record in records.items():
                if record.state in {"memory", "released"}:
                    assert attempt in self.store, f"{self!r}: {record!r} is not in the store"

    def check_at_rest(self) -> None:
        """Check that, at rest, the store holds only values of the core's records."""
        core = self.core
        known = [*core.by_attempt, *core.released]
        left = [attempt for attempt in self.store if attempt not in known]
        assert not left, f"{self!r} keeps values of {left}, which nobody wants"
        assert not core.cancelled, f"{self!r} runs cancelled tasks for ever"
        assert not core.released, f"{self!r} keeps released data"
        assert not core.fetching.requests, f"{self!r} waits for peers"


class SupervisorNode:
    """Watches workers: reports that they are alive and why they died, and starts others."""

    def __init__(self, sim: Simulation, supervisor_id: str) -> None:
        self.sim = sim
        self.world = sim.world
        self.supervisor_id = supervisor_id
        self.workers: dict[str, WorkerNode] = {}
        self._reports: list[Message] = []
        self.session = SimulatedSession(sim, self, Role.SUPERVISOR, SupervisorPolicy())

    def __repr__(self) -> str:
        return self.supervisor_id

    def watch(self, worker: WorkerNode) -> None:
        """Watch a worker."""
        self.workers[worker.worker_id] = worker
        worker.supervisor = self

    def on_exit(self, worker: WorkerNode, reason: str, running: list[int]) -> None:
        """Handle the end of a worker's process."""
        del self.workers[worker.worker_id]
        self._reports.append(
            WorkerExited(worker_id=worker.worker_id, reason=reason, running=running)
        )
        self.world.at(self.world.rng.random() * 0.1, self._report)
        if not worker.is_leaving:
            self.world.at(self.world.rng.random() * 0.5, self._restart, worker)

    def _restart(self, dead: WorkerNode) -> None:
        address = dead.address
        if address in self.sim.by_address or not self.world.chance(self.sim.plan.p_same_address):
            address = self.sim.new_address()
        name = dead.name
        if self.sim.is_healed and not dead.resources.get("mem", 0) > 1:
            name = self.sim.new_id("spare")  # its name is now that of a worker that may run all
        worker = self.sim.add_worker(name, address, dead.resources, dead.host, self)
        self.world.note(f"{self!r} starts", worker)

    def _report(self) -> None:
        if self.session.is_open:
            self.session.send(self._take_reports())

    def _take_reports(self) -> list[Message]:
        reports, self._reports = self._reports, []
        return reports

    # -- the session ------------------------------------------------------------------------------
    def when_awake(self, what: Any, *args: Any) -> bool:
        """See `SessionOwner`: a supervisor is never stopped."""
        return True

    def registration(self, number: int, last_epoch: int) -> Message:
        """See `SessionOwner`."""
        return RegisterSupervisor(
            supervisor_id=self.supervisor_id, session=number, last_epoch=last_epoch, facts={}
        )

    def heartbeat(self) -> list[Message]:
        """See `SessionOwner`."""
        ids = list(self.workers)
        alive = WorkersAlive(worker_ids=ids, rss=[1 << 20] * len(ids))
        return [*self._take_reports(), alive]

    def on_welcome(self) -> None:
        """See `SessionOwner`."""

    def on_messages(self, messages: list[Message]) -> None:
        """See `SessionOwner`."""
        for message in messages:
            if isinstance(message, EndWorkers):
                for worker_id in message.worker_ids:
                    worker = self.workers.get(worker_id)
                    if worker is not None:
                        self.world.probes["ended for a task"] += 1
                        worker.kill(message.reason, on_request=True)

    def on_lost(self) -> None:
        """See `SessionOwner`."""
