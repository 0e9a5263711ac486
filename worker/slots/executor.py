"""Runs tasks on threads: the part of the worker's shell that needs no event loop.

It owns the core, the one lock that guards it, the store, and one thread per slot. Any thread may
call `handle`: the thread of a slot reports its finished tasks, takes the next ones and goes on,
without waiting for the event loop. So a chain of tasks that was assigned ahead runs on one thread.
What a slot reports, its thread also sends, if nothing waits to be sent before it; but the reports
of a slot that goes on wait for the next ones, as the core decides (`reports.py`). The loop looks
now and then whether some have waited for too long, because a task may take longer than expected.
For what else there is to send the loop is woken, and only once until it calls `drain`.

The core's actions of `before` are done under the lock, before the messages of the same event can be
taken; the loop does those of `after` when they are sent. User code runs outside the lock, and so do
the destructors of values that are dropped.
"""

from __future__ import annotations

import copy
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...protocol.errors import InternalError, LocalProtocolError
from ...protocol.host.blocking import TaskWait, closed_here, on_blocked_here, on_interrupts_here
from ...protocol.values.serialize import loads, loads_arguments
from ...protocol.values.sizeof import sizeof
from ...protocol.wire.failure import Failure
from ...protocol.wire.message import Message
from ...protocol.wire.messages import AttemptsErred, AttemptsFinished, DropAttempts
from ...protocol.wire.payload import Blob
from ..context import WorkerContext, set_worker
from ..core.events import (
    ChunkDone,
    FailWait,
    ForgetFunctions,
    ForgetValues,
    LeaveSeat,
    Run,
    SchedulerSent,
    SlotBlocked,
    SlotResumes,
    StartSlot,
    TakeSeat,
    WorkerAction,
    WorkerEvent,
)
from ..core.features.output import CatchOutput
from ..core.features.times import records_times
from ..core.features.traces import TracedFunction
from ..core.seats import MAX_BLOCKED
from ..core.state import WorkerState
from ..core.tasks import WorkerFunction, WorkerTask
from ..data.packing import pack_to_ride_along, short_type_name
from ..data.store import Store
from .activity import SlotClock
from .coroutines import as_call
from .failing import failure_in_slot, unsendable
from .interrupting import Interrupts, SlotGate, TaskInterrupted, mend
from .seats import SlotSeat
from .slot_reading import SlotReading
from .started import StartedRecord
from .tracing import in_span

if TYPE_CHECKING:
    from ..data.spilling import Spiller
    from ..isolation.sampling import ChildrenSamples
    from ..output.output import OutputCatcher

#: Finished tasks are reported at the end of a chunk, or when the last report is older than this.
_REPORT_AFTER_NS = 1_000_000

#: A slot that goes on with another chunk looks into the connection when the last look is older. A
#: look at each chunk would double the cost of a chain of tiny tasks, whose chunks have one task.
_LOOK_AFTER_NS = 1_000_000

#: How often the loop looks whether reports have waited for too long, while any wait.
WATCH_S = 0.005


