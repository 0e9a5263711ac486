"""Texts that one call prints: kept, or written to files (`output=` of `submit` and `map`).

The function of such a call is wrapped, so nothing but the wrapper knows of it, and calls without
the option pay nothing. While such a call runs, `sys.stdout` and `sys.stderr` of its process are
streams that look who prints. What the call itself prints, on its thread or in coroutines and
threads that have its context (`asyncio.to_thread`), goes to its sink. All else goes where it would
go. What is written past these streams, by C code and by other processes, is not seen.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import IO, Any, Final, Protocol

from ..errors.commands import CommandFailed, CommandResult
from ..host.blocking import gate_here
from .exceptions import add_note
from .functions import function_name

#: Kept of each stream: the last so many bytes of UTF-8.
MAX_KEPT: Final = 64 << 10
#: Of what was kept, the note of an exception shows the last so many characters of each stream.
_SHOWN_CHARS: Final = 1000
KEEP: Final = "keep"
_STDOUT, _STDERR = 0, 1


@dataclass(frozen=True)
class CallOutput:
    """Texts that the last attempt of a call has printed, as far as it was kept.

    Attributes:
        stdout: the last 64 KiB; of a `weft.Command` what its result has.
        stderr: the same of its errors.
        is_cut: it has printed more.
    """

    stdout: str
    stderr: str
    is_cut: bool = False


class OutputFile:
    """Files for what a call prints: `client.submit(train, output=weft.OutputFile("run.log"))`.

    Args:
        path: of a file of the worker, whose folder is there.
        stderr: of another file, for what is printed to `sys.stderr`; None = the same one.
        append: add to the files; else each attempt begins them anew.

    Raises:
        TypeError: a path is none.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        stderr: str | os.PathLike[str] | None = None,
        append: bool = False,
    ) -> None:
        for name, value in (("path", path), ("stderr", stderr)):
            if not isinstance(value, (str, os.PathLike)) and (name == "path" or value is not None):
                raise TypeError(f"{name} of OutputFile is the path of a file, not {value!r}")
        self.path = os.fsdecode(path)
        self.stderr = None if stderr is None else os.fsdecode(stderr)
        self.append = append

    def __repr__(self) -> str:
        return f"OutputFile({self.path!r}, stderr={self.stderr!r}, append={self.append})"


def with_output(func: Callable[..., Any], output: Any) -> Callable[..., Any]:
    """Return the function with a place for what it prints.

    Raises:
        TypeError: that is no place.
    """
    if output != KEEP and not isinstance(output, OutputFile):
        raise TypeError(f'output= is "keep" or a weft.OutputFile, not {output!r:.80}')
    is_async = inspect.iscoroutinefunction(func) or inspect.iscoroutinefunction(
        getattr(func, "__call__", None)  # noqa: B004 - of an object, not of a function
    )
    return (_CoroutineWithOutput if is_async else _WithOutput)(func, output)


class _Wrapper:
    """A function, and the place for what it prints."""

    def __init__(self, func: Callable[..., Any], output: str | OutputFile) -> None:
        self.__wrapped__ = func
        self.__name__ = function_name(func)
        self._output = output

    @contextlib.contextmanager
    def _caught(self) -> Iterator[list[Any]]:
        """Catch what is printed in the block, which puts its result into the list."""
        value: list[Any] = []
        if isinstance(self._output, OutputFile):
            with _files(self._output) as files, _printing_to(files):
                yield value
            return
        kept = _KeptText()
        try:
            with _printing_to(kept):
                yield value
        except Exception as error:
            if isinstance(error, CommandFailed):
                kept.take(error.result)
            else:
                add_note(error, kept.note())
            raise
        else:
            if value and isinstance(value[0], CommandResult):
                kept.take(value[0])
        finally:
            if _here.keep is not None:
                _here.keep(kept.output())


class _WithOutput(_Wrapper):
    """A function with a place for what it prints."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the function."""
        with self._caught() as value:
            value.append(self.__wrapped__(*args, **kwargs))
        return value[0]


