"""A time limit for an awaitable, which a cancellation always gets through."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


async def within(seconds: float, awaitable: Awaitable[T]) -> T:
    """Await for at most so long.

    `asyncio.wait_for` loses a cancellation before Python 3.12 if what it waits for ends in the same
    turn of the loop (python/cpython#86296): a task that tries again until it is cancelled then
    tries for ever. Here the cancellation counts, and an error that came with it is dropped.

    Raises:
        TimeoutError: it took too long; what was awaited has been cancelled, and has ended.
        BaseException: whatever the awaitable raises.
    """
    awaited = asyncio.ensure_future(awaitable)
    try:
        done, _ = await asyncio.wait([awaited], timeout=seconds)
        if not done:
            raise TimeoutError(f"not within {seconds:g} s")
        return awaited.result()
    finally:
        if not awaited.done():
            awaited.cancel()
            await asyncio.wait([awaited])
        if not awaited.cancelled():
            awaited.exception()  # so that nobody misses it
