"""Waits for a lock so that Ctrl-C always interrupts the wait."""

from __future__ import annotations

import math
import threading
import time
from typing import Final

#: A signal that comes between the interpreter's last check for signals and the moment at which the
#: thread sleeps does not wake it; nor does one that the system delivers to another thread. So no
#: sleep is longer than this, and Ctrl-C is never lost, but at most this much late.
SLICE_S: Final = 0.5


def check_seconds(seconds: object, option: str) -> None:
    """Check a number of seconds to wait, or None.

    Raises:
        TypeError, ValueError: it is neither None nor a number, or is below zero.
    """
    if seconds is None:
        return
    if not isinstance(seconds, (int, float)) or isinstance(seconds, bool):
        raise TypeError(f"{option}= is a number of seconds, not {seconds!r}")
    if math.isnan(seconds) or seconds < 0:
        raise ValueError(f"{option}= is a number of seconds >= 0, not {seconds!r}")


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
