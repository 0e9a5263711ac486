"""Looks how much memory the process takes, as long as some tasks of the worker are measured.

`core/features/categories.py` decides what follows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ...protocol.host.memory import taken_nbytes
from ...protocol.host.process_role import is_worker_process
from ..core.features.categories import MeasuredAttempts, MemorySeen

if TYPE_CHECKING:
    from ..context import WorkerContext
    from ..core.events import WorkerEvent
    from ..core.state import WorkerState
    from ..data.store import Store

#: The time between two looks, seconds: what a task uses for a shorter time may not be seen.
LOOK_S: Final = 0.02


class MemoryWatch:
    """Passes what the process takes, and which tasks run, to the core."""

    __slots__ = ("_contexts", "_crashed", "_handle", "_is_looking", "_measured", "_store")

    def __init__(
        self,
        state: WorkerState,
        contexts: dict[int, WorkerContext],
        store: Store,
        handle: Callable[[WorkerEvent], object],
        crashed: Callable[[BaseException], object],
    ) -> None:
        """Prepare.

        Args:
            state: of the worker.
            contexts: {thread: what runs there}.
            store: the values, whose memory is not that of running tasks.
            handle: passes an event to the core.
            crashed: called with the error if that fails, which is a bug of weft.
        """
        self._measured = state.record(MeasuredAttempts)
        self._contexts = contexts
        self._store = store
        self._handle = handle
        self._crashed = crashed
        #: `_look_again` will be called.
        self._is_looking = False

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Look until no attempt is left that is measured."""
        if not self._is_looking:
            self._is_looking = True
            self._look_again(loop)

    def look(self, ended: list[int]) -> None:
        """Look once: these attempts have just ended, and were perhaps too short to be seen.

        For the thread of their slot.
        """
        measured = [attempt for attempt in ended if attempt in self._measured]
        if measured:
            others = [attempt for attempt in self._running() if attempt not in ended]
            nbytes = self._taken()
            for attempt in measured:  # they ran one after the other
                self._handle(MemorySeen(nbytes, [*others, attempt], is_over=True))

    def _running(self) -> list[int]:
        """Return the attempts that run in slots."""
        running = (context.attempt for context in list(self._contexts.values()))
        return [attempt for attempt in running if attempt]

    def _taken(self) -> int:
        """Return what the process takes beside values; 0 = not known, it is that of a program."""
        return max(taken_nbytes() - self._store.nbytes, 1) if is_worker_process() else 0

    def _look_again(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            self._handle(MemorySeen(self._taken(), self._running()))
        except Exception as bug:
            self._crashed(bug)
            return
        self._is_looking = bool(self._measured)
        if self._is_looking:
            loop.call_later(LOOK_S, self._look_again, loop)
