"""Waits for states: by blocking a thread, by awaiting, or by a callback.

One watcher waits for many states and is notified in batches, so that a thread that waits for a
million of them is woken once.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, ClassVar

from ..core.tasks import NO_VALUE, PENDING, FutureState, Watcher
from .interruptible import acquire


def unready(states: list[FutureState]) -> list[FutureState]:
    """Return those whose result or failure is not in this process."""
    # `blob` first: a thread that unpickles sets `value` before it clears `blob`.
    return [s for s in states if s.blob is None and s.value is NO_VALUE and s.failure is None]


def is_ready(state: FutureState, wants_data: bool) -> bool:
    """Return whether a state has a final status; if `wants_data`, also its result, if any."""
    if wants_data:
        return state.blob is not None or state.value is not NO_VALUE or state.failure is not None
    return state.status != PENDING


def pending(states: list[FutureState]) -> list[FutureState]:
    """Return those without a final status."""
    return [state for state in states if state.status == "pending"]


class Waiter(Watcher):
    """Waits until `n_left` states are ready, or earlier if it stops at failures."""

    __slots__ = ("answer", "n_left", "problem", "stops_at_failure")

    def __init__(self, n: int, wants_data: bool, stops_at_failure: bool = False) -> None:
        super().__init__(wants_data)
        self.n_left = n
        self.stops_at_failure = stops_at_failure
        #: The last item that came, for callers that wait for an answer and not for states.
        self.answer: Any = None
        #: Why a wait in a task would have no end; "" = it has one, for all that is known.
        self.problem = ""

    def on_ready(self, items: list[Any]) -> None:
        """See `Watcher`."""
        if self.n_left <= 0:
            return
        self.n_left -= len(items)
        self.answer = items[-1]
        if self.stops_at_failure and any([s.failure is not None for s in items]):  # noqa: C419
            self.n_left = 0
        if self.n_left <= 0:
            self.wake()

    def fail(self, problem: str) -> None:
        """End the wait, because it would have no end. The caller holds the engine's lock."""
        if self.n_left > 0:
            self.problem = problem
            self.n_left = 0
            self.wake()

    def wake(self) -> None:
        """Wake the caller that waits. Called once."""
        raise NotImplementedError


class ThreadWaiter(Waiter):
    """Blocks a thread."""

    __slots__ = ("_lock",)

    def __init__(self, n: int, wants_data: bool, stops_at_failure: bool = False) -> None:
        super().__init__(n, wants_data, stops_at_failure)
        self._lock = threading.Lock()
        self._lock.acquire()

    def wake(self) -> None:
        """See `Waiter`."""
        self._lock.release()

    def wait(self, timeout: float | None) -> bool:
        """Wait, at most `timeout` seconds; return whether it is done. Ctrl-C interrupts."""
        return acquire(self._lock, timeout)


class StartWaiter(ThreadWaiter):
    """Blocks a thread until each of some calls is known to have begun, or has ended."""

    __slots__ = ()

    ends_at_start: ClassVar[bool] = True


class AsyncWaiter(Waiter):
    """Blocks a coroutine, in any loop."""

    __slots__ = ("_future", "_loop")

    def __init__(self, n: int, wants_data: bool, stops_at_failure: bool = False) -> None:
        super().__init__(n, wants_data, stops_at_failure)
        self._loop = asyncio.get_running_loop()
        self._future: asyncio.Future[None] = self._loop.create_future()

    def wake(self) -> None:
        """See `Waiter`."""
        if asyncio._get_running_loop() is self._loop:
            settle(self._future)
        else:
            call_in(self._loop, settle, self._future)

    async def wait(self, timeout: float | None) -> bool:
        """Wait, at most `timeout` seconds; return whether it is done."""
        if timeout is None:
            await self._future
            return True
        await asyncio.wait([self._future], timeout=max(timeout, 0.0))
        return self._future.done()


class Calling(Watcher):
    """Calls a function when something is ready, whatever it is."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[[], object]) -> None:
        super().__init__(wants_data=False)
        self._call = call

    def on_ready(self, items: list[Any]) -> None:
        """See `Watcher`."""
        self._call()


class Wanting(Watcher):
    """Has results fetched, and calls a function when they are here, or there are none."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[[], object] | None = None) -> None:
        super().__init__(wants_data=True)
        self._call = call

    def on_ready(self, items: list[Any]) -> None:
        """See `Watcher`."""
        if self._call is not None:
            self._call()


def settle(future: asyncio.Future[None]) -> None:
    """Let a coroutine go on that awaits this, unless it has ended."""
    if not future.done():
        future.set_result(None)


def call_in(loop: asyncio.AbstractEventLoop, callback: Any, *args: Any) -> None:
    """Call `callback` in `loop`, which may be the caller's own or that of another thread."""
    try:
        if asyncio._get_running_loop() is loop:
            loop.call_soon(callback, *args)
        else:
            loop.call_soon_threadsafe(callback, *args)
    except RuntimeError:
        if not loop.is_closed():
            raise
        # The coroutine that waited there has ended with the loop.
