"""Catches what tasks print and log, for the clients that want it.

A part of the shell. It takes the places of `sys.stdout` and `sys.stderr`, and catches records of
logging (`log_catching`), also those of loggers that clients follow, whoever logs them. What is
written on the thread of a task goes to its client, if that wants it, and everything else goes where
it would go. So do threads and processes that a task starts, and what is written by other languages.

The workers of a `LocalCluster` share the terminal of the program, which shows what it is sent; so
what was caught is not written there as well; files and the ring of `get_worker_logs` have all
records in any case. Those of `weft worker` have a log of their own, which
keeps it.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import sys
import threading
import time
import traceback
import weakref
from typing import TYPE_CHECKING, Any, Final

from ...protocol.host.forks import after_fork
from ...protocol.values.log_records import packed, text_of
from ...protocol.wire.message import MAX_NUMBER
from ...protocol.wire.messages import EVERYONE, LEAST_LEVEL, MAX_LOGGER_CHARS, STDERR, STDOUT
from ..context import task_here
from ..core.features.output import MAX_LINE_CHARS, OutputBuffer, OutputCame, RecordBuffer
from .log_catching import RecordCatcher

if TYPE_CHECKING:
    from ..config import WorkerConfig
    from ..core.features.output import CatchOutput
    from ..slots.executor import TaskExecutor

#: What was caught is sent when the task has ended, or after this time.
_SEND_AFTER_S: Final = 0.1

#: Those that have taken the places of the streams.
_catchers: Final[weakref.WeakSet[OutputCatcher]] = weakref.WeakSet()


class OutputCatcher:
    """Catches the output of the tasks of one executor, the only one of its process.

    Args:
        loop: the worker's event loop.
        keeps: write what was caught to this process's stdout and stderr as well.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, keeps: bool) -> None:
        self._loop = loop
        self.keeps = keeps
        self._executor: TaskExecutor | None = None
        #: Numbers of the clients that want the output of their tasks.
        self._clients: frozenset[int] = frozenset()
        #: What is caught of logging, as `RecordCatcher.want` has it.
        self.levels: tuple[int, dict[str, int]] = 0, {}
        #: Reentrant: a finalizer may print.
        self._lock = threading.RLock()
        self._buffer = OutputBuffer()
        self._record_buffer = RecordBuffer()
        #: {(thread, level): (client, key, text)} of lines that have not ended.
        self._begun: dict[tuple[int, int], tuple[int, str, str]] = {}
        #: There is something to send, or a line that has not ended: looked at with each report.
        self.is_filled = False
        #: `send` will be called.
        self._is_due = False
        self._streams: tuple[Any, Any] | None = None
        self._records = RecordCatcher(
            self._log, self._follow, lambda: self.client_here() is not None, keeps
        )

    def begin(self, executor: TaskExecutor) -> None:
        """Catch the output of this executor's tasks, when some client wants it."""
        self._executor = executor
        executor.context.set_own(output=self)

    def want(self, action: CatchOutput) -> None:
        """Catch from now on what these clients want; none = nothing."""
        self._clients = frozenset(action.clients) if action.level else frozenset()
        self.levels = action.level if self._clients else 0, dict(action.loggers)
        if self._clients and self._streams is None:
            self._take_places()
        self._records.want(*self.levels)
        _catchers.add(self)

    def _take_places(self) -> None:
        self._streams = sys.stdout, sys.stderr
        sys.stdout = OutputStream(self, sys.stdout, STDOUT)
        sys.stderr = OutputStream(self, sys.stderr, STDERR)

    def give_back(self) -> None:
        """Put the streams and the logging back: in a forked process, and when the worker ends."""
        self._clients = frozenset()
        self._records.want(0, {})
        _catchers.discard(self)
        if self._streams is not None:
            sys.stdout, sys.stderr = self._streams
            self._streams = None

    # --- On the threads of tasks ------------------------------------------------------------------

    def client_here(self) -> tuple[int, str] | None:
        """Return the client and the key of the task of this thread, if the client wants its output.

        `None` for all other threads.
        """
        key = task_here()
        if not key or not self._clients or self._executor is None:
            return None
        record = self._executor.state.by_key.get(key)
        if record is None or record.client not in self._clients:
            return None
        return record.client, key

    def write(self, client: int, key: str, level: int, text: str) -> None:
        """Take what a task has printed."""
        place = threading.get_ident(), level
        with self._lock:
            begun = self._begun.pop(place, None)
            if begun is not None and begun[:2] != (client, key):
                self._add(*begun[:2], level, "", begun[2])
                begun = None
            *lines, rest = ((begun[2] if begun else "") + text).split("\n")
            for line in lines:
                self._add(client, key, level, "", line)
            if len(rest) > MAX_LINE_CHARS:
                self._add(client, key, level, "", rest)
            elif rest:
                self._begun[place] = client, key, rest
                self.is_filled = True

    def show(self, key: str, level: int, name: str, text: str) -> None:
        """Take what a task shows all clients."""
        with self._lock:
            for line in text.removesuffix("\n").split("\n"):
                self._add(EVERYONE, key, level, name, line)
        if self.keeps:
            stream = sys.stdout if level == STDOUT else sys.stderr
            own = stream._own if isinstance(stream, OutputStream) else stream
            if own is not None:
                own.write(f"{name}: {text}" if name else text)

    def log(self, level: int, name: str, text: str) -> None:
        """Take what the task of this thread has logged in a process of its own."""
        found = self.client_here()
        if found is not None:
            with self._lock:
                self._add(*found, level, name, text)

    def follow(self, name: str, level: int, record: bytes) -> None:
        """Take a packed record of a followed logger."""
        name = _sendable(name)
        with self._lock:
            if self._record_buffer.has_room(time.monotonic(), name, level):
                self._record_buffer.add(name, level, record)
            self._send_soon()

    def _log(self, record: logging.LogRecord) -> None:
        """Take what a task has logged, if its client wants that."""
        found = self.client_here()
        if found is None:
            return
        text = text_of(record)
        if record.exc_info:
            text += "\n" + "".join(traceback.format_exception(*record.exc_info)).rstrip()
        with self._lock:
            self._add(*found, max(record.levelno, LEAST_LEVEL), record.name, text)

    def _follow(self, record: logging.LogRecord) -> None:
        """Take a record of a logger that clients follow."""
        level = min(max(record.levelno, 0), MAX_NUMBER)
        self.follow(record.name[:MAX_LOGGER_CHARS], level, packed(record, task_here() or ""))

    def _add(self, client: int, key: str, level: int, name: str, text: str) -> None:
        # A bar that draws itself again and again: what it shows at the end.
        text = text.rstrip("\r").rpartition("\r")[2]
        self._buffer.add(time.monotonic(), client, key, level, name, _sendable(text))
        self._send_soon()

    def _send_soon(self) -> None:
        self.is_filled = True
        if not self._is_due:
            self._is_due = True
            with contextlib.suppress(RuntimeError):  # the loop is closed: the process ends
                self._loop.call_soon_threadsafe(self._loop.call_later, _SEND_AFTER_S, self._send)

    def _send(self) -> None:
        self._is_due = False
        if self._executor is not None:
            self._executor.send_output(self.take(None))

    def end_lines(self) -> None:
        """End the lines that the calling thread has begun: of a call of an actor that is done."""
        with self._lock:
            self._end_lines(threading.get_ident())

    def _end_lines(self, thread: int | None) -> None:
        for place in [place for place in self._begun if place[0] == thread]:
            begun = self._begun.pop(place, None)
            if begun is not None:  # else a finalizer has printed the rest
                self._add(*begun[:2], place[1], "", begun[2])

    def take(self, thread: int | None) -> list[OutputCame]:
        """Return what is to be sent, with the lines that the tasks of `thread` have not ended."""
        with self._lock:
            self._end_lines(thread)
            taken = self._buffer.take(), self._record_buffer.take()
            self.is_filled = bool(self._begun)
        return [OutputCame(message) for message in taken if message is not None]


