"""Finds leaks of tests: threads, open files and sockets, child processes, asyncio tasks.

`Snapshot.take()` before, `leaks_since(snapshot)` after. The check waits, up to `GRACE_S`, for what
is already on its way out (a thread that has been told to stop, a socket whose peer has closed), so
that it fails only on what stays. It does not wait at all when nothing is left, which is the rule.

Not counted as left behind:

- replacements: a connection closed and another one opened is the same number of files;
- files below /dev and regular files of the interpreter (shared libraries): libraries open them once
  for the whole process;
- libuv's pipe for signals, which it opens with the first loop of the process: that loop is made
  when this module is imported;
- a server that serves all tests of the process (`SERVERS`), and its own processes;
- multiprocessing's resource tracker and fork server, their pipes included: the standard library
  keeps them until the process ends, whoever started them.
"""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from typing import TypeVar

import psutil

from weft.protocol.host.event_loop import new_event_loop

new_event_loop().close()

T = TypeVar("T")

#: Seconds that threads, processes and tasks have to end after the test has.
GRACE_S = 5.0
POLL_S = 0.005

#: Process ids of servers that are ended after the last test.
SERVERS: set[int] = set()

_SOCKET = "socket:"

#: /dev/fd lists this process's open files on Linux and macOS alike.
_OPEN_FILES = "/dev/fd"


def wait_until(
    condition: Callable[[], T], timeout_s: float = 10.0, what: str = "", look_s: float = POLL_S
) -> T:
    """Return the first true value of `condition()`, or fail after `timeout_s` seconds.

    There are `look_s` between two calls, for which a condition that is dear is given more.
    The limit is there to end a broken test, not to judge a slow machine: choose it generously.
    """
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(
                f"still not true after {timeout_s:g} s: {what or condition.__qualname__}"
            )
        time.sleep(look_s)
    return value


@dataclass(frozen=True)
class Snapshot:
    """The threads, files and processes of this process at one moment."""

    threads: frozenset[threading.Thread]
    #: {(number, what it refers to)}, without what `_is_process_wide` says.
    files: frozenset[tuple[int, str]]
    #: psutil distinguishes a process from a later one with the same pid.
    children: frozenset[psutil.Process]

    @classmethod
    def take(cls) -> Snapshot:
        """Take a snapshot of this process; costs about 1 ms."""
        return cls(frozenset(threading.enumerate()), _open_files(), _children())

    @property
    def n_sockets(self) -> int:
        """How many of the files are sockets (where the system tells)."""
        return sum(target.startswith(_SOCKET) for _, target in self.files)

    def without_sockets(self) -> Snapshot:
        """Return a snapshot with all but the sockets."""
        files = frozenset(file for file in self.files if not file[1].startswith(_SOCKET))
        return Snapshot(self.threads, files, self.children)


def leaks_since(before: Snapshot, *, may_connect: bool = False) -> list[str]:
    """Wait for the end of everything that began after `before`; describe the rest, [] if none.

    With `may_connect`, sockets are not looked at. Processes that are still there are killed: the
    tests that follow must not meet them.
    """
    if may_connect:
        before = before.without_sockets()

    def look() -> list[str]:
        now = Snapshot.take()
        return _left(before, now.without_sockets() if may_connect else now)

    left = look()
    if left:
        # A cycle may hold a socket or a process that is not used any more. That is not a leak.
        gc.collect()
        deadline = time.monotonic() + GRACE_S
        while (left := look()) and time.monotonic() < deadline:
            time.sleep(POLL_S)
    kill(_children() - before.children)
    return left


def kill(processes: frozenset[psutil.Process]) -> None:
    """Kill `processes`, some of which may be gone."""
    for process in processes:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue


def _left(before: Snapshot, now: Snapshot) -> list[str]:
    lines = []
    if len(now.threads) > len(before.threads):
        lines += [
            f"thread {thread.name!r}{' (daemon)' if thread.daemon else ''}"
            for thread in now.threads - before.threads
        ]
    if len(now.files) > len(before.files):
        lines += [f"file {number}: {target}" for number, target in now.files - before.files]
    lines += [f"process {describe(child)}" for child in now.children - before.children]
    return sorted(lines)


def describe(process: psutil.Process) -> str:
    """Describe a process, even if it is about to end or is a zombie."""
    try:
        return f"{process.pid} [{process.status()}] {' '.join(process.cmdline())[:200]}"
    except psutil.Error as error:
        return f"{process.pid} [{type(error).__name__}]"


def _open_files() -> frozenset[tuple[int, str]]:
    mine = set()
    process_wide = {
        getattr(resource_tracker._resource_tracker, "_fd", None),
        getattr(forkserver._forkserver, "_forkserver_alive_fd", None),
    }
    for name in os.listdir(_OPEN_FILES):
        try:
            target = os.readlink(f"{_OPEN_FILES}/{name}")
        except FileNotFoundError:  # the folder itself, which listdir had open
            continue
        except OSError:  # macOS: not links, but still one for each open file
            target = "?"
        number = int(name)
        if number not in process_wide and not _is_process_wide(target):
            mine.add((number, target))
    return frozenset(mine)


def _is_process_wide(target: str) -> bool:
    return target.startswith("/dev/") or ".so" in target


def _children() -> frozenset[psutil.Process]:
    tracker = getattr(resource_tracker._resource_tracker, "_pid", None)
    if not _may_have_children_but({tracker, *SERVERS}):
        return frozenset()
    process_wide = {tracker, getattr(forkserver._forkserver, "_forkserver_pid", None), *SERVERS}
    for pid in SERVERS:
        process_wide |= {child.pid for child in psutil.Process(pid).children(recursive=True)}
    family = psutil.Process().children(recursive=True)
    return frozenset(child for child in family if child.pid not in process_wide)


def _may_have_children_but(known: set[int | None]) -> bool:
    """Ask the kernel, where it can tell: psutil reads the state of every process of the machine.

    False is certain. A thread that ends meanwhile hands its children to another, which may have
    been asked before.
    """
    try:
        return any(
            int(pid) not in known
            for thread in os.listdir("/proc/self/task")
            for pid in Path("/proc/self/task", thread, "children").read_bytes().split()
        )
    except OSError:
        return True
