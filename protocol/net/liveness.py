"""When silence means that the other end is gone, although its socket is open.

A process that was stopped, or hangs, keeps its connections, and its kernel answers for it; so only
what the process itself sends shows that it lives. Whoever registers sends a heartbeat every so
often, as told by `Welcome`, and the scheduler answers each with one of its own.

Silence is counted in looks, not in seconds. Who looks may have been held up himself: by a task that
held the interpreter lock for a minute, by a debugger, by Ctrl-Z. What was sent to him meanwhile
waits in the socket, and his overdue timer runs before he reads it. Between two looks lies a turn of
his loop, in which he does. So being held up counts as one look, however long it took.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .connection import Connection

#: Who is not heard for so many heartbeats is taken for dead.
MISSED_HEARTBEATS: Final = 15


class Silence:
    """Tells when a connection has been silent for too long. For one connection only."""

    def __init__(self, n_looks: int = MISSED_HEARTBEATS) -> None:
        """Prepare for `n_looks` looks in vain, one after the other."""
        self._n_looks = n_looks
        self._n_silent = 0
        self._n_heard = -1

    def look(self, connection: Connection) -> bool:
        """Look whether anything came since the last time; say whether it is enough."""
        # Bytes, because a large frame may take minutes; frames, where there are no bytes (inproc).
        n_heard = connection.bytes_in + connection.frames_in
        if n_heard != self._n_heard:
            self._n_heard, self._n_silent = n_heard, 0
        else:
            self._n_silent += 1
        return self._n_silent >= self._n_looks


class Trickle:
    """Tells when a frame comes too slowly to be waited for. For one connection only.

    It counts looks, as `Silence` does, and for the same reason.
    """

    def __init__(self, n_looks: int) -> None:
        """Judge a frame after every `n_looks` looks at it."""
        self._n_looks = n_looks
        self._n_left = n_looks
        self._frames_in = -1
        #: what had come of everything when this stretch of `n_looks` began
        self._bytes_in = 0

    def look(self, connection: Connection, min_nbytes: int, *, is_paused: bool) -> bool:
        """Return whether less than `min_nbytes` came of one frame during the last `n_looks` looks.

        Nothing can come while this end does not read (`is_paused`): that does not count.
        """
        if connection.frames_in != self._frames_in or is_paused:
            self._begin(connection)
            return False
        self._n_left -= 1
        if self._n_left:
            return False
        is_slow = connection.bytes_in - self._bytes_in < min_nbytes
        self._begin(connection)
        return is_slow

    def _begin(self, connection: Connection) -> None:
        self._frames_in = connection.frames_in
        self._bytes_in = connection.bytes_in
        self._n_left = self._n_looks
