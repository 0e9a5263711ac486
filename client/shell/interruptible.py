"""Waits for a lock so that Ctrl-C always interrupts the wait."""

from __future__ import annotations

import threading
import time
from typing import Final

#: A signal that comes between the interpreter's last check for signals and the moment at which the
#: thread sleeps does not wake it; nor does one that the system delivers to another thread. So no
#: sleep is longer than this, and Ctrl-C is never lost, but at most this much late.
SLICE_S: Final = 0.5


def acquire(lock: threading.Lock, timeout: float | None) -> bool:
    """Acquire `lock` within `timeout` seconds (None = for ever); return whether that succeeded."""
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
