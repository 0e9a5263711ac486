"""Runs a `Session` (`wire/session.py`) on an event loop: connections, the one timer, messages.

A worker, a supervisor and a client each own one `SessionRunner` and give it a `SessionOwner`, which
makes the registration and the heartbeats and handles the messages. The `Session` decides when to
connect, when to give up a silent scheduler and when to try again.

Messages that arrive late on a connection that was given up cannot affect the next one: each
connection has a handler of its own, and only that of the current connection delivers.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from ..errors import (
    CommClosed,
    CommError,
    ConfigError,
    HandshakeError,
    InternalError,
    LocalProtocolError,
    NotAdmitted,
    ProtocolError,
    RemoteProtocolError,
    WeftError,
)
from ..trust.security import Security
from ..wire.message import Message, Unknown
from ..wire.messages import (
    Bye,
    Heartbeat,
    Refused,
    RegisterClient,
    RegisterSupervisor,
    RegisterWorker,
    Unsupported,
    Welcome,
)
from ..wire.roles import Role
from ..wire.session import (
    Abandon,
    Action,
    Beat,
    Connect,
    GiveUp,
    Lose,
    Outage,
    Register,
    ReportOutage,
    Retry,
    Session,
)
from .connection import Connection, settle_unknown
from .deadline import within

#: Returns the scheduler's current addresses, the best one first, and the cluster's secret.
Finder: TypeAlias = Callable[[], "tuple[Sequence[str], Security]"]

_log: Final = logging.getLogger("weft.session")

#: Time for which an attempt that is not needed any more may continue, because the scheduler would
#: log a warning for a handshake that is broken off.
_SETTLE_S: Final = 0.5
#: Time that the scheduler gets to answer a goodbye by closing the connection.
_GOODBYE_S: Final = 1.0
#: Length of a goodbye's reason, which may quote a message of the scheduler.
_MAX_REASON_CHARS: Final = 1000


class SessionOwner:
    """The owner of a session, which uses it. All calls come from the loop's thread.

    An owner has the two messages; other methods that it leaves out do nothing.
    """

    async def prepare(self, connection: Connection, address: str, security: Security) -> None:
        """Do what must precede the registration and needs the cluster's id."""

    def registration(self, number: int, last_epoch: int) -> Message:
        """Return the first message of this process's `number`-th session."""
        raise NotImplementedError

    def heartbeat(self) -> list[Message]:
        """Return the messages of one heartbeat."""
        raise NotImplementedError

    def on_welcome(self, connection: Connection, welcome: Welcome, outage: Outage) -> None:
        """Start using the session, which is open now; an `outage` is over."""

    def on_messages(self, connection: Connection, messages: list[Message]) -> None:
        """Handle the messages of an open session, except heartbeats and unknown ones.

        A `RemoteProtocolError` that this raises ends the connection, like any fault of the peer.
        Any other exception of an owner's method is a bug and ends the session, see `on_over`.
        """

    def on_writable(self, connection: Connection) -> None:
        """Continue sending: the connection takes messages again."""

    def on_lost(self, reason: WeftError) -> None:
        """Drop the state of the session. Another session may follow."""

    def on_retry(self, outage: Outage, left_s: float) -> None:
        """Handle a failed attempt, for instance by logging it; another one follows."""

    def on_outage(self, outage: Outage, left_s: float) -> None:
        """Report that the scheduler has been away for some time."""

    def on_over(self, end: GiveUp) -> None:
        """Handle the end: no further attempt follows. An `InternalError` means a bug."""


