"""A viewer's connection to a scheduler, which reads and changes nothing.

`weft info` asks once; the HTTP process keeps one connection for all of its pages.
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

    async def open(self, address: str, security: Security) -> None:
        """Connect.

        Raises:
            WeftError: the scheduler cannot be reached, or does not accept this process.
        """
        self._connection = await connect(
            address, role=Role.VIEWER, server_role=Role.SCHEDULER, security=security, handler=self
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
