"""The supervisor's connection to the scheduler: who is alive, and who died of what. A shell.

Reports of exits are kept until they could be sent: a worker often dies of what takes the network
away with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
from collections.abc import Callable, Sequence
from typing import Final

from ...protocol.errors import CommClosed, CommError, HandshakeError, ProtocolError
from ...protocol.net.connection import Connection
from ...protocol.net.deadline import within
from ...protocol.net.liveness import MISSED_HEARTBEATS, Silence
from ...protocol.net.transport import connect
from ...protocol.trust.security import Security
from ...protocol.wire.handshake import Role
from ...protocol.wire.message import Message
from ...protocol.wire.messages import (
    Bye,
    Refused,
    RegisterSupervisor,
    Stop,
    Welcome,
    WorkerExited,
    WorkersAlive,
)

#: Reports kept for a scheduler that is away; older ones are of no use to it.
_MAX_REPORTS: Final = 1000
_LEAVE_TIMEOUT_S: Final = 2.0
#: How long an attempt may go on that is of no use any more: a handshake that breaks off would be a
#: warning to the scheduler.
SETTLE_S: Final = 0.5
#: Of a goodbye, which may quote what the scheduler said at length.
_MAX_REASON_CHARS: Final = 1000
#: Two a heartbeat: a worker is vouched for in time even if one of them is late.
_BEATS: Final = 2
_MIN_BEAT_S: Final = 0.02


class _Session:
    """One connection. What comes late from one that was given up cannot touch the next."""

    def __init__(self, on_stop: Callable[[str], None]) -> None:
        loop = asyncio.get_running_loop()
        self._on_stop = on_stop
        self.connection: Connection | None = None
        self.welcome: asyncio.Future[Welcome] = loop.create_future()
        #: Done when the connection is gone, with the reason.
        self.closed: asyncio.Future[str] = loop.create_future()
        self.heartbeat: asyncio.TimerHandle | None = None
        self.silence = Silence(_BEATS * MISSED_HEARTBEATS)

    def end(self, reason: str = "closed") -> None:
        """Close at once, and for this reason if it is open."""
        if not self.closed.done():
            self.closed.set_result(reason)
        self.welcome.cancel()
        if self.heartbeat is not None:
            self.heartbeat.cancel()
        if self.connection is not None:
            self.connection.abort()

    def on_messages(self, connection: Connection, messages: list[Message]) -> None:
        """See `Handler`."""
        for message in messages:
            if isinstance(message, Welcome) and not self.welcome.done():
                connection.wire.epoch = message.epoch
                connection.wire.session = message.session
                self.welcome.set_result(message)
            elif isinstance(message, Refused) and not self.welcome.done():
                text = f"the scheduler refused this supervisor: {message.reason}"
                self.welcome.set_exception(HandshakeError(text, connection.peer_address))
            elif isinstance(message, Stop):
                self._on_stop(message.reason)

    def on_writable(self, connection: Connection) -> None:
        """See `Handler`; all that is sent is small."""

    def on_closed(self, connection: Connection, error: CommError | ProtocolError | None) -> None:
        """See `Handler`."""
        if self.heartbeat is not None:
            self.heartbeat.cancel()
        if not self.welcome.done():
            self.welcome.set_exception(error or CommClosed())
            self.welcome.exception()  # it may come before anybody waits
        if not self.closed.done():
            self.closed.set_result(str(error) if error is not None else "closed")


class SupervisorLink:
    """At most one session at a time. For the loop's thread only."""

    def __init__(
        self,
        supervisor_id: str,
        measure: Callable[[], dict[str, int]],
        on_stop: Callable[[str], None],
    ) -> None:
        """Prepare; `connect` does the work.

        Args:
            supervisor_id: names this process for ever.
            measure: returns {worker id: resident bytes} of the workers that are alive.
            on_stop: called with the reason when the scheduler says that all is over.
        """
        self._supervisor_id = supervisor_id
        self._measure = measure
        self._on_stop = on_stop
        #: The last one that was welcomed.
        self._session: _Session | None = None
        #: Set while no attempt is under way.
        self._settled = asyncio.Event()
        self._settled.set()
        self._n_sessions = 0
        self._epoch = 0
        self._reports: list[Message] = []

    @property
    def connected(self) -> bool:
        """Whether there is a session."""
        return self._session is not None and not self._session.closed.done()

    async def connect(
        self, addresses: Sequence[str], security: Security, *, timeout_s: float
    ) -> None:
        """Open a session at the first address that answers.

        Raises:
            CommError: none does.
            HandshakeError: the scheduler is another one, or refuses us.
        """
        for i, address in enumerate(addresses):
            try:
                await self._connect(address, security, timeout_s / (len(addresses) - i))
                return
            except CommError:
                if i == len(addresses) - 1:
                    raise

    async def _connect(self, address: str, security: Security, timeout_s: float) -> None:
        session = _Session(self._on_stop)
        self._settled.clear()
        try:
            await self._open(session, address, security, timeout_s)
        except BaseException:
            session.end()
            raise
        finally:
            self._settled.set()
        self._session = session
        self._beat(session)

    async def _open(
        self, session: _Session, address: str, security: Security, timeout_s: float
    ) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        session.connection = connection = await connect(
            address,
            role=Role.SUPERVISOR,
            server_role=Role.SCHEDULER,
            security=security,
            handler=session,
            timeout_s=timeout_s,
        )
        self._n_sessions += 1
        facts = {"python": platform.python_version(), "pid": os.getpid(), "host": platform.node()}
        connection.send(
            [
                RegisterSupervisor(
                    supervisor_id=self._supervisor_id,
                    session=self._n_sessions,
                    last_epoch=self._epoch,
                    facts=facts,
                )
            ]
        )
        try:
            welcome = await within(max(deadline - loop.time(), 0.05), session.welcome)
        except TimeoutError:
            raise CommError("the scheduler did not answer our registration", address) from None
        if session.closed.done():  # in the turn in which it welcomed us
            raise CommClosed(session.closed.result(), address)
        self._epoch = welcome.epoch
        self._beat_s = max(welcome.heartbeat_ms / 1000 / _BEATS, _MIN_BEAT_S)

    def report_exit(self, worker_id: str, reason: str, running: list[int]) -> None:
        """Tell why a worker ended, now or when there is a session again."""
        report = WorkerExited(worker_id=worker_id, reason=reason, running=running)
        self._reports = [*self._reports[1 - _MAX_REPORTS :], report]
        if self._session is not None and self.connected:
            self._send_reports(self._session)

    def _send_reports(self, session: _Session) -> None:
        assert session.connection is not None
        if self._reports:
            session.connection.send(self._reports)
            self._reports = []

    def _beat(self, session: _Session) -> None:
        assert session.connection is not None
        if session.silence.look(session.connection):
            seconds = round(MISSED_HEARTBEATS * _BEATS * self._beat_s, 1)
            session.end(f"it was silent for {seconds:g} s")
            return
        # First of all: whatever goes wrong below must not end the heartbeats.
        loop = asyncio.get_running_loop()
        session.heartbeat = loop.call_later(self._beat_s, self._beat, session)
        self._send_reports(session)
        sizes = self._measure()
        alive = WorkersAlive(worker_ids=list(sizes), rss=list(sizes.values()))
        session.connection.send([alive])

    async def wait_closed(self) -> str:
        """Wait until the session has ended; return why."""
        assert self._session is not None
        return await asyncio.shield(self._session.closed)

    async def settle(self) -> None:
        """Let an attempt that is under way come to its end, within some time."""
        with contextlib.suppress(TimeoutError):
            await within(SETTLE_S, self._settled.wait())

    async def leave(self, reason: str) -> None:
        """Say goodbye, if there is somebody to hear it."""
        session = self._session
        if session is None or session.connection is None or not self.connected:
            return
        self._send_reports(session)
        session.connection.send([Bye(reason=reason[:_MAX_REASON_CHARS])])
        session.connection.close()
        with contextlib.suppress(TimeoutError):
            await within(_LEAVE_TIMEOUT_S, asyncio.shield(session.closed))

    def abort(self) -> None:
        """Close at once."""
        if self._session is not None:
            self._session.end()
