"""Time limits for an awaitable that never lose a cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

T = TypeVar("T")


async def within(seconds: float, awaitable: Awaitable[T]) -> T:
    """Await for at most `seconds`.

    Before Python 3.12 `asyncio.wait_for` loses a cancellation if the awaitable ends in the same
    iteration of the loop (python/cpython#86296): a task that tries again until it is cancelled
    would then try for ever. Here the cancellation counts, and an error of the same one is dropped.

    Raises:
        TimeoutError: it took too long; the awaitable has been cancelled, and has ended.
        BaseException: any exception of the awaitable.
    """
    awaited = asyncio.ensure_future(awaitable)
    try:
        done, _ = await asyncio.wait([awaited], timeout=seconds)
        if not done:
            raise TimeoutError(f"it took longer than {seconds:g} s")
        return awaited.result()
    finally:
        await _end(awaited)


async def unless(
    over: asyncio.Future[Any], awaitable: Awaitable[T], grace_s: float = 0.0
) -> T | None:
    """Await until it ends, or until `over` is done; return None in that case.

    Args:
        over: when it is done, the result is not needed any more.
        awaitable: the object to await.
        grace_s: time for which the awaitable may then continue before it is cancelled: a handshake
            that is broken off, for instance, looks like a fault to the peer.

    Raises:
        BaseException: any exception of the awaitable.
    """
    awaited = asyncio.ensure_future(awaitable)
    try:
        both: list[asyncio.Future[Any]] = [awaited, over]
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if grace_s and not awaited.done():
            await asyncio.wait([awaited], timeout=grace_s)
        return None if over.done() else awaited.result()
    finally:
        await _end(awaited)


async def _end(awaited: asyncio.Future[Any]) -> None:
    if not awaited.done():
        awaited.cancel()
        await asyncio.wait([awaited])
    if not awaited.cancelled():
        awaited.exception()  # marks it as retrieved
