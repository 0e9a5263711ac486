"""The worker's core: decides what to run, fetch and drop. Events in; messages and actions out.

Owns every record of a task or a copy, and says what becomes of it. It never touches a value, a
socket, a thread or a clock: values are in the shell's store under the attempt that made them, and
whoever calls `handle` holds the lock that makes the calls one after the other.

- A task waits until its inputs are in memory, is then ready, and is run by a slot. An input is
  here, is an unfinished task of this worker (so a chain that was assigned ahead runs without
  asking), is fetched from a peer, or is missing until the scheduler says more.
- A slot runs a **chunk** of tasks back to back, about 1 ms of them by their predicted durations.
  What it has not started can be taken back, exactly (see `Slot.chunk`).
- Everything is named by **attempt**: a new attempt of a key takes the place of the older one, and a
  drop names the attempt that it means, so it cannot hit a newer one.
- What unfinished tasks here use is **pinned**: dropped data goes with the last of its users.

Differs from distributed's WorkerState: no resumed tasks, because an attempt is never used twice; no
transition log; batches of columns. Costs O(1 + dependencies) per task; `ReturnAttempts` sorts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ...protocol.errors import RemoteProtocolError
from ...protocol.wire.message import Message
from ...protocol.wire.messages import (
    AssignTasks,
    AttemptsEnded,
    AttemptsErred,
    DropAttempts,
    DropFunctions,
    HoldersGone,
    LocatedKeys,
    ReturnAttempts,
)
from .events import (
    After,
    Before,
    ChunkDone,
    Event,
    Fetched,
    FetchFailed,
    Forget,
    ForgetFunctions,
    GiveUp,
    Leave,
    Received,
    Run,
    SchedulerLost,
)
from .fetching import Fetching
from .ready import ReadyQueue
from .returning import on_leave, on_return_attempts
from .talking import check_assignment, take_out, tell_finished, tell_missing, tell_replica
from .tasks import NO_ATTEMPT, NO_FUNCTION, Slot, WorkerFunction, WorkerTask, move_waiters

#: A chunk is about this long, by predicted durations: the longest that a result waits for others.
CHUNK_US = 1000.0


class WorkerState:
    """All that a worker knows. `handle` is the only way in.

    The shell puts new lists in the place of the three out-boxes; the core extends the last message
    while it is there.
    """

    def __init__(self, nthreads: int, address: str = "") -> None:
        #: Our own address, which stands for "nobody" in `KeysMissing`.
        self.address = address
        #: What the shell does before it sends `to_scheduler`, and what it does after that.
        self.before: list[Before] = []
        self.to_scheduler: list[Message] = []
        self.after: list[After] = []

        #: {key: its current record}, in any state but cancelled, released and forgotten.
        self.by_key: dict[str, WorkerTask] = {}
        #: {attempt: record}: the same records, except those whose attempt is not known.
        self.by_attempt: dict[int, WorkerTask] = {}
        #: {attempt: task}. All and only tasks in state "waiting".
        self.waiting: dict[int, WorkerTask] = {}
        #: All tasks in state "ready".
        self.ready = ReadyQueue()
        #: {attempt: task}. All and only tasks in state "cancelled"; each is being executed.
        self.cancelled: dict[int, WorkerTask] = {}
        #: {attempt: record}. All and only records in state "released"; each is pinned.
        self.released: dict[int, WorkerTask] = {}
        #: All copies in state "fetch" or "flight".
        self.fetching = Fetching()
        #: {id: function}. What was sent and not dropped; dropped ones live on in their tasks.
        self.functions: dict[bytes, WorkerFunction] = {}

        self.slots = [Slot(index) for index in range(nthreads)]
        #: Slots that are not busy, the one that fell asleep last comes last.
        self.idle: dict[Slot, None] = dict.fromkeys(self.slots)
        #: Attempts whose values are to be dropped when this event has been handled.
        self._forget: list[int] = []
        #: {holder: keys that it could not give}, to be told when this event has been handled.
        self._missing: dict[tuple[str, bool], list[str]] = {}
        #: Attempts dropped before they reported, and without a thread now; to be told likewise.
        self._ended: list[int] = []
        #: {attempt: None}: those of `cancelled` whose end this session's scheduler waits for.
        self._owed: dict[int, None] = {}
        #: Nothing is started any more: what is unstarted waits for the scheduler to ask it back.
        self.is_leaving = False
        #: What peers said about attempts that we do not have (any more); only for people.
        self.n_stale = 0

    def handle(self, event: Event, now: float) -> None:
        """Change the state as `event` says; `now` is in seconds, from any fixed point.

        Raises:
            RemoteProtocolError: the scheduler sent nonsense. Close, and handle `SchedulerLost`.
        """
        del now  # nothing here depends on time yet; the door is the same for all cores
        asking = None
        if event.__class__ is ChunkDone:
            asking = self._on_chunk_done(event)
        else:
            _EVENTS[event.__class__](self, event)
        if self.idle and not self.is_leaving:
            if self.ready.n:
                self._dispatch(asking)
            if asking is not None and not asking.busy:
                self._feed(asking)
        if self.fetching.waiting:
            self.fetching.start(self.after)
        if self._missing:
            tell_missing(self.to_scheduler, self._missing)
            self._missing = {}
        if self._ended:
            self.to_scheduler.append(AttemptsEnded(attempts=self._ended))
            self._ended = []
        if self._forget:
            self.before.append(Forget(self._forget))
            self._forget = []

    # --- Messages ---------------------------------------------------------------------------------

    def _on_received(self, event: Received) -> None:
        for message in event.messages:
            handler = _MESSAGES.get(message.__class__)
            if handler is None:
                raise RemoteProtocolError(f"a worker cannot take {type(message).__name__}")
            handler(self, message)

    def _on_assign_tasks(self, message: AssignTasks) -> None:
        check_assignment(message)
        functions = [
            self._function(id, blob)
            for id, blob in zip(message.functions, message.function_blobs, strict=True)
        ]
        clients, dependencies = message.function_clients, message.dependencies
        by_key, by_attempt = self.by_key, self.by_attempt
        push = self.ready.push
        unknown: list[WorkerTask] = []
        row = -1
        for key, function_index, attempt, priority, args, wanted in zip(
            message.keys,
            message.function_of,
            message.attempts,
            message.priorities,
            message.args,
            message.wanted,
            strict=True,
        ):
            row += 1
            if attempt in by_attempt or attempt in self.cancelled or attempt in self.released:
                self.n_stale += 1
                continue
            assert args is not None  # checked
            function, client = functions[function_index], clients[function_index]
            task = WorkerTask(key, attempt, priority, function, args, wanted, client)
            if key in by_key:
                self._supersede(by_key[key], task)
            by_key[key] = task
            by_attempt[attempt] = task
            if dependencies and dependencies[row]:
                self._link(task, dependencies[row], unknown)
            else:
                push(task)
        if message.located_keys:
            self._on_located_keys(message)
        for placeholder in unknown:
            if placeholder.state == "missing" and placeholder.attempt == NO_ATTEMPT:
                self._missing.setdefault((self.address, False), []).append(placeholder.key)

    def _function(self, id: bytes, blob: Any) -> WorkerFunction:
        function = self.functions.get(id)
        if function is None:
            function = self.functions[id] = WorkerFunction(id, blob)
        elif function.blob is None and blob is not None:
            function.blob = blob
        return function

    def _supersede(self, old: WorkerTask, new: WorkerTask) -> None:
        """Let `new` be waited for in place of `old`, of which nothing remains that is not used."""
        if old.pins and old.state != "memory":
            move_waiters(old, new)
        self._drop(old)

    def _link(self, task: WorkerTask, keys: list[str], unknown: list[WorkerTask]) -> None:
        inputs = []
        n_waiting_on = 0
        for key in keys:
            record = self.by_key.get(key)
            if record is None:
                record = self._placeholder(key)
                unknown.append(record)
            inputs.append(record)
            record.pins += 1
            if record.state != "memory":
                n_waiting_on += 1
                if record.waiters is None:
                    record.waiters = [task]
                else:
                    record.waiters.append(task)
        task.inputs = inputs
        if n_waiting_on:
            task.n_waiting_on = n_waiting_on
            self.waiting[task.attempt] = task
        else:
            self.ready.push(task)

    def _placeholder(self, key: str) -> WorkerTask:
        record = WorkerTask(key, NO_ATTEMPT, 0, NO_FUNCTION, b"", 0)
        record.state = "missing"
        self.by_key[key] = record
        return record

    def _on_located_keys(self, message: LocatedKeys | AssignTasks) -> None:
        if isinstance(message, AssignTasks):
            rows = zip(
                message.located_keys,
                message.located_attempts,
                message.located_nbytes,
                message.located_holders,
                strict=True,
            )
        else:
            rows = zip(message.keys, message.attempts, message.nbytes, message.holders, strict=True)
        for key, attempt, nbytes, holders in rows:
            record = self.by_key.get(key)
            if record is None:
                self.n_stale += 1
            elif record.state == "missing" or (
                record.state == "fetch" and record.attempt != attempt
            ):
                self._locate(record, attempt, nbytes, holders)

    def _locate(self, record: WorkerTask, attempt: int, nbytes: int, holders: list[str]) -> None:
        """Fetch what `record` stands for as `attempt`, from one of `holders`."""
        known = self.by_attempt.get(attempt)
        here = self.released.get(attempt)
        if (
            (known is not None and known is not record)
            or (here is not None and here.key != record.key)
            or attempt in self.cancelled
        ):
            self.n_stale += 1
            return
        if record.state == "fetch":
            self.fetching.remove(record)
            record.state = "missing"
        if here is not None:
            # It was dropped, but is in use, and wanted again: the scheduler has to learn of it.
            del self.released[attempt]
            here.state = "memory"
            self._forget_record(record)
            self.by_key[here.key] = self.by_attempt[attempt] = here
            tell_replica(self.to_scheduler, here)
            move_waiters(record, here)
            self._wake(here)
            return
        if record.attempt != attempt:
            self.by_attempt.pop(record.attempt, None)
            record.attempt = attempt
            self.by_attempt[attempt] = record
        record.nbytes = nbytes
        record.holders = [address for address in holders if address != self.address]
        if record.holders:
            self.fetching.add(record)
        else:
            record.holders = ()
            if holders:  # we are said to have it, and do not
                self._missing.setdefault((self.address, False), []).append(record.key)

    def _on_drop_attempts(self, message: DropAttempts) -> None:
        for attempt in message.attempts:
            record = self.by_attempt.get(attempt)
            if record is None:
                self.n_stale += 1
                continue
            is_unstarted = record.state in {"waiting", "ready", "executing"}
            self._drop(record)
            if record.state == "cancelled":
                self._owed[attempt] = None
            elif is_unstarted:
                self._ended.append(attempt)

    def _drop(self, record: WorkerTask) -> None:
        """Have no more to do with an attempt. Tasks that wait for its value go on waiting."""
        state = record.state
        if state == "executing":
            # What the slot has not started comes back; if this is not among it, it has started.
            self._take_back(self.slots[record.slot])
            state = record.state
        self._forget_record(record)
        if state == "memory":
            if record.pins:
                record.state = "released"
                self.released[record.attempt] = record
            else:
                self._forget.append(record.attempt)
            return
        if state == "waiting":
            del self.waiting[record.attempt]
        elif state == "ready":
            self.ready.removed(record)
        elif state == "executing":
            record.state = "cancelled"
            self.cancelled[record.attempt] = record
        elif state in {"fetch", "flight"}:
            record.state = state
            self.fetching.remove(record)
            record.state = "forgotten"
        if record.pins:
            move_waiters(record, self._placeholder(record.key))
        record.waiters = None
        if record.inputs and record.state == "forgotten":
            self._unpin(record)

    def _forget_record(self, record: WorkerTask) -> None:
        record.state = "forgotten"
        if self.by_key.get(record.key) is record:
            del self.by_key[record.key]
        if record.attempt != NO_ATTEMPT:
            del self.by_attempt[record.attempt]

    def _unpin(self, task: WorkerTask) -> None:
        """Let go of the inputs of a task that needs them no more."""
        inputs = task.inputs
        task.inputs = ()
        for record in inputs:
            record.pins -= 1
            if record.pins or record.state == "memory":
                continue
            if record.state == "released":
                del self.released[record.attempt]
                record.state = "forgotten"
                self._forget.append(record.attempt)
            elif record.state in {"fetch", "missing"}:
                if record.state == "fetch":
                    self.fetching.remove(record)
                self._forget_record(record)

    def _on_drop_functions(self, message: DropFunctions) -> None:
        functions = [self.functions.pop(id) for id in message.functions if id in self.functions]
        if functions:
            self.before.append(ForgetFunctions(functions))

    # --- Running ----------------------------------------------------------------------------------

    def _dispatch(self, asking: Slot | None) -> None:
        """Give idle slots work, first the one that asks, which needs not be woken."""
        idle, ready = self.idle, self.ready
        while idle and ready.n:
            share = -(-ready.n // len(idle))
            slot, _ = idle.popitem()
            slot.busy = True
            self._fill(slot, share)
            if slot is not asking:
                self.before.append(Run(slot.index, slot.chunk))

    def _fill(self, slot: Slot, share: int) -> None:
        """Move ready tasks of one client into a slot's empty chunk: one, or 1 ms of them."""
        ready = self.ready
        share = min(share, ready.turn())
        left_us = CHUNK_US
        tasks: list[WorkerTask] = []
        while len(tasks) < share:
            task = ready.pop()
            estimate_us = task.function.estimate_us
            if tasks and (not estimate_us or estimate_us > left_us):
                ready.push(task)
                break
            task.state = "executing"
            task.slot = slot.index
            tasks.append(task)
            if not estimate_us:
                break
            left_us -= estimate_us
        slot.n_executing += len(tasks)
        slot.chunk.extend(tasks)

    def _feed(self, asking: Slot) -> None:
        """Nothing is ready: take half of what another slot has before it. Its task may be long."""
        victim = max(self.slots, key=lambda slot: len(slot.chunk))
        n_unstarted = len(victim.chunk)
        n = -(-n_unstarted // 2)
        if n == n_unstarted and victim.n_executing == n_unstarted:
            return  # it is waking up for this one task; two slots could take it in turns for ever
        taken = 0
        for _ in range(n):
            try:
                task = victim.chunk.pop()
            except IndexError:  # its thread was faster
                break
            task.slot = asking.index
            asking.chunk.appendleft(task)
            taken += 1
        if taken:
            victim.n_executing -= taken
            asking.n_executing += taken
            asking.busy = True
            del self.idle[asking]

    def _take_back(self, slot: Slot) -> None:
        """Make all that the slot has not started ready again."""
        chunk = slot.chunk
        while chunk:
            try:
                task = chunk.pop()
            except IndexError:  # its thread was faster
                break
            task.slot = -1
            slot.n_executing -= 1
            self.ready.push(task)

    def _on_chunk_done(self, event: ChunkDone) -> Slot | None:
        slot = self.slots[event.slot]
        if self.cancelled:
            self._end_cancelled(slot, event)
        attempts = event.attempts
        if attempts:
            by_attempt = self.by_attempt
            slot.n_executing -= len(attempts)
            for attempt, nbytes, duration_us in zip(
                attempts, event.nbytes, event.durations_us, strict=True
            ):
                task = by_attempt[attempt]
                task.state = "memory"
                task.nbytes = nbytes
                task.slot = -1
                task.args = b""
                function = task.function
                estimate_us = function.estimate_us
                if duration_us < estimate_us:
                    function.estimate_us += (duration_us + 1 - estimate_us) * 0.5
                elif estimate_us:
                    function.estimate_us += (duration_us + 1 - estimate_us) * 0.1
                else:
                    function.estimate_us = duration_us + 1.0
                if task.inputs:
                    self._unpin(task)
                if task.waiters is not None:
                    self._wake(task)
            tell_finished(self.to_scheduler, event)
        if event.failed_attempts:
            self._end_failed(slot, event)
        if not event.finished:
            return None
        slot.busy = False
        self.idle[slot] = None
        return slot

    def _end_failed(self, slot: Slot, event: ChunkDone) -> None:
        slot.n_executing -= len(event.failed_attempts)
        for attempt in event.failed_attempts:
            task = self.by_attempt[attempt]
            task.slot = -1
            self._forget_record(task)
            if task.pins:
                # The scheduler decides what becomes of its dependents; until then they wait.
                move_waiters(task, self._placeholder(task.key))
            if task.inputs:
                self._unpin(task)
        self.to_scheduler.append(
            AttemptsErred(
                attempts=event.failed_attempts,
                durations_us=event.failed_durations_us,
                failures=event.failures,
            )
        )

    def _end_cancelled(self, slot: Slot, event: ChunkDone) -> None:
        for attempt in take_out(event, self.cancelled):
            task = self.cancelled.pop(attempt)
            if self._owed.pop(attempt, False) is None:
                self._ended.append(attempt)
            task.state = "forgotten"
            task.slot = -1
            slot.n_executing -= 1
            if task.inputs:
                self._unpin(task)
            self._forget.append(attempt)

    def _wake(self, record: WorkerTask) -> None:
        """Tell the tasks that wait for `record` that it is in memory."""
        waiters = record.waiters
        record.waiters = None
        for task in waiters or ():
            if task.state == "waiting":
                task.n_waiting_on -= 1
                if not task.n_waiting_on:
                    del self.waiting[task.attempt]
                    self.ready.push(task)

    # --- Fetching ---------------------------------------------------------------------------------

    def _on_fetched(self, event: Fetched) -> None:
        request = self.fetching.end(event.request)
        assert request is not None, f"request {event.request} was never made, or ended before"
        for key, nbytes in zip(event.keys, event.nbytes, strict=True):
            copy = request.copies.pop(key)
            if copy is not None:
                copy.state = "memory"
                copy.nbytes = nbytes
                copy.holders = ()
                tell_replica(self.to_scheduler, copy)
                self._wake(copy)
                continue
            # It was dropped while it came. The shell has stored it all the same; but the same
            # attempt may have come from elsewhere since, or be in use still.
            attempt = request.attempts[key]
            record = self.by_attempt.get(attempt)
            if attempt not in self.released and (record is None or record.state != "memory"):
                self._forget.append(attempt)
        self._end_copies(event.holder, request.copies.values())

    def _on_fetch_failed(self, event: FetchFailed) -> None:
        request = self.fetching.end(event.request)
        assert request is not None, f"request {event.request} was never made, or ended before"
        # What else was to be asked of it would fail as well, one time limit after the other.
        queued = self.fetching.give_up(event.holder)
        self._end_copies(event.holder, [*request.copies.values(), *queued], unreachable=True)

    def _on_holders_gone(self, message: HoldersGone) -> None:
        """Ask these no more. A process that is suspended would be silent, not refuse."""
        for holder in message.addresses:
            peer = self.fetching.peers.get(holder)
            if peer is not None and peer.request is not None:
                self.after.append(GiveUp(holder))
            elif peer is not None:
                self._end_copies(holder, self.fetching.give_up(holder), unreachable=True)

    def _end_copies(
        self, holder: str, copies: Iterable[WorkerTask | None], *, unreachable: bool = False
    ) -> None:
        """`holder` did not give these: ask another one, or wait for the scheduler's word."""
        for copy in copies:
            if copy is None:
                continue
            self._missing.setdefault((holder, unreachable), []).append(copy.key)
            copy.state = "missing"
            copy.holders = [address for address in copy.holders if address != holder]
            if not copy.pins:
                self._forget_record(copy)
            elif copy.holders:
                self.fetching.add(copy)
                continue
            copy.holders = ()

    # --- The end of a session ---------------------------------------------------------------------

    def _on_scheduler_lost(self, event: SchedulerLost) -> None:
        self._owed.clear()
        # Tasks first: with them go their claims on copies, and the placeholders.
        records = list(self.by_attempt.values())
        for of_tasks in (True, False):
            for record in records:
                is_task = record.state in {"waiting", "ready", "executing"}
                if is_task is of_tasks and self.by_attempt.get(record.attempt) is record:
                    self._drop(record)
        functions = list(self.functions.values())
        self.functions.clear()
        if functions:
            self.before.append(ForgetFunctions(functions))
        self.to_scheduler.clear()
        self._missing = {}


_EVENTS: dict[type, Callable[[WorkerState, Any], None]] = {
    Received: WorkerState._on_received,
    Fetched: WorkerState._on_fetched,
    FetchFailed: WorkerState._on_fetch_failed,
    Leave: on_leave,
    SchedulerLost: WorkerState._on_scheduler_lost,
}

_MESSAGES: dict[type, Callable[[WorkerState, Any], None]] = {
    AssignTasks: WorkerState._on_assign_tasks,
    DropAttempts: WorkerState._on_drop_attempts,
    ReturnAttempts: on_return_attempts,
    LocatedKeys: WorkerState._on_located_keys,
    HoldersGone: WorkerState._on_holders_gone,
    DropFunctions: WorkerState._on_drop_functions,
}
