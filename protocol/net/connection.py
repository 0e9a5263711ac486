"""What every connection offers, whatever carries it: the border between shells and transports."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Protocol

from ..errors import CommError, ProtocolError
from ..wire.codec import WireState
from ..wire.handshake import Role
from ..wire.message import Message

__all__ = ["Connection", "Handler"]


class Handler(Protocol):
    """Whoever a connection delivers to. All calls come from the loop's thread."""

    def on_messages(self, connection: Connection, messages: list[Message]) -> None:
        """Messages came, in the order in which they were sent; at least one.

        A `RemoteProtocolError` that this raises closes the connection, as any fault of the peer.
        """

    def on_writable(self, connection: Connection) -> None:
        """`connection.writable` is true again."""

    def on_closed(self, connection: Connection, error: CommError | ProtocolError | None) -> None:
        """The connection is gone: the last call, and there is exactly one.

        `error` is None when this end called `close` or `abort`, and its own when it called `fail`.
        """


class Connection(abc.ABC):
    """An authenticated connection, both ways. For the loop's thread only.

    Attributes:
        peer_role: what the other end proved to be.
        cluster_id: the cluster that both ends belong to.
        address: the address of this connection, as it was listened at or connected to.
        peer_address: the other end's; in a TCP server, that of one socket, not where it listens.
        wire: numbers of the frames; set `wire.epoch` and `wire.session` once they are known.
        writable: False while so much waits to be written that it is better to wait with more.
        receiving: a frame from the other end has begun and is not complete.
        closed: nothing can be sent or received any more; `on_closed` has come or will come.
        bytes_in, bytes_out, frames_in, frames_out: since the connection exists.
    """

    peer_role: Role
    cluster_id: bytes
    address: str
    peer_address: str
    wire: WireState
    writable: bool
    closed: bool
    bytes_in: int
    bytes_out: int
    frames_in: int
    frames_out: int

    @property
    def receiving(self) -> bool:
        """See above; never true where frames come whole."""
        return False

    @abc.abstractmethod
    def send(self, messages: Sequence[Message]) -> None:
        """Write messages at once. They and their blobs must not be changed any more.

        On a closed connection this does nothing: the handler hears, or has heard, of the close.

        Raises:
            LocalProtocolError: a message is beyond a limit; none of them was sent.
        """

    @abc.abstractmethod
    def pause_reading(self) -> None:
        """Deliver no more than what has been read, until `resume_reading`. Twice is as once.

        While it lasts, the end of the connection may go unnoticed. A connection that holds nothing
        back for its reader (in-process) may go on.
        """

    @abc.abstractmethod
    def resume_reading(self) -> None:
        """Undo `pause_reading`."""

    @abc.abstractmethod
    def close(self) -> None:
        """Close once everything sent is written, after some seconds in any case."""

    @abc.abstractmethod
    def abort(self) -> None:
        """Close at once; what is not yet written is lost."""

    @abc.abstractmethod
    def fail(self, error: CommError | ProtocolError) -> None:
        """Close at once because of `error`: a listening end logs one line, the handler hears it."""

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        return f"<{type(self).__name__} to {self.peer_address} {state}>"
