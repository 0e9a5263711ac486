"""Run a command of an installation for as long as it makes progress.

How long an installation takes depends on what else the machine does, so there is no limit of its
whole time: a command is given up when it has stood still for `STILL_S`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import psutil

#: Seconds without progress after which a command is given up. Go waits for up to 5 minutes for a
#: server, and says nothing meanwhile.
STILL_S = 600.0
#: Seconds between two looks.
_LOOK_S = 5.0
#: What counts as progress: idle runtimes take a little CPU for their timers.
_CPU_S, _CHARS = 1.0, 64 * 1024


class GivenUpError(Exception):
    """The command stood still; the text names the load of the machine."""


@dataclass(frozen=True)
class Work:
    """What a command and the processes that it started have done up to now."""

    #: Bytes of output.
    printed: int
    cpu_s: float
    #: Bytes read and written, also by way of sockets.
    chars: int

    def beyond(self, earlier: Work) -> bool:
        """Return whether this is progress since `earlier`.

        A process that ends may take what it did with it, so a figure that falls counts as well.
        """
        return (
            self.printed != earlier.printed
            or abs(self.cpu_s - earlier.cpu_s) >= _CPU_S
            or abs(self.chars - earlier.chars) >= _CHARS
        )


class Stillness:
    """For how long a command has made no progress."""

    def __init__(self, now: float) -> None:
        self._at, self._work = now, Work(0, 0.0, 0)

    def seconds(self, work: Work, now: float) -> float:
        """Return the seconds since the last progress that was seen."""
        if work.beyond(self._work):
            self._at, self._work = now, work
        return now - self._at


def work_of(pid: int, printed: int) -> Work:
    """Return what the process and its descendants have done."""
    cpu_s, chars = 0.0, 0
    try:
        family = [root := psutil.Process(pid), *root.children(recursive=True)]
    except psutil.Error:
        family = []
    for process in family:
        try:
            times = process.cpu_times()  # with those of children that were waited for
            cpu_s += times.user + times.system + times.children_user + times.children_system
            moved = process.io_counters()
            chars += moved.read_chars + moved.write_chars
        except (psutil.Error, AttributeError):  # it has ended; macOS counts no input
            continue
    return Work(printed, cpu_s, chars)


def run(
    command: list[str], *, cwd: Path | None, environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, or end it and raise GivenUpError when it stands still."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,  # one signal ends it with all that it started
        )
        try:
            _watch(process, out, err)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        return subprocess.CompletedProcess(command, process.returncode, _text(out), _text(err))


def _watch(process: subprocess.Popen[bytes], out: BinaryIO, err: BinaryIO) -> None:
    began = time.monotonic()
    stillness = Stillness(began)
    while True:
        try:
            process.wait(timeout=min(_LOOK_S, STILL_S))
            return
        except subprocess.TimeoutExpired:
            pass
        printed = os.fstat(out.fileno()).st_size + os.fstat(err.fileno()).st_size
        now = time.monotonic()
        still = stillness.seconds(work_of(process.pid, printed), now)
        if still >= STILL_S:
            load = os.getloadavg()[0]
            raise GivenUpError(
                f"it has printed, read and computed nothing for {still / 60:.1f} min, and ran for"
                f" {(now - began) / 60:.1f} min; the load of the machine is {load:.1f} on"
                f" {os.cpu_count()} processors. Try again: what is installed is kept. If it stands"
                " still on an idle machine as well, see whether the network reaches its registry"
            )


def _text(file: BinaryIO) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")
