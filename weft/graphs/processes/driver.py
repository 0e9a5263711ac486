"""The driver for graphs in worker processes: those of process executors, and weft's own.

It owns one run from the linked tasks to their results. The calling thread does everything: it
encodes the tasks while workers start (`encoding`), turns messages of workers into events and the
decisions of `state` into messages, and raises the errors. `pool` and `executor_crew` provide the
workers.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, NoReturn

from ...protocol.errors import UnpicklableResult, WeftError, WorkerDied
from ...protocol.host.collector import paused_collector
from ...protocol.host.machine import n_cores
from ...protocol.values.exceptions import name_packed, unpack_exception
from ...protocol.values.functions import dumps_function
from ..core.reading import Graph
from ..drivers.executors import n_workers_of
from ..drivers.failing import call_again
from ..drivers.observing import ELSEWHERE, Observer
from . import link
from .callbacks import Shown
from .core.state import Drop, Export, ProcessRun, Report, Revoke, SendChunk
from .core.tasks import ProcessTask
from .crew import Crew, Member
from .encoding import Encoded, Unpacked
from .executor_crew import ExecutorCrew, Unreachable
from .pool import lease, shutdown
from .serving import EXPORT_IF_POSSIBLE, EXPORT_IF_SMALL, INITIALIZER, KEEP, OUTPUT
from .sharing import SHARED_NBYTES, Packed, discard, pack, unpack

__all__ = ["ProcessTask", "Unreachable", "run_on_processes", "shutdown"]

logger = logging.getLogger("weft.client")

#: How often the driver checks that workers still live, while they send nothing.
_CHECK_S = 1.0

_run_ids = itertools.count()


def run_on_processes(
    graph: Graph,
    *,
    executor: Executor | None = None,
    num_workers: int | None = None,
    chunksize: int | None = None,
    rerun_exceptions_locally: bool = False,
    observer: Observer | None = None,
    initializer: Callable[[], object] | None = None,
) -> Any:
    """Run a graph in worker processes and return its results.

    Args:
        graph: of `ProcessTask`s; used up by this.
        executor: whose processes are to be the workers; None = weft's own.
        num_workers: number of workers; None = as many as the executor has, or one per core.
        chunksize: tasks that are sent to a worker at a time; None = as many as should take 10 ms,
            -1 = all ready ones, spread evenly.
        rerun_exceptions_locally: repeat a call that failed in this thread.
        observer: notified of each task, and of each result if it wants results.
        initializer: called in each of weft's own processes before its first task.

    Raises:
        SerializationError: a task cannot be pickled; nothing was run.
        Unreachable: the executor's processes cannot connect to this one; nothing was run.
        UnpicklableResult: a result that is needed elsewhere cannot be pickled.
        WorkerDied: a worker process ended while it ran a task.
        WrongExecutor: the executor takes no calls, or dropped those it had.
        BaseException: the exception of the first task that failed. Running tasks go on, and their
            results are dropped; no other starts. On KeyboardInterrupt, weft's own workers are
            killed.
    """
    if not graph.n_tasks:
        return graph.results()
    n_workers = num_workers or (n_cores() if executor is None else n_workers_of(executor))
    n_workers = min(n_workers, graph.n_tasks)
    crew: Crew
    if executor is None:
        blob = b"" if initializer is None else dumps_function(initializer)[1]
        crew = lease(n_workers, blob)
    else:
        crew = ExecutorCrew(executor, n_workers)
    is_started = False
    try:
        run_id = next(_run_ids)
        crew.begin(run_id)
        with paused_collector():
            encoded = Encoded(graph)
        is_started = True
        _CrewRun(run_id, crew, encoded, chunksize, rerun_exceptions_locally, observer).go()
    except BaseException as exc:
        graph.unlink()
        if isinstance(exc, Exception):
            crew.end(is_clean=not is_started)
        else:
            crew.kill()
        raise
    crew.end(is_clean=True)
    logger.debug(
        "ran %d tasks in %d worker processes: %d bytes sent, %d received",
        graph.n_tasks,
        n_workers,
        *crew.n_bytes,
    )
    return graph.results()


class _CrewRun:
    """A graph under way."""

    def __init__(
        self,
        run_id: int,
        crew: Crew,
        encoded: Encoded,
        chunksize: int | None,
        rerun_exceptions_locally: bool,
        observer: Observer | None,
    ) -> None:
        self._id = run_id
        self._crew = crew
        self._directory = crew.directory.path
        self._encoded = encoded
        self._tasks = encoded.tasks
        self._rerun_exceptions_locally = rerun_exceptions_locally
        self._state = ProcessRun(
            encoded.tasks,
            encoded.ready,
            encoded.n_groups,
            crew.n_workers,
            chunksize,
            is_watched=observer is not None,
        )
        self._shown = None if observer is None else Shown(observer, self._state)
        #: By index of the worker.
        self._members: list[Member] = []
        #: {number: blob of a function, as it is sent}
        self._functions: dict[int, Any] = {}

    def go(self) -> None:
        """Run all tasks; then the outputs have their values."""
        state, crew = self._state, self._crew
        wake_s: float | None = None
        checked_s = time.monotonic()
        while state.n_unfinished:
            now = time.monotonic()
            if now - checked_s >= _CHECK_S or crew.is_check_due:
                checked_s = now
                crew.is_check_due = False
                for member in crew.check():
                    self._receive(member, member.link.receive() or None)
            timeout_s = _CHECK_S if wake_s is None else min(wake_s - now, _CHECK_S)
            if crew.is_check_due:
                timeout_s = 0.0
            for member, messages in crew.wait(timeout_s):
                self._receive(member, messages)
            wake_s = state.decide(time.monotonic())
            self._act()
        for value in self._functions.values():
            self._discard(value)

    # --- Messages from workers --------------------------------------------------------------------

    def _receive(self, member: Member, messages: list[link.Message] | None) -> None:
        if messages is None:
            self._on_gone(member)
            return
        for message in messages:
            if message[1] == self._id:
                self._handle(member, message)

    def _handle(self, member: Member, message: link.Message) -> None:
        op = message[0]
        if op == link.FINISHED:
            self._on_finished(member, *message[2:])
        elif op == link.READY:
            member.index = self._state.add_worker(time.monotonic())
            self._members.append(member)
        elif op == link.RETURNED:
            self._state.on_returned(member.index, message[2])
            if self._shown is not None:
                self._shown.progress(member.index)
        elif op == link.EXPORTED:
            self._state.on_exported(member.index, message[2], message[3])
        elif op == link.FAILED:
            self._on_failed(member, *message[2:])
        elif op == link.UNPICKLABLE:
            self._on_unpicklable(member, *message[2:])

    def _on_finished(
        self,
        member: Member,
        numbers: list[int],
        values: dict[int, Any],
        sizes: dict[int, float],
        durations: dict[int, Any],
        n_chunks: int,
    ) -> None:
        tasks = self._tasks
        for number, value in values.items():
            task = tasks[number]
            if task.is_output:
                task.value = self._value(value)
        state = self._state
        state.on_finished(
            member.index, numbers, values, sizes, durations, n_chunks, time.monotonic()
        )
        if self._shown is not None:
            self._show(self._shown, member, numbers, values)
        released = state.released
        if released:
            for task in released:
                self._discard(task.exported)
                task.exported = None
            released.clear()

    def _show(
        self, shown: Shown, member: Member, numbers: list[int], values: dict[int, Any]
    ) -> None:
        for number in numbers:
            task = self._tasks[number]
            value = ELSEWHERE
            if number in shown.outputs:
                value = task.value
            elif shown.wants_results and number in values:
                value = self._value(values[number])
            shown.finished(member.index, task, value, member.pid)
        shown.progress(member.index)

    def _on_gone(self, member: Member) -> None:
        if member.index < 0:
            self._crew.on_lost(member)
            return
        member, reason = self._crew.cause_of_death(member)
        number = member.running
        sent = self._state.workers[member.index].sent if member.index >= 0 else ()
        if number is not None and number < len(self._tasks):
            task = self._tasks[number]
        elif sent:
            task = sent[0]
        else:
            raise WeftError(f"{member.name} ended between two tasks: {reason}")
        raise WorkerDied(_text(task.key), 1, member.name, reason)

    def _on_unpicklable(self, member: Member, number: int, type_name: str, text: str) -> NoReturn:
        task = self._tasks[number]
        if self._shown is not None:
            self._shown.failed(member.index, task)
        raise UnpicklableResult(_text(task.key), type_name, text)

    def _on_failed(self, member: Member, number: int, packed: list[Any]) -> NoReturn:
        if number == INITIALIZER:
            raise _rebuilt(packed, "initializer", "the initializer", member)
        task = self._tasks[number]
        if self._shown is not None:
            self._shown.failed(member.index, task)
        exc = _rebuilt(packed, _text(task.key), f"task {task.key!r}", member)
        try:
            if self._rerun_exceptions_locally:
                self._fetch_dependencies(task)
                call_again(task, exc)
            raise exc
        finally:
            del exc  # its traceback points here

    # --- Messages to workers ----------------------------------------------------------------------

    def _act(self) -> None:
        out = self._state.out
        for index, action in out:
            member = self._members[index]
            if isinstance(action, SendChunk):
                self._send_chunk(member, action)
            elif isinstance(action, Drop):
                member.link.send(link.DROP, action.numbers)
            elif isinstance(action, Export):
                member.link.send(link.EXPORT, action.numbers)
            elif isinstance(action, Revoke):
                member.link.send(link.REVOKE, action.first)
            elif isinstance(action, Report):
                member.link.send(link.REPORT)
        out.clear()

    def _send_chunk(self, member: Member, chunk: SendChunk) -> None:
        always = 0
        if self._shown is not None:
            always = EXPORT_IF_POSSIBLE if self._shown.wants_results else 0
            self._shown.progress(member.index)
        items = [
            (
                task.number,
                task.group,
                task.payload,
                always
                | (OUTPUT if task.is_output else 0)
                | (EXPORT_IF_SMALL if task.n_open_uses else 0)
                | (KEEP if task.dependents else 0),
                task.drops,
                task.buffers,
            )
            for task in chunk.tasks
        ]
        imports = [(task.number, self._exported(task)) for task in chunk.imports]
        member.link.send(link.RUN, self._new_functions(member, chunk), imports, items, chunk.drops)

    def _new_functions(self, member: Member, chunk: SendChunk) -> dict[int, Any]:
        """Return the functions that the worker needs for a chunk and does not have."""
        needed = {task.group for task in chunk.tasks}
        inner = self._encoded.inner_functions
        if inner:
            for task in chunk.tasks:
                needed.update(inner.get(task.number, ()))
        needed -= member.functions
        member.functions |= needed
        functions = {}
        for number in needed:
            value = self._functions.get(number)
            if value is None:
                blob = self._encoded.functions.get(number)
                if blob is None:  # the number of a group without a function
                    continue
                value = (blob,)
                if len(blob) >= SHARED_NBYTES:
                    value = tuple(pack(blob, self._directory))
                self._functions[number] = value
            functions[number] = value
        return functions

    def _exported(self, task: ProcessTask) -> Any:
        """Return a value in the form in which it is sent."""
        exported = task.exported
        if isinstance(exported, Unpacked):
            exported = task.exported = tuple(pack(exported.value, self._directory, "a literal"))
        return exported

    # --- The failed call, once more ---------------------------------------------------------------

    def _fetch_dependencies(self, task: ProcessTask) -> None:
        """Fetch the inputs of a task into this process."""
        missing: dict[int, None] = {}
        dependencies: list[Any] = task.dependencies
        for dependency in dict.fromkeys(dependencies):
            if isinstance(dependency.exported, Unpacked):
                continue  # its value is in the arguments
            if dependency.exported is None:
                holder = self._members[dependency.at.bit_length() - 1]
                holder.link.send(link.EXPORT, [dependency.number])
                missing[dependency.number] = None
            else:
                dependency.value = self._value(dependency.exported)
        while missing:
            for member, messages in self._crew.wait(_CHECK_S):
                if messages is None:
                    self._on_gone(member)
                for message in messages or ():
                    if message[1] == self._id and message[0] == link.EXPORTED:
                        number, value = message[2:]
                        if number in missing:
                            del missing[number]
                            self._tasks[number].value = self._value(value)

    def _discard(self, exported: Any) -> None:
        if exported.__class__ is tuple and len(exported) == 2:
            discard(Packed(*exported), self._directory)

    def _value(self, exported: Any) -> Any:
        return exported[0] if len(exported) == 1 else unpack(exported, self._directory)


def _text(key: object) -> str:
    return key if isinstance(key, str) else repr(key)


def _rebuilt(packed: list[Any], key: str, what: str, member: Member) -> BaseException:
    """Return a worker's exception, with the name of what failed, which the worker does not know."""
    return unpack_exception(name_packed(packed, key, f"weft: {what} in {member.name}"))
