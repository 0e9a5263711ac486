"""A child process of a worker: it gets calls from the thread of one slot, and runs them in turn."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import logging
import signal
import socket
import sys
import threading
from typing import Any, Final, cast

from ...protocol.errors import Reschedule
from ...protocol.host.blocking import on_blocked_here, on_interrupts_here
from ...protocol.host.forks import after_fork
from ...protocol.host.host_files import FileGone
from ...protocol.host.process_role import set_worker_process
from ...protocol.trust.security import Security
from ...protocol.values.host_blobs import HostBlob, share
from ...protocol.values.parts import Taken
from ...protocol.values.serialize import futures_met, loads, loads_arguments
from ...protocol.wire.failure import Failure
from ...protocol.wire.messages import OWN_PROCESS
from ..context import TaskHost, WorkerContext, set_worker
from ..core.features.traces import TracedFunction
from ..core.tasks import WorkerFunction, WorkerTask
from ..data.packing import pack_result, short_type_name
from ..measuring.stack_sampling import StackSampler
from ..slots.coroutines import as_call
from ..slots.failing import failure_of
from ..slots.interrupting import TaskInterrupted
from ..slots.tracing import in_span
from .link import Link, as_blob, as_plain
from .measuring import MEASURED, CallMeter
from .output import ChildOutput, flush
from .seat import ChildSeat, ProgramUsage, SignalGate

logger: Final = logging.getLogger("weft.worker")

#: The kernel ends a child before its worker when memory is out.
_OOM_SCORE: Final = b"300"


class _Child:
    def __init__(self, link: Link) -> None:
        self._link = link
        _, description, output = link.receive()
        self._gate = SignalGate()
        self._sampler = StackSampler(
            self._running, {_Child._perform.__code__}, handler=ChildSeat._on_news.__code__
        )
        self._seat = ChildSeat(
            link, self._gate, lambda keep_s: self._sampler.read(keep_s).to_info()
        )
        self._output = ChildOutput(self._seat, output)
        self._context = WorkerContext(*description)
        self._context.set_own(output=self._output, parts=self._fetch_parts)
        self._context.here.seat = cast(Any, self._seat)
        self._functions: dict[bytes, WorkerFunction] = {}
        self._addresses: list[str] = []
        self._security: Security | None = None
        #: the last result, if it is in a file
        self._kept: HostBlob | None = None
        self._meter = CallMeter()
        #: {attempt: futures in its result}, of results that the worker has
        self._futures: dict[int, list[Any]] = {}
        set_worker(self._context)
        on_blocked_here(self._seat.blocked)
        on_interrupts_here(self._gate)
        sys.unraisablehook = self._seat.on_unraisable

    def leave(self) -> None:
        """Leave the socket to the parent, in a process that a call has forked.

        With a copy of it there the worker would not see the end of this child. What that process
        prints would come in the middle of other messages.
        """
        self._link.close()
        self._seat.leave()
        self._output.want_now(False, 0, {})

    def run(self) -> None:
        """Run calls until the worker closes the socket."""
        self._link.send("idle", self._meter.nbytes())
        while True:
            try:
                verb, *message = self._link.receive()
            except EOFError:
                return
            if verb == "call":
                self._answer(*message)
                del message
                gc.collect(0)
                self._link.send("idle", self._meter.nbytes())

    def _running(self) -> list[tuple[str, int]]:
        task = self._context.here.task if self._seat.attempt else None
        return [] if task is None else [(task.key, threading.main_thread().ident or 0)]

    def _answer(self, call: dict[str, Any], host: list[Any] | None) -> None:
        is_measured = call["is_measured"]
        self._meter.begin(is_fresh=is_measured)
        if host is not None:
            self._know(host)
        key, attempt, together = call["key"], call["attempt"], call["together"]
        for dropped in call["dropped"]:
            self._futures.pop(dropped, None)
        if call["forgets"]:
            self._functions.clear()
        function = self._functions.get(call["function"])
        if function is None:
            blob = as_blob(call["function_blob"], is_kept=True)
            function = WorkerFunction(call["function"], blob)
            self._functions[function.id] = function
        task = WorkerTask(key, attempt, 0, function, b"", 0)
        if together is not None:
            task.together = together
        if is_measured:
            task.usage = ProgramUsage(self._seat)
        self._output.want_now(*call["output"])
        self._seat.begin(attempt)
        answer = self._perform(task, call)
        self._gate.close()
        self._context.here.task = None
        self._seat.attempt = 0
        flush()
        used = self._meter.end(is_fresh=is_measured)
        if (usage := getattr(task, "usage", None)) is not None and usage.kind == OWN_PROCESS:
            used = {name: getattr(usage, name) for name in MEASURED}  # of the programs alone
        self._link.send(*answer, used)
        # A file is named by this process, so it is kept until the worker has opened it.
        while self._kept is not None:
            if self._link.receive()[0] == "taken":
                self._kept = None

    def _know(self, host: list[Any]) -> None:
        name, worker_id, addresses, security, task_pass = host
        self._addresses, self._security = addresses, Security.from_plain(security)
        if getattr(self._context, "host", None) is None:
            self._context.set_own(host=TaskHost(name, worker_id, self._find))
        assert self._context.host is not None
        self._context.host.task_pass = task_pass

    def _find(self) -> tuple[list[str], Security]:
        assert self._security is not None
        return self._addresses, self._security

    def _perform(self, task: WorkerTask, call: dict[str, Any]) -> tuple[Any, ...]:
        """Run a call; return the message about its end, without what it has used."""
        here, seat = self._context.here, self._seat
        here.task = task
        try:
            function = task.function.call or self._load(task.function)
            if call["trace"]:
                traced = TracedFunction(task, call["trace"])
                function = in_span(function, traced, self._context.name)
            args, kwargs = loads_arguments(
                as_blob(call["args"], is_kept=False), [*map(_load_input, call["inputs"])]
            )
            self._gate.open()
            value = function(*args, **kwargs)
            self._gate.close()
            seat.end_task()
            with futures_met() as met:
                blob = pack_result(value, task.key)
            if met:  # they live as long as the result
                self._futures[task.attempt] = met
            self._kept = share(blob)
            return "done", as_plain(self._kept or blob), short_type_name(value), bool(met)
        except BaseException as error:  # of user code: SystemExit ends the task only
            self._gate.close()
            try:
                seat.end_task()
            except Exception:  # the task fails by its own error; this one is logged
                logger.exception(
                    "task %s: what was due at its end has failed",
                    task.key,
                    extra={"code": "task-end-failed"},
                )
            if isinstance(error, FileGone):
                error = Reschedule(f"an input is gone: {error}")
            return "failed", self._failure(error, task), isinstance(error, TaskInterrupted)

    def _failure(self, error: BaseException, task: WorkerTask) -> Failure:
        return failure_of(error, task, self._context.name, _Child._load.__code__)

    def _load(self, function: WorkerFunction) -> Any:
        assert function.blob is not None
        function.call = as_call(loads(function.blob))
        return function.call

    def _fetch_parts(self, *asked: Any) -> list[Taken]:
        is_ok, answer = self._seat.ask("parts", *asked)
        if not is_ok:
            raise Reschedule(answer)
        taken: list[Taken] = loads(as_blob(answer, is_kept=False))
        return taken


def _load_input(plain: Any) -> Any:
    return loads(as_blob(plain, is_kept=False))


def run_child(fd: int) -> None:
    """Be a child with this descriptor of its socket, until the worker closes the other end."""
    set_worker_process()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.enable(all_threads=False)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "wb", buffering=0) as file:
        file.write(_OOM_SCORE)
    with socket.socket(fileno=fd) as sock:
        sock.set_inheritable(False)  # programs that a call starts do not have it
        child = _Child(Link(sock))
        after_fork(child.leave)
        child.run()
