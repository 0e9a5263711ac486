"""The thread in which users' callbacks run, so that they cannot block the event loop."""

from __future__ import annotations

import logging
import sys
import threading
import time
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Final

logger: Final = logging.getLogger("weft.client")

_Calls = SimpleQueue[tuple[Callable[[Any], object], Any] | None]

#: The threads of all clients.
_threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


class CallbackThread:
    """Calls functions one after another. For the loop's thread only.

    The thread is a daemon, because a callback that blocks must not hold up the end of the program.
    It starts with the first call. If it cannot be started, the calls wait for the next try, which
    the next call or `end` makes.
    """

    def __init__(self) -> None:
        self._calls: _Calls = SimpleQueue()
        self._thread: threading.Thread | None = None

    def call(self, callback: Callable[[Any], object], argument: Any) -> None:
        """Call `callback(argument)` after all earlier ones."""
        self._calls.put((callback, argument))
        if self._thread is None:
            self._start()

    def end(self) -> None:
        """End the thread after the calls that it has."""
        if self._thread is None and not self._calls.empty():
            self._start()
        if self._thread is not None:
            self._calls.put(None)

    def _start(self) -> None:
        thread = threading.Thread(
            target=_run, args=(self._calls,), name="weft-callbacks", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:
            # Since Python 3.12 no thread starts in functions of `atexit`, which run earlier.
            is_ending = sys.is_finalizing() or "interpreter shutdown" in str(error)
            logger.log(
                logging.DEBUG if is_ending else logging.ERROR,
                "%d callbacks wait, because the thread that calls them cannot be started: %s",
                self._calls.qsize(),
                error,
            )
            return
        self._thread = thread
        _threads.add(thread)


def _run(calls: _Calls) -> None:
    while (call := calls.get()) is not None:
        try:
            call_logged(*call)
        except BaseException:  # sys.exit() in a callback; the next one is called nevertheless
            logger.exception("a done-callback ended with an exit: %r", call[0])
        del call  # it may refer to a future, which must not live until the next call


def call_logged(callback: Callable[[Any], object], argument: Any) -> None:
    """Call a user's function, and log its exception."""
    try:
        callback(argument)
    except Exception:
        logger.exception("a done-callback raised: %r", callback)


def finish_callbacks(timeout: float) -> None:
    """Wait for the callbacks of clients that are closed, because the program ends."""
    deadline = time.monotonic() + timeout
    for thread in list(_threads):
        thread.join(max(deadline - time.monotonic(), 0.0))
