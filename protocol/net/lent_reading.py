"""Lends the reading of a connection from the event loop to threads that wait for its messages.

While questions and answers come one at a time, two changes of threads would come with each if the
loop's thread read them. So after some that were alone, the loop *lends* the reading: it stops
reading, and a thread that waits reads and handles what comes. The loop takes the reading back when
anything else happens, and when no thread has read for a while.
"""

from __future__ import annotations

import threading
from typing import Final

from .connection import Connection

#: Number of messages, one after the other, that must have been alone.
STREAK: Final = 3


class LentReading:
    """Whether the loop reads, or a thread. The methods are for the loop's thread."""

    #: The connection that lent its reading last.
    _connection: Connection

    def __init__(self) -> None:
        #: The loop does not read. Changed by the loop's thread only.
        self.is_lent = False
        #: Held by the thread that reads, and by the loop while it takes the reading back.
        self._reading = threading.Lock()
        #: The loop wants the reading back from the thread that reads.
        self._is_wanted_back = False
        #: Number of readings, and what it was at the last look of the loop.
        self._n_readings = self._n_seen = 0
        #: How many in a row were alone.
        self._streak = 0

    def lend(self, connection: Connection) -> bool:
        """Stop reading in the loop, if the connection can; not while it delivers."""
        self._is_wanted_back = False
        self._n_seen = self._n_readings
        self._connection = connection
        self.is_lent = connection.lend_reading()
        return self.is_lent

    def take_back(self) -> bool:
        """Take the reading back; False = a thread reads, and has to be waited for."""
        self._is_wanted_back = True
        if not self._reading.acquire(blocking=False):
            return False
        try:
            if self.is_lent:
                self._connection.take_reading_back()
            self.is_lent = False
            self._streak = 0
        finally:
            self._reading.release()
        return True

    def is_used(self) -> bool:
        """Return whether a thread reads, or has read since the last call."""
        n_seen, self._n_seen = self._n_seen, self._n_readings
        return self._n_readings != n_seen or self._reading.locked()
