"""One program in a group of processes of its own, from its start to the end of all of them.

**Nothing is left.** When the program has ended, so are the processes that it has started and that
are still in its group. If this process dies first, whatever way, a *guard* ends the group: a shell
that waits for the end of a pipe which only this process holds open. The program's own shell tells
the guard its number before it becomes the program, so there is no instant without one.

**It can be ended.** Ten times per second the waiting thread asks `is_wanted`. If that says no, the
group is asked to end, and killed soon after. It is killed at once by any exception in that thread.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import selectors
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import IO, Any, Final

#: Seconds between two looks at whether it is to go on.
_LOOK_S: Final = 0.1
#: Seconds to the second look at its memory.
_FIRST_LOOK_S: Final = 0.005
#: What is read of a process, and of how many, at most.
_MEMORY: Final = re.compile(rb"^Vm(HWM|RSS):\s*(\d+) kB$", re.MULTILINE)
_MAX_CHILDREN: Final = 1000
#: Seconds that a group has to end after it was asked to.
_GRACE_S: Final = 0.5
#: Seconds that a process which has left the group may keep a pipe open after the end.
_DRAIN_S: Final = 1.0
_CHUNK: Final = 1 << 16
#: Bytes of a unit of `ru_maxrss`.
_RSS_UNIT: Final = 1 if sys.platform == "darwin" else 1024
#: Bytes of a unit of `ru_inblock` and `ru_oublock`.
_BLOCK: Final = 512

SHELL: Final = "/bin/sh"
#: It reads the number of the group, and then the word that the group has ended, or the end.
_GUARD: Final = 'read -r group && ! read -r ended && kill -s KILL -- "-$group"'
#: Its standard input is the pipe of the guard, until that is told.
START: Final = 'echo "$$" >&0 && exec <"$1" && shift && exec "$@"'


@dataclass(frozen=True)
class ProcessEnd:
    """How a program has ended, and what it has used, with the children that it has waited for."""

    #: exit code; -9 = signal 9 has ended it
    returncode: int
    #: the last bytes that it has printed, as far as they were kept
    stdout: bytes
    stderr: bytes
    wall_s: float
    cpu_s: float
    #: the largest resident set of one process, in bytes; None = no larger than that of this one
    peak_nbytes: int | None
    #: from and to disks
    read_nbytes: int
    written_nbytes: int
    #: it has printed more than was kept
    is_cut: bool
    #: it was ended since its time was over
    is_late: bool


class _Tail:
    """The last bytes of a stream."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._parts: deque[bytes] = deque()
        self._nbytes = 0
        self.is_cut = False

    def add(self, part: bytes) -> None:
        self._parts.append(part)
        self._nbytes += len(part)
        self.is_cut = self.is_cut or self._nbytes > self._most
        while self._parts and self._nbytes - len(self._parts[0]) >= self._most:
            self._nbytes -= len(self._parts.popleft())

    def value(self) -> bytes:
        return b"".join(self._parts)[-self._most :] if self._most else b""


def run_process(
    words: Sequence[str],
    *,
    env: Mapping[str, str],
    folder: str,
    stdin: str = os.devnull,
    stdout: IO[bytes] | int | None = None,
    stderr: IO[bytes] | int | None = None,
    keep_nbytes: int = 1 << 20,
    timeout_s: float = inf,
    is_wanted: Callable[[], bool] = lambda: True,
    seen: Callable[[int], object] | None = None,
) -> ProcessEnd:
    """Run a program and return how it has ended.

    Args:
        words: the program and its arguments.
        env: its whole environment.
        folder: in which it starts.
        stdin: the path of a file that it reads.
        stdout: an open file, or `subprocess.DEVNULL`; None = keep what it prints.
        stderr: the same, or `subprocess.STDOUT`.
        keep_nbytes: of each stream that is kept, the last so many bytes.
        timeout_s: the program is ended if it runs for longer.
        is_wanted: asked ten times per second; if it says no, the program is ended.
        seen: called with the memory of the group, in bytes, ten times per second, and at first more
            often; None = it is not looked at.

    Raises:
        OSError: no process could be started.
        BaseException: what was raised in this thread meanwhile; then all processes have ended.
    """
    begun = time.monotonic()
    with contextlib.ExitStack() as files:
        guarding = files.enter_context(guard())
        process = subprocess.Popen(
            [SHELL, "-c", START, "weft", os.path.abspath(stdin), *words],
            stdin=guarding,
            stdout=subprocess.PIPE if stdout is None else stdout,
            stderr=subprocess.PIPE if stderr is None else stderr,
            env=dict(env),
            cwd=folder,
            start_new_session=True,
        )
        try:
            pipes: dict[Any, _Tail] = {}
            for pipe in (process.stdout, process.stderr):
                if pipe is not None:
                    files.enter_context(pipe)
                    os.set_blocking(pipe.fileno(), False)
                    pipes[pipe] = _Tail(keep_nbytes)
            is_late = _watch(process, pipes, is_wanted, begun + timeout_s, seen)
        finally:
            # The number of the group is its own until its leader is reaped, even if that has ended.
            _signal(process.pid, signal.SIGKILL)
            with contextlib.suppress(BrokenPipeError):  # somebody has ended the guard
                guarding.write(b"ended\n")
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        _drain(pipes, time.monotonic() + _DRAIN_S)
    return ProcessEnd(
        process.returncode,
        b"" if process.stdout is None else pipes[process.stdout].value(),
        b"" if process.stderr is None else pipes[process.stderr].value(),
        time.monotonic() - begun,
        used.ru_utime + used.ru_stime,
        _peak_nbytes(used),
        used.ru_inblock * _BLOCK,
        used.ru_oublock * _BLOCK,
        any(tail.is_cut for tail in pipes.values()),
        is_late,
    )


