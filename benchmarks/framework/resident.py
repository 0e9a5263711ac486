"""The most memory that all processes of a system hold at once: the sum of their resident sets.

The processes are those that carry the mark of a child (`supervise.py`), so they include its client
and daemons that have left its process group. A thread of the parent, which has nothing else to do,
reads the sums: a thread of the client would take the interpreter from what is measured. Memory that
processes share is counted in each of them.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil

#: Seconds between two readings, and between two searches for new processes.
READ_S = 0.05
SEARCH_S = 1.0

_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


def resident_bytes(pid: int) -> int:
    """Return the resident set of a process, 0 if it has ended or may not be inspected."""
    try:
        # A tenth of the time that psutil takes for the same.
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * _PAGE
    except (OSError, IndexError):
        pass
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0


class Peak:
    """The highest sum since the last `take`.

    Args:
        find: returns the ids of the processes; it is called about once per second.
    """

    def __init__(self, find: Callable[[], list[int]]) -> None:
        self._find = find
        self._pids: list[int] = []
        self._lock = threading.Lock()
        #: Changes under the lock.
        self.highest = 0
        self._taken = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="benchmark-memory", daemon=True)

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def take(self) -> int:
        """Return the highest sum, in bytes, and begin anew.

        If the processes have ended since the last call, it came too late: the sum of then is the
        one of both.
        """
        self._pids = self._find()
        self._read()
        with self._lock:
            self._taken, self.highest = self.highest or self._taken, 0
        return self._taken

    def _watch(self) -> None:
        search_at = 0.0
        while not self._is_over.wait(READ_S):
            if time.monotonic() >= search_at:
                self._pids = self._find()
                search_at = time.monotonic() + SEARCH_S
            self._read()

    def _read(self) -> None:
        total = sum(map(resident_bytes, self._pids))
        with self._lock:
            self.highest = max(self.highest, total)
