"""The client's session with the scheduler: connects, registers and reconnects. A shell.

Owns the one `SessionRunner` and turns its calls into events for the core: `Connected` after each
welcome, `Disconnected` when the session is lost, `GaveUp` when none began for
`reconnect_timeout_s`. Each attempt looks the scheduler's address up again, because it may have
moved. If there is none (the scheduler has removed its connection file), the address and the secret
of the last session are tried.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from ...protocol.errors import (
    CommClosed,
    CommError,
    ConfigError,
    ConnectRefused,
    ConnectTimeout,
    LocalProtocolError,
    ProtocolError,
    WeftError,
)
from ...protocol.net.connection import Connection
from ...protocol.net.session import Finder, SessionOwner, SessionRunner
from ...protocol.trust.finding import NoSchedulerFound
from ...protocol.trust.security import Security
from ...protocol.values.exceptions import add_note
from ...protocol.wire.message import Message
from ...protocol.wire.messages import Heartbeat, RegisterClient, Welcome
from ...protocol.wire.roles import Role
from ...protocol.wire.session import GiveUp, Outage, Policy, Session
from ...protocol.wording import counted
from ..core.events import AnswersReceived, Connected, Disconnected, GaveUp, Unsendable

if TYPE_CHECKING:
    from .engine import Engine

logger: Final = logging.getLogger("weft.client")

#: Begins the advice in errors of an attempt at an old address, with an old file.
_READ_AGAIN: Final = "; if the scheduler was restarted"

#: An outage that lasts this long is reported to the user, once.
_REPORT_AFTER_S: Final = 5.0

_MAKE_ANOTHER: Final = (
    "Results that are in this program stay; for the others, start a cluster, make a new client, "
    "and submit their calls again"
)


class SchedulerEnded(CommClosed):
    """Raised by a `Finder`: the scheduler has ended and will not come back.

    Waiting for it is of no use; the user needs a new client.
    """


#: A scheduler that already listens writes its connection file within this time.
_LISTENS_FIRST_S: Final = 2.0

#: Errors before the first session after which another attempt is made.
_MAY_COME: Final = (CommError, NoSchedulerFound)


class _ClientPolicy(Policy):
    """Waits at first only for an absent scheduler, later also for one that is being restarted."""

    def is_final(self, error: WeftError, outage: Outage, now: float) -> bool:
        """See `Policy`."""
        if isinstance(error, SchedulerEnded):
            return True
        if isinstance(error, NoSchedulerFound) and error.is_answered:
            return now - outage.since > _LISTENS_FIRST_S
        # During a restart of the scheduler, the token in the file may not be its token.
        may_pass = (CommError, ProtocolError, ConfigError) if outage.error else _MAY_COME
        return not isinstance(error, may_pass)


def _text_of(error: WeftError) -> str:
    """Return the text of an error without the address, which the sentence around it has."""
    if isinstance(error, NoSchedulerFound):
        return error.short
    return error.text if isinstance(error, CommError) else str(error)


def _futures_are(n: int, one: str = "is", many: str = "are") -> str:
    return f"{counted(n, 'future')} {one if n == 1 else many}"


class SchedulerLink(SessionOwner):
    """The owner of the client's session.

    For the loop's thread only, except `writable` and `send_past_loop`, whose caller holds the
    engine's lock.
    """

    def __init__(
        self, engine: Engine, find: Finder, facts: dict[str, Any], reconnect_timeout_s: float
    ) -> None:
        self._engine = engine
        #: The engine's. Only its holder changes `connection`, so that a message is of the session
        #: that the core is in, whichever thread received it.
        self._lock = engine.lock
        self._find = find
        self._facts = facts
        self._reconnect_timeout_s = reconnect_timeout_s
        #: Why the last look-up failed, "" if it did not.
        self._lookup_problem = ""
        self._runner: SessionRunner | None = None
        self._loop = asyncio.get_running_loop()
        #: Done with the first session.
        self._opened: asyncio.Future[None] = self._loop.create_future()
        #: The address of the last session, "" before the first one.
        self.address = ""
        #: The id of its cluster, b"" before the first session.
        self.cluster_id = b""
        #: The facts that the scheduler reports about itself, for display.
        self.facts: dict[str, Any] = {}
        #: Set when the link is closed and its tasks have ended.
        self.closed = asyncio.Event()
        #: The connection of the open session; None between sessions, and when the link is closed.
        self.connection: Connection | None = None

    @property
    def security(self) -> Security:
        """The token and certificate of the last session."""
        runner = self._runner
        if runner is None or runner.security is None:
            return self._find()[1]
        return runner.security

    @property
    def writable(self) -> bool:
        """True if a message would be sent at once."""
        connection = self.connection
        return connection is not None and connection.writable

    async def open(self, timeout_s: float) -> None:
        """Connect for the first time. A scheduler that is just starting is waited for.

        Raises:
            CommError: it could not be reached in time.
            HandshakeError: the process that answered is not this client's scheduler.
            ConfigError: its address could not be found.
        """
        policy = _ClientPolicy(
            first_s=timeout_s,
            again_s=self._reconnect_timeout_s,
            report_s=_REPORT_AFTER_S,
        )
        session = Session(policy, random.random)
        role = Role.CLIENT if self._engine.worker_of_tasks is None else Role.TASK_CLIENT
        self._runner = SessionRunner(session, self, self._look_up, role=role)
        self._runner.start()
        try:
            both: list[asyncio.Future[Any]] = [self._opened, self._runner.over]
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            # No other code has a reference to the connection, and a welcome may be on its way.
            self._runner.abort()
            raise
        if not self._opened.done():
            end = self._runner.over.result()
            if end is None:
                raise CommClosed("the client was closed before a scheduler answered")
            raise _not_opened(end.error, self._runner.address, timeout_s)

    def _look_up(self) -> tuple[Sequence[str], Security]:
        assert self._runner is not None
        try:
            found = self._find()
        except ConfigError as error:
            if self._runner.security is None:
                raise
            self._lookup_problem = str(error)
            return [self._runner.address], self._runner.security
        self._lookup_problem = ""
        return found

    def end(self, reason: str) -> None:
        """End the session for good: the scheduler has reported that the cluster is stopped."""
        if self._runner is not None:
            self._runner.end(SchedulerEnded(f"the cluster was stopped: {reason}"))

    # --- The session ------------------------------------------------------------------------------

    async def prepare(self, connection: Connection, address: str, security: Security) -> None:
        """See `SessionOwner`."""

    def registration(self, number: int, last_epoch: int) -> Message:
        """See `SessionOwner`."""
        engine = self._engine
        worker_id, task_pass = "", ""
        if engine.worker_of_tasks is not None:
            worker_id, task_pass = engine.worker_of_tasks()
        return RegisterClient(
            client_id=engine.client_id,
            name=engine.name,
            session=number,
            last_epoch=last_epoch,
            facts=self._facts,
            worker_id=worker_id,
            task_pass=task_pass,
        )

    def heartbeat(self) -> list[Message]:
        """See `SessionOwner`."""
        return [Heartbeat()]

    def on_welcome(self, connection: Connection, welcome: Welcome, outage: Outage) -> None:
        """See `SessionOwner`."""
        assert self._runner is not None
        self.address = self._runner.address
        self.cluster_id = connection.cluster_id
        self.facts = welcome.facts
        seconds = self._loop.time() - outage.since
        if not self._opened.done():
            self._opened.set_result(None)
        connection.allow_bypass()
        with self._lock:
            self.connection = connection
            shown = self._engine.shown
            if shown is not None and (first := shown.first_messages()):
                connection.send(first)
            # The core reports the return, with what it finds.
            self._engine.on_event(Connected(welcome.epoch, seconds if outage.is_reported else 0.0))

    def on_messages(self, connection: Connection, messages: list[Message]) -> None:
        """See `SessionOwner`."""
        with self._lock:
            if connection is self.connection:
                self._engine.on_event(AnswersReceived(messages))

    def on_writable(self, connection: Connection) -> None:
        """See `SessionOwner`."""
        self._engine.on_writable()

    def on_lost(self, reason: WeftError) -> None:
        """See `SessionOwner`."""
        with self._lock:
            self.connection = None
            self._engine.on_event(Disconnected())

    def on_retry(self, outage: Outage, left_s: float) -> None:
        """See `SessionOwner`."""
        assert outage.last_error is not None
        is_answered = getattr(outage.last_error, "is_answered", False)
        if outage.error is None and outage.n_attempts == 1 and not is_answered:
            problem = _text_of(outage.last_error).partition("; ")[0]
            logger.warning("%s; waiting for a scheduler for %g s", problem, round(left_s, 1))
        else:
            logger.debug("cannot reach the scheduler yet: %s", outage.last_error)

    def on_outage(self, outage: Outage, left_s: float) -> None:
        """See `SessionOwner`."""
        assert outage.error is not None
        logger.warning(
            "the scheduler at %s does not answer (%s); reconnecting, %s pending, "
            "giving up in %.0f s",
            self.address,
            # The file is read again at each attempt, so this advice would mislead.
            _text_of(outage.last_error or outage.error).partition(_READ_AGAIN)[0],
            _futures_are(self._engine.count_pending()),
            left_s,
        )

    def on_over(self, end: GiveUp) -> None:
        """See `SessionOwner`."""
        self.connection = None
        outage = end.outage
        if outage.error is None:
            return  # there was no session: `open` raises
        if end.error is outage.error and isinstance(end.error, SchedulerEnded):
            text = f"while {_futures_are(self._engine.count_pending(), 'was', 'were')} pending"
            self._engine.on_event(GaveUp(f"{_text_of(end.error)}, {text}. {_MAKE_ANOTHER}"))
            return
        if end.is_final:
            text = f"it cannot come back: {_text_of(end.error)}"
        elif outage.n_short:
            text = (
                f"each of the last {counted(outage.n_short, 'scheduler')} ended soon after this "
                f"client had come back, so no further one is waited for. See the scheduler's log: "
                "if a bug of weft is the reason, what this client sends may cause it; please "
                "report it. Make a new client, and submit the calls again without their cause"
            )
        else:
            text = f"it did not come back within {self._loop.time() - outage.since:.3g} s"
            if outage.last_error is not None:
                text += (
                    f"; {counted(outage.n_attempts, 'attempt')} failed, the last one: "
                    f"{outage.last_error}"
                )
            if self._lookup_problem:
                text += f"; looking for it elsewhere: {self._lookup_problem}"
            text += (
                ". Results that are in this program stay; for the others, start the scheduler "
                "again, make a new client, and submit their calls again. A client waits longer "
                "with a larger reconnect_timeout="
            )
        pending = _futures_are(self._engine.count_pending(), "was", "were")
        last_contact = time.time() - (self._loop.time() - outage.since)
        self._engine.on_event(
            GaveUp(
                f"the connection to the scheduler at {self.address} was lost "
                f"({_text_of(outage.error)}) at {time.strftime('%X', time.localtime(last_contact))}"
                f" while {pending} pending, and {text}"
            )
        )

    # --- Past the loop ----------------------------------------------------------------------------

    def send_past_loop(self, messages: list[Message]) -> bool:
        """Send messages on this thread; return False if the loop has to do it."""
        connection = self.connection
        try:
            return connection is not None and connection.send_past_loop(messages)
        except LocalProtocolError:
            return False

    # --- Sending ----------------------------------------------------------------------------------

    def send(self, messages: list[Message]) -> None:
        """Send messages, and report to the core which of them the protocol forbids."""
        connection = self.connection
        if connection is None:
            return
        try:
            connection.send(messages)
        except LocalProtocolError:
            # Nothing was sent. Find the message that is forbidden.
            for message in messages:
                try:
                    connection.send([message])
                except LocalProtocolError as error:
                    self._engine.on_event(Unsendable(message, error.text))

    def abort(self) -> None:
        """Close at once, without a goodbye."""
        self.connection = None
        if self._runner is not None:
            self._runner.abort()

    async def close(self, reason: str, timeout_s: float) -> None:
        """Send a goodbye and close."""
        self.connection = None
        if self._runner is not None:
            await self._runner.leave(reason, timeout_s)
        self.closed.set()


def _not_opened(error: WeftError, address: str, timeout_s: float) -> WeftError:
    """Return the error that `open` raises; only for an absent scheduler it has waited."""
    if isinstance(error, NoSchedulerFound):
        made: WeftError
        if error.is_answered:
            made = ConfigError(error.short)
        else:
            made = ConnectTimeout(f"no scheduler was found within {timeout_s:g} s: {error.short}")
        if error.details:
            add_note(made, f"weft: {error.details}")
        return made
    if not isinstance(error, CommError) or isinstance(error, SchedulerEnded):
        return error
    if isinstance(error, ConnectTimeout):
        return ConnectTimeout(error.text, error.address, timeout_s)
    address = error.address or address
    text = f"no scheduler answered: {error.text}"
    if isinstance(error, ConnectRefused):
        text += "; 'weft info --all' lists the schedulers of this machine"
    return ConnectTimeout(text, address, timeout_s)
