"""Limits for unfinished frames: of all peers together, and in time. Pure: connections act.

What a peer has sent of a frame stays in memory until the frame is whole. Each frame has limits of
its own (`FrameLimits`), but many peers, each halfway through a large one, would together take
whatever the machine has. So the connections that one process has accepted share a number of bytes.
A peer that would exceed it is not read from until others are done: its kernel holds it up, and
nothing is lost. The oldest unfinished frame is always read on, however large it is: so one of them
always ends, and an argument larger than the whole limit still arrives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .connection import Connection
    from .stream import StreamConnection

__all__ = ["MIN_RATE", "MIN_RATE_WAITED_FOR", "Trickle", "UnfinishedFrames"]

#: Bytes a second, at which a frame has to come that is not complete after the time limit for its
#: progress; the second one while other peers are not read from because of it.
MIN_RATE: Final = 2 << 10
MIN_RATE_WAITED_FOR: Final = 256 << 10


class UnfinishedFrames:
    """The memory of unfinished frames, by connection.

    Args:
        limit: bytes that all of them may take, beside the oldest, and the first MiB of each.
    """

    def __init__(self, limit: int = 512 << 20) -> None:
        self.limit = limit
        #: sum of `_held`
        self.nbytes = 0
        #: {connection: bytes, > 0}, in the order in which their frames began
        self._held: dict[StreamConnection, int] = {}
        #: {connection: bytes that it will take next}: those not read from; a part of `_held`, never
        #: its first
        self._paused: dict[StreamConnection, int] = {}

    @property
    def min_rate(self) -> int:
        """How many bytes a second the peer of an unfinished frame has to send at least."""
        return MIN_RATE_WAITED_FOR if self._paused else MIN_RATE

    def update(self, connection: StreamConnection, nbytes: int, next_nbytes: int) -> None:
        """Note what a connection's unfinished frame takes now, and what reading on would add."""
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
    """Decides when a frame comes too slowly to be waited for. For one connection only.

    It counts looks, as `wire.session.Silence` does, and for the same reason.
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