class TaskExecutor:
    """The core, and the threads that run the tasks that it starts.

    Args:
        state: the core; only this object calls it from now on.
        context: the worker's description for `get_worker`.
        store: has at least the values of records in state memory or released.
        wake: called on any thread, without the lock, when there is something to `drain`; not again
            until `drain` was called.
        watch: called on any thread, without the lock, to have `send_waiting` called by the loop
            after that time, and again after the same time as long as that returns True.
        send: called on the thread of a slot, without the lock, to send messages; returns False if
            only the loop can send them.
        crashed: called with the error on the thread of a slot that ends because weft's own code
            failed.
        started: the file in which to note the attempts being executed, if any.
        output: catches what tasks print and log, if that is to be sent to clients.
        own: {id: function} of those of weft itself, which are not sent as pickles.
    """

    def __init__(
        self,
        state: WorkerState,
        context: WorkerContext,
        store: Store,
        *,
        wake: Callable[[], object],
        watch: Callable[[float], object],
        send: Callable[[list[Message]], bool],
        crashed: Callable[[BaseException], object],
        started: StartedRecord | None = None,
        output: OutputCatcher | None = None,
        own: Mapping[bytes, Callable[..., Any]],
    ) -> None:
        self.state = state
        self.store = store
        self.spiller: Spiller | None = None
        self.children_nbytes: Callable[[], int] = lambda: 0  #: of processes in which calls run
        self.samples: ChildrenSamples | None = None  #: of calls in other processes
        #: The context of a thread without a task.
        self.context = context
        self._wake = wake
        self._watch = watch
        #: `send_waiting` will be called.
        self._watching = False
        self._send = send
        self._crashed = crashed
        self._started = started
        self._own = own
        self._output = output
        if output is not None:
            output.begin(self)
        self._lock = threading.Lock()
        #: Held while messages of the out-box are taken and sent, in order. Taken before `_lock`.
        self.sending = threading.Lock()
        self._load_lock = threading.Lock()
        #: `_wake` was called and `drain` was not.
        self._wake_pending = False
        #: Lets idle slots read; None between two sessions.
        self.slot_reading: SlotReading | None = None
        #: As the last `drain` was called.
        self._writable = True
        #: One per slot: True = there is a chunk, False = end.
        self._inboxes: list[queue.SimpleQueue[bool]] = [queue.SimpleQueue() for _ in state.slots]
        self.threads: list[threading.Thread] = []
        #: {attempt: how its task waits for others}, of those that wait without a time limit.
        self.waits: dict[int, TaskWait] = {}
        self._is_stopped = False  #: no thread waits for a seat any more
        #: What the threads do, one per slot.
        self.clocks = [SlotClock() for _ in state.slots]
        #: {thread: the context of its slot, whose key is that of the task that runs there}.
        self.contexts: dict[int, WorkerContext] = {}
        self.interrupts = Interrupts(state, self.contexts, self.store, self.handle, crashed)

    def start(self) -> None:
        """Start the threads. They are daemons: a task that never ends does not keep the process."""
        for slot in list(self.state.slots):
            self._start_thread(slot.index)

    def _start_thread(self, slot: int) -> None:
        name = f"weft-{self.context.name}-{slot}"
        thread = threading.Thread(target=self._run_slot, args=(slot,), name=name, daemon=True)
        self.threads.append(thread)
        thread.start()

    def stop(self) -> None:
        """Let each thread end after its current task. Call it when nothing waits to be started."""
        self._is_stopped = True
        if self.spiller is not None:
            self.spiller.stop()
        for inbox in self._inboxes:
            inbox.put(False)
        if self.slot_reading is not None:
            self.slot_reading.interrupt()

    def join(self, timeout_s: float) -> bool:
        """Wait up to `timeout_s` for all threads to end, and return whether they have."""
        deadline = time.monotonic() + timeout_s
        for thread in self.threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self.threads)

    def drain(self, writable: bool = True) -> tuple[list[Message], list[WorkerAction]]:
        """Take the messages for the scheduler, and the actions to be done after they are sent.

        The caller holds `sending` until it has sent them. Unless `writable`, the messages stay, and
        only actions are a reason to `wake` until the next call.
        """
        messages: list[Message] = []
        state = self.state
        with self._lock:
            self._wake_pending = False
            self._writable = writable
            if writable:
                messages, state.to_scheduler = state.to_scheduler, messages
            after, state.after = state.after, []
        return messages, after

    def is_alone(self) -> bool:
        """Return whether no task waits here while another one runs."""
        n_executing = sum(slot.n_executing for slot in self.state.slots)
        return n_executing <= 1 and not self.state.n_ready

    def fail_unsendable(
        self, report: AttemptsFinished | AttemptsErred, error: LocalProtocolError
    ) -> AttemptsErred:
        """Return what to send for the report of one attempt that cannot be sent.

        It has failed then, so its value is dropped: another run would end in the same way.
        """
        (attempt,) = report.attempts
        with self._lock:
            record = self.state.by_attempt.get(attempt)
        if isinstance(report, AttemptsErred):
            key = report.failures[0][1]
        else:
            key = "" if record is None else record.key
        failures = [unsendable(error, key, self.context.name)]
        self.handle(SchedulerSent([DropAttempts(attempts=[attempt])]))
        us = report.durations_us
        return AttemptsErred(attempts=[attempt], durations_us=us, failures=failures)

    def lookup(self, keys: list[str]) -> list[tuple[str, int, int]]:
        """Return key, attempt and nbytes of those keys whose values are in the store."""
        with self._lock:
            records = [self.state.by_key.get(key) for key in keys]
            return [(x.key, x.attempt, x.nbytes) for x in records if x and x.state == "memory"]

    def counts(self) -> tuple[int, int, int, int]:
        """Return the numbers of tasks that run, are ready or wait, and of copies to be fetched."""
        state = self.state
        with self._lock:
            n_executing = sum(slot.n_executing for slot in state.slots)
            n_fetched = sum(len(peer.queue) for peer in state.fetching.peers.values())
            n_fetched += sum(len(request.copies) for request in state.fetching.requests.values())
            return n_executing, state.n_ready, len(state.waiting), n_fetched

    def records(self) -> list[WorkerTask]:
        """Return the current record of each key."""
        with self._lock:
            return list(self.state.by_key.values())

    def running(self) -> list[tuple[str, int]]:
        """Return the key and the thread of each task that runs now."""
        contexts = list(self.contexts.items())
        return [(key, thread) for thread, one in contexts if (key := one.task_key)]

    def handle(self, event: WorkerEvent, slot: int | None = None) -> bool:
        """Hand an event to the core and do its actions. Any thread may call this.

        Return whether slot `slot`, that of this thread, has something in its chunk.
        """
        state = self.state
        garbage: list[Any] = []
        rare: list[StartSlot | FailWait] | None = None
        watch = sends_here = wake = False
        with self._lock:
            state.handle(event, time.monotonic())
            more = slot is not None and state.slots[slot].busy
            if state.before:
                before, state.before = state.before, []
                for action in before:
                    if action.__class__ is Run:
                        self._inboxes[action.slot].put(True)
                        if self.slot_reading is not None:
                            self.slot_reading.interrupt()
                    elif action.__class__ is ForgetValues:
                        garbage += self.store.drop(action.attempts)
                    elif action.__class__ is CatchOutput:
                        if self._output is not None:
                            self._output.want(action)
                    elif action.__class__ is StartSlot:
                        self._inboxes.append(queue.SimpleQueue())
                        self.clocks.append(SlotClock(is_away=True))
                        self.interrupts.gates.append(SlotGate())
                        rare = [*(rare or ()), action]
                    elif action.__class__ is TakeSeat:
                        self.clocks[action.slot].take_seat(time.perf_counter_ns())
                    elif action.__class__ is LeaveSeat:
                        self.clocks[action.slot].leave_seat(time.perf_counter_ns())
                    elif action.__class__ is FailWait:
                        rare = [*(rare or ()), action]
                    else:
                        assert isinstance(action, ForgetFunctions)
                        garbage.append(action)
            if not self._wake_pending:
                if state.to_scheduler and self._writable:
                    until = state.reporting.until
                    if until > state.now:
                        watch = not self._watching
                        self._watching = True
                    else:
                        # A slot that has more to do leaves it to the loop, unless that had time
                        # enough: reports become batches meanwhile.
                        sends_here = slot is not None and not (more and not until)
                        wake = not sends_here
                if wake or state.after:
                    wake = self._wake_pending = True
        if rare is not None:
            self._do_rare(rare)
        if wake:
            self._wake()
        elif sends_here:
            self._send_here()
        if watch:
            self._watch(WATCH_S)
        return more

    def _do_rare(self, actions: list[StartSlot | FailWait]) -> None:
        for action in actions:
            if isinstance(action, StartSlot):
                self._start_thread(action.slot)
            elif (wait := self.waits.get(action.attempt)) is not None:
                wait.fail(action.text)

    def send_waiting(self) -> bool:
        """See to it that reports do not wait for longer than they may; False = none has waited.

        For the loop's thread, `WATCH_S` after `watch` was called, and again while it returns True.
        """
        state = self.state
        with self._lock:
            waits = bool(state.to_scheduler) and self._writable and not self._wake_pending
            if not waits:
                self._watching = False
                return False
            wake = state.reporting.until <= time.monotonic()
            if wake:
                self._wake_pending = True
        if wake:
            self._wake()
        return True

    def _send_here(self) -> None:
        """Send the messages in this thread, or have the loop do it."""
        state = self.state
        with self.sending:
            with self._lock:
                if self._wake_pending or not state.to_scheduler:
                    return  # the loop sends them, or another thread has just done so
                messages, state.to_scheduler = state.to_scheduler, []
            start = time.perf_counter()
            if self._send(messages):
                state.reporting.note_cost(time.perf_counter() - start)
                return
            with self._lock:
                state.to_scheduler[:0] = messages
                self._wake_pending = True
        self._wake()

    # --- On a slot's thread -----------------------------------------------------------------------

    def _run_slot(self, slot: int) -> None:
        try:
            context = copy.copy(self.context)
            seat = context.here.seat = SlotSeat(self, slot)
            set_worker(context)
            on_blocked_here(seat.blocked)
            on_interrupts_here(self.interrupts.gates[slot])
            self.contexts[threading.get_ident()] = context
            inbox = self._inboxes[slot]
            while True:
                reading = self.slot_reading
                if reading is not None and reading.is_lent and inbox.empty():
                    reading.read_while(inbox.empty)
                if not inbox.get():
                    return
                while True:
                    try:
                        self._run_chunks(slot, context)
                    except TaskInterrupted:  # between two tasks
                        if self._mend(slot, context):
                            continue
                    break
        except BaseException as error:  # a bug of weft: without this thread its tasks would hang
            self._crashed(error)

    def _run_chunks(self, slot: int, context: WorkerContext) -> None:
        """Run what is in the slot's chunk until there is nothing more."""
        take = self.state.slots[slot].chunk.popleft
        load = self.store.load
        clock = time.perf_counter_ns
        note = self._started.note if self._started is not None else None
        report = ChunkDone(slot, [], [], [], [])
        values: list[Any] = []
        here = context.here
        seat = here.seat
        assert seat is not None
        seat.pending = report, values
        seat.is_given_up = False  # the core gives chunks to slots that have seats
        own = self.clocks[slot]
        start = end = reported = looked = clock()
        first = 0  # the duration of the first task since `reported`
        own.begin(start, self.state.slots[slot].fetched_us)
        gate = self.interrupts.gates[slot]
        gate.open()
        unpack: Callable[..., Any] = loads_arguments
        pack = pack_to_ride_along
        if start >= own.next_sample:
            unpack, pack, own.next_sample = own.unpack, own.pack, -1
        while True:
            try:
                task = take()
            except IndexError:
                here.task = None
                own.run(end, len(report.attempts), len(report.failed_attempts), first)
                more = self._report(report, values)
                if note is not None:
                    # Not earlier: a task that has broken the interpreter causes an error by here.
                    note(slot, 0)
                if not more:
                    seat.pending = None  # which has the values
                    own.rest(clock())
                    return
                load = self.store.load
                report, values = ChunkDone(slot, [], [], [], []), []
                seat.pending = report, values
                start = end = reported = clock()
                first = 0
                if start - looked > _LOOK_AFTER_NS:
                    reading = self.slot_reading
                    if reading is not None and reading.is_lent:
                        reading.read_between()
                    looked = start = end = reported = clock()
                own.report(start)
                gate.open()
                if start >= own.next_sample >= 0:
                    unpack, pack, own.next_sample = own.unpack, own.pack, -1
                continue
            if note is not None:
                note(slot, task.attempt)
            here.task = task
            value: Any
            try:
                call = task.function.call
                if call is None:
                    call = self._load(task.function)
                    start = clock()  # loading (importing) happens once, so it does not count
                    own.load(start)
                inputs = task.inputs
                if inputs:
                    if unpack is loads_arguments:
                        args, kwargs = loads_arguments(
                            task.args, [load(record.attempt) for record in inputs]
                        )
                    else:
                        args, kwargs = own.unpack_inputs(task.args, load, inputs)
                else:
                    args, kwargs = unpack(task.args)
                value = call(*args, **kwargs)
                if seat.was_used:
                    start += seat.end_task()
                blob: Blob | None = None
                if task.wanted:
                    blob, nbytes = pack(value, task.key, task.wanted)
                else:
                    nbytes = sizeof(value)
            except BaseException as error:  # of user code: SystemExit ends the task only
                if seat.was_used:
                    start += seat.end_task()
                failure = self._failure(error, task)
                end = clock()
                report.failed_attempts.append(task.attempt)
                report.failed_durations_us.append((end - start) // 1000)
                report.failures.append(failure)
            else:
                end = clock()
                values.append(value)
                report.attempts.append(task.attempt)
                report.nbytes.append(nbytes)
                report.durations_us.append((end - start) // 1000)
                report.results.append(blob)
            # No reference to a task's objects may stay here once the task has ended.
            task = call = inputs = args = kwargs = value = blob = None  # type: ignore[assignment]
            unpack, pack = loads_arguments, pack_to_ride_along
            first = first or end - start
            start = end
            if end - reported > _REPORT_AFTER_NS and not seat.is_given_up:
                gate.close()
                own.usage.end_task(here.task, end, end - reported, self.handle)
                own.run(end, len(report.attempts), len(report.failed_attempts), first)
                first = 0
                reported = end
                report.finished = False
                self._report(report, values)
                report, values = ChunkDone(slot, [], [], [], []), []
                seat.pending = report, values
                gate.open()

    def _mend(self, slot: int, context: WorkerContext) -> bool:
        """Report what an exception between two tasks has left; return whether there is more."""
        seat = context.seat
        assert seat is not None
        self.interrupts.gates[slot].close()
        if seat.was_used:
            seat.end_task()
        context.here.task = None
        assert seat.pending is not None
        report, values = seat.pending
        with self._lock:
            mend(report, values, self.state, slot)
        more = self._report(report, values)
        if self._started is not None:
            self._started.note(slot, 0)
        if not more:
            seat.pending = None
            self.clocks[slot].rest(time.perf_counter_ns())
        return more

    def give_seat_up(self, seat: SlotSeat, wait: TaskWait | None, *, park: bool) -> None:
        """Let another task run while that of this thread waits; first report what it has done."""
        slot = seat.slot
        assert seat.pending is not None, "a task runs here"
        report, values = seat.pending
        if len(self.state.seats.blocked) + len(self.state.returning) >= MAX_BLOCKED:
            raise RuntimeError(
                f"{MAX_BLOCKED} tasks of worker {self.context.name} wait for others already, each "
                "on a thread of its own: submit fewer tasks that wait, or in larger steps"
            )
        gate = self.interrupts.gates[slot]
        gate.close()
        own = self.clocks[slot]
        own.pause(time.perf_counter_ns(), len(report.attempts), len(report.failed_attempts))
        if report.attempts or report.failed_attempts:
            done = copy.copy(report)
            done.finished = False
            report.attempts, report.nbytes, report.durations_us = [], [], []
            report.results, report.failures = [], []
            report.failed_attempts, report.failed_durations_us = [], []
            made = list(values)
            values.clear()
            self._report(done, made)
        if self._started is not None:
            self._started.note(slot, 0)
        event = SlotBlocked(slot, seat.attempt, may_park=park)
        if wait is not None:
            self.waits[seat.attempt] = wait
            event.waits_for = wait.columns
        self.handle(event)
        gate.open()

    def take_seat(self, seat: SlotSeat) -> None:
        """Wait until the task of this thread may go on."""
        gate = self.interrupts.gates[seat.slot]
        gate.close()
        self.handle(SlotResumes(seat.slot))
        inbox = self._inboxes[seat.slot]
        if not self._is_stopped and not inbox.get():
            inbox.put(False)  # the thread is to end after this task
        if self._started is not None:
            self._started.note(seat.slot, seat.attempt)
        gate.open()

    def _report(self, report: ChunkDone, values: list[Any]) -> bool:
        """Report the slot's finished tasks; return whether there is something in its chunk."""
        self.interrupts.gates[report.slot].close()
        if self.state.busy:
            if records_times(self.state):
                report.types = [short_type_name(value) for value in values]
            self.interrupts.memory.look(report.attempts)
        # First the store: as soon as the core has a record of a value, other threads may read it.
        self.store.put(report.attempts, values, report.nbytes)
        if (output := self._output) is not None and output.is_filled:
            self.send_output(output.take(threading.get_ident()))
        more = self.handle(report, report.slot)
        if self.store.nbytes > self.store.watched:
            self.store.relieve(values)
        return more

    def send_output(self, events: Sequence[WorkerEvent]) -> None:
        """Send what tasks have printed and logged, before what is reported later."""
        for event in events:
            with closed_here():
                self.handle(event)

    def forget_calls(self) -> None:
        """Have functions unpickled again: a module that they are named in may be another one."""
        with self._load_lock:
            for function in list(self.state.functions.values()):
                function.call = None

    def _load(self, function: WorkerFunction) -> Callable[..., Any]:
        """Unpickle a function, once. One that fails is tried again by the next task."""
        if isinstance(function, TracedFunction):
            return in_span(self._load(function.of), function, self.context.name)
        with self._load_lock:
            if function.call is None:
                if function.blob is None:
                    raise InternalError(f"the function {function.id.hex()} was never sent here")
                function.call = self._own.get(function.id) or as_call(loads(function.blob))
            return function.call  # type: ignore[no-any-return]

    def _failure(self, error: BaseException, task: WorkerTask) -> Failure:
        name, load = self.context.name, TaskExecutor._load.__code__
        return failure_in_slot(error, task, name, load, self.interrupts, self.handle)


#: The code of a slot's thread around a task.
OWN_CODE = frozenset({TaskExecutor._run_chunks.__code__, TaskExecutor._run_slot.__code__})
