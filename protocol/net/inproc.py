"""Connections inside one process and one loop, on which message objects are passed unencoded.

Nothing is encoded, so nothing is checked, and access to this process's registry is the only
authentication: it grants every level. Otherwise these behave like any connection: messages arrive
in order in a later iteration of the loop, and each side is notified of the end of the connection
exactly once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Final

from ..errors import (
    CommClosed,
    CommError,
    ConnectRefused,
    LocalProtocolError,
    ProtocolError,
    RemoteProtocolError,
    WrongRole,
)
from ..trust.security import Security
from ..wire.codec import WireState
from ..wire.levels import Level
from ..wire.message import Message
from ..wire.roles import Role
from .connection import Connection, Handler

#: {name: server that accepts at it}: exactly the open servers.
_servers: Final[dict[str, InprocServer]] = {}


class InprocConnection(Connection):
    """A `Connection` that is always writable; byte counters stay 0, a frame is one `send`."""

    def __init__(self, address: str, peer_role: Role, cluster_id: bytes) -> None:
        self.address = self.peer_address = address
        self.peer_role = peer_role
        self.level = Level.ADMIN
        self.cluster_id = cluster_id
        self.wire = WireState()
        self.writable = True
        self.closed = False
        self.bytes_in = self.bytes_out = self.frames_in = self.frames_out = 0
        self._loop = asyncio.get_running_loop()
        self._handler: Handler | None = None
        self._other: InprocConnection | None = None
        self._on_gone: Callable[[Connection], None] | None = None
        #: Received and not yet delivered. While it is not empty, `_deliver` is scheduled.
        self._inbox: list[Message] = []

    def attach(
        self,
        other: InprocConnection,
        handler: Handler,
        on_gone: Callable[[Connection], None] | None = None,
    ) -> None:
        """Connect to the other end."""
        self._other = other
        self._handler = handler
        self._on_gone = on_gone

    def send(self, messages: Sequence[Message]) -> None:
        """See `Connection.send`."""
        other = self._other
        if self.closed or not messages or other is None:
            return
        self.frames_out += 1
        other.frames_in += 1
        self.messages_out += len(messages)
        other.messages_in += len(messages)
        if not other._inbox:
            self._loop.call_soon(other._deliver)
        other._inbox += messages

    def pause_reading(self) -> None:
        """Do nothing: there is no buffer outside this process to fill."""

    def resume_reading(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """See `Connection.close`."""
        self._end(None)
        if self._other is not None and not self._other.closed:
            self._loop.call_soon(
                self._other._end, CommClosed("the other end closed the connection", self.address)
            )

    def abort(self) -> None:
        """See `Connection.abort`."""
        if self._other is not None:
            self._other._inbox.clear()
        self.close()

    def fail(self, error: CommError | ProtocolError) -> None:
        """See `Connection.fail`."""
        self._end(error)
        self.abort()

    def _deliver(self) -> None:
        messages, self._inbox = self._inbox, []
        if messages and not self.closed and self._handler is not None:
            try:
                self._handler.on_messages(self, messages)
            except RemoteProtocolError as error:
                self.fail(error)

    def _end(self, error: CommError | ProtocolError | None) -> None:
        if self.closed:
            return
        self.closed = True
        self.writable = False
        self._loop.call_soon(self._gone, error)

    def _gone(self, error: CommError | ProtocolError | None) -> None:
        handler, self._handler, self._other = self._handler, None, None
        try:
            if handler is not None:
                handler.on_closed(self, error)
        finally:
            if self._on_gone is not None:
                self._on_gone(self)


class InprocServer:
    """A server that accepts connections at a name of this process's registry."""

    def __init__(
        self,
        name: str,
        *,
        role: Role,
        accepted_roles: Collection[Role],
        security: Security,
        on_connection: Callable[[Connection], Handler],
        on_gone: Callable[[Connection], None],
    ) -> None:
        self.address = f"inproc://{name}"
        if name in _servers:
            raise CommError("cannot listen: the name is taken", self.address)
        assert security.cluster_id is not None
        self.role = role
        self._name = name
        self._accepted_roles = frozenset(accepted_roles)
        self._cluster_id = security.cluster_id
        self._on_connection = on_connection
        self._on_gone = on_gone
        self._loop = asyncio.get_running_loop()
        _servers[name] = self

    def accept(self, role: Role, handler: Handler) -> InprocConnection:
        """Make a pair of connections and return the one of the connecting end."""
        if asyncio.get_running_loop() is not self._loop:
            raise LocalProtocolError("an inproc:// connection joins two ends of one event loop")
        if role not in self._accepted_roles:
            raise WrongRole(f"a {role.name.lower()} may not connect to {self.address}")
        near = InprocConnection(self.address, self.role, self._cluster_id)
        far = InprocConnection(self.address, role, self._cluster_id)
        far.attach(near, self._on_connection(far), self._on_gone)
        near.attach(far, handler)
        return near

    def close(self) -> None:
        """Stop accepting connections."""
        if _servers.get(self._name) is self:
            del _servers[self._name]


def connect_inproc(name: str, role: Role, server_role: Role, handler: Handler) -> InprocConnection:
    """Connect to the server at this name.

    Raises:
        ConnectRefused: there is no such server.
        WrongRole: the server has another role, or does not accept `role`.
    """
    address = f"inproc://{name}"
    server = _servers.get(name)
    if server is None:
        raise ConnectRefused("no listener has this name in this process", address)
    if server.role is not server_role:
        raise WrongRole(
            f"{address} is a {server.role.name.lower()}, expected was a {server_role.name.lower()}"
        )
    return server.accept(role, handler)
