"""Measures what tasks use: the memory of the process, now and then, and what threads have used.

The looks at the memory go on as long as some tasks of categories are here. What a thread has used
is read at the borders of chunks, at most once per millisecond: so most tiny tasks cost nothing.
`core/features/categories.py` decides what follows.
"""

from __future__ import annotations

import asyncio
import resource
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ...protocol.host.memory import taken_nbytes
from ...protocol.host.process_role import is_worker_process
from ...protocol.wire.messages import ALONE
from ..core.features.categories import AttemptUsed, MeasuredAttempts, MemorySeen

if TYPE_CHECKING:
    from ..context import WorkerContext
    from ..core.events import WorkerEvent
    from ..core.state import WorkerState
    from ..core.tasks import WorkerTask
    from ..data.store import Store

#: The time between two looks, seconds: what a task uses for a shorter time may not be seen.
LOOK_S: Final = 0.02
#: What a task has used is measured if it ran for longer, nanoseconds.
MEASURED_NS: Final = 10_000_000
#: What a thread has used is read when the last reading is older, nanoseconds.
_READ_NS: Final = 1_000_000
#: Elsewhere the system knows it of the process only.
_OF_THREAD: Final[int] = getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)
#: Bytes of a unit of `ru_maxrss`, and of `ru_inblock` and `ru_oublock`.
_RSS_UNIT: Final = 1 if sys.platform == "darwin" else 1024
_BLOCK: Final = 512


class ThreadUsage:
    """What the thread of one slot uses. For that thread only, except for making it."""

    __slots__ = ("_last", "read_at")

    def __init__(self) -> None:
        #: It is read at a border of chunks then, or later.
        self.read_at = 0
        self._last = (0, 0, 0)

    def read(self, now: int) -> tuple[int, int, int]:
        """Return the CPU time, microseconds, and bytes read and written, since the last call."""
        self.read_at = now + _READ_NS
        used = resource.getrusage(_OF_THREAD)
        last = self._last
        cpu_us = int((used.ru_utime + used.ru_stime) * 1e6)
        self._last = cpu_us, used.ru_inblock * _BLOCK, used.ru_oublock * _BLOCK
        return cpu_us - last[0], self._last[1] - last[1], self._last[2] - last[2]

    def end_task(
        self,
        task: WorkerTask | None,
        now: int,
        ran_ns: int,
        handle: Callable[[WorkerEvent], object],
    ) -> None:
        """Pass what a task has used that has just ended to the core, if it is to be measured."""
        if task is None or (ran_ns < MEASURED_NS and not hasattr(task, "usage")):
            return
        cpu_us, read_nbytes, written_nbytes = self.read(now)
        peak_nbytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RSS_UNIT
        handle(AttemptUsed(task.attempt, max(cpu_us, 1), read_nbytes, written_nbytes, peak_nbytes))


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
        found = ((attempt, self._measured.get(attempt)) for attempt in ended)
        measured = [attempt for attempt, usage in found if usage and usage.kind == ALONE]
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