def catcher_for(loop: asyncio.AbstractEventLoop, config: WorkerConfig) -> OutputCatcher | None:
    """Return what catches the output of a worker's tasks; None if it shares its process."""
    return OutputCatcher(loop, config.keeps_output) if config.catches_output else None


class OutputStream(io.TextIOBase):
    """Stands for `sys.stdout` or `sys.stderr`."""

    def __init__(self, catcher: OutputCatcher, own: Any, level: int) -> None:
        self._catcher = catcher
        self._own = own
        self._level = level

    def write(self, text: str, /) -> int:
        """Write to the client of the task, or to this process's stream."""
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        found = self._catcher.client_here()
        if found is not None:
            self._catcher.write(*found, self._level, text)
        if (found is None or self._catcher.keeps) and self._own is not None:
            self._own.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush this process's stream."""
        if self._own is not None:
            self._own.flush()

    def writable(self) -> bool:
        """Return True."""
        return True

    def isatty(self) -> bool:
        """Return whether this process's stream is a terminal."""
        return self._own is not None and bool(self._own.isatty())

    def fileno(self) -> int:
        """Return the descriptor of this process's stream."""
        if self._own is None:
            raise io.UnsupportedOperation("fileno")
        return int(self._own.fileno())

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The encoding of this process's stream."""
        return getattr(self._own, "encoding", None) or "utf-8"

    @property
    def errors(self) -> str | None:  # type: ignore[override]
        """How this process's stream treats what it cannot encode."""
        return getattr(self._own, "errors", None)

    @property
    def buffer(self) -> Any:
        """The bytes below this process's stream."""
        return self._own.buffer

    def close(self) -> None:
        """Do nothing: the stream belongs to the process."""


def _sendable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


@after_fork
def _give_back_in_fork() -> None:
    for catcher in list(_catchers):
        catcher.give_back()
