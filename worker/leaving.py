"""How long a worker that got SIGTERM may take to leave."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Grace:
    """The grace period of a worker: it begins once, and ends the worker."""

    def __init__(self, seconds: float, stop: Callable[[str], object]) -> None:
        """Call `stop` with the reason that many seconds after the begin; 0 = it never begins."""
        self._seconds = seconds
        self._stop = stop
        self._timer: asyncio.TimerHandle | None = None

    @property
    def seconds(self) -> float:
        """How long the period is; 0 = it never begins."""
        return self._seconds

    def begin(self, reason: str) -> bool:
        """Begin; False if there is no such time, or if it has begun before."""
        if not self._seconds or self._timer is not None:
            return False
        text = f"{reason}, and its grace period of {self._seconds:g} s is over"
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._stop, text)
        return True

    def close(self) -> None:
        """Let it end nothing any more."""
        if self._timer is not None:
            self._timer.cancel()
