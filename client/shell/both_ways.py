"""Methods that block or are awaited, written once: as coroutines.

An asynchronous client hands such a coroutine to its caller. A blocking one has `result_of` run it
in the caller's thread, where each of the waits below blocks, so that it ends at its first step and
needs no event loop. What it awaits are other such coroutines, and nothing else.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

from ...protocol.host.blocking import blocked
from ..modes import T, as_result
from .watchers import AsyncWaiter, ThreadWaiter

if TYPE_CHECKING:
    from .engine import Engine

_NOBODY: Final[Any] = object()


class _Here(threading.local):
    #: The event loop in whose iteration, perhaps None, this thread runs a coroutine to its end. In
    #: any other loop, which code of the user may run meanwhile, coroutines are awaited.
    loop: Any = _NOBODY


_here: Final = _Here()


def blocks_here() -> bool:
    """Return whether the waits of the coroutine that runs now block its thread."""
    return _here.loop is asyncio._get_running_loop()


def result_of(
    engine: Engine | None,
    make: Callable[[], Coroutine[Any, Any, T]],
    asynchronous: bool | None = None,
) -> T:
    """Return the result of a coroutine, or the coroutine itself, which is awaited.

    Args:
        engine: of the client; None = there is none, and nothing to be awaited.
        make: makes the coroutine that does the work of a method.
        asynchronous: it is awaited; None = if the client is asynchronous.
    """
    if asynchronous is None:
        asynchronous = engine is not None and engine.is_asynchronous
    if asynchronous:
        return as_result(make())
    before, _here.loop = _here.loop, asyncio._get_running_loop()
    try:
        # Nothing stands between: Python raises a Ctrl-C when a call of C returns or a function
        # begins, and warns of a coroutine that never did.
        coroutine = make()
        coroutine.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    finally:
        _here.loop = before
    coroutine.close()
    raise AssertionError("a coroutine that blocks has awaited something else")


def waiter_here(
    n: int = 1, wants_data: bool = False, stops_at_failure: bool = False
) -> ThreadWaiter | AsyncWaiter:
    """Return a waiter for `wait`; by default, for one answer."""
    return (ThreadWaiter if blocks_here() else AsyncWaiter)(n, wants_data, stops_at_failure)


async def wait(
    engine: Engine,
    waiter: ThreadWaiter | AsyncWaiter,
    operation: Any,
    timeout: float | None,
    *,
    may_park: bool = False,
) -> bool:
    """Post an operation that `waiter` is part of, and wait; return whether it was done in time.

    A thread of a task gives its slot up meanwhile; see `blocked` for `may_park`.
    """
    if isinstance(waiter, AsyncWaiter):
        return await engine.wait_async(waiter, operation, timeout)
    with blocked(may_park=may_park):
        return engine.wait(waiter, operation, timeout)


async def wait_for(engine: Engine, states: Any, timeout: float | None, **options: Any) -> bool:
    """Wait for states; see `Engine.wait_for`."""
    if blocks_here():
        return engine.wait_for(states, timeout, **options)
    return await engine.wait_for_async(states, timeout, **options)


def settled(engine: Engine, asynchronous: bool | None = None) -> None:
    """Wait until the core has handled all earlier operations.

    Args:
        engine: of the client.
        asynchronous: return an awaitable; None = if the client is asynchronous.
    """
    if engine.is_asynchronous if asynchronous is None else asynchronous:
        return as_result(engine.settle_async())
    return engine.settle()
