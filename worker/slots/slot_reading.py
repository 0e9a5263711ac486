"""Lets an idle slot read the scheduler's messages on its own thread, without the event loop.

While the scheduler sends one task at a time, the loop's thread would wake the slot's for each. So
after some such tasks the loop lends the reading (`protocol/net/lent_reading.py`), and the thread of
an idle slot reads, hands the message to the core, and runs the task. A slot that goes on with
another chunk looks each millisecond whether something has come.

User code must never hold up the messages of the scheduler, so the loop takes the reading back
(`end`) as soon as tasks wait here, and when no slot has read for 10 to 20 ms, because a task runs
that long, or because there are none. A slot that reads delivers all that comes; `interrupt` ends
its reading when another thread gives it a task.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Final

from ...protocol.net.connection import Connection
from ...protocol.net.lent_reading import STREAK, LentReading

#: How often the loop looks whether a slot still reads.
_LOOK_S: Final = 0.01
#: A thread waits this long at once; nothing depends on it.
_WAIT_S: Final = 1.0


class SlotReading(LentReading):
    """The lent reading of a worker's connection, which ends with that connection."""

    def __init__(self, connection: Connection, is_alone: Callable[[], bool]) -> None:
        """Prepare; `is_alone` returns whether no task waits here while others run."""
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._connection = connection
        self._is_alone = is_alone
        #: The thread that reads, 0 = none.
        self._reader = 0

    # --- On the threads of slots ------------------------------------------------------------------

    def read_while(self, is_idle: Callable[[], bool]) -> None:
        """Read on this thread until it has work or the loop has to read."""
        if not self._reading.acquire(blocking=False):
            return  # another slot reads
        try:
            self._reader = threading.get_ident()
            self._n_readings += 1
            goes_on = True
            while goes_on and self.is_lent and not self._is_wanted_back and is_idle():
                goes_on = self._connection.receive(_WAIT_S)
            goes_on = goes_on and self._is_alone()
        finally:
            self._reader = 0
            self._reading.release()
        if self.is_lent and (self._is_wanted_back or not goes_on):
            with contextlib.suppress(RuntimeError):  # the loop is closed: the process ends
                self._loop.call_soon_threadsafe(self.end)

    def read_between(self) -> None:
        """Read what has come, on the thread of a slot that goes on with a short task."""
        if not self._reading.acquire(blocking=False):
            return
        try:
            self._n_readings += 1
            goes_on = not self.is_lent or self._is_wanted_back or self._connection.receive(0.0)
        finally:
            self._reading.release()
        if self.is_lent and (self._is_wanted_back or not goes_on):
            with contextlib.suppress(RuntimeError):  # the loop is closed: the process ends
                self._loop.call_soon_threadsafe(self.end)

    def interrupt(self) -> None:
        """Let the slot that reads look whether it has work, because another thread gave it some."""
        if self._reader not in (0, threading.get_ident()):
            self._connection.interrupt()

    # --- On the loop's thread ---------------------------------------------------------------------

    def on_messages(self) -> None:
        """Note that the loop has read and handled messages."""
        self._streak = self._streak + 1 if self._is_alone() else 0
        if self._streak == STREAK:
            self._loop.call_soon(self._begin)  # not while the connection delivers

    def _begin(self) -> None:
        if not (self.is_lent or self._connection.closed) and self.lend(self._connection):
            self._loop.call_later(_LOOK_S, self._look)

    def _look(self) -> None:
        if not self.is_lent:
            return
        if self.is_used():
            self._loop.call_later(_LOOK_S, self._look)
        else:
            self.end()

    def end(self) -> None:
        """Take the reading back, now or when the thread that reads has noticed."""
        if not self.take_back():
            self._connection.interrupt()
