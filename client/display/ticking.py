"""The thread that draws what changes while the program goes on: one for the process.

It runs only while there is something to draw. Drawing may block (a terminal that was stopped, a
pipe that is not read), so it is not done on the thread of an event loop.
"""

from __future__ import annotations

import contextvars
import logging
import sys
import threading
import time
from typing import Final, Protocol

from ...protocol.host.forks import after_fork

logger: Final = logging.getLogger("weft.client")

#: What changes is drawn at most this often.
TICK_S: Final = 0.25


class Drawn(Protocol):
    """A display that is drawn again and again."""

    def draw(self) -> bool:
        """Draw it as it is now; return whether it may change again."""


class _Ticker:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._drawn: list[Drawn] = []
        self._thread: threading.Thread | None = None
        self._changed = threading.Event()

    def add(self, drawn: Drawn) -> None:
        with self._lock:
            self._drawn.append(drawn)
            self._changed.set()
            if self._thread is not None:
                return
            # The outputs of a thread that has no context are shown in the cell that runs.
            context = contextvars.Context()
            self._thread = threading.Thread(
                target=context.run, args=(self._run,), name="weft-display", daemon=True
            )
            try:
                self._thread.start()
            except RuntimeError:  # the program ends, and nothing is shown any more
                self._thread = None
                self._drawn.clear()

    def _run(self) -> None:
        due = 0.0
        while True:
            self._changed.wait(max(due - time.monotonic(), 0.0))
            self._changed.clear()
            due = time.monotonic() + TICK_S
            for drawn in list(self._drawn):
                if not _draw(drawn):
                    with self._lock:
                        self._drawn.remove(drawn)
            with self._lock:
                if not self._drawn:
                    self._thread = None
                    return


def _draw(drawn: Drawn) -> bool:
    try:
        return drawn.draw()
    except Exception as error:  # a stream that was closed, a front end that is gone
        if not sys.is_finalizing():
            logger.debug("cannot draw: %r", error)
        return False


_ticker = _Ticker()


@after_fork
def _renew() -> None:
    """Start anew in a forked child, which has the lists of its parent and none of its threads."""
    global _ticker  # noqa: PLW0603
    _ticker = _Ticker()


def begin(drawn: Drawn) -> None:
    """Draw it from now on, until its `draw` returns False."""
    _ticker.add(drawn)
