"""Runs the coroutine functions of tasks, each on an event loop of its own, in its slot's thread.

While the loop has nothing to do and a coroutine in it awaits what weft brings (a result, a lock),
the task gives its seat up, as a task does that blocks: another one may run in its place. A task
that awaits something else, such as a socket, keeps its seat.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import selectors
from collections.abc import Callable
from typing import Any

from ...protocol.host.blocking import Awaits, TaskWait, blocked, on_awaits_here
from ..context import wake_here


class _SeatSelector(selectors.DefaultSelector):
    """A selector that waits without the seat of its task while `awaits` counts any."""

    def __init__(self, awaits: Awaits) -> None:
        super().__init__()
        self._awaits = awaits
        self.loop: asyncio.AbstractEventLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """See `selectors.BaseSelector`."""
        if not self._awaits.waits or (timeout is not None and timeout <= 0):
            return super().select(timeout)
        ready = super().select(0)
        if ready:
            return ready
        with blocked(self._only_wait() if timeout is None else None):
            return super().select(timeout)

    def _only_wait(self) -> TaskWait | None:
        """Return the wait without whose end nothing in the loop goes on; None if there is none."""
        waits = self._awaits.waits
        if len(waits) > 1 or len(self.get_map()) > 1:  # one file is that of the loop itself
            return None
        return waits[0] if len(asyncio.all_tasks(self.loop)) == 1 else None


def as_call(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return what a slot calls for a function: a coroutine function is run to its end."""
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - of an object, not of a function
    ):
        return functools.partial(run_coroutine, function)
    return function


def called(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function of which `as_call` has made this."""
    if isinstance(call, functools.partial) and call.func is run_coroutine:
        found: Callable[..., Any] = call.args[0]
        return found
    return call


def run_coroutine(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Run a coroutine function to its end, as `asyncio.run` does; return its result."""
    awaits = Awaits()
    selector = _SeatSelector(awaits)
    selector.loop = loop = asyncio.SelectorEventLoop(selector)
    try:
        asyncio.set_event_loop(loop)
        on_awaits_here(awaits)
        wake_here(functools.partial(loop.call_soon_threadsafe, _nothing))
        return loop.run_until_complete(function(*args, **kwargs))
    finally:
        wake_here(None)
        try:
            finish_loop(loop)
        finally:
            on_awaits_here(None)
            asyncio.set_event_loop(None)
            loop.close()


def _nothing() -> None:
    """Do nothing: an event loop that calls this looks around, and an exception can reach it."""


def finish_loop(loop: asyncio.AbstractEventLoop, timeout_s: float | None = None) -> int:
    """Cancel what the function has left behind, and wait for its end, for `timeout_s` at most.

    Returns:
        the number of coroutines that have not ended.
    """
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    staying: set[asyncio.Task[object]] = set()
    if left:
        ended, staying = loop.run_until_complete(asyncio.wait(left, timeout=timeout_s))
        for task in ended:
            if not task.cancelled() and task.exception() is not None:
                loop.call_exception_handler(
                    {
                        "message": "a coroutine that a task has left behind failed at its end",
                        "exception": task.exception(),
                        "task": task,
                    }
                )
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.run_until_complete(loop.shutdown_default_executor())
    return len(staying)
