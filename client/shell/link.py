"""The session with the scheduler: connect, register, keep alive, come back. A shell.

Owns the one connection to the scheduler and turns its life into events for the core: `Connected`
after each `Welcome`, `Disconnected` when it is lost, `GaveUp` when no attempt succeeded for
`reconnect_timeout_s`. Attempts are spaced by a back-off with full jitter, so that a thousand
clients do not knock at a restarted scheduler's door together, and each asks anew where the
scheduler is: it may have moved. Where that question has no answer (the connection file is gone with
the scheduler), the address and the secret of the last session are tried.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from ...protocol.errors import (
    CommClosed,
    CommError,
    ConfigError,
    ConnectRefused,
    ConnectTimeout,
    HandshakeError,
    LocalProtocolError,
    ProtocolError,
    WeftError,
)
from ...protocol.net.connection import Connection
from ...protocol.net.deadline import within
from ...protocol.net.liveness import MISSED_HEARTBEATS, Silence
from ...protocol.trust.security import Security
from ...protocol.wire.handshake import Role
from ...protocol.wire.message import Message
from ...protocol.wire.messages import Bye, Heartbeat, Refused, RegisterClient, Welcome
from ..core.events import Connected, Disconnected, Event, GaveUp, Received, Unsendable

logger: Final = logging.getLogger("weft.client")

#: Begins the advice of errors of an attempt at an old address, with an old file.
_READ_AGAIN: Final = "; if the scheduler was restarted"

#: Who loses a session sooner than this after it began looks again later each time.
_SOUND_SESSION_S: Final = 10.0

_BACKOFF_MIN_S: Final = 0.1
_BACKOFF_MAX_S: Final = 5.0
#: A user who waits this long is told once that the scheduler is gone.
_SAY_SO_AFTER_S: Final = 5.0
#: One attempt may not use up all the time there is: its address may be one that swallows packets.
_ATTEMPT_TIMEOUT_S: Final = 10.0

#: Says where the scheduler is now, best address first, and how to prove who we are.
Finder = Callable[[], "tuple[list[str], Security]"]


class SchedulerEnded(CommClosed):
    """Raised by a `Finder`: the scheduler is gone and can never come back.

    Nobody need wait for it; whoever wants to compute on makes a new client.
    """


class _Session:
    """One connection, from its first message on."""

    def __init__(self, link: SchedulerLink) -> None:
        self.link = link
        #: From Welcome to the end.
        self.connection: Connection | None = None
        self.began = time.monotonic()
        self.silence = Silence()
        self.welcomed: asyncio.Future[Welcome] = asyncio.get_running_loop().create_future()

    def on_messages(self, connection: Connection, messages: list[Message]) -> None:
        """See `Handler`."""
        if not self.welcomed.done():
            first, *messages = messages
            if isinstance(first, Welcome):
                connection.wire.epoch = first.epoch
                connection.wire.session = first.session
                self.connection = connection
                self.welcomed.set_result(first)
                self.link._on_welcome(self, first)
            else:
                reason = first.reason if isinstance(first, Refused) else "no welcome came"
                error = HandshakeError(f"the scheduler refused: {reason}", connection.peer_address)
                self.welcomed.set_exception(error)
                connection.abort()
                return
        if messages and self.connection is not None:
            self.link._on_messages(self, messages)

    def on_writable(self, connection: Connection) -> None:
        """See `Handler`."""
        self.link._on_writable()

    def on_closed(self, connection: Connection, error: CommError | ProtocolError | None) -> None:
        """See `Handler`."""
        error = error or CommClosed("the connection was closed", connection.peer_address)
        if not self.welcomed.done():
            self.welcomed.set_exception(error)
            self.welcomed.exception()  # it may come before anybody waits
        elif self.connection is not None:
            self.connection = None
            self.link._on_closed(self, error)


@dataclass
class _Outage:
    """From the loss of a session to the next one."""

    address: str
    #: What ended the session.
    error: WeftError
    last_error: WeftError | None = None
    n_attempts: int = 0
    #: The user was told.
    is_said: bool = False


def _text_of(error: WeftError) -> str:
    """Say what happened without the address, where the sentence has it already."""
    return error.text if isinstance(error, CommError) else str(error)


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def _futures_are(n: int, one: str = "is", many: str = "are") -> str:
    return f"{_count(n, 'future')} {one if n == 1 else many}"


class SchedulerLink:
    """For the loop's thread only."""

    def __init__(
        self,
        find: Finder,
        client_id: str,
        name: str,
        facts: dict[str, Any],
        on_event: Callable[[Event], None],
        on_writable: Callable[[], None],
        reconnect_timeout_s: float,
        count_pending: Callable[[], int],
    ) -> None:
        self._find = find
        self._count_pending = count_pending
        #: Address and secret of the last session. None before the first.
        self._known: tuple[str, Security] | None = None
        #: Why the last look-up failed, "" if it did not.
        self._lookup_problem = ""
        self._client_id = client_id
        self._name = name
        self._facts = facts
        self._on_event = on_event
        self._on_writable = on_writable
        self._reconnect_timeout_s = reconnect_timeout_s
        self._session: _Session | None = None
        self._n_sessions = 0
        self._epoch = 0
        self._heartbeat_s = 5.0
        #: When the next heartbeat is due.
        self._next_beat = 0.0
        self._backoff = self._delays()
        self._reconnecting: asyncio.Task[None] | None = None
        self._is_closing = False
        self._rng = random.Random()
        self.address = ""
        #: Which cluster that is, b"" before the first session.
        self.cluster_id = b""
        #: What the scheduler says of itself to people.
        self.facts: dict[str, Any] = {}
        self.closed = asyncio.Event()

    @property
    def security(self) -> Security:
        """What proves who we are, as of the last session."""
        return self._find()[1] if self._known is None else self._known[1]

    @property
    def tick_s(self) -> float:
        """How often `on_tick` must be called, or heartbeats come too late."""
        return min(self._heartbeat_s / 4, 1.0)

    @property
    def writable(self) -> bool:
        """Whether a message would go out now."""
        session = self._session
        return (
            session is not None and session.connection is not None and session.connection.writable
        )

    # --- Opening ----------------------------------------------------------------------------------

    async def open(self, timeout_s: float) -> None:
        """Connect for the first time. A scheduler that is just starting is waited for.

        Raises:
            CommError: it could not be reached in time.
            HandshakeError: it is not ours.
            ConfigError: it cannot be found.
        """
        deadline = time.monotonic() + timeout_s
        delays = self._delays()
        while True:
            left = deadline - time.monotonic()
            try:
                await self._attempt(max(left, 0.05))
                return
            except (ConnectTimeout, SchedulerEnded):
                raise
            except CommError as error:
                left = deadline - time.monotonic()
                if left <= 0:
                    text = f"no scheduler answered: {error.text}"
                    if error.address.startswith("tls://") and not isinstance(error, ConnectRefused):
                        text += "; does it take TLS? Check whether it printed tcp:// or tls://"
                    raise ConnectTimeout(text, error.address, timeout_s) from None
                await asyncio.sleep(min(next(delays), left))  # the last attempt is at the end

    async def _attempt(self, timeout_s: float) -> None:
        from ...protocol.net.transport import connect

        addresses, security = self._look_up()
        for i, address in enumerate(addresses):
            session = _Session(self)
            is_last = i == len(addresses) - 1
            try:
                connection = await connect(
                    address,
                    role=Role.CLIENT,
                    server_role=Role.SCHEDULER,
                    security=security,
                    handler=session,
                    timeout_s=timeout_s / (len(addresses) - i),
                )
            except CommError:
                if is_last:
                    raise
                continue
            await self._register(session, connection, address, timeout_s)
            self._known = address, security
            return

    async def _register(
        self, session: _Session, connection: Connection, address: str, timeout_s: float
    ) -> None:
        self._n_sessions += 1
        connection.send(
            [
                RegisterClient(
                    client_id=self._client_id,
                    name=self._name,
                    session=self._n_sessions,
                    last_epoch=self._epoch,
                    facts=self._facts,
                )
            ]
        )
        self.address = address
        self.cluster_id = connection.cluster_id
        try:
            await within(timeout_s, session.welcomed)
        except BaseException as error:
            # Nobody else knows of the connection. A Welcome that is under way must find no one.
            connection.abort()
            if isinstance(error, TimeoutError) and not isinstance(error, WeftError):
                text = "the scheduler did not welcome us"
                raise ConnectTimeout(text, address, timeout_s) from None
            raise

    def _look_up(self) -> tuple[list[str], Security]:
        try:
            found = self._find()
        except ConfigError as error:
            if self._known is None:
                raise
            self._lookup_problem = str(error)
            return [self._known[0]], self._known[1]
        self._lookup_problem = ""
        return found

    def _on_welcome(self, session: _Session, welcome: Welcome) -> None:
        self._session = session
        self._epoch = welcome.epoch
        self._heartbeat_s = max(welcome.heartbeat_ms / 1000, 0.05)
        self.facts = welcome.facts
        session.began = time.monotonic()
        self._on_event(Connected(welcome.epoch, welcome.session))

    def _on_messages(self, session: _Session, messages: list[Message]) -> None:
        if session is not self._session:
            return
        messages = [message for message in messages if type(message) is not Heartbeat]
        if messages:
            self._on_event(Received(messages))

    def _on_closed(self, session: _Session, error: WeftError) -> None:
        if session is not self._session:
            return
        self._session = None
        if self._is_closing:
            self.closed.set()
            return
        if time.monotonic() - session.began > _SOUND_SESSION_S:
            self._backoff = self._delays()
        self._on_event(Disconnected(str(error)))
        self._reconnecting = asyncio.get_running_loop().create_task(self._reconnect(error))

    # --- Coming back ------------------------------------------------------------------------------

    def _delays(self) -> Any:
        limit = _BACKOFF_MIN_S
        while True:
            yield self._rng.uniform(0.2 * limit, limit)
            limit = min(2 * limit, _BACKOFF_MAX_S)

    async def _reconnect(self, error: WeftError) -> None:
        lost = time.monotonic()
        deadline = lost + self._reconnect_timeout_s
        outage = _Outage(self.address, error)
        loop = asyncio.get_running_loop()
        # By a timer: an attempt may be slow to fail.
        timer = loop.call_later(_SAY_SO_AFTER_S, self._say_so, outage, deadline)
        try:
            for delay in self._backoff:
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                await asyncio.sleep(min(delay, left))  # the last attempt is at the end
                outage.n_attempts += 1
                left = max(deadline - time.monotonic(), 0.05)
                try:
                    await self._attempt(min(left, _ATTEMPT_TIMEOUT_S))
                except SchedulerEnded as problem:
                    self._give_up(outage, f"it cannot come back: {problem.text}")
                    return
                except (CommError, ProtocolError, ConfigError) as problem:
                    # A wrong token is what a restart looks like halfway.
                    outage.last_error = problem
                    logger.debug("cannot reach the scheduler yet: %s", problem)
                    continue
                except Exception as problem:
                    logger.exception("a bug ends the search for the scheduler")
                    self._give_up(outage, f"the search for it failed: {problem!r}")
                    return
                level = logging.INFO if outage.is_said else logging.DEBUG
                logger.log(level, "the scheduler is back after %.0f s", time.monotonic() - lost)
                return
        finally:
            timer.cancel()
        seconds = time.monotonic() - lost
        text = f"it did not come back within {seconds:.3g} s"
        if outage.last_error is not None:
            text += (
                f"; {_count(outage.n_attempts, 'attempt')} failed, the last one: "
                f"{outage.last_error}"
            )
        if self._lookup_problem:
            text += f"; looking for it elsewhere: {self._lookup_problem}"
        self._give_up(outage, text)

    def _say_so(self, outage: _Outage, deadline: float) -> None:
        outage.is_said = True
        logger.warning(
            "the scheduler at %s is gone (%s); trying to come back for another %.0f s; %s pending",
            outage.address,
            # The file is read again at each attempt: nobody needs to be told to.
            _text_of(outage.last_error or outage.error).partition(_READ_AGAIN)[0],
            max(deadline - time.monotonic(), 0.0),
            _futures_are(self._count_pending()),
        )

    def _give_up(self, outage: _Outage, text: str) -> None:
        pending = _futures_are(self._count_pending(), "was", "were")
        self._on_event(
            GaveUp(
                f"the connection to the scheduler at {outage.address} was lost "
                f"({_text_of(outage.error)}) while {pending} pending, and {text}"
            )
        )

    # --- Talking ----------------------------------------------------------------------------------

    def send(self, messages: list[Message]) -> None:
        """Send messages, and tell the core which of them the protocol forbids."""
        session = self._session
        if session is None or session.connection is None:
            return
        connection = session.connection
        try:
            connection.send(messages)
        except LocalProtocolError:
            # Nothing was sent. Find the culprit.
            for message in messages:
                try:
                    connection.send([message])
                except LocalProtocolError as error:
                    self._on_event(Unsendable(message, error.text))

    def on_tick(self, now: float) -> None:
        """Send a heartbeat if one is due, and look for answers. To be called more often than that.

        A scheduler that is not heard is left: it hangs, or its machine is gone.
        """
        session = self._session
        if session is None or session.connection is None or now < self._next_beat:
            return
        self._next_beat = now + self._heartbeat_s
        if session.silence.look(session.connection):
            seconds = round(MISSED_HEARTBEATS * self._heartbeat_s, 1)
            text = f"it was silent for {seconds:g} s"
            session.connection.fail(CommClosed(text, session.connection.peer_address))
        else:
            self.send([Heartbeat(facts={})])

    def abort(self) -> None:
        """Close at once, without a word."""
        self._is_closing = True
        if self._reconnecting is not None:
            self._reconnecting.cancel()
        if self._session is not None and self._session.connection is not None:
            self._session.connection.abort()

    async def close(self, reason: str, timeout_s: float) -> None:
        """Say goodbye and close."""
        self._is_closing = True
        if self._reconnecting is not None:
            self._reconnecting.cancel()
            await asyncio.gather(self._reconnecting, return_exceptions=True)
        session = self._session
        if session is None or session.connection is None:
            return
        session.connection.send([Bye(reason=reason)])
        session.connection.close()
        try:
            await within(timeout_s, self.closed.wait())
        except TimeoutError:
            if session.connection is not None:
                session.connection.abort()