class _SessionConnection:
    """One connection, from the start of the attempt on."""

    def __init__(self, runner: SessionRunner) -> None:
        self._runner = runner
        self.connection: Connection | None = None
        self.is_welcomed = False
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_messages(self, connection: Connection, messages: list[Message]) -> None:
        """See `Handler`."""
        runner = self._runner
        if self is not runner._handler:
            return  # of an earlier session, of which all is dropped
        try:
            if not self.is_welcomed:
                messages = runner._on_first(self, connection, messages)
            if threading.get_ident() != runner._thread_id:
                messages = self._leave_to_loop(connection, messages)
            messages = settle_unknown(connection, messages)
            if Heartbeat in map(type, messages):
                messages = self._take_heartbeats(messages)
            if messages and self is runner._handler:
                runner._owner.on_messages(connection, messages)
        except RemoteProtocolError:
            raise
        except Exception as bug:
            if threading.get_ident() == runner._thread_id:
                runner._on_bug(bug)
            else:  # on a thread to which the reading was lent
                runner._loop.call_soon_threadsafe(runner._on_bug, bug)

    def _take_heartbeats(self, messages: list[Message]) -> list[Message]:
        """Return the other messages; the answer to a heartbeat has the time of the next one."""
        runner, others = self._runner, list[Message]()
        for message in messages:
            if type(message) is not Heartbeat:
                others.append(message)
            elif threading.get_ident() == runner._thread_id:
                runner._on_answered(self, message.next_ms)
            else:
                runner._loop.call_soon_threadsafe(runner._on_answered, self, message.next_ms)
        return others

    def _leave_to_loop(self, connection: Connection, messages: list[Message]) -> list[Message]:
        """Return the messages that a thread to which the reading was lent may handle: known ones.

        The others, which have no order with these, are answered or logged by the loop.
        """
        unknown = [message for message in messages if type(message) in (Unknown, Unsupported)]
        if unknown:
            self._runner._loop.call_soon_threadsafe(self.on_messages, connection, unknown)
            messages = [message for message in messages if message not in unknown]
        return messages

    def on_writable(self, connection: Connection) -> None:
        """See `Handler`."""
        if self is self._runner._handler and self.is_welcomed:
            self._runner._guard(self._runner._owner.on_writable, connection)

    def on_closed(self, connection: Connection, error: CommError | ProtocolError | None) -> None:
        """See `Handler`."""
        self.closed.set_result(None)
        if self is self._runner._handler:
            text = "the connection to the scheduler ended"
            error = error or CommClosed(text, connection.peer_address)
            self._runner._guard(self._runner._on_closed, error)


