"""Child processes of weft: how they get their configuration, report that they run, and end.

One socket pair per child carries everything. The parent writes one line of JSON, the configuration
(with the token: never in arguments or the environment, where other users or the child's own
children could read it). The child answers with lines of JSON: `{"ready": {...}}` or
`{"error": text}`. The end of file is the order to stop, and since the kernel sends it too when a
process is gone, neither end outlives the other, however it dies.

Until a child is ready its standard error goes to a file, so that an error of its start can be part
of the exception that the parent raises; after that it is the parent's own.

This module is imported by the scheduler's process, so it must not import pickle, multiprocessing or
tornado, nor anything that does.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import socket
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Awaitable, Callable
from typing import IO, Any, Final

from ...protocol.errors import ConfigError, WeftError
from ...protocol.host.exits import describe_exit
from ...protocol.host.forks import after_fork
from ...protocol.host.log_lines import log_to_stderr
from ...protocol.host.log_ring import keep_latest
from .titles import ROOM

#: The module that the child runs; it imports what each kind does.
_MAINS: Final = f"{__package__.rpartition('.')[0]}.mains"
_MAX_TAIL_CHARS: Final = 4000

#: Of this process, for `_let_go_in_fork`.
_children: Final[weakref.WeakSet[Child]] = weakref.WeakSet()


@after_fork
def _let_go_in_fork() -> None:
    """Close what a forked copy of this process inherited, so that the child sees this one's end."""
    for child in list(_children):
        child.socket.close()
    _ahead.clear()


_KILL_AFTER_S: Final = 5.0
#: Time before a server that has ended is started again.
RESTART_S: Final = 1.0


class ChildFailed(WeftError):
    """A process that weft needs did not start, or ended at once.

    The text ends with its last output: correct the cause, and start again.
    """

    __module__ = "weft"

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


# --- The parent's end -----------------------------------------------------------------------------


class Child:
    """A process that this one has started. Not thread-safe.

    Args:
        kind: of process, a key of the table in `deploy/mains.py`.
        session: start it in a session of its own, so that Ctrl-C in the terminal does not reach it.
    """

    def __init__(self, kind: str, *, session: bool = True) -> None:
        self.kind = kind
        self._received = b""
        try:
            self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `close`
        except OSError as error:
            raise ChildFailed(f"cannot start the {kind} process: {error}") from None
        try:
            self.socket, theirs = socket.socketpair()
        except OSError as error:
            self._stderr.close()
            raise ChildFailed(f"cannot start the {kind} process: {error}") from None
        with theirs, _spare_stderr() as stderr:
            # First of all the path, so that the child imports what this process would. Read from
            # standard input: as an argument it would be all that `ps` has room for.
            code = (
                f"import sys; sys.path[:] = {[p or os.getcwd() for p in sys.path]!r}; "
                f"from {_MAINS} import main; main({kind!r}, {theirs.fileno()}, {stderr})"
            )
            try:
                self.process = _start_python(
                    code,
                    ["weft", kind, ROOM],
                    stderr=self._stderr,
                    pass_fds=(theirs.fileno(), stderr),
                    start_new_session=session,
                )
            except BaseException as error:
                self.socket.close()
                self._stderr.close()
                if isinstance(error, OSError):
                    raise ChildFailed(f"cannot start the {kind} process: {error}") from None
                raise
        _children.add(self)

    def configure(self, config: dict[str, Any]) -> None:
        """Send the configuration. If the child has ended, `wait_ready` raises."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.socket.sendall(json.dumps(config).encode() + b"\n")

    def wait_ready(self, timeout_s: float) -> dict[str, Any]:
        """Wait until the child runs; return what it reports about itself.

        Raises:
            ChildFailed: it ended, reported an error, or took too long.
            ConfigError: the configuration is at fault.
        """
        deadline = time.monotonic() + timeout_s
        # Not `select`: it takes no descriptor above 1023, and a program may have thousands.
        poll = select.poll()
        poll.register(self.socket, select.POLLIN)
        while (answer := self._take_answer()) is None:
            left = deadline - time.monotonic()
            if left <= 0 or not poll.poll(1000 * left):
                self.kill()
                raise ChildFailed(
                    f"the {self.kind} process was not ready after {timeout_s:g} s{self._tail()}"
                )
            data = b""
            with contextlib.suppress(ConnectionResetError):  # it ended with something unread
                data = self.socket.recv(1 << 16)
            if not data:
                self.finish(_KILL_AFTER_S)
            self._take(data)
        return answer

    async def wait_ready_async(self) -> dict[str, Any]:
        """Wait like `wait_ready`, in a coroutine and without a limit."""
        while (answer := self._take_answer()) is None:
            data = await self._receive_async()
            if not data:
                await self._finish_async()
            self._take(data)
        return answer

    async def wait_ended_async(
        self, on_report: Callable[[dict[str, Any]], None] = lambda report: None
    ) -> str:
        """Wait until the child has ended; return how, for display.

        Args:
            on_report: called with each report of the child, also with the last ones of a child that
                was killed.
        """
        is_over = False
        while not is_over:
            *lines, self._received = self._received.split(b"\n")
            for line in lines:
                report = json.loads(line).get("report")
                if report is not None:
                    on_report(report)
            data = await self._receive_async()
            self._received += data
            is_over = not data
        await self._finish_async()
        return describe_exit(self.process.returncode)

    async def _receive_async(self) -> bytes:
        """Return what the child has sent; nothing = it has ended, perhaps with something unread."""
        import asyncio

        self.socket.setblocking(False)  # after `wait_ready` it is not
        with contextlib.suppress(ConnectionResetError):
            return await asyncio.get_running_loop().sock_recv(self.socket, 1 << 16)
        return b""

    async def _finish_async(self) -> None:
        """End it, which may take seconds, without holding up the loop."""
        import asyncio

        await asyncio.to_thread(self.finish, _KILL_AFTER_S)

    def _take(self, data: bytes) -> None:
        if not data:
            how = describe_exit(self.process.returncode)
            raise ChildFailed(f"the {self.kind} process ended at its start: {how}{self._tail()}")
        self._received += data

    def _take_answer(self) -> dict[str, Any] | None:
        line, separator, rest = self._received.partition(b"\n")
        if not separator:
            return None
        self._received = rest
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            if answer.get("is_config"):
                raise ConfigError(answer["error"])
            raise ChildFailed(f"the {self.kind} process did not start: {answer['error']}")
        ready: dict[str, Any] = answer["ready"]
        self._pass_on_stderr()
        return ready

    def _pass_on_stderr(self) -> None:
        text = self._read_stderr()
        if text:
            os.write(2, text)

    def _read_stderr(self) -> bytes:
        # pread: the offset of an open file is shared with the child, which writes there.
        size = os.fstat(self._stderr.fileno()).st_size
        return os.pread(self._stderr.fileno(), size, 0)

    def _tail(self) -> str:
        text = self._read_stderr().decode(errors="replace").strip()
        return f". Its output:\n{text[-_MAX_TAIL_CHARS:]}" if text else ", without any output"

    def read_failure(self) -> str:
        """Return the error that a child which has ended reported after its start, "" for none."""
        with contextlib.suppress(BlockingIOError, ConnectionResetError):
            while data := self.socket.recv(1 << 16, socket.MSG_DONTWAIT):
                self._received += data
        line, separator, _ = self._received.partition(b"\n")
        return str(json.loads(line).get("error", "")) if separator else ""

    @property
    def running(self) -> bool:
        """Return whether the process runs."""
        return self.process.poll() is None

    def ask_to_stop(self) -> None:
        """Send the order to stop; the child then ends by itself."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)

    def finish(self, timeout_s: float) -> int:
        """Wait for the end, and enforce it after `timeout_s` seconds. Returns the exit code."""
        self.ask_to_stop()
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            return self.process.wait()

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.wait()

    def close(self, timeout_s: float = _KILL_AFTER_S) -> None:
        """End it and release its resources in this process. A second call does nothing."""
        self.finish(timeout_s)
        self.socket.close()
        self._stderr.close()


