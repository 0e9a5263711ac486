"""Futures that coroutines of an asynchronous client's own loop await, each by itself.

Thousands of coroutines may each await one call. One watcher waits for all of their states, and one
operation files it at all that are awaited in the same iteration of the loop: a call that is awaited
costs one `asyncio.Future`, as it must, and no operation of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from ..core.events import Unwatch, Watch
from ..core.tasks import FutureState, Watcher

if TYPE_CHECKING:
    from .engine import Engine


class Awaiting(Watcher):
    """Waits for results on behalf of all coroutines of one loop. For the thread of that loop."""

    __slots__ = ("_engine", "_n_flushes", "_states", "_waiting")

    def __init__(self, engine: Engine) -> None:
        super().__init__(wants_data=True)
        self._engine = engine
        #: {state: what its coroutines wait for}; none is empty
        self._waiting: dict[FutureState, list[asyncio.Future[None]]] = {}
        #: Of the operation that was posted last, while the queue was read `_n_flushes` times. It
        #: grows until the queue is read again.
        self._states: list[FutureState] = []
        self._n_flushes = -1

    def wait(self, state: FutureState) -> Generator[Any, None, None]:
        """Wait until the result or the failure of `state` is in this process.

        Raises:
            ClientClosed: neither would come.
        """
        engine = self._engine
        future: asyncio.Future[None] = engine.loop.create_future()
        known = self._waiting.get(state)
        if known is None:
            self._waiting[state] = [future]
            self._file(state)
        else:
            known.append(future)
        try:
            engine.check_open()
            yield from future
        except BaseException:
            self._forget(state, future)
            raise
        finally:
            if engine.output is not None:
                engine.show_output()

    def _file(self, state: FutureState) -> None:
        n_flushes = self._engine.n_flushes
        if n_flushes == self._n_flushes:
            self._states.append(state)
        else:
            self._n_flushes, self._states = n_flushes, [state]
            self._engine.post(Watch(self, self._states))

    def _forget(self, state: FutureState, future: asyncio.Future[None]) -> None:
        waiting = self._waiting.get(state, [])
        if future in waiting:  # else the state was ready before
            waiting.remove(future)
            if not waiting:
                del self._waiting[state]
                self._engine.post(Unwatch(self, [state]))

    def on_ready(self, items: list[Any]) -> None:
        """See `Watcher`."""
        take = self._waiting.pop
        for state in items:
            for future in take(state, ()):  # none, if its coroutines were cancelled
                if not future.done():
                    future.set_result(None)
