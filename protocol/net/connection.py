"""The interface of every connection, whatever its transport: what the shells depend on."""

from __future__ import annotations

import abc
import asyncio
import logging
from collections.abc import Sequence
from typing import Final, Protocol

from ..errors import CommError, ProtocolError, StuckPeer
from ..wire.codec import WireState
from ..wire.levels import Level
from ..wire.message import MAX_CODE, Message, Unknown
from ..wire.messages import Unsupported, unsupported
from ..wire.roles import Role

_log: Final = logging.getLogger("weft.transport")

#: Most answers to unknown messages that wait for a peer that does not read.
_MAX_UNREAD_ANSWERS: Final = 1000


class Handler(Protocol):
    """The object that a connection delivers to.

    All calls come from the loop's thread, except `on_messages` while reading is lent: that comes
    from the thread in `Connection.receive`.
    """

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
        user: the name of the user that this token carries, "" = it carries none.
        cluster_id: the cluster that both ends belong to.
        address: the address of this connection, as it was listened at or connected to.
        peer_address: the other end's address; in a TCP server, that of the socket, not where the
            peer listens.
        wire: the counters of the frames; set `wire.epoch` and `wire.session` once they are known.
        writable: False while so many bytes wait to be written that the caller should send no more.
        receiving: a frame from the other end has begun and is not complete.
        closed: nothing can be sent or received any more; `on_closed` was called or will be.
        bytes_in, bytes_out, frames_in, frames_out, messages_in, messages_out: since the connection
            was made.
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
    messages_in: int = 0
    messages_out: int = 0
    user: str = ""
    #: Of a connection over a stream, once it is made.
    _transport: asyncio.Transport | None = None
    #: Answers of `settle_unknown` that were sent while the connection was not writable.
    _n_unread_answers: int = 0
    #: {code: None}, those that the other end does not know and that were logged.
    _not_known_there: dict[int, None] | None = None

    @property
    def receiving(self) -> bool:
        """See above; always False for a connection on which frames arrive whole."""
        return False

    @property
    def unsent(self) -> int:
        """The bytes that were given to `send` and not to the system yet."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    @abc.abstractmethod
    def send(self, messages: Sequence[Message]) -> None:
        """Write messages at once. They and their blobs must not be changed any more.

        On a closed connection this does nothing: `on_closed` was called or will be.

        Raises:
            LocalProtocolError: a message is beyond a limit; none of them was sent.
        """

    def allow_bypass(self) -> bool:
        """Prepare `send_past_loop`; return whether this kind of connection can ever do it."""
        return False

    def send_past_loop(self, messages: Sequence[Message]) -> bool:
        """Write messages on any thread, without the loop; return False if that is not possible.

        It is possible if nothing that was sent before waits to be written. The caller makes sure
        that threads call this and `send` in the order in which the messages are to arrive.

        Raises:
            LocalProtocolError: a message is beyond a limit; none of them was sent.
        """
        return False

    def lend_reading(self) -> bool:
        """Stop reading in the loop, so that another thread can `receive`; return whether it may.

        It may after `allow_bypass` has returned True, and not in the middle of a frame. Then until
        `take_reading_back` nothing is received, the end of the connection included, but by
        `receive`. Both of these are for the loop's thread.
        """
        return False

    def receive(self, timeout_s: float) -> bool:
        """Wait for messages, at most `timeout_s`, and deliver them on this thread.

        For one thread at a time, while reading is lent. It does not wait for the end of a frame.

        Returns:
            False if the loop has to go on reading: the connection has ended, or a long frame began.
        """
        raise NotImplementedError

    def interrupt(self) -> None:
        """Let the `receive` that is under way, or the next one, return at once. On any thread."""
        raise NotImplementedError

    def take_reading_back(self) -> None:
        """Read in the loop again, unless the connection is closed; no thread may `receive` now."""
        return

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


def settle_unknown(connection: Connection, messages: list[Message]) -> list[Message]:
    """Answer messages that this version does not know; return the messages for the handler.

    An `Unsupported` is for the handler only if it names a request, which fails then; any other is
    logged, once for each code. A peer that sends unknown messages and does not read the answers is
    closed.
    """
    kinds = set(map(type, messages))
    if Unknown not in kinds and Unsupported not in kinds:
        return messages
    answers: list[Message] = []
    others: list[Message] = []
    for message in messages:
        if type(message) is Unknown:
            answers.append(unsupported(message))
        elif type(message) is Unsupported and not message.request:
            _log_unsupported(connection, message.unknown_code)
        else:
            others.append(message)
    if answers:
        connection.send(answers)
        connection._n_unread_answers += len(answers)
        if connection.writable:
            connection._n_unread_answers = 0
        elif connection._n_unread_answers > _MAX_UNREAD_ANSWERS:
            text = "it sends messages of unknown codes and does not read the answers"
            connection.fail(StuckPeer(text, connection.peer_address))
            return []
    return others


def _log_unsupported(connection: Connection, code: int) -> None:
    logged = connection._not_known_there
    if logged is None:
        logged = connection._not_known_there = {}
    if code <= MAX_CODE and code not in logged:
        logged[code] = None
        _log.warning(
            "%s does not know messages of code %d, which this process sent: it runs another "
            "version of weft; install the same version on both machines",
            connection.peer_address,
            code,
            extra={"code": "version-mismatch"},
        )
