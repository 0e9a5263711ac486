"""Runs a child that may hang, crash or leave processes behind, and returns in bounded time.

Every child leads its own process group and carries a mark in its environment that all its
descendants inherit: a process that has left the group (Ray's daemons do) is found by the mark and
stopped by its pid. No other process is touched.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import psutil

MARK = "WEFT_BENCHMARK_MARK"

#: Seconds that a child has to end by itself after it was asked to.
GRACE_S = 10.0


class TimedOut(Exception):
    """The child reported nothing before the deadline."""


class Child:
    """A process that reports JSON lines on its standard output."""

    def __init__(
        self, command: Sequence[str], *, cwd: Path, environment: Mapping[str, str]
    ) -> None:
        self._mark = uuid.uuid4().hex
        #: {process: its mark, or ""}, of all that ran at the last look
        self._marks: dict[int, str] = {}
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by stop
        # For the files of the system. The path is short: sockets allow about 100 characters.
        self._directory = tempfile.TemporaryDirectory(
            prefix="wb-", dir="/tmp" if os.name == "posix" else None, ignore_cleanup_errors=True
        )
        self._process = subprocess.Popen(
            list(command),
            cwd=cwd,
            env={**environment, MARK: self._mark, "TMPDIR": self._directory.name},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,
        )
        self._events: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, name="benchmark-reader", daemon=True)
        self._reader.start()

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict):
                self._events.put(event)
        self._events.put(None)

    def next_event(self, deadline: float) -> dict[str, Any] | None:
        """Return the next report, None once the child has ended; `TimedOut` at the deadline
        (monotonic seconds).
        """
        while True:
            remaining_s = deadline - time.monotonic()
            if remaining_s <= 0:
                raise TimedOut
            try:
                # In slices: a daemon that inherited the pipe would keep it open after the child has
                # ended.
                event = self._events.get(timeout=min(remaining_s, 1.0))
            except queue.Empty:
                if self._process.poll() is not None:
                    return None
            else:
                return event

    def answer(self) -> None:
        """Let a child go on that has reported the start of a workload and waits."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended, or does not wait
            self._process.stdin.write(b"\n")
            self._process.stdin.flush()

    def exit_code(self, timeout_s: float) -> int | None:
        """Return the exit code, None if the child has not ended within the time."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def pids(self) -> list[int]:
        """Return the ids of the child and of all that it started and that still runs.

        Only processes that are new since the last call are inspected.
        """
        known, marks = self._marks, {}
        for pid in psutil.pids():
            mark = known[pid] if pid in known else _mark_of(pid)
            if mark is not None:
                marks[pid] = mark
        self._marks = marks
        return [pid for pid, mark in marks.items() if mark == self._mark]

    def log_tail(self, n_bytes: int = 4000) -> str:
        """Return the end of what the child wrote to standard error."""
        end = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, end - n_bytes))
        return self._log.read().decode("utf-8", "replace")

    def stop(self) -> None:
        """Stop the child and all that it started. Idempotent."""
        if self._log.closed:
            return
        self._signal(signal.SIGTERM)
        if self.exit_code(GRACE_S / 2) is None:
            self._signal(getattr(signal, "SIGKILL", signal.SIGTERM))
            self.exit_code(GRACE_S)
        for process in marked_processes(self._mark):
            _stop(process)
        self._reader.join(GRACE_S)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # an answer that nobody has read
            self._process.stdin.close()
        if not self._reader.is_alive():
            self._process.stdout.close()
        self._directory.cleanup()
        self._log.close()

    def _signal(self, number: int) -> None:
        if self._process.poll() is not None:
            return
        if hasattr(os, "killpg"):
            os.killpg(self._process.pid, number)
        else:
            self._process.send_signal(number)


def marked_processes(mark: str) -> list[psutil.Process]:
    """Return the processes whose environment carries this mark."""
    return [process for process in psutil.process_iter() if _mark_of(process.pid) == mark]


def _mark_of(pid: int) -> str | None:
    """Return the mark of a process, "" if it has none; None if its environment cannot be read: it
    has ended, may not be inspected, or is just being replaced by `exec`.
    """
    try:
        environment = psutil.Process(pid).environ()
    except (psutil.Error, OSError):
        return None
    return environment.get(MARK, "") if environment else None


def _stop(process: psutil.Process) -> None:
    try:
        process.terminate()
        try:
            process.wait(GRACE_S / 5)
        except psutil.TimeoutExpired:
            process.kill()
            process.wait(GRACE_S / 5)
    except (psutil.NoSuchProcess, psutil.TimeoutExpired):
        return
