"""The interface of every connection, whatever its transport: what the shells depend on."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Protocol

from ..errors import CommError, ProtocolError
from ..wire.codec import WireState
from ..wire.handshake import Role
from ..wire.levels import Level
from ..wire.message import Message

__all__ = ["Connection", "Handler"]


class Handler(Protocol):
    """The object that a connection delivers to. All calls come from the loop's thread."""

    def on_messages(self, connection: Connection, messages: list[Message]) -> None:
        """Handle at least one message, in the order in which the peer sent them.

        A `RemoteProtocolError` that this raises closes the connection, like any fault of the peer.
        """

    def on_writable(self, connection: Connection) -> None:
        """Continue sending: `connection.writable` is true again."""

    def on_closed(self, connection: Connection, error: CommError | ProtocolError | None) -> None:
        """Handle the end of the connection. This is called exactly once, as the last call.

        `error` is None when this end called `close` or `abort`; after `fail` it is the error that
        was given there.
        """


class Connection(abc.ABC):
    """An authenticated connection in both directions. For the loop's thread only.

    Attributes:
        peer_role: the role that the other end has proved.
        level: the level of the token that both ends have proved.
        cluster_id: the cluster that both ends belong to.
        address: the address of this connection, as it was listened at or connected to.
        peer_address: the other end's address; in a TCP server, that of the socket, not where the
            peer listens.
        wire: the counters of the frames; set `wire.epoch` and `wire.session` once they are known.
        writable: False while so many bytes wait to be written that the caller should send no more.
        receiving: a frame from the other end has begun and is not complete.
        closed: nothing can be sent or received any more; `on_closed` was called or will be.
        bytes_in, bytes_out, frames_in, frames_out: since the connection was made.
    """

    peer_role: Role
    level: Level
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
        """See above; always False for a connection on which frames arrive whole."""
        return False

    @abc.abstractmethod
    def send(self, messages: Sequence[Message]) -> None:
        """Write messages at once. They and their blobs must not be changed any more.

        On a closed connection this does nothing: `on_closed` was called or will be.

        Raises:
            LocalProtocolError: a message is beyond a limit; none of them was sent.
        """

    @abc.abstractmethod
    def pause_reading(self) -> None:
        """Stop delivering, except what has been read already, until `resume_reading`.

        A second call has no further effect. While reading is paused, the end of the connection may
        go unnoticed. An in-process connection, which has no buffer, may continue to deliver.
        """

    @abc.abstractmethod
    def resume_reading(self) -> None:
        """Undo `pause_reading`."""

    @abc.abstractmethod
    def close(self) -> None:
        """Close when all sent messages are written, at the latest after some seconds."""

    @abc.abstractmethod
    def abort(self) -> None:
        """Close at once; what is not yet written is lost."""

    @abc.abstractmethod
    def fail(self, error: CommError | ProtocolError) -> None:
        """Close at once with `error`: a listening end logs it, `on_closed` receives it."""

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        return f"<{type(self).__name__} to {self.peer_address} {state}>"
