"""Gives back the resources of a client, also if it was dropped and never closed.

The resources are its session, its thread, and the cluster that it started. A client without any
reference left is closed with a `ResourceWarning`, as a file is, in two steps. The finalizer, which
runs at any point of any thread, takes no lock and waits for nothing: it only wakes the loop. The
loop then waits until no future of the client is left, because futures are used without their
client, and has it closed, in a thread if that blocks.

Nothing here refers to the client: its holdings are enough to end it.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import warnings
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...protocol.errors import ClientClosed
from .loop import LoopThread

if TYPE_CHECKING:
    from ..client import Client
    from ..cluster.locating import Location
    from .engine import Engine

#: {holdings: None} of dropped clients that were not given back yet. They are given back at the
#: end of the program.
_dropped: dict[Holdings, None] = {}
#: Threads that give back.
_threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
#: The tasks that give back, to which their loops hold weak references only.
_tasks: set[asyncio.Task[None]] = set()


@dataclass(eq=False)
class Holdings:
    """The resources of an open client."""

    name: str
    location: Location
    #: None before there is one.
    engine: Engine | None = None
    #: The thread in which the engine runs; None in the user's loop.
    loop_thread: LoopThread | None = None
    #: The thread was started for this client alone.
    owns_loop_thread: bool = False

    def give_back(self, timeout: float) -> None:
        """Leave the cluster, within `timeout` seconds; then end the client's thread and cluster."""
        if self.engine is not None and self.loop_thread is not None:
            with contextlib.suppress(TimeoutError, ClientClosed):
                self.loop_thread.run_coroutine(self.engine.close(), timeout)
        if self.owns_loop_thread and self.loop_thread is not None:
            self.loop_thread.stop()
        self.location.close()

    async def give_back_async(self) -> None:
        """Do what `give_back` does, in the user's loop."""
        if self.engine is not None:
            await self.engine.close()
        await self.location.close_async()


def watch(client: Client, holdings: Holdings, timeout: float) -> Callable[[], object]:
    """Give `holdings` back when `client` is dropped; return a function that prevents it."""
    finalizer = weakref.finalize(client, _on_dropped, holdings, timeout)
    finalizer.atexit = False  # `current` closes open clients then
    return finalizer.detach


def _on_dropped(holdings: Holdings, timeout: float) -> None:
    engine = holdings.engine
    if engine is None or engine.is_closed:  # in a forked child, which has inherited it
        return
    _dropped[holdings] = None
    try:
        warnings.warn(
            f"the client {holdings.name!r} was deleted and never closed: use `with`, or call its "
            "close()",
            ResourceWarning,
            stacklevel=2,
        )
    finally:
        engine.when_unused(lambda: _begin(holdings, timeout))


def _begin(holdings: Holdings, timeout: float) -> None:
    """Give back without blocking the loop, in which this is called."""
    if holdings not in _dropped:
        return
    if holdings.loop_thread is not None:
        thread = threading.Thread(target=_give_back, args=(holdings, timeout), name="weft-leaving")
        with contextlib.suppress(RuntimeError):  # too late for threads: the program ends
            thread.start()
            _threads.add(thread)
        return
    task = asyncio.get_running_loop().create_task(holdings.give_back_async())
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)
    del _dropped[holdings]


def _give_back(holdings: Holdings, timeout: float) -> None:
    try:
        del _dropped[holdings]
    except KeyError:  # another thread does it
        return
    holdings.give_back(timeout)


def give_back_dropped(timeout: float) -> None:
    """Give back the holdings of dropped clients, at the end of the program."""
    for thread in list(_threads):
        thread.join(timeout)
    for holdings in list(_dropped):
        engine = holdings.engine
        if holdings.loop_thread is not None and engine is not None and not engine.is_closed:
            _give_back(holdings, timeout)
