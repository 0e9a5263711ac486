"""Waiting for a lock so that Ctrl-C always gets through."""

from __future__ import annotations

import threading
import time
from typing import Final

#: An interrupt that comes between the interpreter's last look for signals and the moment at which
#: the thread sleeps does not wake it; nor does one that the system hands to another thread. So no
#: sleep is longer than this, and Ctrl-C is never lost, only late by so much in the worst case.
SLICE_S: Final = 0.5


def acquire(lock: threading.Lock, timeout: float | None) -> bool:
    """Acquire `lock` within `timeout` seconds (None = for ever); return whether it was."""
    if timeout is None:
        while not lock.acquire(timeout=SLICE_S):
            pass
        return True
    deadline = time.monotonic() + timeout
    while True:
        left = deadline - time.monotonic()
        if left <= SLICE_S:
            return lock.acquire(timeout=max(left, 0.0))
        if lock.acquire(timeout=SLICE_S):
            return True