class KeptServer:
    """A child that listens at a port, and is started again at the same one whenever it ends.

    Args:
        kind: see `Child`.
        name: of the process, for the log.
        log: where its ends are logged.
        port: 0 = any free one at the first start.
        configuration: returns what a child is sent beside the port.
    """

    def __init__(
        self,
        kind: str,
        name: str,
        log: logging.Logger,
        port: int,
        configuration: Callable[[], dict[str, Any]],
    ) -> None:
        self.port = port
        self._kind = kind
        self._name = name
        self._log = log
        self._configuration = configuration
        self._child: Child | None = None

    def start(self, timeout_s: float) -> None:
        """Start it; raises as `Child.wait_ready` does."""
        self.port = self._begin().wait_ready(timeout_s)["port"]

    async def start_async(self) -> Child:
        """Start it, in a coroutine and without a limit."""
        child = self._begin()
        self.port = (await child.wait_ready_async())["port"]
        return child

    def _begin(self) -> Child:
        self.close()
        self._child = Child(self._kind, session=False)
        self._child.configure({**self._configuration(), "port": self.port})
        return self._child

    async def keep(
        self,
        is_over: Callable[[], Awaitable[bool]] | None = None,
        on_report: Callable[[dict[str, Any]], None] = lambda report: None,
    ) -> None:
        """Start it again whenever it ends, until `is_over` returns True after an end."""
        import asyncio

        while True:
            try:
                child = self._child or await self.start_async()
                how = f"ended ({await child.wait_ended_async(on_report)}) and is started again"
            except WeftError as error:
                how = f"does not start: {error}"
            self.close()
            if is_over is not None and await is_over():
                return
            self._log.error("the %s %s", self._name, how, extra={"code": "process-restarted"})
            await asyncio.sleep(RESTART_S)

    def close(self) -> None:
        """End it."""
        if self._child is not None:
            self._child.close()
            self._child = None


