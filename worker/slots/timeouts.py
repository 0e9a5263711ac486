"""Looks which tasks run, as long as some of the worker have a time limit.

`core/features/timeouts.py` decides what follows. For the loop's thread only. A task that holds the
interpreter lock keeps the loop from looking; its supervisor sees that (`family/stalled.py`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from ..core.features.timeouts import RunningSeen, TimeLimits

if TYPE_CHECKING:
    from ..context import WorkerContext
    from ..core.events import WorkerEvent
    from ..core.state import WorkerState

#: The time between two looks, seconds: a limit is exceeded by up to twice as much.
LOOK_S: Final = 0.02


class RunningWatch:
    """Passes the attempts that run now, and have a limit, to the core."""

    __slots__ = ("_contexts", "_crashed", "_handle", "_is_looking", "_limits", "_state")

    def __init__(
        self,
        state: WorkerState,
        contexts: dict[int, WorkerContext],
        handle: Callable[[WorkerEvent], object],
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
        self._limits = state.record(TimeLimits)
        self._contexts = contexts
        self._handle = handle
        self._crashed = crashed
        #: `_look` will be called.
        self._is_looking = False

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Look until no attempt with a limit is left."""
        if not self._is_looking:
            self._is_looking = True
            self._look(loop)

    def time_limits(self) -> list[list[Any]]:
        """Return `[key, time so far, limit]` of the tasks that run and have one, in seconds.

        Any thread may call this.
        """
        now = time.monotonic()
        found: list[list[Any]] = []
        for attempt, limit in list(self._limits.items()):
            task = self._state.by_attempt.get(attempt)
            if task is not None and limit.began is not None:
                found.append([task.key, now - limit.began, limit.timeout_us / 1e6])
        return found

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        limits = self._limits
        running = [context.attempt for context in list(self._contexts.values())]
        limited = [attempt for attempt in running if attempt in limits]
        if limited:
            try:
                self._handle(RunningSeen(limited))
            except Exception as bug:
                self._crashed(bug)
                return
        self._is_looking = bool(limits)
        if self._is_looking:
            loop.call_later(LOOK_S, self._look, loop)