def _peak_nbytes(used: resource.struct_rusage) -> int | None:
    """Return the peak of a child. Until it became the program it had the memory of this process."""
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used.ru_maxrss * _RSS_UNIT if used.ru_maxrss > own else None


@contextlib.contextmanager
def guard() -> Iterator[IO[bytes]]:
    """Start a guard and yield its pipe; it ends with the block, and the group that is left then."""
    process = subprocess.Popen(
        [SHELL, "-c", _GUARD],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        bufsize=0,
        start_new_session=True,  # a Ctrl-C on the terminal does not end it
    )
    assert process.stdin is not None
    try:
        yield process.stdin
    finally:
        process.stdin.close()
        process.wait()


def _watch(
    process: subprocess.Popen[bytes],
    pipes: dict[Any, _Tail],
    is_wanted: Callable[[], bool],
    until: float,
    seen: Callable[[int], object] | None = None,
) -> bool:
    """Read what the program prints until it has ended; return whether its time was over.

    It is not reaped.
    """
    with selectors.DefaultSelector() as selector, _opened_process(process.pid) as handle:
        if handle is not None:
            selector.register(handle, selectors.EVENT_READ)
        for pipe in pipes:
            selector.register(pipe, selectors.EVENT_READ)
        ask_at = kill_at = inf
        is_late = False
        longest_s = _LOOK_S if handle is not None else _LOOK_S / 5
        look_s = longest_s if seen is None else _FIRST_LOOK_S
        while not has_ended(process.pid):
            if seen is not None:
                seen(_memory_of(process.pid))
            for key, _ in selector.select(look_s):
                tail = pipes.get(key.fileobj)
                if tail is not None and not _read(key.fileobj, tail):
                    selector.unregister(key.fileobj)
            now = time.monotonic()
            look_s = min(2 * look_s, longest_s)
            if kill_at == inf and (now >= until or not is_wanted()):
                ask_at, kill_at, is_late = now, now + _GRACE_S, now >= until
            if now >= kill_at:
                _signal(process.pid, signal.SIGKILL)
            elif now >= ask_at:
                ask_at = inf
                _signal(process.pid, signal.SIGTERM)
    # What a shell has started may need the time to end, too.
    while kill_at < inf and time.monotonic() < kill_at and not _is_last(process.pid):
        time.sleep(_LOOK_S / 10)
    return is_late


def has_ended(pid: int) -> bool:
    """Return whether a child has ended, without reaping it."""
    if hasattr(os, "waitid"):
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    import psutil  # some systems have `waitid` from a later Python on

    return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)


def _memory_of(leader: int) -> int:
    """Return the memory of a group: of all its processes now, or the peak of the leader's."""
    taken = peak = 0
    pids = [leader]
    for pid in pids:  # it grows by their children
        with contextlib.suppress(OSError):
            with open(f"/proc/{pid}/status", "rb", buffering=0) as file:
                found = dict(_MEMORY.findall(file.read(_CHUNK)))
            taken += int(found.get(b"RSS", 0)) << 10
            peak = max(peak, int(found.get(b"HWM", 0)) << 10)
            with open(f"/proc/{pid}/task/{pid}/children", "rb", buffering=0) as file:
                pids += map(int, file.read(_CHUNK).split()[:_MAX_CHILDREN])
        if len(pids) > _MAX_CHILDREN:
            break
    return max(taken, peak)


def _is_last(leader: int) -> bool:
    """Return whether the leader is all that is left of its group."""
    import psutil  # here, because clients import this module

    for pid in psutil.pids():
        with contextlib.suppress(OSError):
            if pid != leader and os.getpgid(pid) == leader:
                return False
    return True


@contextlib.contextmanager
def _opened_process(pid: int) -> Iterator[int | None]:
    """Open a process, so that a selector tells its end; None where the system cannot."""
    try:
        handle = os.pidfd_open(pid)
    except (AttributeError, OSError):
        yield None
        return
    try:
        yield handle
    finally:
        os.close(handle)


def _read(pipe: Any, tail: _Tail) -> bool:
    """Read what a pipe has; False at its end."""
    try:
        part = os.read(pipe.fileno(), _CHUNK)
    except BlockingIOError:
        return True
    tail.add(part)
    return bool(part)


def _drain(pipes: dict[Any, _Tail], until: float) -> None:
    """Read pipes to their ends; a process that has left the group may keep them open."""
    with selectors.DefaultSelector() as selector:
        for pipe in pipes:
            selector.register(pipe, selectors.EVENT_READ)
        while selector.get_map() and time.monotonic() < until:
            for key, _ in selector.select(_LOOK_S):
                if not _read(key.fileobj, pipes[key.fileobj]):
                    selector.unregister(key.fileobj)


def _signal(group: int, number: signal.Signals) -> None:
    # Some systems refuse to signal a group of which nothing is left but a leader that has ended.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
