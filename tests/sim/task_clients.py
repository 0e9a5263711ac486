"""Tasks that submit tasks: the client of a worker's process, and the threads that use it.

A task that submits others is a generator, which yields where its thread would compute or wait. A
wait gives the seat of its slot up, as `worker/slots/seats.py` does, and names the tasks that it
waits for. What is asserted: nothing that a current task submits is refused; each wait ends; each
value that a task reads is that of the serial interpreter; each failure that it reads has a reason;
no more threads compute than the worker has seats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from weft.client.core.events import (
    Cancel,
    Confirm,
    ForgetWatcher,
    Loaded,
    Tell,
    Unwatch,
    Watch,
)
from weft.client.core.tasks import NO_VALUE, FutureState, Watcher
from weft.protocol.wire.failure import (
    ALLOTMENT_EXCEEDED,
    MEMORY_EXCEEDED,
    TIMED_OUT,
    Failure,
    interrupted,
)
from weft.protocol.wire.message import Message
from weft.protocol.wire.messages import RegisterClient
from weft.protocol.wire.messages import coordination as h
from weft.protocol.wire.roles import Role
from weft.worker.core.events import ChunkDone
from weft.worker.core.tasks import WorkerTask

from . import memory
from .client_process import ClientProcess
from .coordination import ObjectWatcher
from .graphs import Spec, unpacked
from .scheduler_node import SchedulerNode

if TYPE_CHECKING:
    from .worker_node import WorkerNode

#: As in `client/in_tasks.py` and `client/shell/engine_waiting.py`.
CONFIRM_S = 10.0
MAX_KEYS = 32
#: As in `worker/slots/interrupting.py`.
AGAIN_S = 0.02


class TaskClientNode(ClientProcess):
    """The client of the tasks of one worker: a part of its process."""

    role: ClassVar[Role] = Role.TASK_CLIENT

    def __init__(self, worker: WorkerNode) -> None:
        self.worker = worker
        super().__init__(worker.sim, f"tasks-of-{worker.name}")

    def when_awake(self, what: Any, *args: Any) -> bool:
        """See `SessionOwner`: it stops and goes on with its worker."""
        return self.is_alive and self.worker.when_awake(what, *args)

    def registration(self, number: int, last_epoch: int) -> Message:
        """See `SessionOwner`."""
        return RegisterClient(
            client_id=self.client_id,
            name=self.name,
            session=number,
            last_epoch=last_epoch,
            facts={"python": "3.11"},
            worker_id=self.worker.worker_id,
        )

    def end(self) -> None:
        """End with the process."""
        self.is_alive = False
        self.session.abort()
        self.actor_connections.close()

    def scheduler(self) -> SchedulerNode | None:
        """Return the scheduler with which it has a session."""
        link = self.session.link
        end = None if link is None else link.sides[1].end
        return end if isinstance(end, SchedulerNode) else None


class Interrupted(Exception):
    """The task is to end: it was dropped, and is interrupted."""


class ReadFailure(Exception):
    """What the task has read has failed, or its wait has."""


@dataclass
class Compute:
    """The thread computes for some time."""

    seconds: float


@dataclass(eq=False)
class Wait:
    """The thread gives its seat up and waits."""

    watcher: TaskWatcher | TaskObjectWatcher
    operation: Any
    keys: list[str]
    may_park: bool = False


@dataclass(eq=False)
class Hold:
    """The thread waits and keeps its seat, for a limited time."""

    watcher: TaskWatcher
    operation: Any
    seconds: float


class TaskWatcher(Watcher):
    """Wakes the thread of a task when all that it waits for has come."""

    __slots__ = ("n_left", "parent", "problem")

    def __init__(self, parent: Parent, n: int, *, wants_data: bool) -> None:
        super().__init__(wants_data)
        self.parent = parent
        self.n_left = n
        self.problem = ""

    def on_ready(self, items: list[Any]) -> None:
        """See `Watcher`."""
        if self.n_left <= 0:
            return
        for item in items:
            if isinstance(item, str):
                self.problem = item
                self.n_left = 0
            elif isinstance(item, FutureState) and item.failure is not None:
                self.parent.check_failure(item)
        self.n_left -= len(items)
        if self.n_left <= 0:
            self.parent.wake(self)


class TaskObjectWatcher(ObjectWatcher):
    """Wakes the thread of a task when its call is answered."""

    __slots__ = ("parent",)

    def __init__(self, parent: Parent) -> None:
        super().__init__(parent.sim.objects, parent.client)
        self.parent = parent

    def on_ready(self, items: list[Any]) -> None:
        """See `Watcher`."""
        super().on_ready(items)
        self.parent.wake(self)


class Parent:
    """One execution of a task that submits others."""

    def __init__(
        self,
        worker: WorkerNode,
        slot: int,
        task: WorkerTask,
        inputs: list[bytes],
        report: ChunkDone,
    ) -> None:
        self.worker = worker
        self.sim = worker.sim
        self.world = worker.world
        self.client = worker.client_of_tasks()
        self.slot = slot
        self.task = task
        self.spec = self.sim.graph.spec_of(task.args)
        self.report = report
        self.told = self.world.now
        self.inputs = inputs
        #: {what it has submitted: its state}, until it lets go of that
        self.states: dict[Spec, FutureState] = {}
        self.values: dict[Spec, bytes] = {}
        self.lease = ""
        self.has_submitted = False
        #: What it waits for; None while it computes, or waits for a seat.
        self.waiting: Wait | Hold | None = None
        self.is_returning = False
        self.has_seat = True
        self.is_over = False
        #: Events of earlier steps are ignored.
        self._step = 0
        self._failure: Failure | None = None
        self._steps = self._all_steps()

    def __repr__(self) -> str:
        return f"<Parent {self.task.key} attempt {self.task.attempt} on {self.worker!r}>"

    def describe(self) -> str:
        """Describe where it is, for the report of a run that does not end."""
        wait = self.waiting
        doing = "waits for a seat" if self.is_returning else "computes"
        if isinstance(wait, Wait):
            doing = f"waits for {wait.keys or wait.operation}"
        elif wait is not None:
            doing = "waits for a confirmation"
        return f"{self!r} {doing}, and holds {self.lease or 'nothing'}"

    # -- what it does -----------------------------------------------------------------------------
    def _all_steps(self) -> Iterator[Compute | Wait | Hold]:
        """Run the task, and confirm what it has submitted."""
        try:
            yield from self._body()
        except ReadFailure as error:
            self.sim.excused[self.task.key] = str(error)
            self.sim.n_excused[self.task.key] += 1
            self._failure = ["exception", self.task.key, "ReadFailure", str(error)]
        except Interrupted:
            self._failure = interrupted(self.task.key)
        if self.has_submitted:
            watcher = TaskWatcher(self, 1, wants_data=False)
            yield Hold(watcher, Confirm(watcher), CONFIRM_S)

    def _body(self) -> Iterator[Compute | Wait | Hold]:
        spec = self.spec
        part = spec.duration / (len(spec.calls) + 1)
        try:
            yield Compute(part)
            if spec.lock:
                yield from self._acquire()
            self._submit(spec.given_up)
            for batch in spec.calls:
                self._submit(batch)
                if spec.waits_early:
                    yield from self._read(batch)
                yield Compute(part)
                self._give_up()
            yield from self._read(spec.called)
            if self.lease:
                self._check_lease()
        finally:
            if self.lease:
                self.sim.objects.release(self.lease)
                self.lease = ""
            for one in list(self.states):
                self._let_go(one)

    def _submit(self, specs: list[Spec]) -> None:
        new = [spec for spec in specs if spec not in self.states]
        if not new:
            return
        self.has_submitted = True
        self.world.probes["submitted in a task"] += len(new)
        made = self.client.post_tasks(new, self.task.attempt)
        self.states.update(zip(new, made, strict=True))

    def _give_up(self) -> None:
        """Cancel or release what it does not read."""
        for spec in self.spec.given_up:
            state = self.states.get(spec)
            if state is None:
                continue
            if state.failure is None and self.world.chance(0.7):
                self.world.probes["cancelled in a task"] += 1
                self.sim.cancelled[spec.key] = None
                self.client.post(Cancel([state], running=self.world.chance(0.5)))
            self._let_go(spec)

    def _let_go(self, spec: Spec) -> None:
        self.sim.released[spec.key] = None
        self.client.post(self.states.pop(spec))

    def _read(self, specs: list[Spec]) -> Iterator[Wait]:
        """Wait for values and compare them with those of the serial interpreter."""
        while True:
            left = [spec for spec in specs if spec not in self.values]
            states = [self.states[spec] for spec in left]
            states = [one for one in states if not one.has_data and one.failure is None]
            if not states:
                break
            states = list(dict.fromkeys(states))
            watcher = TaskWatcher(self, len(states), wants_data=True)
            try:
                yield Wait(watcher, Watch(watcher, states), [s.key for s in states[:MAX_KEYS]])
            finally:
                if watcher.n_left > 0 or watcher.problem:
                    self.client.post(Unwatch(watcher, states))
            if watcher.problem:
                self.world.probes["a wait of a task fails"] += 1
                self._check_cycle(watcher.problem)
                raise ReadFailure(watcher.problem)
        for spec in left:
            state = self.states[spec]
            if state.failure is not None:
                raise ReadFailure(f"{spec.key}: {state.failure}")
            value = state.value if state.blob is None else unpacked(state.blob)
            assert value == spec.value, f"{self!r} reads a wrong value of {spec!r}"
            if state.value is NO_VALUE:
                state.value = value
                if self.world.chance(0.5):
                    self.client.post(Loaded(state))
            self.values[spec] = value

    def _acquire(self) -> Iterator[Wait]:
        """Take the lock."""
        users, owner = self.sim.objects, h.owner_of_attempt(self.task.attempt)
        lease = self.sim.new_id("lease")
        watcher = TaskObjectWatcher(self)
        arguments: dict[str, Any] = {"lease": lease, "owner": owner}
        kind = h.LIMIT if self.spec.lock == "limit" else h.LOCK
        if kind == h.LIMIT:
            arguments |= {"limit": 1, "blocks": True}
        call = users.made(watcher, kind, self.spec.lock, "acquire", arguments)
        try:
            yield Wait(watcher, call, [], may_park=kind == h.LIMIT)
        except Interrupted:
            if lease in users.believed:
                users.release(lease)
            else:
                users.give_up(watcher)
            raise
        (answer,) = watcher.answers
        if answer.problem == h.CYCLE:
            self.world.probes["a lock of a task fails"] += 1
            self._check_cycle(answer.text)
            raise ReadFailure(answer.text)
        assert not answer.problem, answer
        self.world.probes["locked in a task"] += 1
        self.lease = lease

    # -- the thread -------------------------------------------------------------------------------
    def go_on(self) -> None:
        """Do the next step."""
        self._advance(lambda: next(self._steps))

    def _advance(self, resume: Callable[[], Compute | Wait | Hold]) -> None:
        self._step += 1
        self.waiting = None
        try:
            step = resume()
        except StopIteration:
            self._end()
            return
        if isinstance(step, Compute):
            self.world.at(step.seconds, self._after, self._step)
            return
        self.waiting = step
        if isinstance(step, Hold):
            self.client.post(step.operation)
            self.world.at(step.seconds, self._too_long, step)
            return
        if self.has_seat:
            self.has_seat = False
            waits_for = {"keys": step.keys} if step.keys else {}
            self.worker.give_seat_up(
                self.slot, self.task, waits_for, self.report, may_park=step.may_park
            )
        # Other threads may have been faster.
        self.world.at(self.world.rng.random() * 0.0001, self._post, step)

    def _post(self, step: Wait) -> None:
        if self.waiting is step and self.worker.when_awake(self._post, step):
            self.client.post(step.operation)

    def _after(self, step: int) -> None:
        if step == self._step and self.worker.when_awake(self._after, step):
            self.go_on()

    def _too_long(self, hold: Hold) -> None:
        if self.waiting is hold and self.worker.when_awake(self._too_long, hold):
            self.world.probes["submissions of a task are not confirmed"] += 1
            self.client.post(ForgetWatcher(hold.watcher))
            self.go_on()

    def wake(self, watcher: Any) -> None:
        """Let the thread go on a little later, if it still waits with this watcher."""
        if self.waiting is not None and self.waiting.watcher is watcher:
            self.world.at(self.world.rng.random() * 0.0001, self._wait_over, self.waiting)

    def _wait_over(self, wait: Wait | Hold) -> None:
        if self.waiting is not wait or not self.worker.when_awake(self._wait_over, wait):
            return
        if isinstance(wait, Hold):
            self.go_on()
            return
        self.waiting = None
        self.is_returning = True
        self.worker.take_seat(self.slot, self._seated)

    def _seated(self) -> None:
        self.is_returning = False
        self.has_seat = True
        self.report, self.told = ChunkDone(self.slot, [], [], [], []), self.world.now
        self.world.at(0.0, self._after, self._step)

    def fail_wait(self, text: str) -> None:
        """End the present wait, for it would have no end."""
        wait = self.waiting
        if isinstance(wait, Wait) and isinstance(wait.watcher, TaskWatcher):
            self.client.post(Tell(wait.watcher, text))

    def interrupt(self) -> None:
        """Raise an exception in the thread, where that is possible."""
        if self.is_over or not self.worker.when_awake(self.interrupt):
            return
        if self.is_returning or isinstance(self.waiting, Hold):
            self.world.at(AGAIN_S, self.interrupt)
            return
        self.world.probes["interrupted in a task"] += 1
        # One that waits ends without a seat.
        self._advance(lambda: self._steps.throw(Interrupted()))

    def _end(self) -> None:
        self.is_over = True
        self.told = self.told if self.has_seat else float("inf")
        if not self.has_seat:
            self.report = ChunkDone(self.slot, [], [], [], [])
        inputs = [*self.inputs, *(self.values.get(spec, b"") for spec in self.spec.called)]
        self.worker.end_parent(self, inputs, self._failure)

    # -- checks -----------------------------------------------------------------------------------
    def _is_current(self) -> bool:
        """Return whether the scheduler with which the client has a session expects a report."""
        scheduler = self.client.scheduler()
        if scheduler is None:
            return False
        ws = scheduler.core.workers_by_id.get(self.worker.worker_id)
        return ws is not None and self.task.attempt in ws.processing

    def check_failure(self, state: FutureState) -> None:
        """Assert that there was a reason for a failure that it reads."""
        sim, failure, spec = self.sim, state.failure, self.sim.graph.by_key[state.key]
        assert failure is not None
        kind, culprit = failure[0], failure[1]
        self.world.probes[f"read in a task: {kind}"] += 1
        if kind == "exception":
            is_right = culprit in spec.culprits or culprit in sim.excused
        elif kind == TIMED_OUT:
            is_right = culprit in sim.timed_out
        elif kind == ALLOTMENT_EXCEEDED:
            is_right = sim.categories.has_failed(spec, failure)
        elif kind == "worker-died":
            is_right = sim.died.get(culprit, 0) > sim.plan.allowed_deaths
        elif kind == "cancelled":
            is_right = any(key in sim.cancelled for key in spec.ancestors)
        elif kind == MEMORY_EXCEEDED:
            is_right = culprit in spec.ancestors and memory.has_reason(sim, failure[2])
        elif kind == "no-worker":
            is_right = sim.no_worker_limit_s > 0
        elif kind == "user-limit":
            is_right = sim.plan.limits["scheduler.user_tasks"] > 0
        elif kind == "not-permitted":
            is_right = not self._is_current()
        elif kind == "data-lost" and "cannot reach each other" in failure[2]:
            is_right = any(worker_id.startswith("worker") for worker_id in sim.refused)
        elif kind == "unreachable":
            is_right = self.client.client_id in sim.refused
        else:
            is_right = False
        assert is_right, f"{self!r}: {state!r} has failed with {failure}: there was no reason"

    def _check_cycle(self, text: str) -> None:
        """Assert that a wait that is said to have no end may have none: only locks make cycles."""
        assert "lock" in text or "limit" in text, f"{self!r}: there is no cycle: {text}"

    def _check_lease(self) -> None:
        """Fail if the lock was lost."""
        if self.lease not in self.sim.objects.believed:
            self.lease = ""
            raise ReadFailure("the lock was lost")


__all__ = ["Parent", "TaskClientNode"]
