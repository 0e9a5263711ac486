"""Runs each call in a child process of the worker, one for each slot.

The thread of a slot sends the call, with its arguments as they came, and waits for the child. This
thread does on behalf of the call what that asks for meanwhile: a seat, a part of a value. Arguments
and results are not unpickled in this process, so user code cannot break it. A child that ends
during a call fails that call only.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from math import inf
from typing import TYPE_CHECKING, Any, Final

from ...protocol.errors import InternalError, WeftError, WorkerDied
from ...protocol.host.blocking import TaskWait
from ...protocol.host.host_files import FileGone
from ...protocol.host.memory import taken_nbytes
from ...protocol.values.printed import CallOutput
from ...protocol.values.serialize import dumps, loads_arguments
from ...protocol.values.sizeof import sizeof
from ...protocol.wire.messages import OWN_PROCESS, WANTED
from ...protocol.wire.payload import Blob, blob_nbytes
from ..core.events import ChunkDone
from ..core.features.traces import TracedFunction
from ..core.tasks import usage_of
from ..data.packing import (
    RIDE_ALONG_BYTES,
    RIDE_ALONG_LARGE_BYTES,
    pack_to_ride_along,
    short_type_name,
)
from ..data.parts_lost import PartsGone
from ..slots.executor import TaskExecutor
from ..slots.interrupting import TaskInterrupted
from ..slots.scratch import scratch_of
from .interrupting import ChildInterrupts
from .link import as_blob, as_plain
from .memory_plan import MemoryPlan
from .process import IsolatedProcess
from .sampling import ChildrenSamples
from .watching import ChildrenMemory, MemoryWatcher

if TYPE_CHECKING:
    from ...protocol.wire.failure import Failure
    from ..context import WorkerContext
    from ..core.tasks import AttemptUsage, WorkerTask
    from ..policy import Fractions, Isolation
    from ..slots.seats import SlotSeat

logger: Final = logging.getLogger("weft.worker")

#: A call that was interrupted has this long to end, seconds; then its process is killed. If it had
#: not ended after 5 s, the scheduler would have the worker ended.
KILL_S: Final = 3.0
#: A child has this long to put a call away that has ended, seconds; then it is killed.
_SETTLE_S: Final = 10.0
#: Functions that a child keeps.
MAX_FUNCTIONS: Final = 1000
#: Finished calls are reported at the end of a chunk, or when the last report is older than this.
_REPORT_AFTER_NS: Final = 1_000_000
#: How often it is looked how much memory a call takes, if that has a limit, seconds.
_LOOK_S: Final = 0.1


class _Returned:
    """The result of a call, as it came from the child."""

    __slots__ = ("blob", "holder", "type_name")

    def __init__(self, blob: Blob, type_name: str, holder: IsolatedProcess | None) -> None:
        self.blob = blob
        self.type_name = type_name
        #: has futures that the result refers to
        self.holder = holder


class _CallFailed(Exception):
    """A call has raised in the child, which has packed that."""

    def __init__(self, failure: Failure) -> None:
        self.failure = failure


class IsolatingExecutor(TaskExecutor):
    """Runs the worker's tasks in children."""

    def __init__(
        self, isolation: Isolation, fractions: Fractions, *args: Any, **options: Any
    ) -> None:
        """Prepare; the arguments behind these two are those of `TaskExecutor`."""
        super().__init__(*args, **options)
        self._isolation = isolation
        #: {slot: its child}
        self._children: dict[int, IsolatedProcess] = {}
        #: Slots whose children have functions of modules that were replaced.
        self._outdated: dict[int, None] = {}
        self.samples = self._samples = ChildrenSamples(self._children)
        own = self.state, self.contexts, self.store, self.handle, self._crashed
        self._child_interrupts = ChildInterrupts(self._children, *own)
        self.interrupts = self._child_interrupts
        memory = ChildrenMemory(self._children, self.store)
        self.children_nbytes = memory.nbytes
        plan = MemoryPlan(self.store.memory_limit, fractions, self.state.n_seats)
        self._watcher = MemoryWatcher(memory, self._children, plan, self._crashed)

    def forget_calls(self) -> None:
        """See `TaskExecutor`: here the children are replaced."""
        super().forget_calls()
        self._outdated.update(dict.fromkeys(self._children))

    def start(self) -> None:
        """See `TaskExecutor`."""
        self.threads.append(self._watcher.thread)
        self._watcher.thread.start()
        super().start()

    def stop(self) -> None:
        """See `TaskExecutor`."""
        super().stop()
        self._watcher.stop()

    # --- On a slot's thread -----------------------------------------------------------------------

    def _run_slot(self, slot: int) -> None:
        try:
            super()._run_slot(slot)
        finally:
            child = self._children.pop(slot, None)
            if child is not None:
                child.retire()

    def _run_chunks(self, slot: int, context: WorkerContext) -> None:
        clock = time.perf_counter_ns
        take = self.state.slots[slot].chunk.popleft
        own = self.clocks[slot]
        here = context.here
        seat = here.seat
        assert seat is not None
        seat.is_given_up = False
        report, values = self._begin_report(seat)
        reported = clock()
        own.begin(reported, self.state.slots[slot].fetched_us)
        while True:
            try:
                task = take()
            except IndexError:
                here.task = None
                more = self._report(report, values)
                self._note(slot, 0)
                if not more:
                    seat.pending = None
                    own.rest(clock())
                    self._settle(slot)
                    return
                report, values = self._begin_report(seat)
                reported = clock()
                own.report(reported)
                continue
            self._note(slot, task.attempt)
            here.task = task
            self._run_one(task, seat, report, values)
            end = clock()
            if end - reported > _REPORT_AFTER_NS and not seat.is_given_up:
                report.finished = False
                self._report(report, values)
                report, values = self._begin_report(seat)
                reported = end

    def _begin_report(self, seat: SlotSeat) -> tuple[ChunkDone, list[Any]]:
        seat.pending = ChunkDone(seat.slot, [], [], [], []), []
        return seat.pending

    def _note(self, slot: int, attempt: int) -> None:
        if self._started is not None:
            self._started.note(slot, attempt)

    def _run_one(
        self, task: WorkerTask, seat: SlotSeat, report: ChunkDone, values: list[Any]
    ) -> None:
        start = time.perf_counter_ns()
        nbytes, blob = 0, None
        value: Any = None
        failure: Failure | None = None
        try:
            if task.function.id in self._own:
                value, nbytes, blob = self._call_own(task, seat.slot)
            else:
                inputs = [self._input(record) for record in task.inputs]
                child = self._begun(task, seat.slot)
                start = time.perf_counter_ns()  # a new process takes its time once
                value = self._call(child, task, inputs, seat)
                nbytes = max(1, blob_nbytes(value.blob))
                limit = RIDE_ALONG_BYTES if task.wanted == WANTED else RIDE_ALONG_LARGE_BYTES
                blob = value.blob if task.wanted and nbytes <= limit else None
        except _CallFailed as error:
            failure = error.failure
        except BaseException as error:
            failure = self._failure(error, task)
        if seat.was_used:
            start += seat.end_task()
        end = time.perf_counter_ns()
        own = self.clocks[seat.slot]
        if task.function.id in self._own or hasattr(task, "usage"):
            own.usage.end_task(task, end, end - start, self.handle)
        own.run(end, failure is None, failure is not None, 0)
        if failure is not None:
            report.failed_attempts.append(task.attempt)
            report.failed_durations_us.append((end - start) // 1000)
            report.failures.append(failure)
        else:
            values.append(value)
            report.attempts.append(task.attempt)
            report.nbytes.append(nbytes)
            report.durations_us.append((end - start) // 1000)
            report.results.append(blob)

    def _report(self, report: ChunkDone, values: list[Any]) -> bool:
        if self.state.busy:
            report.types = [
                one.type_name if isinstance(one, _Returned) else short_type_name(one)
                for one in values
            ]
            self.interrupts.memory.look(report.attempts)
        rows = zip(report.attempts, values, report.nbytes, strict=True)
        for attempt, value, nbytes in rows:
            if isinstance(value, _Returned):
                self.store.put_packed(attempt, value.blob)
                if value.holder is not None:
                    value.holder.holds[attempt] = None
            else:
                self.store.put([attempt], [value], [nbytes])
        if (output := self._output) is not None and output.is_filled:
            self.send_output(output.take(threading.get_ident()))
        more = self.handle(report, report.slot)
        if self.store.nbytes > self.store.watched:
            self.store.relieve([])
        return more

    def _call_own(self, task: WorkerTask, slot: int) -> tuple[Any, int, Blob | None]:
        """Run a function of weft's own, which needs the worker: it makes an actor."""
        gate = self.interrupts.gates[slot]
        self._child_interrupts.in_threads[task.attempt] = None
        try:
            gate.open()
            call = task.function.call or self._load(task.function)
            inputs = [self.store.load(record.attempt) for record in task.inputs]
            args, kwargs = loads_arguments(task.args, inputs)
            value = call(*args, **kwargs)
            if task.wanted:
                blob, nbytes = pack_to_ride_along(value, task.key, task.wanted)
                return value, nbytes, blob
            return value, sizeof(value), None
        finally:
            del self._child_interrupts.in_threads[task.attempt]
            gate.close()

    # --- A child ----------------------------------------------------------------------------------

    def _child(self, slot: int, attempt: int) -> IsolatedProcess:
        """Return the child of a slot, which waits for a call and has begun this one."""
        if self._outdated.pop(slot, self) is None:
            self._retire(slot, "a module was replaced")
        self._settle(slot)
        child = self._children.get(slot)
        if child is not None and not child.begin(attempt):
            self._bury(slot)
            child = None
        if child is None:
            child = self._children[slot] = self._start(slot)
            child.link.receive()
            if not child.begin(attempt):
                raise EOFError("it has ended")
        return child

    def _bury(self, slot: int) -> None:
        """Drop a child that has ended, or was ended, between two calls."""
        child = self._children.pop(slot)
        if child.is_retired:
            return
        reason, _ = child.kill()
        if child.memory_end is None:
            logger.warning(
                "a child of worker %s died idle: %s",
                self.context.name,
                reason,
                extra={"code": "task-process-died"},
            )

    def _start(self, _slot: int) -> IsolatedProcess:
        here = self.context
        keeps = self._output is None or self._output.keeps
        about = [here.name, here.address, here.worker_id, here.local_directory, here.resources]
        return IsolatedProcess(self._isolation, [about, keeps])

    def _settle(self, slot: int) -> None:
        """Wait until the child of a slot has put its last call away; replace it if it is time."""
        child = self._children.get(slot)
        if child is None or not child.is_settling:
            return
        try:
            if not child.link.is_ready(_SETTLE_S):
                raise EOFError("a finalizer does not end, or it was stopped")
            nbytes = child.link.receive()[1]
        except EOFError:
            self._bury(slot)
            return
        child.is_settling = False
        why = child.recycling.note_idle(nbytes)
        if why and not child.holds:
            self._retire(slot, why)
        else:
            child.rest()

    def _retire(self, slot: int, why: str) -> None:
        child = self._children.pop(slot, None)
        if child is not None:
            logger.debug("a child of worker %s is replaced: %s", self.context.name, why)
            child.retire()

    def _begun(self, task: WorkerTask, slot: int) -> IsolatedProcess:
        """Return the child of a slot, which has begun a task."""
        try:
            return self._child(slot, task.attempt)
        except EOFError:
            raise self._died(task, self._children.pop(slot)) from None

    def _call(
        self, child: IsolatedProcess, task: WorkerTask, inputs: list[Any], seat: SlotSeat
    ) -> _Returned:
        """Run a task in a child that has begun it."""
        try:
            child.link.send("call", self._described(child, task, inputs), self._host(child))
            with contextlib.ExitStack() as blocks:
                return self._converse(child, task, seat, blocks)
        except (EOFError, BrokenPipeError, ConnectionResetError):
            self._children.pop(seat.slot, None)
            raise self._died(task, child) from None
        finally:
            child.attempt = 0

    def _described(
        self, child: IsolatedProcess, task: WorkerTask, inputs: list[Any]
    ) -> dict[str, Any]:
        """Return what a child is to run."""
        function = task.function
        if function.blob is None:
            raise InternalError(f"the function {function.id.hex()} was never sent here")
        forgets = len(child.functions) >= MAX_FUNCTIONS
        if forgets:
            child.functions.clear()
        output = self._output
        is_wanted = output is not None and output.client_here() is not None
        dropped = [attempt for attempt in child.holds if attempt not in self.store]
        for attempt in dropped:
            del child.holds[attempt]
        is_new = function.id not in child.functions
        child.functions[function.id] = None
        return {
            "key": task.key,
            "attempt": task.attempt,
            "together": getattr(task, "together", None),
            "trace": function.trace if isinstance(function, TracedFunction) else None,
            "function": function.id,
            "function_blob": as_plain(function.blob) if is_new else None,
            "args": as_plain(task.args),
            "inputs": inputs,
            "forgets": forgets,
            "dropped": dropped,
            "is_measured": hasattr(task, "usage"),
            "output": (is_wanted, *((0, {}) if output is None else output.levels)),
        }

    def _died(self, task: WorkerTask, child: IsolatedProcess) -> WeftError:
        child.attempt = 0
        reason, facts = child.kill()
        usage = usage_of(task)  # else its long run would be measured as one of the worker itself
        usage.kind = OWN_PROCESS
        usage.peak_nbytes = max(usage.peak_nbytes, facts.peak_nbytes or 0)
        if child.memory_end is not None:
            logger.warning(
                "task %s was ended: %s",
                task.key,
                child.memory_end.text,
                extra={"code": "task-memory-exceeded"},
            )
            return self._watcher.plan.error_of(task.key, child.memory_end)
        logger.warning(
            "task %s has ended its process: %s",
            task.key,
            reason,
            extra={"code": "task-process-died"},
        )
        who = f"a child process of {self.context.name}"
        return WorkerDied(task.key, 1, who, reason, facts)

    def _input(self, record: WorkerTask) -> Any:
        packed = self.store.pack_near(record.attempt, record.key)
        if packed is None:
            packed = dumps(self.store.load(record.attempt))  # which raises that it is gone
        return as_plain(packed)

    def _host(self, child: IsolatedProcess) -> list[Any] | None:
        """Return what a client in the child needs, if it does not know that."""
        host = self.context.host
        if host is None or child.task_pass == host.task_pass:
            return None
        child.task_pass = host.task_pass
        addresses, security = host.find()
        plain = security.to_plain()
        return [host.name, host.worker_id, list(addresses), plain, host.task_pass]

    def _converse(
        self, child: IsolatedProcess, task: WorkerTask, seat: SlotSeat, blocks: Any
    ) -> _Returned:
        """Do what the call asks for until it ends."""
        usage: AttemptUsage | None = getattr(task, "usage", None)
        if usage is not None:
            usage.kind = OWN_PROCESS
        kill_at = inf
        gone: PartsGone | None = None
        is_program = False
        while True:
            left = kill_at - time.monotonic()
            if left <= 0:  # it has not ended, though it was interrupted
                del self._children[seat.slot]
                child.attempt = 0
                child.kill()
                raise TaskInterrupted
            news, is_ready = child.wait(left if usage is None else min(left, _LOOK_S))
            for verb, *more in news:
                if verb == "interrupt":
                    kill_at = time.monotonic() + KILL_S
                child.pass_on(verb, task.attempt, *more)
            if not is_ready:
                if usage is not None and not is_program:
                    usage.peak_nbytes = max(usage.peak_nbytes, taken_nbytes(child.pid))
                continue
            verb, *what = child.link.receive()
            if verb in ("done", "failed"):
                child.is_settling = True
                _note_used(task, what.pop())
                if verb == "failed":
                    if gone is not None:
                        raise gone
                    raise self._failed(task, *what)
                return self._returned(child, *what)
            if verb == "sampled":
                self._samples.note(child, what[0])
            elif verb == "program":
                if usage is not None:
                    usage.peak_nbytes = max(what[0], usage.peak_nbytes if is_program else 0)
                is_program = True
            elif verb == "blocked":
                blocks.enter_context(seat.blocked(self._wait_of(child, task, what[0]), what[1]))
            elif verb == "resumed":
                blocks.close()
                child.link.send("answer", None)
            elif verb == "parts":
                try:
                    child.link.send("answer", (True, as_plain(self._parts(what))))
                except PartsGone as error:
                    gone = error
                    child.link.send("answer", (False, str(error)))
            else:
                self._do(child, task, seat, verb, what)

    def _do(
        self, child: IsolatedProcess, task: WorkerTask, seat: SlotSeat, verb: str, what: list[Any]
    ) -> None:
        output = self._output
        if verb == "seceded":
            seat.secede()
            child.link.send("answer", None)
        elif verb == "rejoined":
            seat.rejoin()
            child.link.send("answer", None)
        elif verb == "is_cancelled":
            child.link.send("answer", self.interrupts.is_asked(task.attempt))
        elif verb == "kept":
            seat.keep_output(CallOutput(*what))
        elif verb == "scratch":
            child.link.send("answer", _scratch_or_error(seat))
        elif output is not None and verb == "printed":
            if (found := output.client_here()) is not None:
                output.write(*found, *what)
        elif output is not None and verb == "shown":
            output.show(task.key, *what)
        elif output is not None and verb == "logged":
            output.log(*what)
        elif output is not None and verb == "followed":
            output.follow(*what)

    def _parts(self, what: list[Any]) -> Blob:
        fetch = self.context.parts
        assert fetch is not None, "it is a worker with a data port"
        return dumps(fetch(*what))

    def _wait_of(self, child: IsolatedProcess, task: WorkerTask, columns: Any) -> TaskWait | None:
        if columns is None:
            return None

        def fail(text: str) -> None:
            child.tell(task.attempt, "fail", text)

        of = [columns.get(name, []) for name in ("actors", "calls")]
        return TaskWait(columns.get("keys", []), fail, *of)

    def _returned(
        self, child: IsolatedProcess, plain: Any, type_name: str, has_futures: bool
    ) -> _Returned:
        try:
            blob = as_blob(plain, is_kept=True)
        except (FileGone, OSError) as error:
            raise EOFError(f"the result of the child cannot be read: {error}") from error
        if isinstance(plain, tuple) and plain[0] == "file":
            child.link.send("taken")
        if isinstance(blob, bytearray):
            blob = bytes(blob)
        return _Returned(blob, type_name, child if has_futures else None)

    def _failed(self, task: WorkerTask, failure: Failure, is_interrupted: bool) -> BaseException:
        """Return what to raise for a call that has raised."""
        if is_interrupted and self.interrupts.was_asked(task.attempt):
            return TaskInterrupted()
        return _CallFailed(failure)


def _scratch_or_error(seat: SlotSeat) -> tuple[str | None, tuple[Any, ...] | None]:
    """Return the folder of a call, or the arguments of the OSError with which it was not made."""
    try:
        return scratch_of(seat), None
    except OSError as error:
        return None, error.args


def _note_used(task: WorkerTask, used: dict[str, int] | None) -> None:
    """Note what a call has used of its process, if it was measured."""
    if used is None:
        return
    usage = usage_of(task)
    usage.kind = OWN_PROCESS
    usage.peak_nbytes = max(usage.peak_nbytes, used["peak_nbytes"])
    usage.cpu_us += used["cpu_us"]
    usage.read_nbytes += used["read_nbytes"]
    usage.written_nbytes += used["written_nbytes"]
