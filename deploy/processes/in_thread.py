"""Blocking calls from an event loop, each on a thread that is gone afterwards."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable


async def in_thread(function: Callable[[], None]) -> None:
    """Call a function that blocks, in a thread that is gone afterwards.

    The loop's own pool would keep it for as long as the loop lives.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def finish(error: BaseException | None) -> None:
        if done.cancelled():
            return
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    def run() -> None:
        error: BaseException | None = None
        try:
            function()
        except BaseException as raised:
            error = raised
        loop.call_soon_threadsafe(finish, error)

    thread = threading.Thread(target=run, name="weft-cluster-start")
    thread.start()
    try:
        # A start whose caller is gone would leave processes without an owner.
        await asyncio.shield(done)
    finally:
        if not done.done():
            await asyncio.wait([done])
        thread.join()