def _start_python(code: str, arguments: list[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start an interpreter like this one, which reads `code` from its standard input."""
    # A file, not a pipe: it takes all of the text at once, without a writer that could block.
    with tempfile.TemporaryFile() as stdin:
        stdin.write(code.encode("utf-8", "surrogateescape"))
        stdin.seek(0)
        command = [sys.executable, *_interpreter_flags(), "-", *arguments]
        return subprocess.Popen(command, stdin=stdin, **options)


@contextlib.contextmanager
def _spare_stderr() -> Any:
    """Return a second descriptor of this process's standard error."""
    try:
        number = os.dup(2)
    except OSError:  # a daemon that has closed its own
        number = os.open(os.devnull, os.O_WRONLY)
    try:
        yield number
    finally:
        os.close(number)


def _interpreter_flags() -> list[str]:
    """Return the options that this interpreter was started with and that a child should have."""
    flags = [f"-W{option}" for option in sys.warnoptions]
    flags += ["-O" * sys.flags.optimize] if sys.flags.optimize else []
    flags += ["-B"] if sys.flags.dont_write_bytecode else []
    for name, value in sys._xoptions.items():
        flags.append(f"-X{name}" if value is True else f"-X{name}={value}")
    return flags


#: {kind: children} of those that nobody has taken yet. Threads may start several.
_ahead: Final[dict[str, list[Child]]] = {}


def start_ahead(*kinds: str) -> None:
    """Start children that are configured later, so that they import what they need meanwhile."""
    for kind in kinds:
        _ahead.setdefault(kind, []).append(Child(kind))


def take_child(kind: str) -> Child:
    """Return a child that was started ahead, or a new one."""
    with contextlib.suppress(KeyError, IndexError):
        return _ahead[kind].pop()
    return Child(kind)


# --- The child's end ------------------------------------------------------------------------------


class Lifeline:
    """A child's connection to the process that started it.

    Args:
        sock: its end of file means that the parent is gone, or orders the end.
        previous: what the child before this one reported, if that is known.
    """

    def __init__(self, sock: socket.socket, previous: dict[str, Any] | None = None) -> None:
        self.socket = sock
        self.previous = previous

    def close(self) -> None:
        """Let go of the parent: at the end, and in a forked process that is not the child."""
        self.socket.close()

    def say(self, **what: Any) -> None:
        """Send a line of JSON."""
        # Code that waits for the parent's end meanwhile needs the socket as it was.
        timeout_s = self.socket.gettimeout()
        self.socket.setblocking(True)
        try:
            self.socket.sendall(json.dumps(what).encode() + b"\n")
        except (BrokenPipeError, ConnectionResetError):
            return  # the parent is gone, which `wait_gone` reports
        finally:
            self.socket.settimeout(timeout_s)

    @property
    def is_gone(self) -> bool:
        """True once the parent has ordered the end, or has ended."""
        try:
            return not self.socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except ConnectionResetError:
            return True

    async def wait_gone(self) -> None:
        """Wait until the parent orders the end, or has ended."""
        import asyncio

        loop = asyncio.get_running_loop()
        self.socket.setblocking(False)
        with contextlib.suppress(ConnectionResetError):
            while await loop.sock_recv(self.socket, 4096):
                continue


class Parent(Lifeline):
    """The parent of a process that `Child` has started."""

    def __init__(self, fd: int, stderr_fd: int) -> None:
        super().__init__(socket.socket(fileno=fd))
        self.socket.set_inheritable(False)
        os.set_inheritable(stderr_fd, False)
        self._stderr_fd = stderr_fd

    def read_config(self) -> dict[str, Any]:
        """Wait for the configuration.

        Raises:
            SystemExit: there is no parent any more.
        """
        data = b""
        while not data.endswith(b"\n"):
            part = self.socket.recv(1 << 16)
            if not part:
                raise SystemExit(0)
            data += part
        config: dict[str, Any] = json.loads(data)
        log_to_stderr(config.get("log_level", logging.WARNING))
        keep_latest()
        return config

    def ready(self, **facts: Any) -> None:
        """Report that the start is complete. From now on standard error is the parent's."""
        self.take_stderr()
        self.say(ready=facts)

    def report(self, **facts: Any) -> None:
        """Report something that the parent keeps beyond the end of this process."""
        self.say(report=facts)

    def take_stderr(self) -> None:
        """Use the parent's standard error. A second call does nothing."""
        if self._stderr_fd >= 0:
            sys.stderr.flush()
            os.dup2(self._stderr_fd, 2)
            os.close(self._stderr_fd)
            self._stderr_fd = -1

    def close(self) -> None:
        """See `Lifeline`."""
        super().close()
        if self._stderr_fd >= 0:
            os.close(self._stderr_fd)
            self._stderr_fd = -1

    def fail(self, error: BaseException) -> None:
        """Report why the start failed."""
        text = str(error) if isinstance(error, WeftError) else f"{type(error).__name__}: {error}"
        self.say(error=text, is_config=isinstance(error, ConfigError))
