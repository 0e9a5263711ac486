"""The supervisor's connection to the scheduler: who is alive, and who died of what. A shell.

Reports of exits are kept until they could be sent: a worker often dies of what takes the network
away with it.
"""

from __future__ import annotations

import asyncio
import os
import platform
from collections.abc import Callable, Sequence
from typing import Final

from ..protocol.connection import Connection
from ..protocol.deadline import within
from ..protocol.errors import CommError, HandshakeError, ProtocolError
from ..protocol.handshake import Role
from ..protocol.message import Message
from ..protocol.messages import (
    Bye,
    Refused,
    RegisterSupervisor,
    Stop,
    Welcome,
    WorkerExited,
    WorkersAlive,
)
from ..protocol.security import Security
from ..protocol.transport import connect

#: Reports kept for a scheduler that is away; older ones are of no use to it.
_MAX_REPORTS: Final = 1000
_LEAVE_TIMEOUT_S: Final = 2.0


class SupervisorLink:
    """At most one connection at a time. For the loop's thread only."""

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
        self._connection: Connection | None = None
        self._welcome: asyncio.Future[Welcome] | None = None
        self._closed: asyncio.Future[str] | None = None
        self._heartbeat: asyncio.TimerHandle | None = None
        self._heartbeat_s = 1.0
        self._n_sessions = 0
        self._epoch = 0
        self._reports: list[Message] = []

    @property
    def connected(self) -> bool:
        """Whether there is a session."""
        return self._heartbeat is not None

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
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        self._welcome = loop.create_future()
        self._closed = loop.create_future()
        self._connection = await connect(
            address,
            role=Role.SUPERVISOR,
            server_role=Role.SCHEDULER,
            security=security,
            handler=self,
            timeout_s=timeout_s,
        )
        self._n_sessions += 1
        facts = {"python": platform.python_version(), "pid": os.getpid(), "host": platform.node()}
        self._connection.send(
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
            welcome = await within(max(deadline - loop.time(), 0.05), self._welcome)
        except TimeoutError:
            self._connection.abort()
            raise CommError("the scheduler did not answer our registration", address) from None
        self._epoch = welcome.epoch
        self._heartbeat_s = max(welcome.heartbeat_ms / 2000, 0.05)
        self._beat()

    def report_exit(self, worker_id: str, reason: str, running: list[int]) -> None:
        """Tell why a worker ended, now or when there is a session again."""
        report = WorkerExited(worker_id=worker_id, reason=reason, running=running)
        self._reports = [*self._reports[1 - _MAX_REPORTS :], report]
        if self.connected:
            self._send_reports()

    def _send_reports(self) -> None:
        assert self._connection is not None
        if self._reports:
            self._connection.send(self._reports)
            self._reports = []

    def _beat(self) -> None:
        assert self._connection is not None
        self._send_reports()
        sizes = self._measure()
        self._connection.send([WorkersAlive(worker_ids=list(sizes), rss=list(sizes.values()))])
        loop = asyncio.get_running_loop()
        self._heartbeat = loop.call_later(self._heartbeat_s, self._beat)

    async def wait_closed(self) -> str:
        """Wait until the session has ended; return why."""
        assert self._closed is not None
        return await asyncio.shield(self._closed)

    async def leave(self, reason: str) -> None:
        """Say goodbye, if there is somebody to hear it."""
        if self._connection is None or not self.connected:
            return
        self._send_reports()
        self._connection.send([Bye(reason=reason)])
        self._connection.close()
        assert self._closed is not None
        await asyncio.wait([self._closed], timeout=_LEAVE_TIMEOUT_S)

    def abort(self) -> None:
        """Close at once."""
        if self._connection is not None:
            self._connection.abort()

    # --- Handler --------------------------------------------------------------------------------

    def on_messages(self, connection: Connection, messages: list[Message]) -> None:
        """See `Handler`."""
        assert self._welcome is not None
        for message in messages:
            if isinstance(message, Welcome) and not self._welcome.done():
                connection.wire.epoch = message.epoch
                connection.wire.session = message.session
                self._welcome.set_result(message)
            elif isinstance(message, Refused) and not self._welcome.done():
                text = f"the scheduler refused this supervisor: {message.reason}"
                self._welcome.set_exception(HandshakeError(text, connection.peer_address))
            elif isinstance(message, Stop):
                self._on_stop(message.reason)

    def on_writable(self, connection: Connection) -> None:
        """See `Handler`; all that is sent is small."""

    def on_closed(self, connection: Connection, error: CommError | ProtocolError | None) -> None:
        """See `Handler`."""
        if self._heartbeat is not None:
            self._heartbeat.cancel()
            self._heartbeat = None
        assert self._welcome is not None
        assert self._closed is not None
        if not self._welcome.done():
            self._welcome.set_exception(error or CommError("the connection was closed"))
            self._welcome.exception()  # `connect` may have given up already
        if not self._closed.done():
            self._closed.set_result(str(error) if error is not None else "closed")
        self._connection = None
