"""Limits for unfinished frames, in memory (all peers together) and in time. Pure: connections act.

The received part of a frame stays in memory until the frame is complete. Each frame has limits of
its own (`FrameLimits`), but many peers, each halfway through a large frame, could together take all
memory of the machine. Therefore the connections that one process has accepted share a limit. A peer
that would exceed it is not read from until other frames are complete: flow control stops it, and
nothing is lost. Reading of the oldest unfinished frame always continues, however large it is, so
that one frame is always completed, and an argument larger than the whole limit still arrives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .connection import Connection
    from .stream import StreamConnection

#: The bytes per second that a frame must arrive with if it is not complete within the time limit
#: for its progress; the second number applies while other peers wait for memory because of it.
MIN_RATE: Final = 2 << 10
MIN_RATE_WAITED_FOR: Final = 256 << 10


class UnfinishedFrames:
    """The memory of unfinished frames, by connection.

    Args:
        limit: bytes for all of them, not counting the oldest and the first MiB of each.
    """

    def __init__(self, limit: int = 512 << 20) -> None:
        self.limit = limit
        #: sum of `_held`
        self.nbytes = 0
        #: {connection: bytes, > 0}, in the order in which their frames began
        self._held: dict[StreamConnection, int] = {}
        #: {connection: bytes that it will take next} of those not read from; a subset of `_held`
        #: that never has its first
        self._paused: dict[StreamConnection, int] = {}

    @property
    def min_rate(self) -> int:
        """The least number of bytes per second that the peer of an unfinished frame must send."""
        return MIN_RATE_WAITED_FOR if self._paused else MIN_RATE

    def update(self, connection: StreamConnection, nbytes: int, next_nbytes: int) -> None:
        """Record the memory of a connection's unfinished frame, and what reading on would add."""
        change = nbytes - self._held.get(connection, 0)
        self.nbytes += change
        if nbytes:
            self._held[connection] = nbytes
        else:
            self._held.pop(connection, None)
            self._paused.pop(connection, None)
        is_read = connection not in self._paused
        if nbytes and is_read and not self._has_room(connection, next_nbytes):
            self._paused[connection] = next_nbytes
            connection.hold_up()
        if change < 0 and self._paused:
            self._resume()

    def _has_room(self, connection: StreamConnection, next_nbytes: int) -> bool:
        return self.nbytes + next_nbytes <= self.limit or next(iter(self._held), None) is connection

    def _resume(self) -> None:
        expected = 0
        for connection, next_nbytes in list(self._paused.items()):
            if self._has_room(connection, expected + next_nbytes):
                expected += next_nbytes
                del self._paused[connection]
                connection.go_on()


class Trickle:
    """Decides when a frame of one connection arrives too slowly.

    Like `wire.session.Silence`, and for the same reason, it counts looks instead of measuring time.
    """

    def __init__(self, n_looks: int) -> None:
        """Judge a frame after every `n_looks` looks at it."""
        self._n_looks = n_looks
        self._n_left = n_looks
        self._frames_in = -1
        #: the connection's `bytes_in` when this stretch of `n_looks` began
        self._bytes_in = 0

    def look(self, connection: Connection, min_nbytes: int, *, is_paused: bool) -> bool:
        """Return whether less than `min_nbytes` of one frame came during the last `n_looks` looks.

        Nothing can arrive while this end does not read (`is_paused`): that does not count.
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
