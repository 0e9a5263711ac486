"""An event loop in a thread of its own, for callers that block.

The connections of a blocking client run there, and so does a cluster without processes. The loop is
uvloop's if that is installed.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from ...protocol.errors import ClientClosed
from ...protocol.host.event_loop import new_event_loop
from .interruptible import acquire

T = TypeVar("T")

_STOP_TIMEOUT_S = 10.0


class LoopThread:
    """Runs an event loop from `start` to `stop`. Any thread may call any method."""

    def __init__(self, name: str = "weft-loop") -> None:
        self._name = name
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        #: {future: None} of those that callers wait for; None once the loop is closed.
        self._waited: dict[Future[Any], None] | None = {}
        self._lock = threading.RLock()  # a finalizer may close a client within it

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The running loop."""
        if self._loop is None:
            raise ClientClosed("the thread of the client's event loop has ended; make a new client")
        return self._loop

    @property
    def is_current(self) -> bool:
        """Return whether the caller runs in this thread, and so must not block."""
        return threading.current_thread() is self._thread

    def start(self) -> None:
        """Start the thread; return when the loop runs."""
        assert self._thread is None, "it was started already"
        loop = new_event_loop()
        started = threading.Event()
        loop.call_soon(started.set)
        # A daemon: a program that forgets to close must still end.
        thread = threading.Thread(target=self._run, args=(loop,), name=self._name, daemon=True)
        try:
            thread.start()
        except BaseException:
            loop.close()
            raise
        # From here on `stop` ends it, also if the wait is interrupted.
        self._loop, self._thread = loop, thread
        started.wait()

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            try:
                _cancel_all(loop)
                loop.run_until_complete(loop.shutdown_asyncgens())
                loop.run_until_complete(loop.shutdown_default_executor())
                _cancel_all(loop)  # tasks that were posted meanwhile
            finally:
                asyncio.set_event_loop(None)
                loop.close()
                with self._lock:
                    left, self._waited = self._waited or {}, None
                # Futures that were posted after even that.
                for future in left:
                    future.cancel()

    def run_coroutine(self, coroutine: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Run a coroutine in the loop and wait for its result.

        An interrupted or timed out wait cancels the coroutine.

        Raises:
            TimeoutError: it took more than `timeout` seconds.
        """
        if self.is_current:
            coroutine.close()
            raise RuntimeError(
                "this call would block the event loop that it waits for; use an asynchronous client"
            )
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        except BaseException:
            coroutine.close()
            raise
        done = threading.Lock()
        done.acquire()
        future.add_done_callback(lambda _: done.release())
        with self._lock:
            if self._waited is not None:
                self._waited[future] = None
            else:
                future.cancel()
        is_done = False
        try:
            is_done = acquire(done, timeout)
        finally:
            with self._lock:
                if self._waited is not None:
                    del self._waited[future]
                else:
                    coroutine.close()  # it was never started, or has ended
            if not is_done:  # also when interrupted
                future.cancel()
        if not is_done:
            raise TimeoutError(f"the call was not done within {timeout:g} s")
        return future.result()

    def stop(self) -> None:
        """Cancel all tasks of the loop, end the thread and wait for it; again: do nothing."""
        loop, thread = self._loop, self._thread
        self._loop = None
        if loop is None or thread is None:
            return
        if thread is threading.current_thread():
            loop.stop()
            return
        try:
            loop.call_soon_threadsafe(loop.stop)
        except RuntimeError:
            return  # it was closed meanwhile, by another caller of stop
        thread.join(_STOP_TIMEOUT_S)


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    while tasks := asyncio.all_tasks(loop):
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
