"""A process that cancels the jobs of a program that was killed.

An ordinary end cancels them itself. But a program that gets SIGKILL, or SIGTERM without a handler,
would leave jobs in the queue, which start later and find no scheduler. The keeper reads from its
standard input which jobs there are, one line each: `+id` and `-id`. When that ends without the line
`.`, it runs the command that cancels those that are left.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections.abc import Iterable, Sequence

_CODE = """\
import subprocess, sys
jobs = {}
for line in sys.stdin:
    if line == ".\\n":
        sys.exit()
    if line[0] == "+":
        jobs[line[1:].strip()] = None
    else:
        jobs.pop(line[1:].strip(), None)
jobs = list(jobs)
for i in range(0, len(jobs), 500):
    subprocess.run([*sys.argv[1:], *jobs[i:i + 500]], stdin=subprocess.DEVNULL)
"""


class JobKeeper:
    """The keeper of one cluster; `cancel` is the command that takes ids of jobs."""

    def __init__(self, cancel: Sequence[str]) -> None:
        # In a session of its own: Ctrl-C in a terminal is for the program.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _CODE, *cancel],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        self._lock = threading.Lock()

    def add(self, jobs: Iterable[str]) -> None:
        """Note jobs that were started."""
        self._tell("".join(f"+{job}\n" for job in jobs))

    def drop(self, jobs: Iterable[str]) -> None:
        """Note jobs that have ended."""
        self._tell("".join(f"-{job}\n" for job in jobs))

    def close(self) -> None:
        """Let it end without cancelling anything. A second call does nothing."""
        self._tell(".\n")
        with self._lock, contextlib.suppress(OSError, ValueError):
            assert self._process.stdin is not None
            self._process.stdin.close()
        self._process.wait()

    def _tell(self, text: str) -> None:
        with self._lock, contextlib.suppress(OSError, ValueError):  # it has ended, or was closed
            assert self._process.stdin is not None
            self._process.stdin.write(text)
            self._process.stdin.flush()