class SessionRunner:
    """Runs a session with at most one connection at a time. For the loop's thread only."""

    def __init__(self, session: Session, owner: SessionOwner, find: Finder, *, role: Role) -> None:
        """Prepare; `start` makes the first attempt.

        Args:
            session: makes the decisions; only this runner may call it.
            owner: makes and handles the messages of the session.
            find: called before each attempt; its `ConfigError` counts as a failed attempt.
            role: the role of this process.
        """
        self.session = session
        self._owner = owner
        self._find = find
        self._role = role
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        #: The address of the last connection, and its source; "" before the first one.
        self.address = ""
        self.security: Security | None = None
        #: Shows a scheduler which epoch this process has seen.
        self._epoch_proof = ""
        #: The current connection; None between two of them.
        self._handler: _SessionConnection | None = None
        self._attempt: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        #: Done when no further attempt is made: with None after `leave` or `abort`.
        self.over: asyncio.Future[GiveUp | None] = self._loop.create_future()

    @property
    def connection(self) -> Connection | None:
        """The connection of the open session."""
        handler = self._handler
        return handler.connection if handler is not None and handler.is_welcomed else None

    def start(self) -> None:
        """Make the first attempt."""
        self.session.start(self._loop.time())
        self._drain()

    def fail(self, error: CommError | ProtocolError) -> None:
        """Give up the connection because of `error`, and reconnect if the `Session` decides so."""
        if self._handler is not None:
            self._abandon()
            self._on_closed(error)

    def end(self, error: CommError) -> None:
        """Give up for good because of `error`: the scheduler has reported its end."""
        self.session.on_ended(error, self._loop.time())
        self._drain()

    async def leave(self, reason: str, timeout_s: float) -> None:
        """Send a goodbye, if there is a session, and close; no further attempt is made."""
        self._stop()
        attempt = self._attempt
        if attempt is not None:
            await asyncio.wait([attempt], timeout=_SETTLE_S)
            attempt.cancel()
            await asyncio.gather(attempt, return_exceptions=True)
        handler, self._handler = self._handler, None
        if handler is None or handler.connection is None:
            return
        deadline = self._loop.time() + timeout_s
        try:
            if handler.is_welcomed:  # before the welcome nothing but the registration may be sent
                handler.connection.send([Bye(reason=reason[:_MAX_REASON_CHARS])])
                # The scheduler closes when it has read this. If this end closed first, a message
                # on its way here would fail and end the connection with the goodbye unread.
                await asyncio.wait([handler.closed], timeout=min(_GOODBYE_S, timeout_s))
            handler.connection.close()
            await within(max(deadline - self._loop.time(), 0.0), asyncio.shield(handler.closed))
        except TimeoutError:
            pass
        finally:
            handler.connection.abort()

    def abort(self) -> None:
        """Close at once; no further attempt is made."""
        self._stop()
        if self._attempt is not None:
            self._attempt.cancel()
        self._abandon()

    def _stop(self) -> None:
        self.session.end()
        self._set_timer()
        if not self.over.done():
            self.over.set_result(None)

    # --- Actions of the session -------------------------------------------------------------------

    def _drain(self) -> None:
        # An action may lead to the next event at once, and so to another drain within this one:
        # each takes away the whole list, so that the order is kept.
        while self.session.actions:
            actions, self.session.actions = self.session.actions, []
            for action in actions:
                self._act(action)
        self._set_timer()

    def _act(self, action: Action) -> None:
        if isinstance(action, Beat):
            connection = self.connection
            if connection is not None:
                connection.send(self._owner.heartbeat())
        elif isinstance(action, Connect):
            self._attempt = self._loop.create_task(self._connect(action.timeout_s))
        elif isinstance(action, Register):
            assert self._handler is not None
            assert self._handler.connection is not None
            first = self._owner.registration(action.number, action.last_epoch)
            if isinstance(first, (RegisterClient, RegisterSupervisor, RegisterWorker)):
                first.epoch_proof = self._epoch_proof
            try:
                self._handler.connection.send([first])
            except LocalProtocolError as error:  # what the process is called, for instance
                self.fail(error)
        elif isinstance(action, Abandon):
            self._abandon()
        elif isinstance(action, Lose):
            self._owner.on_lost(action.reason)
        elif isinstance(action, Retry):
            self._owner.on_retry(action.outage, action.left_s)
        elif isinstance(action, ReportOutage):
            self._owner.on_outage(action.outage, action.left_s)
        else:
            self._owner.on_over(action)
            if not self.over.done():
                self.over.set_result(action)

    def _abandon(self) -> None:
        handler, self._handler = self._handler, None
        if handler is not None and handler.connection is not None:
            handler.connection.abort()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.session.due < math.inf:
            self._timer = self._loop.call_at(self.session.due, self._guard, self._on_timer)

    def _on_timer(self) -> None:
        connection = self.connection
        # Bytes, because a large frame may take minutes; frames, where there are no bytes (inproc).
        n_received = 0 if connection is None else connection.bytes_in + connection.frames_in
        self.session.on_tick(n_received, max(self._loop.time(), self.session.due))
        self._drain()

    async def _connect(self, timeout_s: float) -> None:
        handler = _SessionConnection(self)
        try:
            address, security, handler.connection = await self._open(handler, timeout_s)
            self.address, self.security = address, security
            self._handler = handler
            if self.session.phase == "connecting":  # the owner may be leaving already
                await self._owner.prepare(handler.connection, address, security)
                if self._handler is not handler:
                    raise CommClosed("the connection to the scheduler ended", address)
        except WeftError as error:
            self._guard(self._on_attempt_failed, handler, error)
        except Exception as bug:
            self._on_bug(bug)
        except BaseException:
            if handler.connection is not None:
                handler.connection.abort()
            raise
        else:
            self._attempt = None
            if self.session.phase == "connecting":
                self.session.on_connected(self._loop.time())
                self._guard(self._drain)

    def _on_attempt_failed(self, handler: _SessionConnection, error: WeftError) -> None:
        if self._handler is handler:
            self._abandon()
        self._attempt = None
        if self.session.phase == "connecting":
            self.session.on_failed(error, self._loop.time())
            self._drain()

    async def _open(
        self, handler: _SessionConnection, timeout_s: float
    ) -> tuple[str, Security, Connection]:
        """Connect to the first address that answers; the addresses may change between attempts."""
        from .transport import connect  # imported late, to keep `import weft` light

        addresses, security = self._find()
        failure: WeftError = ConfigError("no address of a scheduler is known")
        for i, address in enumerate(addresses):
            try:
                connection = await connect(
                    address,
                    role=self._role,
                    server_role=Role.SCHEDULER,
                    security=security,
                    handler=handler,
                    timeout_s=timeout_s / (len(addresses) - i),
                )
            except CommError as error:
                failure = error
            else:
                return address, security, connection
        raise failure

    def _guard(self, call: Callable[..., None], *args: Any) -> None:
        """Call a method of the owner; an unexpected exception is a bug, and ends the session."""
        try:
            call(*args)
        except RemoteProtocolError:
            raise
        except Exception as bug:
            self._on_bug(bug)

    def _on_bug(self, bug: Exception) -> None:
        _log.error(
            "a bug of weft ends the session with the scheduler",
            exc_info=bug,
            extra={"code": "internal-error"},
        )
        self._attempt = None
        self._abandon()
        error = InternalError(f"a bug of weft: {bug!r}")
        error.__cause__ = bug
        self.session.on_bug(error, self._loop.time())
        self._drain()

    # --- Calls of the connections -----------------------------------------------------------------

    def _on_first(
        self, handler: _SessionConnection, connection: Connection, messages: list[Message]
    ) -> list[Message]:
        """Begin the session if the scheduler sent a welcome; return its other messages."""
        first, *messages = messages
        if not isinstance(first, Welcome):
            self.fail(_refusal(first, connection.peer_address))
            return []
        if first.epoch < self.session.epoch:
            self.fail(_older(first.epoch, self.session.epoch, connection.peer_address))
            return []
        connection.wire.epoch, connection.wire.session = first.epoch, first.session
        handler.is_welcomed = True
        self._epoch_proof = first.epoch_proof
        # The `Session` comes first: the owner may end the session at once, or raise.
        outage = self.session.outage
        assert outage is not None
        self.session.on_welcomed(first.epoch, first.heartbeat_ms, self._loop.time())
        self._owner.on_welcome(connection, first, outage)
        self._drain()
        return messages

    def _on_answered(self, handler: _SessionConnection, next_ms: int) -> None:
        if handler is self._handler and handler.is_welcomed:
            self.session.on_answered(next_ms, self._loop.time())
            self._set_timer()

    def _on_closed(self, error: WeftError) -> None:
        self._handler = None
        self.session.on_closed(error, self._loop.time())
        self._drain()


def _older(epoch: int, seen: int, address: str) -> HandshakeError:
    return HandshakeError(
        f"it is an older scheduler, which another one has replaced: its epoch is {epoch}, and this "
        f"process had a session with epoch {seen}; end the older one",
        address,
    )


def _refusal(message: Message, address: str) -> HandshakeError:
    if isinstance(message, Unsupported):
        text = "the scheduler runs another version of weft: install the same version on both"
        return NotAdmitted(f"the scheduler does not know this registration; {text}", address)
    if not isinstance(message, Refused):
        return HandshakeError("the scheduler sent no welcome", address)
    kind = NotAdmitted if message.is_final else HandshakeError
    return kind(f"the scheduler refused it: {message.reason}", address)
