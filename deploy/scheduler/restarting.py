"""The parent of `weft scheduler`: it runs the scheduler as its child, and starts it again.

The parent is this process before it has opened anything; the child is a fork of it that goes on
where `run_in_child` was called, and never returns there in the parent. So nothing that ends the
scheduler, be it the kernel for want of memory, ends the parent, which holds no secret and has
nothing to fail at: it waits for signals and for the child's end. All modules were imported before,
so the next scheduler need not import them (0.25 s of CPU), and it runs the same code although
another version may have been installed meanwhile.

A child that dies is started again, at once for the first time and then with growing pauses
(`protocol/restarting.py`), with one log line for each death. A final exit code is passed on: 0 (it
ended on request), 2 (its options or configuration are at fault) and 75 (another scheduler of the
cluster has taken over); so is any failure before the first child was ready. SIGTERM and SIGINT go
to the child, and then its end is the parent's, too. When the parent is gone, the child ends in
order: no process outlives its parent.

A service manager does the same, and sees more: under one, and in a container, there is no parent.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import shutil
import signal
import socket
import sys
import time
from collections.abc import Mapping
from typing import Any, Final, NoReturn

import psutil

from ...protocol.host.exits import EXIT_TAKEN_OVER, describe_exit
from ...protocol.restarting import Restarting
from ..processes.child import Lifeline

_log = logging.getLogger("weft.scheduler")

#: {exit code after which the scheduler is not started again: why}
_FINAL: Final = {
    0: "",
    2: "its options or configuration are at fault",
    EXIT_TAKEN_OVER: "another scheduler of this cluster has taken over",
}
#: Set by systemd for its services, and inherited by all shells below them.
_SYSTEMD: Final = ("INVOCATION_ID", "NOTIFY_SOCKET")


def is_wanted(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether this process should be the parent of a scheduler: nothing else is."""
    return hasattr(os, "fork") and manager(environ, os.getpid(), os.getppid()) == ""


def manager(environ: Mapping[str, str], pid: int, parent: int) -> str:
    """Return what starts a process again that ends, "" if nothing does.

    The variables alone do not tell: the terminals of a desktop, or of a notebook server in a
    container, have inherited them.
    """
    if pid == 1 or (environ.get("KUBERNETES_SERVICE_HOST") and parent <= 1):
        return "the container's runtime"  # with an init process or a pod's own as the parent
    if not any(environ.get(name) for name in _SYSTEMD):
        return ""
    service = environ.get("SYSTEMD_EXEC_PID")  # from systemd 248 on
    is_service = service == str(pid) if service else parent == 1 or _name(parent) == "systemd"
    return "systemd" if is_service else ""


def _name(pid: int) -> str:
    try:
        return psutil.Process(pid).name()
    except psutil.Error:
        return ""


def run_in_child() -> Lifeline:
    """Fork; return in the child only. The parent stays here, and ends as its last child did."""
    return _Parent().run()


class _Parent:
    def __init__(self) -> None:
        self._restarting = Restarting()
        #: The last report of a child, None before the first.
        self._report: dict[str, Any] | None = None
        #: SIGTERM or SIGINT came.
        self._is_stopping = False

    def run(self) -> Lifeline:
        # Signals wake `select` by a byte in a pipe; their handlers do nothing.
        self._wakes, self._waker = os.pipe()
        for fd in (self._wakes, self._waker):
            os.set_blocking(fd, False)
        self._numbers = [signal.SIGCHLD, signal.SIGTERM]
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            self._numbers.append(signal.SIGINT)
        self._before = {number: signal.getsignal(number) for number in self._numbers}
        for number in self._numbers:
            signal.signal(number, lambda number, frame: None)
        signal.set_wakeup_fd(self._waker)
        while True:
            lifeline = self._fork()
            if lifeline is not None:
                return lifeline
            code = self._wait_for_child()
            self._judge(code, time.monotonic() - self._started)

    def _fork(self) -> Lifeline | None:
        ours, theirs = socket.socketpair()
        sys.stdout.flush()
        sys.stderr.flush()
        # A signal in between must reach the child's own handlers, or none is there for it.
        signal.pthread_sigmask(signal.SIG_BLOCK, self._numbers)
        self._started = time.monotonic()
        self._pid = os.fork()
        if self._pid:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, self._numbers)
            theirs.close()
            ours.setblocking(False)
            self._socket, self._received = ours, b""
            return None
        signal.set_wakeup_fd(-1)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, self._numbers)
        ours.close()
        os.close(self._wakes)
        os.close(self._waker)
        return Lifeline(theirs, self._report)

    def _wait_for_child(self) -> int:
        """Pass signals on until the child has ended; return its exit code, negative = a signal."""
        watched: list[Any] = [self._wakes, self._socket]
        while True:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                self._read_report()
                self._socket.close()
                return os.waitstatus_to_exitcode(status)
            ready, _, _ = select.select(watched, [], [])
            if self._socket in ready and not self._read_report():
                watched.remove(self._socket)
            for number in self._take_signals():
                os.kill(self._pid, number)

    def _read_report(self) -> bool:
        """Take what the child has reported; return False at the end."""
        try:
            while data := self._socket.recv(1 << 16):
                self._received += data
        except BlockingIOError:
            data = b"?"
        except ConnectionResetError:
            data = b""
        *lines, self._received = self._received.split(b"\n")
        if lines:
            self._report = json.loads(lines[-1])
        return bool(data)

    def _take_signals(self) -> list[int]:
        """Return the orders to stop that have come."""
        numbers = b""
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._wakes, 4096):
                numbers += data
        stops = [number for number in numbers if number != signal.SIGCHLD]
        self._is_stopping = self._is_stopping or bool(stops)
        return stops

    def _judge(self, code: int, lived_s: float) -> None:
        """Return if another child is to be started, after the pause; else end this process."""
        self._take_signals()
        if self._is_stopping:
            # It may have been at its end already when another order came: Ctrl-C reaches both.
            self._end(0 if -code in self._numbers else code)
        if code in _FINAL or self._report is None:
            why = _FINAL.get(code, "")
            if why and self._report is not None:
                _log.error(
                    "the scheduler is not started again: %s (exit code %d)",
                    why,
                    code,
                    extra={"code": "scheduler-not-restarted"},
                )
            elif code < 0:
                _log.error(
                    "the scheduler ended at its start: %s",
                    describe_exit(code),
                    extra={"code": "scheduler-not-restarted"},
                )
            self._end(code)
        pause_s = self._restarting.died(lived_s)
        when = f"in {pause_s:g} s" if pause_s else "at once"
        how = describe_exit(code)
        _log.warning(
            "the scheduler, process %d, ended: %s; it is started again %s",
            self._pid,
            how,
            when,
            extra={"code": "scheduler-restarted"},
        )
        deadline = time.monotonic() + pause_s
        while (left := deadline - time.monotonic()) > 0 and not self._is_stopping:
            select.select([self._wakes], [], [], left)
            self._take_signals()
        if self._is_stopping:
            self._end(0)

    def _end(self, code: int) -> NoReturn:
        report = self._report or {}
        if report.get("temporary"):
            shutil.rmtree(report["state_directory"], ignore_errors=True)
        sys.exit(code if code >= 0 else 128 - code)