class _CoroutineWithOutput(_Wrapper):
    """A coroutine function with a place for what it prints."""

    async def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the coroutine function."""
        with self._caught() as value:
            value.append(await self.__wrapped__(*args, **kwargs))
        return value[0]


class _KeepHook(threading.local):
    #: Takes what an attempt on this thread has printed.
    keep: Callable[[CallOutput], object] | None = None


_here = _KeepHook()


def keep_output_here(keep: Callable[[CallOutput], object] | None) -> None:
    """Have `keep` called on this thread with what is to be kept of each call."""
    _here.keep = keep


# -- sinks -----------------------------------------------------------------------------------------
class _Sink(Protocol):
    #: The process's own streams get it as well.
    shows: bool

    def write(self, stream: int, text: str) -> None: ...


class _KeptText:
    """The last of what a call prints."""

    shows = True

    def __init__(self) -> None:
        self._tails = _TextTail(), _TextTail()
        self._taken: CallOutput | None = None

    def write(self, stream: int, text: str) -> None:
        self._tails[stream].add(text)

    def take(self, result: CommandResult) -> None:
        """Take what a command has printed."""
        ends = [_end(text) for text in (result.stdout, result.stderr)]
        is_cut = result.is_cut or ends != [result.stdout, result.stderr]
        self._taken = CallOutput(ends[0], ends[1], is_cut)

    def output(self) -> CallOutput:
        """Return what is kept."""
        if self._taken is None:
            stdout, stderr = (tail.value() for tail in self._tails)
            return CallOutput(stdout, stderr, any(tail.is_cut for tail in self._tails))
        return self._taken

    def note(self) -> str:
        """Return what the note of an exception says."""
        printed = self.output()
        lines = ["weft: the call had printed nothing"]
        if printed.stdout or printed.stderr:
            lines = ["weft: the last that the call had printed:"]
            for name, text in (("stdout", printed.stdout), ("stderr", printed.stderr)):
                lines += [f"  {name}: {line}" for line in text[-_SHOWN_CHARS:].splitlines()]
        return "\n".join(lines)


class _TextTail:
    """The last of a text."""

    def __init__(self) -> None:
        self._parts: deque[str] = deque()
        self._n_chars = 0
        #: Reentrant: a finalizer may print.
        self._lock = threading.RLock()
        self.is_cut = False

    def add(self, text: str) -> None:
        with self._lock:
            self._parts.append(text)
            self._n_chars += len(text)
            while self._n_chars - len(self._parts[0]) >= MAX_KEPT:
                self._n_chars -= len(self._parts.popleft())
                self.is_cut = True

    def value(self) -> str:
        with self._lock:
            text = "".join(self._parts)
        end = _end(text)
        self.is_cut = self.is_cut or len(end) < len(text)
        return end


def _end(text: str) -> str:
    """Return the last `MAX_KEPT` bytes of a text; what UTF-8 cannot hold is replaced."""
    return text.encode("utf-8", "replace")[-MAX_KEPT:].decode("utf-8", "ignore")


class _Files:
    """Files for what a call prints."""

    shows = False

    def __init__(self, stdout: IO[str], stderr: IO[str]) -> None:
        self._files = stdout, stderr
        self._lock = threading.RLock()

    def write(self, stream: int, text: str) -> None:
        with self._lock:
            self._files[stream].write(text)


@contextlib.contextmanager
def _files(place: OutputFile) -> Iterator[_Files]:
    mode = "a" if place.append else "w"
    with contextlib.ExitStack() as stack:

        def opened(path: str) -> IO[str]:
            # By lines, so that others can follow it.
            return stack.enter_context(
                open(path, mode, buffering=1, encoding="utf-8", errors="replace")
            )

        stdout = opened(place.path)
        yield _Files(stdout, stdout if place.stderr is None else opened(place.stderr))


# -- streams ---------------------------------------------------------------------------------------
_sink: ContextVar[_Sink | None] = ContextVar("weft_output", default=None)
_lock: Final = threading.Lock()
#: Calls that print to sinks now, in this process: one item each.
_printing: Final[list[None]] = []


@contextlib.contextmanager
def _printing_to(sink: _Sink) -> Iterator[None]:
    """Have what this thread prints in the block go to a sink."""
    gate = gate_here()
    if gate is None or not gate.is_open:
        gate = None
    else:
        gate.close()  # else an interrupt between two steps could leave the streams in their places
    _enter()
    token = _sink.set(sink)
    try:
        if gate is not None:
            gate.open()
        yield
    finally:
        was_open = gate is not None and gate.is_open
        try:
            if gate is not None:
                gate.close()  # which may raise what interrupts it
        finally:
            _sink.reset(token)
            _leave()
        if gate is not None and was_open:
            gate.open()


def _enter() -> None:
    with _lock:
        _printing.append(None)
        # Others may have replaced the streams meanwhile: then theirs are the ones that are below.
        if not isinstance(sys.stdout, PrintingStream):
            sys.stdout = PrintingStream(sys.stdout, _STDOUT)
        if not isinstance(sys.stderr, PrintingStream):
            sys.stderr = PrintingStream(sys.stderr, _STDERR)


def _leave() -> None:
    with _lock:
        _printing.pop()
        if _printing:
            return
        if isinstance(sys.stdout, PrintingStream):
            sys.stdout = sys.stdout.own
        if isinstance(sys.stderr, PrintingStream):
            sys.stderr = sys.stderr.own


class PrintingStream(io.TextIOBase):
    """Stands for `sys.stdout` or `sys.stderr` while calls print to sinks.

    Args:
        own: the stream that it stands for; None = the process has none.
        stream: which of the two it is.
    """

    def __init__(self, own: Any, stream: int) -> None:
        self.own = own
        self._stream = stream

    def write(self, text: str, /) -> int:
        """Write to the sink of the call that prints, or to the process's stream."""
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        sink = _sink.get()
        if sink is not None:
            sink.write(self._stream, text)
        if (sink is None or sink.shows) and self.own is not None:
            self.own.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush the process's stream."""
        if self.own is not None:
            self.own.flush()

    def writable(self) -> bool:
        """Return True."""
        return True

    def isatty(self) -> bool:
        """Return whether what is printed goes to a terminal."""
        return _sink.get() is None and self.own is not None and bool(self.own.isatty())

    def fileno(self) -> int:
        """Return the descriptor of the process's stream."""
        if self.own is None:
            raise io.UnsupportedOperation("fileno")
        return int(self.own.fileno())

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The encoding of the process's stream."""
        return getattr(self.own, "encoding", None) or "utf-8"

    @property
    def errors(self) -> str | None:  # type: ignore[override]
        """How the process's stream treats what it cannot encode."""
        return getattr(self.own, "errors", None)

    @property
    def buffer(self) -> Any:
        """The bytes below the process's stream; what is written there is not caught."""
        return self.own.buffer

    def close(self) -> None:
        """Do nothing: the stream belongs to the process."""
