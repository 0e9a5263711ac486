"""The event loop of every process of weft, and of the client's thread: uvloop's, if installed."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Make a loop of the fastest kind that is installed."""
    loop: asyncio.AbstractEventLoop = _fastest().new_event_loop()
    return loop


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine to its end on such a loop, as `asyncio.run` does."""
    _fastest().run(main)


def load() -> None:
    """Import what a loop needs: for a process that forks others, which then need not do it."""
    _fastest()


def _fastest() -> Any:
    try:
        import uvloop
    except ImportError:
        return asyncio
    return uvloop
