"""Waits of the threads of actors that last: the scheduler is to know of them.

While a method waits, all later calls of its actor wait behind it. If it waits for a task, or for a
call of another actor, that waits for one of these, none of them ever goes on; only the scheduler
can see that (`scheduler/core/coordination/cycles.py`). Most waits are short, and cost a place in a
table. One that has lasted for `_LONG_S` is handed to the core, which reports it, and later its end.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ...protocol.wire.messages.actors import call_text
from ..core.features.actor_waits import ActorBlocked, ActorResumes

if TYPE_CHECKING:
    from ...protocol.host.blocking import TaskWait
    from ..slots.executor import TaskExecutor
    from .actor_thread import ActorThread

#: The age at which a wait is reported, seconds.
_LONG_S: Final = 0.5


@dataclass(slots=True)
class _Wait:
    actor: ActorThread
    #: None = for something else than tasks and calls, or not without a time limit
    wait: TaskWait | None
    since: float = field(default_factory=time.monotonic)
    is_reported: bool = False


class ActorWaits:
    """The waits of the actors of one worker."""

    def __init__(
        self,
        executor: TaskExecutor,
        loop: asyncio.AbstractEventLoop,
        crashed: Callable[[BaseException], object],
    ) -> None:
        """Prepare; `crashed` is called with the error if a report fails, which is a bug of weft."""
        self._executor = executor
        self._loop = loop
        self._crashed = crashed
        #: Held while a wait or its end is handed to the core, so that these come in order.
        self._lock = threading.Lock()
        #: {attempt that made the actor: its wait}
        self._waits: dict[int, _Wait] = {}
        #: `_look` will be called.
        self._is_looking = False

    def begin(self, actor: ActorThread, wait: TaskWait | None) -> None:
        """Note that the thread of an actor waits. For that thread."""
        with self._lock:
            self._waits[actor.attempt] = _Wait(actor, wait)
            if self._is_looking:
                return
            self._is_looking = True
        with contextlib.suppress(RuntimeError):  # the worker ends
            self._loop.call_soon_threadsafe(self._loop.call_later, _LONG_S, self._look)

    def end(self, attempt: int) -> None:
        """Note that it waits no more."""
        with self._lock:
            found = self._waits.pop(attempt, None)
            if found is not None and found.is_reported:
                self._executor.waits.pop(attempt, None)
                self._executor.handle(ActorResumes(attempt))

    def _look(self) -> None:
        try:
            self._report_old()
        except Exception as bug:
            self._crashed(bug)

    def _report_old(self) -> None:
        """Report the waits that are old enough. For the loop's thread."""
        with self._lock:
            now = time.monotonic()
            next_s = _LONG_S
            is_needed = False
            for one in self._waits.values():
                if one.is_reported:
                    continue
                left_s = one.since + _LONG_S - now
                if left_s <= 0:
                    self._report(one)
                else:
                    is_needed = True
                    next_s = min(next_s, left_s)
            self._is_looking = is_needed
            if is_needed:
                self._loop.call_later(next_s, self._look)

    def _report(self, one: _Wait) -> None:
        one.is_reported = True
        actor, wait = one.actor, one.wait
        begun = actor.begun()
        if begun is None:
            return  # it cannot be said which calls wait for it
        if wait is not None:
            self._executor.waits[actor.attempt] = wait
        self._executor.handle(
            ActorBlocked(
                actor.key,
                actor.attempt,
                [] if wait is None else wait.keys,
                [] if wait is None else wait.actors,
                [] if wait is None else wait.calls,
                [call_text(*call) for call in begun],
                [call_text(*call) for call in actor.open()],
            )
        )
