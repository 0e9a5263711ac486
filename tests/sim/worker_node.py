"""A worker process: the real core, with a simulated executor.

Each slot takes tasks from its chunk, one after the other, and reports them at the end of the
chunk or when the last report is long ago, as `worker/slots/executor.py` does. Values are kept in a
store under the attempt that made them; a value that is missing when a task starts or ends is a bug.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Any

from weft.protocol.amounts import announced
from weft.protocol.wire import messages as m
from weft.protocol.wire.failure import Failure, interrupted, reschedule
from weft.protocol.wire.message import Message
from weft.protocol.wire.roles import Role
from weft.worker.core.events import (
    ChunkDone,
    EndWorker,
    FailWait,
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
    WorkerEvent,
)
from weft.worker.core.features import FEATURES
from weft.worker.core.features.categories import WatchMemory
from weft.worker.core.features.output import CatchOutput, OutputCame
from weft.worker.core.features.promises import Promises
from weft.worker.core.features.timeouts import WatchRunning
from weft.worker.core.state import WorkerState
from weft.worker.core.tasks import WorkerTask
from weft.worker.core.validate import validate
from weft.worker.policy import WorkerPolicy
from weft.worker.slots.executor import WATCH_S

from . import amounts, parts
from .actors import WorkerActors
from .disks import WorkerDisk
from .graphs import ACTOR, INDEX, LARGE, packed, value_of
from .looks import RunningLooks
from .memory import ProcessMemory
from .pausing import Pauses
from .plugins import WorkerPluginsNode
from .session import SimulatedSession
from .spilling import WorkerSpill
from .task_clients import MAX_KEYS, Parent, TaskClientNode
from .worker_data import WorkerDataNode

if TYPE_CHECKING:
    from .actor_calls import UserCall
    from .simulation import Simulation
    from .supervisor_node import SupervisorNode


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
        self.offered = announced(resources, sim.plan.nthreads, 0) | sim.categories.offered()
        self.worker_id = sim.new_id("worker")
        self.counts_amounts = amounts.are_counted_by(self.worker_id)
        self.core = WorkerState(sim.plan.nthreads, address, FEATURES, self.offered)
        self.store: dict[int, bytes] = {}
        self.memory = None if sim.limits is None else ProcessMemory(self, sim.limits)
        self.disk = WorkerDisk(self, sim.disks)
        self.spill = WorkerSpill(self, sim.spills)
        self.is_alive = True
        self.is_leaving = False
        self.is_frozen = False
        self.frozen_at = 0.0
        self._last_epoch = 0
        self._deferred: list[tuple[Any, tuple[Any, ...]]] = []
        self.supervisor: SupervisorNode | None = None
        self._flush_scheduled = False
        self._watching = False  #: `_look` will be called
        #: The tasks that each slot executes.
        self.running: list[WorkerTask | None] = [None] * sim.plan.nthreads
        self._looks = RunningLooks(self)
        self.sees_memory = False  #: it will look at what its tasks use
        #: Attempts that were interrupted while they ran.
        self._interrupted: dict[int, None] = {}
        #: `Run` actions that a sleeping slot has not handled.
        self._woken = [False] * sim.plan.nthreads
        #: {slot: what its thread does then} of those that wait for a seat.
        self._returning: dict[int, Callable[[], None]] = {}
        #: {attempt: task} of tasks that submit others, and the client that they have asked for.
        self.parents: dict[int, Parent] = {}
        self.task_client: TaskClientNode | None = None
        #: The loggers whose records it catches, and their levels.
        self.caught: dict[str, int] = {}
        self.data = WorkerDataNode(self)
        self.plugins = WorkerPluginsNode(self)
        self.actors = WorkerActors(self)
        self.user = ""
        self.session = SimulatedSession(sim, self, Role.WORKER, WorkerPolicy())
        self.pauses = Pauses(self)

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
            self.frozen_at = self.world.now
            self.world.at(seconds, self.thaw)

    def thaw(self) -> None:
        """Go on, first with the events that came meanwhile, in order (SIGCONT)."""
        self.is_frozen = False
        deferred, self._deferred = self._deferred, []
        for what, args in deferred:
            what(*args)

    def held_up(self) -> m.WorkerHeldUp:
        """Return the report of a supervisor, as if a task held the interpreter lock."""
        self.world.probes["held up"] += 1
        attempts = [task.attempt for task in self.running if task is not None]
        self._looks.note_timed_out(attempts)
        held_ms = [int((self.world.now - self.frozen_at) * 1000)] * len(attempts)
        return m.WorkerHeldUp(worker_id=self.worker_id, attempts=attempts, held_ms=held_ms)

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
        self.actors.die()
        self.data.die()
        if self.task_client is not None:
            self.task_client.end()
        self.thaw()  # callers that waited for an answer are notified that there is none
        if self.supervisor is not None:
            self.supervisor.on_exit(self, reason, running)

    def leave(self) -> None:
        """End the process in order."""
        if self.is_alive and self.session.is_open:
            self.session.leave([*self._take(), m.Bye(reason="retired")])
            self.is_leaving = True
            self.kill("left")

    def drain(self, seconds: float) -> None:
        """Leave when it may, within some time (SIGTERM)."""
        if self.is_alive and self.session.is_open and not self.core.is_leaving:
            self.world.probes["drain"] += 1
            self._handle(Leave("drained", seconds if seconds < inf else 0.0))
            if seconds < inf:
                self.world.at(seconds, self._end_late)

    def _end_late(self) -> None:
        if self.is_alive and not self.core.may_leave:
            self.world.probes["drain: not in time"] += 1
        self.end()

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
        return m.RegisterWorker(
            worker_id=self.worker_id,
            name=self.name,
            session=number,
            last_epoch=last_epoch,
            address=self.address,
            nthreads=self.sim.plan.nthreads,
            memory_limit=0 if self.memory is None else self.memory.limit,
            resources=self.offered,
            supervisor_id=self.supervisor.supervisor_id if self.supervisor else "",
            facts=amounts.facts_of(self),
            is_unused=self.core.is_unused,
        )

    def heartbeat(self) -> list[Message]:
        """See `SessionOwner`."""
        status = m.WorkerStatus(
            state=self.pauses.state(),
            nthreads=self.sim.plan.nthreads,
            n_records=len(self.core.by_key),
            n_ready=self.core.n_ready,
            managed_nbytes=self.spill.managed_nbytes(),
            resident_nbytes=0 if self.memory is None else self.memory.resident_nbytes(),
            cpu_percent=0,
            numbers=self.spill.numbers(),
            excess_nbytes=3 * LARGE if self.world.chance(0.2) else 0,
        )
        return [status, m.Heartbeat()]

    def on_welcome(self) -> None:
        """See `SessionOwner`."""
        self.world.probes["a leaver is back"] += self.core.is_leaving and not self.core.has_left
        self._handle(SessionOpened(not self._last_epoch))

    def on_messages(self, messages: list[Message]) -> None:
        """See `SessionOwner`."""
        batch = []
        for message in messages:
            if isinstance(message, m.FetchKeys):
                self._relay(message)
            elif isinstance(message, m.Put):
                self.world.probes["put through the scheduler"] += 1
                self.data.take_put(message)
            elif isinstance(message, (m.SetUpPlugin, m.TearDownPlugin)):
                self.plugins.on_message(message)
            elif isinstance(message, m.LeaveCluster):
                self._handle(Leave(message.reason))
            elif isinstance(message, m.Reconciled):
                self.world.probes["reconciled"] += 1
                self.world.probes["results kept"] += message.n_kept
                self.world.probes["attempts adopted"] += message.n_adopted
                self.world.probes["rows dropped"] += message.n_dropped
            else:
                if isinstance(message, m.AssignTasks) and not self.counts_amounts:
                    message.function_options = []
                batch.append(message)
        if batch:
            self._handle(SchedulerSent(batch))

    def on_lost(self) -> None:
        """See `SessionOwner`."""
        self.plugins.on_lost()
        self.world.probes["a leaver loses its session"] += self.core.is_leaving
        self._handle(SchedulerLost())

    def _relay(self, message: m.FetchKeys) -> None:
        self.session.send([*self._take(), self.data.answer(message)])

    def log(self, event: OutputCame) -> None:
        """Send records of followed loggers."""
        if self.when_awake(self.log, event):
            self._handle(event)

    # -- the core ---------------------------------------------------------------------------------
    def _handle(self, event: WorkerEvent) -> None:
        self.core.handle(event, self.world.now)
        self.world.touched[self] = None
        before, self.core.before = self.core.before, []
        for action in before:
            if isinstance(action, StartSlot):
                self.running.append(None)
                self._woken.append(False)
            elif isinstance(action, CatchOutput):
                self.caught = action.loggers
            elif isinstance(action, FailWait):
                parent = self.parents.get(action.attempt)
                if parent is not None:  # of others, a user's task may catch the error
                    parent.fail_wait(action.text)
            elif isinstance(action, Run) and action.slot in self._returning:
                self._returning.pop(action.slot)()
            elif isinstance(action, Run):
                self._woken[action.slot] = True
                self.world.at(self.world.rng.random() * 0.00005, self._wake, action.slot)
            elif isinstance(action, ForgetValues):
                for attempt in action.attempts:
                    self.spill.note_dropped(attempt)
                    value = self.store.pop(attempt, None)
                    self.disk.lost.pop(attempt, None)
                    if value is not None and self.memory is not None:
                        self.memory.note_dropped(value)
                    self.actors.dropped(attempt)
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
            if isinstance(action, EndWorker):
                self.world.at(0.0, self.end)
            elif isinstance(action, InterruptRunning):
                # Other tasks do not let themselves be interrupted; most end soon.
                self.world.probes["interrupt"] += 1
                self._interrupted.update(dict.fromkeys(action.attempts))
                for attempt in action.attempts:
                    parent = self.parents.get(attempt)
                    if parent is not None and self.world.chance(self.sim.plan.p_interruptible):
                        self.world.at(self.world.rng.random() * 0.05, parent.interrupt)
            elif isinstance(action, WatchRunning):
                self._looks.look()
            elif isinstance(action, WatchMemory):
                self.sim.categories.look(self)
            else:
                self.data.do(action)

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
        self._looks.note_sent(messages)
        return messages

    def see(self, event: WorkerEvent) -> None:
        """Pass an event to the core that the shell makes."""
        self._handle(event)

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
        if self.disk.fails(task, report):
            self._next(slot, report, told)
            return
        spec = self.sim.graph.spec_of(task.args)
        self.sim.on_start(self, task, spec)
        self.plugins.check()
        self.running[slot] = task
        assert task.function.blob is not None, f"{self!r} runs {task!r} without its function"
        assert task.function.blob == spec.function.encode()
        assert [record.key for record in task.inputs] == [d.key for d in spec.dependencies]
        inputs = [self.store[record.attempt] for record in task.inputs]
        for value, one in zip(inputs, spec.dependencies, strict=True):
            assert one.function == INDEX or value == one.value, f"{task!r} reads wrong {one!r}"
        if spec.kills:
            self.world.probes["poison"] += 1
            self.world.at(0.0, self.kill, f"by {spec.key}")
            return
        if parts.begin(self, slot, task, inputs, report, told):
            return
        if spec.calls:
            self.parents[task.attempt] = parent = Parent(self, slot, task, inputs, report)
            parent.go_on()
            return
        actors = [
            record.attempt for record in task.inputs if self.sim.actor_users.knows(record.attempt)
        ]
        if actors and self.world.chance(self.sim.plan.p_task_calls):
            self._call_actors(slot, task, inputs, report, actors)
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
        rng = self.world.rng
        # It goes on in any case, so not all that it reports to wait for need to be done then. Where
        # the waits of tasks that submit others are checked, it waits for something else.
        is_alone = not self.sim.plan.p_calls
        others = [key for key, one in self.core.by_key.items() if is_alone and one is not task]
        keys = rng.sample(others, k=min(len(others), rng.randint(0, 2)))
        self.give_seat_up(slot, task, {"keys": keys} if keys else {}, report)
        self.world.probes["blocked"] += 1
        seconds = rng.choice([0.0, 0.001, 0.1, 1.0, 3.0]) * rng.random()
        if self.world.chance(0.2):
            self.world.probes["ended without a seat"] += 1
            fresh = ChunkDone(slot, [], [], [], [])
            self.world.at(seconds, self._finish, slot, task, inputs, fresh, float("inf"))
        else:
            self.world.at(seconds, self._resume, slot, task, inputs)

    def _call_actors(
        self,
        slot: int,
        task: WorkerTask,
        inputs: list[bytes],
        report: ChunkDone,
        attempts: list[int],
    ) -> None:
        """Let a task call actors that it has as inputs, and wait for all answers."""
        users = self.sim.actor_users
        handles = [users.handle_in_task(self.client_of_tasks(), attempt) for attempt in attempts]
        calls: list[UserCall] = []
        n_done = itertools.count(1)

        def on_done() -> None:
            if next(n_done) == len(calls):
                self.world.at(self.world.rng.random() * 0.0001, self._resume, slot, task, inputs)

        for handle in handles:
            n = self.world.rng.choice([1, 1, 3, 10])
            calls += [users.make(handle, "do", when_done=on_done) for _ in range(n)]
        self.world.probes["actor call: in a task"] += len(calls)
        for call in calls:
            users.send(call)
        for handle in handles:
            handle.drop()
        names = [call.id for call in calls[:MAX_KEYS]]
        actors = [call.actor_key for call in calls[:MAX_KEYS]]
        self.give_seat_up(slot, task, {"actors": actors, "calls": names}, report)

    def _resume(self, slot: int, task: WorkerTask, inputs: list[bytes]) -> None:
        if self.when_awake(self._resume, slot, task, inputs):
            seconds = self.sim.graph.spec_of(task.args).duration * self.world.rng.random()
            self.take_seat(slot, lambda: self._go_on(slot, task, inputs, seconds))

    def give_seat_up(
        self,
        slot: int,
        task: WorkerTask,
        waits_for: dict[str, list[str]],
        report: ChunkDone,
        *,
        may_park: bool = False,
    ) -> None:
        """Let another slot run tasks while the task of this one waits."""
        report.finished = False
        self._handle(report)
        self._handle(SlotBlocked(slot, task.attempt, waits_for, may_park))
        if task.attempt in self.core.seats.parked:
            self.world.probes["parked"] += 1

    def take_seat(self, slot: int, then: Callable[[], None]) -> None:
        """Call `then` when the slot has a seat again."""
        self._returning[slot] = then
        self._handle(SlotResumes(slot))
        if slot in self._returning:
            self.world.probes["waited for a seat"] += 1

    def client_of_tasks(self) -> TaskClientNode:
        """Return the client that the tasks of this process share."""
        if self.task_client is None:
            self.task_client = TaskClientNode(self)
        return self.task_client

    def end_parent(self, parent: Parent, inputs: list[bytes], failure: Failure | None) -> None:
        """End a task that has submitted others."""
        del self.parents[parent.task.attempt]
        self._end_task(parent.slot, parent.task, inputs, parent.report, parent.told, failure)

    def _go_on(self, slot: int, task: WorkerTask, inputs: list[bytes], seconds: float) -> None:
        report = ChunkDone(slot, [], [], [], [])
        self.world.at(seconds, self._finish, slot, task, inputs, report, self.world.now)

    def _finish(
        self, slot: int, task: WorkerTask, inputs: list[bytes], report: ChunkDone, told: float
    ) -> None:
        if self.when_awake(self._finish, slot, task, inputs, report, told):
            self._end_task(slot, task, inputs, report, told, None)

    def _end_task(
        self,
        slot: int,
        task: WorkerTask,
        inputs: list[bytes],
        report: ChunkDone,
        told: float,
        failure: Failure | None,
    ) -> None:
        """File how a task has ended; `failure` = it has raised."""
        plan = self.sim.plan
        spec = self.sim.graph.spec_of(task.args)
        for record in task.inputs:  # pinned until the end
            assert record.attempt in self.store, f"{record!r} went while {task!r} used it"
        self.running[slot] = None
        self.sim.on_stop(self, task)
        duration_us = int(spec.duration * 1e6)
        if self._interrupted.pop(task.attempt, 0) is None and self.world.chance(0.5):
            self.world.probes["interrupted in the end"] += 1
            failure = interrupted(task.key)
        if failure is None:
            if self.world.chance(plan.p_reschedule):
                self.world.probes["reschedule"] += 1
                failure = reschedule(task.key, "why")
            elif self.sim.raises(spec):
                failure = ["exception", task.key, "type", "text"]
        if failure is not None:
            report.failed_attempts.append(task.attempt)
            report.failed_durations_us.append(duration_us)
            report.failures.append(failure)
        else:
            value = value_of(spec.function, task.args or b"", inputs)
            self.store[task.attempt] = value
            if spec.function == ACTOR:
                self.actors.made(task)
            most = plan.ride_along << 4 if task.wanted == m.WANTED_LARGE else plan.ride_along
            rides = task.wanted and spec.nbytes <= most and spec.function != ACTOR
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

    def check(self) -> None:
        """Validate the core, and the store beside it."""
        validate(self.core)
        amounts.check(self)
        for records in (self.core.by_attempt, self.core.released):
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
        # A task that no client has taken up yet may still be taken up, and reads its inputs.
        is_kept = self.sim.scheduler.core.awaits_owners
        assert is_kept or not core.released, f"{self!r} keeps released data"
        # A value that has not come is waited for until its reader hears that it does not come.
        awaited = core.awaited.keys() - core.record(Promises).early.keys()
        assert not awaited, f"{self!r} has promised what does not end: {awaited}"
        assert not self.data.promises, f"{self!r} waits for promises: {self.data.promises}"
        assert not core.fetching.requests, f"{self!r} waits for peers"
