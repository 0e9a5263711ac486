"""Blocking calls from an event loop, each on a thread that is gone afterwards."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def in_thread(function: Callable[[], T]) -> T:
    """Return what a function that blocks returns, called in a thread that is gone afterwards.

    The loop's own pool would keep it for as long as the loop lives.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(settle_future: Callable[..., None], outcome: object) -> None:
        if not done.cancelled():
            settle_future(outcome)

    def run() -> None:
        try:
            result = function()
        except BaseException as error:
            loop.call_soon_threadsafe(settle, done.set_exception, error)
        else:
            loop.call_soon_threadsafe(settle, done.set_result, result)

    thread = threading.Thread(target=run, name="weft-cluster-start")
    thread.start()
    try:
        # A start whose caller is gone would leave processes without an owner.
        return await asyncio.shield(done)
    finally:
        if not done.done():
            await asyncio.wait([done])
        thread.join()
