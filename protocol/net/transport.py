"""Connections between weft processes: `connect` and `Listener`, and the types of connections.

The interface is in connection.py, byte streams are in stream.py, accepting is in listen.py, and
connections within one process are in inproc.py.
"""

from __future__ import annotations

import asyncio
import secrets
import ssl
from typing import Final

from ..errors import (
    CommClosed,
    CommError,
    ConnectRefused,
    ConnectTimeout,
    HandshakeError,
    ProtocolError,
)
from ..trust.security import Security, channel_binding, check_pin, client_ssl_context
from ..wire.address import Address, parse_address, socket_address
from ..wire.codec import WireState
from ..wire.framing import FrameLimits
from ..wire.handshake import NONCE_BYTES, ClientHandshake
from ..wire.roles import Role
from .connection import Connection, Handler
from .deadline import within
from .inproc import connect_inproc
from .listen import Listener
from .stream import StreamConnection, tls_reason

__all__ = ["Connection", "Handler", "Listener", "connect"]

_TLS_MISMATCH: Final = (
    "is it a weft process (not its pages), with the same choice of tcp:// or tls://?"
)


async def connect(
    address: str,
    *,
    role: Role,
    server_role: Role,
    security: Security,
    handler: Handler,
    timeout_s: float = 10.0,
    limits: FrameLimits | None = None,
    progress_timeout_s: float = 30.0,
) -> Connection:
    """Connect to a listening weft process; both ends prove that they know the cluster's token.

    `handler` may get messages before this returns, but is never called if this raises.

    Args:
        address: `tcp://host:port`, `tls://host:port`, `unix:///path` or `inproc://name`.
        role: the role of this end.
        server_role: the role that the other end must have.
        security: the cluster's secret; if it has a certificate, that one is pinned.
        handler: receives the messages and the end of the connection.
        timeout_s: for the whole attempt, including the handshake.
        limits: of the frames that the other end sends.
        progress_timeout_s: the pause within a frame that is always allowed; twice as long never is.

    Raises:
        ConnectRefused: no process listens there.
        ConnectTimeout: it took too long.
        CommError: the network failed in another way.
        HandshakeError: the ends do not fit together; trying again will not help.
        ConfigError: the address is malformed.
    """
    target = parse_address(address)
    if target.scheme == "inproc":
        return connect_inproc(target.host, role, server_role, handler)
    connecting = _Connecting(target, role, server_role, security, handler)
    connection = StreamConnection(
        connecting,
        str(target),
        WireState(limits or FrameLimits()),
        # `within` below is the deadline.
        2 * timeout_s,
        progress_timeout_s,
    )
    try:
        await within(timeout_s, connecting.run(connection, timeout_s))
    except TimeoutError:
        connecting.give_up(connection)
        is_open = connecting.is_connected and target.is_tcp
        text = "no answer, though a process listens" if is_open else "no answer"
        if is_open or target.scheme == "tls":
            text += f"; {_TLS_MISMATCH}"
        raise ConnectTimeout(text, address, timeout_s) from None
    except BaseException:
        connecting.give_up(connection)
        raise
    return connection


class _Connecting:
    """The owner of a connection that this end makes."""

    def __init__(
        self,
        target: Address,
        role: Role,
        server_role: Role,
        security: Security,
        handler: Handler,
    ) -> None:
        self._target = target
        self._role = role
        self._server_role = server_role
        self._security = security
        self._handler = handler
        #: The transport below the handshake is open.
        self.is_connected = False
        self._authenticated: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self, connection: StreamConnection, timeout_s: float) -> None:
        """Connect the socket, then wait for the handshake."""
        loop = asyncio.get_running_loop()
        target = self._target
        try:
            if target.scheme == "unix":
                await loop.create_unix_connection(lambda: connection, target.host)
            elif target.scheme == "tls":
                await loop.create_connection(
                    lambda: connection,
                    target.host,
                    target.port or 0,
                    ssl=client_ssl_context(self._security),
                    ssl_handshake_timeout=2 * timeout_s,
                )
            else:
                await loop.create_connection(lambda: connection, target.host, target.port or 0)
        except ssl.SSLCertVerificationError as error:
            raise HandshakeError(
                f"TLS: {error.verify_message}: the server's certificate is not the one in the "
                "connection file; if the scheduler was restarted, read its connection file again",
                str(target),
            ) from None
        except ssl.SSLError as error:
            text = f"TLS: {tls_reason(error)}; {_TLS_MISMATCH}"
            raise HandshakeError(text, str(target)) from None
        except (ConnectionRefusedError, FileNotFoundError):
            raise ConnectRefused("no process listens there", str(target)) from None
        except OSError as error:
            text = f"cannot connect: {error.strerror or error}"
            if target.scheme == "tls" and isinstance(error, ConnectionResetError):
                text = f"the connection was closed before TLS began; {_TLS_MISMATCH}"
            raise CommError(text, str(target)) from None
        await self._authenticated

    def give_up(self, connection: StreamConnection) -> None:
        """Discard the connection; the handler is not called."""
        connection.discard()
        if not self._authenticated.cancel() and not self._authenticated.cancelled():
            # It failed in the turn in which the attempt was cancelled: mark its error as retrieved.
            self._authenticated.exception()

    def on_transport(self, connection: StreamConnection, transport: asyncio.Transport) -> None:
        """See `stream.Owner`."""
        self.is_connected = True
        peer = transport.get_extra_info("peername")
        connection.peer_address = socket_address(self._target.scheme, peer)
        der = None
        tls = transport.get_extra_info("ssl_object")
        if tls is not None:
            der = tls.getpeercert(binary_form=True)
            try:
                check_pin(self._security, der)
            except HandshakeError as error:
                connection.fail(error)
                return
        handshake = ClientHandshake(
            self._security.token,
            self._security.cluster_id,
            self._role,
            self._server_role,
            channel_binding(der),
            secrets.token_bytes(NONCE_BYTES),
        )
        connection.begin(transport, handshake)

    def on_authenticated(self, connection: StreamConnection) -> Handler:
        """See `stream.Owner`."""
        if not self._authenticated.done():
            self._authenticated.set_result(None)
        return self._handler

    def on_failed(self, connection: StreamConnection, error: CommError | ProtocolError) -> None:
        """See `stream.Owner`."""
        if not self._authenticated.done():
            if isinstance(error, CommClosed) or not connection.bytes_in:
                text = f"the connection was closed before its handshake; {_TLS_MISMATCH}"
                error = CommClosed(text, str(self._target))
            self._authenticated.set_exception(error)

    def on_gone(self, connection: StreamConnection) -> None:
        """See `stream.Owner`."""
