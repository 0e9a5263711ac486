"""Connections to workers' data ports, one a worker, for results that are too large to ride along.
A shell.

Each request of the core is answered by exactly one event: `Fetched` with what came, or
`FetchFailed` when the worker cannot be reached, goes away or is silent.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from ..protocol.connection import Connection
from ..protocol.errors import CommError, ConfigError, ProtocolError
from ..protocol.handshake import Role
from ..protocol.message import Message
from ..protocol.messages import GetData, KeysData
from ..protocol.security import Security
from .events import Event, Fetched, FetchFailed, FetchFrom

#: A worker that cannot be reached directly is asked through the scheduler after this.
_CONNECT_TIMEOUT_S: Final = 3.0
_ANSWER_TIMEOUT_S: Final = 60.0
_IDLE_S: Final = 60.0


class _DataLink:
    """The connection to one worker, opened with the first request."""

    def __init__(self, owner: DataLinks, holder: str, security: Security) -> None:
        self.owner = owner
        self.holder = holder
        self.connection: Connection | None = None
        #: {request: keys} sent or to be sent, not answered.
        self.requests: dict[int, list[str]] = {}
        self.last_used = time.monotonic()
        self.last_bytes_in = 0
        self.task = asyncio.get_running_loop().create_task(self._connect(security))

    async def _connect(self, security: Security) -> None:
        from ..protocol.transport import connect

        try:
            self.connection = connection = await connect(
                self.holder,
                role=Role.PEER,
                server_role=Role.WORKER_DATA,
                security=security,
                handler=self,
                timeout_s=_CONNECT_TIMEOUT_S,
            )
        except (CommError, ProtocolError, ConfigError) as error:
            self.owner._on_lost(self, str(error))
            return
        connection.send([GetData(request=n, keys=keys) for n, keys in self.requests.items()])

    def ask(self, request: int, keys: list[str]) -> None:
        """Ask now, or as soon as there is a connection."""
        self.requests[request] = keys
        self.last_used = time.monotonic()
        if self.connection is not None:
            self.connection.send([GetData(request=request, keys=keys)])

    def on_messages(self, connection: Connection, messages: list[Message]) -> None:
        """See `Handler`."""
        self.last_used = time.monotonic()
        for message in messages:
            if isinstance(message, KeysData) and message.request in self.requests:
                del self.requests[message.request]
                self.owner._on_event(
                    Fetched(message.request, message.keys, message.results, message.missing)
                )

    def on_writable(self, connection: Connection) -> None:
        """See `Handler`; requests are small."""

    def on_closed(self, connection: Connection, error: CommError | ProtocolError | None) -> None:
        """See `Handler`."""
        self.connection = None
        self.owner._on_lost(self, str(error) if error else "the connection was closed")

    def is_stuck(self, now: float) -> bool:
        """Tell whether nothing at all came for too long while requests were open."""
        if self.connection is None or not self.requests:
            return False
        if self.connection.bytes_in != self.last_bytes_in:
            self.last_bytes_in = self.connection.bytes_in
            self.last_used = now
        return now - self.last_used > _ANSWER_TIMEOUT_S


class DataLinks:
    """For the loop's thread only."""

    def __init__(self, security: Callable[[], Security], on_event: Callable[[Event], None]) -> None:
        self._security = security
        self._on_event = on_event
        #: {holder: its link}; connecting and open ones.
        self._links: dict[str, _DataLink] = {}
        self._is_closed = False

    def fetch(self, action: FetchFrom) -> None:
        """Do what the core asks for."""
        if self._is_closed:
            return
        link = self._links.get(action.holder)
        if link is None:
            link = self._links[action.holder] = _DataLink(self, action.holder, self._security())
        link.ask(action.request, action.keys)

    def _on_lost(self, link: _DataLink, reason: str) -> None:
        if self._links.get(link.holder) is link:
            del self._links[link.holder]
        requests, link.requests = link.requests, {}
        if not self._is_closed:
            for request in requests:
                self._on_event(FetchFailed(request, reason))

    def on_tick(self, now: float) -> None:
        """Close what is idle, and give up on what is silent."""
        for link in list(self._links.values()):
            if link.connection is None:
                continue
            if link.is_stuck(now):
                link.connection.abort()
            elif not link.requests and now - link.last_used > _IDLE_S:
                link.connection.close()

    async def close(self) -> None:
        """Close all connections."""
        self._is_closed = True
        links = list(self._links.values())
        for link in links:
            link.task.cancel()
            if link.connection is not None:
                link.connection.abort()
        await asyncio.gather(*[link.task for link in links], return_exceptions=True)
