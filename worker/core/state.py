"""The worker's core: decides what to run, fetch and drop. Events in; messages and actions out.

Owns every record of a task or a copy, and decides its moves. It never touches a value, a socket, a
thread or a clock: values are in the shell's store under the attempt that made them, and the caller
of `handle` holds the lock that makes the calls one after the other.

- A task waits until its inputs are in memory, is then ready, and is run by a slot. An input is
  here, is an unfinished task of this worker (so a chain that was assigned ahead runs without
  asking), is fetched from a peer, or is missing until the scheduler locates it.
- A slot runs a **chunk** of tasks back to back, about 1 ms of them by their predicted durations.
  Unstarted tasks can be taken back, exactly (see `Slot.chunk`).
- Everything is named by **attempt**: a new attempt of a key takes the place of the older one, and a
  drop names the attempt that it means, so it cannot hit a newer one.
- The inputs of unfinished tasks are **pinned**: dropped data stays until the last task has read it.

Differs from distributed's WorkerState: no resumed tasks, because an attempt is never used twice; no
transition log; batches of columns. Costs O(1 + dependencies) per task; `ReturnAttempts` sorts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

from ...protocol.errors import RemoteProtocolError
from ...protocol.seam import joined
from ...protocol.wire import messages as m
from ...protocol.wire.message import Message
from . import assignment, copies, drops, inventory, leaving, reports, seats, slots
from .events import (
    ChunkDone,
    CopiesElsewhere,
    CopiesFetched,
    CopiesNotFetched,
    ForgetValues,
    Leave,
    SchedulerLost,
    SchedulerSent,
    SessionOpened,
    SlotBlocked,
    SlotResumes,
    SlotWaits,
    WorkerAction,
    WorkerEnding,
    WorkerEvent,
)
from .feature import WorkerFeature
from .fetching import Fetching
from .offered import Offered
from .ready import ReadyTasks
from .tasks import Slot, WorkerFunction, WorkerTask

_Record = TypeVar("_Record")


class WorkerState:
    """The state of a worker. `handle` is its entry point; modules of functions do the work.

    The shell puts new lists in the place of the three out-boxes; the core extends the last message
    while it is there.
    """

    def __init__(
        self,
        nthreads: int,
        address: str,
        features: Sequence[WorkerFeature],
        resources: Mapping[str, float] | None = None,
    ) -> None:
        #: This worker's own address, which stands for "no holder is known" in `KeysMissing`.
        self.address = address
        #: Actions that the shell does before it sends `to_scheduler`, and `after` that.
        self.before: list[WorkerAction] = []
        self.to_scheduler: list[Message] = []
        self.after: list[WorkerAction] = []
        #: Until when `to_scheduler` may wait.
        self.reporting = reports.Reporting()

        #: {key: its current record}, in any state but cancelled, released and forgotten.
        self.by_key: dict[str, WorkerTask] = {}
        #: {attempt: record}: the same records, except those whose attempt is not known.
        self.by_attempt: dict[int, WorkerTask] = {}
        #: {attempt: task}. All and only tasks in state "waiting".
        self.waiting: dict[int, WorkerTask] = {}
        #: The tasks in state "ready" that ask for no resource.
        self.ready = ReadyTasks()
        #: The resources of this worker, and all other tasks in state "ready".
        self.offered = Offered(resources or {}, self.ready)
        #: {attempt: task}. All and only tasks in state "cancelled"; each is being executed.
        self.cancelled: dict[int, WorkerTask] = {}
        #: {attempt: record}. All and only records in state "released"; each is pinned.
        self.released: dict[int, WorkerTask] = {}
        #: Failures that were reported, and not dropped by the scheduler.
        self.failures = inventory.KeptFailures()
        #: All copies in state "fetch" or "flight".
        self.fetching = Fetching()
        #: No attempt that was assigned here is higher.
        self.last_attempt = 0
        #: {id: function}. All that were sent and not dropped; dropped ones live on in their tasks.
        self.functions: dict[bytes, WorkerFunction] = {}

        #: The time of the last event, seconds.
        self.now = 0.0
        #: Number of slots that have a seat, always.
        self.n_seats = nthreads
        self.slots = [Slot(index) for index in range(nthreads)]
        #: Slots with a seat that are not busy, in the order in which they fell asleep.
        self.idle: dict[Slot, None] = dict.fromkeys(self.slots)
        #: Of slots whose tasks wait.
        self.seats = seats.Seats()
        #: {slot: the attempt that could go on}. All and only slots in place "returning", the one
        #: that has waited longest first.
        self.returning: dict[Slot, int] = {}
        #: Attempts whose values are to be dropped when this event has been handled.
        self.forget: list[int] = []
        #: {(holder, it is unreachable): (keys that it did not give, their attempts)}, to be
        #: reported likewise.
        self.missing: dict[tuple[str, bool], tuple[list[str], list[int]]] = {}
        #: {attempt: whom its end is to be reported to at once}: it is the last of its chunk.
        self.awaited: dict[int, list[int]] = {}
        #: {attempt: how it has ended} of those dropped before they finished, which no thread runs
        #: now; to be reported likewise.
        self.ended: dict[int, int] = {}
        #: {attempt: None}: those of `cancelled` whose end this session's scheduler waits for.
        self.owed: dict[int, None] = {}
        #: No task is started any more: the scheduler asks the unstarted ones back.
        self.is_leaving = False
        #: Why, and when it ends in any case; None = it does not.
        self.leaving_because = ""
        self.leaves_by: float | None = None
        #: It leaves, and the scheduler needs nothing more that only this worker has.
        self.may_leave = False
        #: It leaves, and `EndWorker` was put out: it may, and no slot executes; or the scheduler is
        #: lost, and it has nothing to come back for.
        self.has_left = False

        #: What the kernel and all features declare.
        self.features = joined(_KERNEL, features)
        self._records: dict[type, Any] = {kind: kind() for kind in self.features.records}
        #: {name: None} of the features that have something to do.
        self.busy: dict[str, None] = {}
        #: {type: its handler} of the messages of the scheduler that the core handles.
        self.messages = self.features.messages
        self._events = self.features.events

    @property
    def is_unused(self) -> bool:
        """True if it was assigned no task yet, and has no copy."""
        return not self.last_attempt and not self.by_key

    @property
    def n_ready(self) -> int:
        """The number of tasks in state "ready"."""
        return self.ready.n + self.offered.n

    def record(self, kind: type[_Record]) -> _Record:
        """Return a record of a feature; `kind` is its class."""
        found: _Record = self._records[kind]
        return found

    def set_busy(self, feature: str, is_busy: bool) -> None:
        """Note whether a feature has something to do, by its name."""
        if is_busy:
            self.busy[feature] = None
        else:
            self.busy.pop(feature, None)

    def handle(self, event: WorkerEvent, now: float) -> None:
        """Apply `event` to the state; `now` is in seconds, from any fixed point.

        Raises:
            RemoteProtocolError: the scheduler sent a message that a worker cannot take, or that
                contradicts itself. The caller closes and passes in `SchedulerLost`.
        """
        self.now = now
        asking = here = None
        n_waiting = len(self.to_scheduler)
        if event.__class__ is ChunkDone:
            asking = slots.on_chunk_done(self, event)
            here = self.slots[event.slot] if event.finished else None
        else:
            self._events[event.__class__](self, event)
        if (self.idle or self.offered.n) and not self.is_leaving:
            if self.ready.n or self.offered.n:
                slots.dispatch(self, here)
            if asking is not None and not asking.busy:
                slots.feed(self, asking)
        if self.fetching.waiting:
            copies.ask(self)
        if self.missing:
            for (holder, unreachable), (keys, attempts) in self.missing.items():
                self.to_scheduler.append(
                    m.KeysMissing(
                        keys=keys,
                        holder=holder,
                        unreachable=unreachable,
                        attempts=reports.sparse(attempts, 0),
                    )
                )
            self.missing = {}
        if self.ended:
            ends = reports.sparse(self.ended.values(), 0)
            self.to_scheduler.append(m.AttemptsEnded(attempts=list(self.ended), ends=ends))
            self.ended = {}
        if self.forget:
            self.before.append(ForgetValues(self.forget))
            self.forget = []
        if self.is_leaving and not self.has_left:
            leaving.end_when_idle(self)
        if self.to_scheduler:
            reports.decide_wait(self, n_waiting, event)

    def _on_received(self, event: SchedulerSent) -> None:
        for message in event.messages:
            handler = self.messages.get(message.__class__)
            if handler is None:
                raise RemoteProtocolError(f"a worker does not handle {type(message).__name__}")
            handler(self, message)


#: What the kernel declares itself. No feature can have one of its events or messages.
_KERNEL: Final = WorkerFeature(
    name="the kernel",
    patient=frozenset({m.AttemptsFinished, m.ReplicasAdded}),
    events={
        SchedulerSent: WorkerState._on_received,
        CopiesFetched: copies.on_fetched,
        CopiesElsewhere: copies.on_elsewhere,
        CopiesNotFetched: copies.on_fetch_failed,
        Leave: leaving.on_leave,
        SlotBlocked: seats.on_blocked,
        SlotResumes: seats.on_resumes,
        SlotWaits: seats.on_waits,
        WorkerEnding: drops.on_ending,
        SchedulerLost: inventory.on_scheduler_lost,
        SessionOpened: inventory.on_session_opened,
    },
    messages={
        m.AssignTasks: assignment.on_assign_tasks,
        m.DropAttempts: drops.on_drop_attempts,
        m.ReturnAttempts: drops.on_return_attempts,
        m.WithdrawAttempts: drops.on_withdraw_attempts,
        m.InterruptAttempts: drops.on_interrupt_attempts,
        m.LocatedKeys: copies.on_located_keys,
        m.HoldersGone: copies.on_holders_gone,
        m.KeysUnknown: drops.on_keys_unknown,
        m.DropFunctions: drops.on_drop_functions,
        m.FailWaits: seats.on_fail_waits,
        m.MayLeave: leaving.on_may_leave,
        # A scheduler of an earlier version does not know a worker's only request.
        m.Unsupported: leaving.on_may_leave,
    },
)
