"""Connections to workers' data ports, one a worker, for results that are too large to ride along.
A shell.

Each request of the core is answered by exactly one event: `Fetched` with what came, or
`FetchFailed` when the worker cannot be reached, goes away or is silent. The first time that this
happens with a worker is said aloud: the way through the scheduler is slower, and closed to large
results.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections.abc import Callable
from typing import Final

from ...protocol.errors import CommError, ConfigError, ProtocolError
from ...protocol.net.connection import Connection
from ...protocol.net.liveness import Silence
from ...protocol.trust.security import Security
from ...protocol.wire.handshake import Role
from ...protocol.wire.message import Message
from ...protocol.wire.messages import GetData, KeysData
from ..core.events import Event, Fetched, FetchFailed, FetchFrom

logger: Final = logging.getLogger("weft.client")

#: A worker that cannot be reached directly is asked through the scheduler after this.
_CONNECT_TIMEOUT_S: Final = 3.0
_ANSWER_TIMEOUT_S: Final = 60.0
_LOOKS: Final = 12
_IDLE_S: Final = 60.0
#: So many workers are remembered for having been complained of; then it begins anew.
_MAX_SAID: Final = 1000


class _DataLink:
    """The connection to one worker, opened with the first request."""

    def __init__(self, owner: DataLinks, holder: str, security: Security) -> None:
        self.owner = owner
        self.holder = holder
        self.connection: Connection | None = None
        #: {request: keys} sent or to be sent, not answered.
        self.requests: dict[int, list[str]] = {}
        self.last_used = time.monotonic()
        #: Since something is asked for.
        self.silence: Silence | None = None
        self.next_look = 0.0
        self.task = asyncio.get_running_loop().create_task(self._connect(security))

    async def _connect(self, security: Security) -> None:
        from ...protocol.net.transport import connect

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
            self.silence = None
            return False
        if self.silence is None:
            self.silence, self.next_look = Silence(_LOOKS), now
        if now < self.next_look:
            return False
        self.next_look = now + _ANSWER_TIMEOUT_S / _LOOKS
        return self.silence.look(self.connection)


class DataLinks:
    """For the loop's thread only."""

    def __init__(self, security: Callable[[], Security], on_event: Callable[[Event], None]) -> None:
        self._security = security
        self._on_event = on_event
        #: {holder: its link}; connecting and open ones.
        self._links: dict[str, _DataLink] = {}
        #: {holder: None} whose first failure was logged; at most `_MAX_SAID`.
        self._said: dict[str, None] = {}
        self._is_closed = False

    def fetch(self, action: FetchFrom) -> None:
        """Do what the core asks for."""
        if self._is_closed:
            return
        link = self._links.get(action.holder)
        if link is None:
            # Each worker shows a certificate of its own, so the scheduler's, which the connection
            # file has, must not be pinned here. The token's proof is bound to the one shown.
            security = dataclasses.replace(
                self._security(), certificate_pem=None, private_key_pem=None
            )
            link = self._links[action.holder] = _DataLink(self, action.holder, security)
        link.ask(action.request, action.keys)

    def _on_lost(self, link: _DataLink, reason: str) -> None:
        if self._links.get(link.holder) is link:
            del self._links[link.holder]
        requests, link.requests = link.requests, {}
        if self._is_closed or not requests:
            return
        self._say(link.holder, reason)
        for request in requests:
            self._on_event(FetchFailed(request, reason))

    def _say(self, holder: str, reason: str) -> None:
        if holder in self._said:
            return
        if len(self._said) >= _MAX_SAID:
            self._said.clear()
        self._said[holder] = None
        logger.warning(
            "results on worker %s cannot be fetched from it (%s); the scheduler is asked to pass "
            "them on",
            holder,
            reason,
        )

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
