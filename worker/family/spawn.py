"""The fork server: a process with one thread that has imported everything and forks on demand.

    spawner (this module's `run`)     one thread, no event loop, no connection; reaps all
    ├── supervisor                    decides, and is connected to the scheduler (supervisor.py)
    ├── worker
    └── worker ...                    each in a session of its own

A worker is usable some 10 ms after it was requested, and shares the memory of what was imported;
starting an interpreter for each takes ten times as long, `multiprocessing`'s fork server twice as
long (and it imports the user's `__main__` again). Forking is safe here because this process has no
second thread, no held lock and no event loop.

No process outlives the family, whichever process dies first. The kernel kills a worker when the
spawner dies (on systems without this service, a thread that waits for the end of a pipe ends it).
The supervisor reads the end of its socket and exits. When the supervisor dies, the spawner kills
the workers and exits. User code that holds the interpreter lock cannot prevent any of it. The
processes that a worker's tasks started end with it, unless they made a session of their own.

Between spawner and supervisor go lines of JSON over a socket pair:

    -> ["start", worker's configuration]   <- ["started", worker_id, pid]
                                           <- ["failed", worker_id, why there is no process]
       with "channel": true in it, a
       descriptor comes with the line,
       and the process gets its number
    -> ["kill", pid, signal]               <- ["exited", pid, wait status, its peak memory]
                                           <- ["signal", signal]    it came to the spawner

The supervisor decides what a signal leads to. If it does not react, the third signal ends all
processes of the family at once.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ...protocol.host import event_loop
from ...protocol.host.file_limit import raise_file_limit
from ...protocol.wire.message import load_coders
from .exits import note_failure
from .repeated_signals import Repeats

if TYPE_CHECKING:
    import asyncio

#: The signals that end the family: a terminal's hang-up, Ctrl-C, a service manager's stop.
END_SIGNALS: Final = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)

#: The number of threads that numerical libraries start in a worker. With more than it runs tasks,
#: they would compete for the same cores. Only for variables that the user has not set.
THREAD_DEFAULTS: Final = {
    "MKL_NUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
#: How often an embedded spawner checks that its parent still runs.
_PARENT_CHECK_MS: Final = 1000

#: How long a worker that has ended its work may take to clean up.
_LINGER_S: Final = 5.0
#: After this many signals the supervisor is assumed hung, and all are killed.
_MAX_SIGNALS: Final = 3

_PR_SET_PDEATHSIG: Final = 1
#: The unit of `ru_maxrss`.
_MAXRSS_NBYTES: Final = 1 if sys.platform == "darwin" else 1024

WorkerMain: TypeAlias = Callable[[dict[str, Any]], int]
SupervisorMain: TypeAlias = Callable[[socket.socket], int]


def run(supervise: SupervisorMain, work: WorkerMain, *, embedded: bool = False) -> int:
    """Be the spawner; return the exit code of this process. The caller has one thread only.

    It returns once in each process of the family: the two functions are called in the forked
    processes, which keep the stack of this process and nothing else of it.

    Args:
        supervise: the supervisor's main function; called with its end of the socket.
        work: a worker's main function; called with the configuration that the supervisor sent.
        embedded: end when the parent process has ended, too.
    """
    raise_file_limit()
    # Each process of the family needs these at once, and would import them by itself.
    event_loop.load()
    load_coders()
    spawner = _Spawner(embedded)
    try:
        role, argument = spawner.serve()
    finally:
        # In a forked process this closes its copies of the spawner's files.
        spawner.close()
    if role == "supervisor":
        with argument:
            return supervise(argument)
    if role == "worker":
        for name, value in THREAD_DEFAULTS.items():
            os.environ.setdefault(name, value)
        try:
            ended: int = work(argument)
        except Exception as error:
            note_failure(Path(argument["started_path"]), error)
            raise
        # The worker has left the scheduler. Threads started by tasks must not keep the process.
        threading.Thread(target=_leave_soon, args=(ended,), daemon=True).start()
        return ended
    code: int = argument
    return code


def send_with_channel(
    commands: socket.socket,
    writer: asyncio.StreamWriter,
    order: list[Any],
    channel: socket.socket,
) -> bool:
    """Send an order to start a process that gets a channel; False if it must be tried later.

    Args:
        commands: the supervisor's end of the socket to the spawner.
        writer: that writes into it.
        order: `["start", its configuration]`.
        channel: the caller closes its copy.
    """
    # The channel goes with the first byte of the line, so nothing may wait before it.
    if writer.transport.get_write_buffer_size():
        return False
    verb, config = order
    line = json.dumps([verb, {**config, "channel": True}]).encode() + b"\n"
    try:
        n_sent = socket.send_fds(commands, [line], [channel.fileno()])
    except BlockingIOError:
        return False
    if n_sent < len(line):
        writer.write(line[n_sent:])
    return True


@dataclass
class _Spawner:
    embedded: bool
    #: Processes that were forked and not reaped, including the supervisor. Only their pids are
    #: signalled: any other pid may belong to an unrelated process by now.
    alive: dict[int, None] = field(default_factory=dict)
    supervisor: int = 0
    commands: socket.socket | None = None
    received: bytes = b""
    #: Descriptors that the supervisor has sent for processes that are to be started.
    channels: list[int] = field(default_factory=list)
    n_signals: int = 0
    repeats: Repeats = field(default_factory=Repeats)

    def serve(self) -> tuple[str, Any]:
        """Run until the supervisor has ended; in a forked process, return its role."""
        self.pid, self.parent = os.getpid(), os.getppid()
        # The kernel closes the writing end only when this process has ended.
        self.lifeline = os.pipe()
        self.wakeups = os.pipe()
        for end in self.wakeups:
            os.set_blocking(end, False)
        signal.set_wakeup_fd(self.wakeups[1], warn_on_full_buffer=False)
        for number in (*END_SIGNALS, signal.SIGCHLD):
            # Under nohup a hang-up is ignored.
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, _note)
        gc.collect()
        gc.freeze()  # the collector of a child would otherwise write to, and so copy, every page
        self.commands, theirs = socket.socketpair()
        with theirs:
            if not self._fork():
                return "supervisor", theirs.dup()
        self.supervisor = next(iter(self.alive))
        return self._loop()

    def _loop(self) -> tuple[str, Any]:
        assert self.commands is not None
        poll = select.poll()
        poll.register(self.commands, select.POLLIN)
        poll.register(self.wakeups[0], select.POLLIN)
        while True:
            ready = dict(poll.poll(_PARENT_CHECK_MS if self.embedded else None))
            if self.embedded and os.getppid() != self.parent:
                self.embedded = False
                self._tell("signal", int(signal.SIGINT))  # nobody needs what its workers have
            if self.wakeups[0] in ready:
                code = self._on_signals()
                if code is not None:
                    return "spawner", code
            if self.commands.fileno() in ready and not self._receive():
                # The supervisor has ended or was killed, so that no process watches the workers.
                poll.unregister(self.commands)
                self._kill_all()
            config = self._obey()
            if config is not None:
                return "worker", config

    def _receive(self) -> bool:
        assert self.commands is not None
        try:
            data, channels, _, _ = socket.recv_fds(self.commands, 1 << 16, 1)
        except ConnectionResetError:
            data, channels = b"", []  # the supervisor died with something unread
        self.received += data
        self.channels += channels
        return bool(data)

    def _obey(self) -> dict[str, Any] | None:
        """Carry out the requests; in a new worker's process, return its configuration."""
        while b"\n" in self.received:
            line, _, self.received = self.received.partition(b"\n")
            verb, *arguments = json.loads(line)
            if verb == "start":
                config: dict[str, Any] = arguments[0]
                channel = self.channels.pop(0) if config.get("channel") else None
                try:
                    pid = self._fork()
                except Exception as error:
                    if os.getpid() != self.pid:  # in the new process
                        note_failure(Path(config["started_path"]), error)
                        raise
                    if not isinstance(error, OSError):
                        raise
                    self._tell("failed", config["worker_id"], str(error))
                    continue
                finally:
                    if channel is not None and os.getpid() == self.pid:
                        os.close(channel)
                if not pid:
                    return {**config, "channel": channel}
                self._tell("started", config["worker_id"], pid)
            elif arguments[0] in self.alive:
                os.kill(arguments[0], arguments[1])
        return None

    def _on_signals(self) -> int | None:
        numbers = set(os.read(self.wakeups[0], 4096))
        for number in sorted(numbers - {signal.SIGCHLD}):
            if self.repeats.is_repeat(number, time.monotonic()):
                continue
            self.n_signals += 1
            if self.n_signals < _MAX_SIGNALS:
                self._tell("signal", number)
            else:
                os.kill(self.supervisor, signal.SIGKILL)
        return self._reap() if signal.SIGCHLD in numbers else None

    def _reap(self) -> int | None:
        """Reap every child that ended; return the supervisor's exit code if it is among them.

        The code is 128 + the number of the signal, if a signal killed it.
        """
        while self.alive:
            pid = -1
            if hasattr(os, "waitid"):
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                if ended is None:
                    return None
                pid = ended.si_pid
                _kill_group(pid)  # not yet reaped, so no other process can have its number
            pid, status, usage = os.wait4(pid, os.WNOHANG)
            if not pid:
                return None
            self.alive.pop(pid, None)
            if pid == self.supervisor:
                self._kill_all()
                while self.alive:
                    self.alive.pop(os.wait()[0], None)
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code
            self._tell("exited", pid, status, usage.ru_maxrss * _MAXRSS_NBYTES)
        return None

    def _kill_all(self) -> None:
        for pid in self.alive:
            if pid != self.supervisor:
                os.kill(pid, signal.SIGKILL)
                _kill_group(pid)

    def _tell(self, *what: object) -> None:
        assert self.commands is not None
        # A supervisor that is gone will be reaped in a moment.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.commands.sendall(json.dumps(what).encode() + b"\n")

    def _fork(self) -> int:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:  # a daemon's may be closed
                stream.flush()
        # A signal now must not be noted by the child, whose notes would reach this process.
        signals = {*END_SIGNALS, signal.SIGCHLD}
        signal.pthread_sigmask(signal.SIG_BLOCK, signals)
        try:
            pid = os.fork()
            if not pid:
                self._become_child(signals)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
        if pid:
            self.alive[pid] = None
        return pid

    def _become_child(self, signals: set[signal.Signals]) -> None:
        """Leave the terminal and the spawner's signals behind, before any can arrive."""
        is_worker = bool(self.supervisor)
        signal.set_wakeup_fd(-1)
        os.setsid()  # Ctrl-C in a terminal goes to the spawner only, which asks for an orderly end
        for number in signals:
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
        # From here on each signal is for this process. One since the fork was meant for the whole
        # group, and is dropped, unless the spawner has sent it: then this child is to end.
        for ending in self._take_pending(signals):
            os._exit(128 + ending)
        if not is_worker:  # which handles it itself, and ends without a traceback until it does
            signal.signal(signal.SIGINT, signal.default_int_handler)
            # Sent to all processes of a service, it comes by the spawner as well. It is not
            # ignored, since programs that are started here would inherit that.
            signal.signal(signal.SIGTERM, _note)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        if is_worker:
            self._die_with_parent()

    def _take_pending(self, signals: set[signal.Signals]) -> Iterator[int]:
        """Drop blocked signals that wait, but yield those of the spawner that end a process."""
        if not hasattr(signal, "sigtimedwait"):  # macOS does not tell who has sent a signal
            for number in signals:
                signal.signal(number, signal.signal(number, signal.SIG_IGN))
            return
        while (taken := signal.sigtimedwait(signals, 0)) is not None:
            if taken.si_pid == self.pid and taken.si_signo in END_SIGNALS:
                yield taken.si_signo

    def _die_with_parent(self) -> None:
        if not _ask_kernel_to_kill_with_parent():
            reader = os.dup(self.lifeline[0])
            threading.Thread(target=_exit_at_end, args=(reader,), daemon=True).start()
        if os.getppid() != self.pid:
            os._exit(1)  # it died before the request to the kernel

    def close(self) -> None:
        """Close this process's copies of everything that `serve` opened."""
        if self.commands is not None:
            self.commands.close()
        if os.getpid() == self.pid:
            signal.set_wakeup_fd(-1)
        for end in (*self.lifeline, *self.wakeups):
            os.close(end)


def _kill_group(pid: int) -> None:
    """Kill the processes that a worker's tasks left behind in the worker's session."""
    # No such group: it ended before it had a session of its own. EPERM: all in it are zombies.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _note(number: int, frame: object) -> None:
    """Do nothing: with a handler, the signal's number is written to the wake-up pipe."""


def _ask_kernel_to_kill_with_parent() -> bool:
    if not sys.platform.startswith("linux"):
        return False
    import ctypes

    return bool(ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL)) == 0)


def _leave_soon(code: int) -> None:
    time.sleep(_LINGER_S)
    os._exit(code)


def _exit_at_end(reader: int) -> None:
    """Exit when the last writing end of a pipe is closed, whatever other threads do."""
    os.read(reader, 1)
    os._exit(1)
