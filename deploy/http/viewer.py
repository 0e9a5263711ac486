"""A viewer's connection to a scheduler, which reads and changes nothing.

`weft info` asks once; the HTTP process keeps one connection for all of its pages but `/readyz`.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from ...protocol.errors import CommClosed, CommError, ProtocolError
from ...protocol.net.connection import Connection
from ...protocol.net.deadline import within
from ...protocol.net.transport import connect
from ...protocol.trust.security import Security
from ...protocol.wire.handshake import Role
from ...protocol.wire.message import Message
from ...protocol.wire.messages import ClusterInfo, GetClusterInfo, GetMetrics, Metrics

#: A scheduler that has not answered after this is not healthy.
ANSWER_TIMEOUT_S: Final = 2.0
#: A probe needs no token, so that it may not make the scheduler authenticate at any rate.
_CHECK_INTERVAL_S: Final = 1.0


class Viewer:
    """The connection to the scheduler. One request of each kind is open at a time."""

    def __init__(self) -> None:
        #: Resolved with the reason when the connection has ended.
        self.closed: asyncio.Future[CommError | ProtocolError] = (
            asyncio.get_running_loop().create_future()
        )
        self._connection: Connection | None = None
        self._n_requests = 0
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        #: {kind: its answer} of the open requests: many probes at once share one
        self._asked: dict[type[Message], asyncio.Future[dict[str, Any]]] = {}

    async def open(self, address: str, security: Security, timeout_s: float = 10.0) -> None:
        """Connect.

        Raises:
            WeftError: the scheduler cannot be reached, or does not accept this process.
        """
        self._connection = await connect(
            address,
            role=Role.VIEWER,
            server_role=Role.SCHEDULER,
            security=security,
            handler=self,
            timeout_s=timeout_s,
        )

    async def ask(
        self, kind: type[GetMetrics | GetClusterInfo], timeout_s: float = ANSWER_TIMEOUT_S
    ) -> dict[str, Any]:
        """Return the scheduler's answer.

        Raises:
            TimeoutError: it did not answer in time.
            WeftError: the connection is gone.
        """
        if self.closed.done():
            raise self.closed.result()
        future = self._asked.get(kind)
        if future is None or future.done():
            self._n_requests += 1
            future = asyncio.get_running_loop().create_future()
            self._answers[self._n_requests] = future
            self._asked[kind] = future
            assert self._connection is not None, "ask after open"
            self._connection.send([kind(request=self._n_requests)])
        try:
            return await within(timeout_s, asyncio.shield(future))
        except TimeoutError:
            raise TimeoutError("the scheduler does not answer") from None

    def on_messages(self, connection: Connection, messages: list[Message]) -> None:
        """See `Handler`."""
        for message in messages:
            if isinstance(message, (Metrics, ClusterInfo)):
                future = self._answers.pop(message.request, None)
                if future is not None:
                    answer = message.values if isinstance(message, Metrics) else message.info
                    future.set_result(answer)

    def on_writable(self, connection: Connection) -> None:
        """See `Handler`; questions are small."""

    def on_closed(self, connection: Connection, error: CommError | ProtocolError | None) -> None:
        """See `Handler`."""
        self._connection = None
        reason = error or CommClosed()
        if not self.closed.done():
            self.closed.set_result(reason)
        for future in self._answers.values():
            future.set_exception(reason)
            future.exception()  # the caller may have stopped waiting
        self._answers.clear()

    async def wait_closed(self) -> None:
        """Wait until the connection is gone."""
        await asyncio.shield(self.closed)

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()


class AcceptanceCheck:
    """Checks whether a scheduler accepts connections: it connects, asks, and leaves.

    A check that was begun less than a second ago holds for the next one as well.
    """

    def __init__(self, address: str, security: Security) -> None:
        self._address = address
        self._security = security
        self._check: asyncio.Task[None] | None = None
        self._begun = 0.0

    async def run(self) -> None:
        """Return if the scheduler accepts a connection and answers on it.

        Raises:
            ConnectTimeout, TimeoutError: it did not in time.
            WeftError: the scheduler cannot be reached, or does not accept this process.
        """
        now = asyncio.get_running_loop().time()
        is_old = now - self._begun >= _CHECK_INTERVAL_S
        if self._check is None or (is_old and self._check.done()):
            self._begun = now
            self._check = asyncio.create_task(self._connect())
        await asyncio.shield(self._check)

    async def _connect(self) -> None:
        viewer = Viewer()
        try:
            await viewer.open(self._address, self._security, ANSWER_TIMEOUT_S)
            await viewer.ask(GetMetrics)
        finally:
            viewer.close()

    async def close(self) -> None:
        """End a check that is under way."""
        if self._check is not None:
            self._check.cancel()
            await asyncio.wait([self._check])
