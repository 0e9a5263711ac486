"""A worker process during runs: it runs the tasks that it is sent, keeps their values, and reports.

It owns the worker's queue of tasks and store of values. Its only decision is when to report: at the
end of a chunk, after 5 ms, and when it is asked.

There are two threads. The main one runs tasks, in the order in which they came, and packs outputs.
The *reader* takes messages, at any time: it unpacks values of other workers, exports values on
request while a task runs, drops values, and gives tasks back from the end of the queue. The threads
share deques and dicts, and change them by single operations, which are atomic; a task taken from
the queue belongs to the thread that took it. (Without the interpreter lock, iterating over a deque,
or making a list of it, is not atomic. Each deque that is iterated over belongs to one thread.) A
thread that reports takes the finished tasks off their queue and sends them under the channel's
lock, so that they are reported in the order in which they finished.

`pool` and `executor_crew` start and end the process. Every new worker imports this module, so its
imports must be light.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from math import inf
from pickle import loads
from queue import SimpleQueue
from time import perf_counter
from typing import Any, TypeAlias

from ...protocol.errors import SerializationError
from ...protocol.values.exceptions import pack_exception
from ...protocol.values.sizeof import sizeof
from . import link, references
from .link import Channel
from .sharing import pack, unpack

#: (number, group, payload, flags, numbers of values to drop afterwards, numbers of buffers)
Item: TypeAlias = "tuple[int, int, bytes, int, list[int], list[int]]"

#: Flags of an item: send the value; send it if it is small, else its size; keep it; send it if it
#: can be pickled.
OUTPUT = 1
EXPORT_IF_SMALL = 2
KEEP = 4
EXPORT_IF_POSSIBLE = 8

#: The value of `note` while no task is running.
NO_TASK = -1

#: A worker that runs short tasks reports at least this often.
REPORT_S = 0.005
#: Larger values are exported only on request.
SMALL_NBYTES = 16 * 1024
#: Types whose values are known to be small and picklable.
_SIMPLE_TYPES = frozenset({bool, complex, float, int, type(None)})
_SIMPLE_TEXTS = frozenset({bytes, str})
_SIMPLE_TEXT_LENGTH = 1024

#: The names that `pack_exception` gets; the parent puts the key in their place.
UNNAMED = ""
#: The number in FAILED if it was the initializer that failed.
INITIALIZER = -1
#: The name of a task's value in errors.
_RESULT = "the result"


class _WorkerRun:
    """The part of one graph that this worker runs."""

    def __init__(self, run_id: int, directory: str) -> None:
        self.id = run_id
        self.directory = directory
        self.tables = references.Tables()
        #: No other task is to be run or reported.
        self.is_over = False
        #: Items of each chunk that have not begun, in order. Only the reader uses the list; of a
        #: chunk the main thread takes from the left, and the reader from the right.
        self.chunks: list[deque[Item]] = []
        #: Number, or (number, value, None), or (number, None, size).
        self.finished: deque[Any] = deque()
        #: {group: [tasks, seconds]} that were not reported yet. Only the main thread uses it.
        self.durations: dict[int, list[Any]] = {}

    def end(self) -> None:
        """End the run. Called by the reader."""
        self.is_over = True
        for items in self.chunks:
            items.clear()


class Server:
    """Serves one parent.

    Args:
        channel: to the parent.
        note: one number, which the parent reads when this process has died: of the running task.
        on_context: applies the parent's settings that came with BEGIN.
        on_quiet: called by the reader when the channel's timeout is over and there is no run;
            returns whether to leave.
        on_abandoned: called by the reader when the connection has ended without LEAVE.
    """

    def __init__(
        self,
        channel: Channel,
        note: memoryview,
        *,
        on_context: Callable[[Any], None] | None = None,
        on_quiet: Callable[[], bool] | None = None,
        on_abandoned: Callable[[], None] | None = None,
    ) -> None:
        self._channel = channel
        self._note = note
        self._on_context = on_context
        self._on_quiet = on_quiet
        self._on_abandoned = on_abandoned
        #: Functions for the main thread to call; None = leave.
        self._todo: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        #: The run that messages are about. The main thread may still be in an earlier one.
        self._run: _WorkerRun | None = None

    def serve(self) -> None:
        """Work until the parent sends LEAVE or closes the connection.

        Raises:
            OSError: the connection ended while something was sent.
        """
        # No daemon: interpreters other than the main one have none.
        reader = threading.Thread(target=self._read, name="weft-reader")
        reader.start()
        self._note[0] = NO_TASK
        try:
            while (do := self._todo.get()) is not None:
                do()
        except OSError:
            # The parent has ended; or a task has closed the socket, unnoticed by the reader.
            if self._on_abandoned is not None:
                self._on_abandoned()
            raise
        finally:
            if self._channel.hang_up():
                reader.join()

    # --- The reader -------------------------------------------------------------------------------

    def _read(self) -> None:
        try:
            # OSError: the parent ended during an answer.
            with contextlib.suppress(OSError):
                while (messages := self._channel.receive()) is not None:
                    is_quiet = not messages and self._run is None
                    if is_quiet and self._on_quiet is not None and self._on_quiet():
                        return
                    for message in messages:
                        if message[0] == link.LEAVE:
                            return
                        self._obey(message)
            if self._on_abandoned is not None:
                self._on_abandoned()
        finally:
            if self._run is not None:
                self._run.end()
            self._todo.put(None)

    def _obey(self, message: link.Message) -> None:
        op = message[0]
        if op == link.BEGIN:
            self._run = _WorkerRun(message[1], message[2])
            self._todo.put(partial(self._begin, self._run, message[3]))
            return
        run = self._run
        assert run is not None, "all other messages are about a run"
        if op == link.RUN:
            self._add_chunk(run, *message[1:])
        elif op == link.EXPORT:
            for number in message[1]:
                self._export(run, number)
        elif op == link.REPORT:
            self._report(run)
        elif op == link.REVOKE:
            self._give_back(run, message[1])
        elif op == link.DROP:
            for number in message[1]:
                run.tables.values.pop(number, None)
        elif op == link.END:
            run.end()
            run.tables.values.clear()
            self._run = None
            self._todo.put(partial(self._channel.send, link.ENDED, run.id))

    def _add_chunk(
        self,
        run: _WorkerRun,
        functions: dict[int, Any],
        imports: list[tuple[int, Any]],
        items: list[Item],
        drops: list[int],
    ) -> None:
        """Add a chunk of tasks to the queue.

        Args:
            run: the run to which they belong.
            functions: {number: value of bytes} of the functions that are new here.
            imports: [(number, value)]. Unpacked now: the parent counts them as present from now on.
            items: the tasks, in the order in which to run them.
            drops: numbers of values to drop.
        """
        values = run.tables.values
        for number in drops:
            values.pop(number, None)
        for number, value in functions.items():
            run.tables.blobs[number] = partial(_load_function, value, run.directory)
        for number, value in imports:
            try:
                values[number] = value[0] if len(value) == 1 else unpack(value, run.directory)
            except BaseException as exc:
                self._fail(run, number, exc)
                return
        if run.is_over:
            return
        chunk = deque(items)
        run.chunks = [left for left in run.chunks if left]
        run.chunks.append(chunk)
        self._todo.put(partial(self._run_chunk, run, chunk))

    def _export(self, run: _WorkerRun, number: int) -> None:
        try:
            value = _as_sent(run.tables.values[number], run.directory)
        except BaseException as exc:
            self._fail_to_send(run, number, exc)
        else:
            self._channel.send(link.EXPORTED, run.id, number, value)

    def _give_back(self, run: _WorkerRun, first: int) -> None:
        """Give back the tasks from `first` on, or if that was started, those that were not."""
        returned: list[int] = []
        for items in reversed(run.chunks):
            # The main thread takes from the other end at the same time.
            with contextlib.suppress(IndexError):
                while not returned or returned[-1] != first:
                    returned.append(items.pop()[0])
            if returned and returned[-1] == first:
                break
        with self._channel.lock:
            self._report(run)
            self._channel.send(link.RETURNED, run.id, returned[::-1])

    # --- The main thread --------------------------------------------------------------------------

    def _begin(self, run: _WorkerRun, context: Any) -> None:
        if self._on_context is not None and context is not None:
            try:
                self._on_context(context)
            except BaseException as exc:  # the user's initializer may raise anything
                packed = pack_exception(exc, UNNAMED, UNNAMED)
                self._channel.send(link.FAILED, run.id, INITIALIZER, packed)
                leave_at_once()
        references.current.tables = run.tables
        self._channel.send(link.READY, run.id)

    def _run_chunk(self, run: _WorkerRun, items: deque[Item]) -> None:
        if run.is_over:
            return
        try:
            self._run_items(run, items)
        finally:
            self._note[0] = NO_TASK
        self._report_mine(run, n_chunks=1)

    def _run_items(self, run: _WorkerRun, items: deque[Item]) -> None:
        note, tables = self._note, run.tables
        values, functions = tables.values, tables.functions
        finished, take = run.finished, items.popleft
        began_s = reported_s = perf_counter()
        while items:
            try:
                number, group, payload, flags, drops, buffers = take()
            except IndexError:  # the last items were given back just now
                return
            note[0] = number
            try:
                call = (
                    loads(payload, buffers=[values[buffer] for buffer in buffers])
                    if buffers
                    else loads(payload)
                )
                func, args = call[0], call[1]
                if len(call) == 3:
                    for i, ref in call[2]:
                        args[i] = values[ref]
                elif len(call) == 4:
                    references.fill(args, call[2], call[3], values)
                if func.__class__ is int:
                    func = functions[func] if func in functions else tables.function(func)
                value = func(*args)
            except BaseException as exc:
                self._fail(run, number, exc)
                return
            if run.is_over:
                return
            # Kept before it is reported, because other workers may request it from then on.
            if flags & KEEP:
                values[number] = value
            if flags & (OUTPUT | EXPORT_IF_SMALL | EXPORT_IF_POSSIBLE):
                try:
                    if flags & OUTPUT:
                        finished.append((number, _as_sent(value, run.directory), None))
                    else:
                        most = inf if flags & EXPORT_IF_POSSIBLE else SMALL_NBYTES
                        finished.append((number, *_if_small(value, most, run.directory)))
                except BaseException as exc:
                    self._fail_to_send(run, number, exc)
                    return
            else:
                finished.append(number)
            # Otherwise they would stay alive during the next call.
            call = func = args = value = None
            for other in drops:
                values.pop(other, None)
            now_s = perf_counter()
            duration = run.durations.get(group)
            if duration is None:
                run.durations[group] = [1, now_s - began_s]
            else:
                duration[0] += 1
                duration[1] += now_s - began_s
            began_s = now_s
            if now_s - reported_s > REPORT_S:
                self._report_mine(run)
                began_s = reported_s = perf_counter()

    def _report_mine(self, run: _WorkerRun, n_chunks: int = 0) -> None:
        """Report as `_report` does, with the durations of tasks. For the main thread."""
        durations, run.durations = run.durations, {}
        self._report(run, durations, n_chunks)

    def _report(
        self, run: _WorkerRun, durations: dict[int, list[Any]] | None = None, n_chunks: int = 0
    ) -> None:
        """Report the tasks that have finished since the last report."""
        flush_output()
        take = run.finished.popleft
        numbers: list[int] = []
        values: dict[int, Any] = {}
        sizes: dict[int, float] = {}
        with self._channel.lock:
            if run.is_over:
                return
            while run.finished:
                entry = take()
                if entry.__class__ is not int:
                    number, value, nbytes = entry
                    if nbytes is None:
                        values[number] = value
                    else:
                        sizes[number] = nbytes
                    entry = number
                numbers.append(entry)
            if not (numbers or durations or n_chunks):
                return
            told = (numbers, values, sizes, durations or {}, n_chunks)
            self._channel.send(link.FINISHED, run.id, *told)

    def _fail(self, run: _WorkerRun, number: int, exc: BaseException) -> None:
        packed = pack_exception(exc, UNNAMED, UNNAMED)
        with self._channel.lock:
            if not run.is_over:
                self._report(run)
                run.is_over = True
                self._channel.send(link.FAILED, run.id, number, packed)

    def _fail_to_send(self, run: _WorkerRun, number: int, exc: BaseException) -> None:
        if not isinstance(exc, SerializationError):
            self._fail(run, number, exc)
            return
        path = exc.where.removeprefix(_RESULT)
        text = f"{path.lstrip('.')}: {exc.text}" if path else exc.text
        with self._channel.lock:
            if not run.is_over:
                self._report(run)
                run.is_over = True
                self._channel.send(link.UNPICKLABLE, run.id, number, exc.type_name, text)


def _load_function(value: Any, directory: str) -> Callable[..., Any]:
    func: Callable[..., Any] = loads(value[0] if len(value) == 1 else unpack(value, directory))
    return func


def _as_sent(value: Any, directory: str) -> Any:
    """Return a value in the form in which it is sent. Raises SerializationError."""
    cls = value.__class__
    if cls in _SIMPLE_TYPES or (cls in _SIMPLE_TEXTS and len(value) < _SIMPLE_TEXT_LENGTH):
        return (value,)
    return tuple(pack(value, directory, _RESULT))


def _if_small(value: Any, most: float, directory: str) -> tuple[Any, float | None]:
    """Return a value to be sent, and None; or None and its size, if that is more than `most`.

    The size of a value that cannot be pickled is infinite.
    """
    cls = value.__class__
    if cls in _SIMPLE_TYPES or (cls in _SIMPLE_TEXTS and len(value) < _SIMPLE_TEXT_LENGTH):
        return (value,), None
    if most < inf and (nbytes := sizeof(value)) > most:
        return None, nbytes
    try:
        return tuple(pack(value, directory, _RESULT)), None
    except SerializationError:  # it must stay in this worker, where it may be needed only
        return None, inf


def flush_output() -> None:
    """Flush the output of tasks, if stdout and stderr still exist."""
    for stream in (sys.stdout, sys.stderr):
        # None: there is none. ValueError: a task has closed it. OSError: its reader has ended.
        with contextlib.suppress(AttributeError, OSError, ValueError):
            stream.flush()


def note_of(mapping: Any, slot: int = 0) -> memoryview:
    """Return the view of one number in a mapping that parent and workers share."""
    return memoryview(mapping).cast("q")[slot : slot + 1]


def leave_at_once() -> None:
    """End this process without the interpreter's clean-up, because the parent has ended."""
    flush_output()
    os._exit(1)
