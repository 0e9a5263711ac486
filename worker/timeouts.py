"""Looks which tasks run, when the time limit of one of them passes.

`core/timeouts.py` decides when that is and what follows. For the loop's thread only. A task that
holds the interpreter lock keeps the loop from looking; its supervisor sees that
(`family/held_up.py`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .core.events import Event, RunningSeen

if TYPE_CHECKING:
    from .context import WorkerContext
    from .core.state import WorkerState


class RunningWatch:
    """Passes the attempts that run now, and have a limit, to the core."""

    __slots__ = ("_contexts", "_crashed", "_handle", "_state", "_timer")

    def __init__(
        self,
        state: WorkerState,
        contexts: dict[int, WorkerContext],
        handle: Callable[[Event], object],
        crashed: Callable[[BaseException], object],
    ) -> None:
        """Prepare.

        Args:
            state: of the worker.
            contexts: {thread: what runs there}.
            handle: passes an event to the core.
            crashed: called with the error if that fails, which is a bug of weft.
        """
        self._state = state
        self._contexts = contexts
        self._handle = handle
        self._crashed = crashed
        #: Calls `_look`.
        self._timer: asyncio.TimerHandle | None = None

    def look_at(self, at: float, loop: asyncio.AbstractEventLoop) -> None:
        """Look at this time, of the monotonic clock, instead of when it was asked before."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_later(max(0.0, at - time.monotonic()), self._look)

    def time_limits(self) -> list[list[Any]]:
        """Return `[key, time so far, limit]` of the tasks that run and have one, in seconds.

        Any thread may call this.
        """
        now = time.monotonic()
        found: list[list[Any]] = []
        for attempt, limit in list(self._state.timeouts.items()):
            task = self._state.by_attempt.get(attempt)
            if task is not None and limit.began is not None:
                found.append([task.key, now - limit.began, limit.timeout_us / 1e6])
        return found

    def _look(self) -> None:
        timeouts = self._state.timeouts
        running = [context.attempt for context in list(self._contexts.values())]
        try:
            # Also if there is none: the core notes that it has looked.
            self._handle(RunningSeen([attempt for attempt in running if attempt in timeouts]))
        except Exception as bug:
            self._crashed(bug)
