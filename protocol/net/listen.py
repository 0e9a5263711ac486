"""Accepts connections, and limits those that are not authenticated yet. A shell.

Everything here happens before a peer is authenticated, so peers may be malicious, broken or
numerous: a connection costs one timer and a few hundred bytes, the number of connections is limited
in total and per host, and a failure is logged as one line (limited in number too), never as a
traceback.

Sockets are accepted here, not by `loop.create_server`, which does not report connections whose TLS
handshake is not complete or fails; these must be counted and logged like any other.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import secrets
import socket
import ssl
import struct
from collections.abc import Callable, Collection
from typing import Final

from ..errors import (
    CommClosed,
    CommError,
    ConfigError,
    HandshakeError,
    LocalProtocolError,
    ProtocolError,
    WrongCluster,
)
from ..trust.security import (
    Security,
    certificate_der,
    channel_binding,
    is_loopback,
    needs_tls,
    server_ssl_context,
)
from ..wire.address import Address, parse_address, socket_address
from ..wire.codec import WireState
from ..wire.framing import FrameLimits
from ..wire.handshake import NONCE_BYTES, ServerHandshake
from ..wire.roles import Role
from .connection import Connection, Handler
from .inproc import InprocServer
from .sockets import SocketFile, bind_tcp, bind_unix
from .stream import StreamConnection, tls_reason
from .traffic import Traffic, TrafficByRole
from .unfinished import UnfinishedFrames

logger: Final = logging.getLogger("weft.transport")

_LOGGED_PER_WINDOW: Final = 10
_WINDOW_S: Final = 60.0
#: The pause before the next attempt when no connection can be accepted.
_PAUSE_S: Final = 1.0
_ACCEPTED_PER_TURN: Final = 16

OnConnection = Callable[[Connection], Handler]


class RefusalLog:
    """Logs refusals, at most ten per minute, and the number of those that it left out.

    Processes that look for another cluster are one line of information per host and minute.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._left = _LOGGED_PER_WINDOW
        self._suppressed = 0
        #: Hosts whose processes look for another cluster, and were logged in this window.
        self._strayed: set[str] = set()
        self._window: asyncio.TimerHandle | None = None

    def refused(self, peer: str, error: object) -> None:
        """Note that the connection from `peer` was refused because of `error`."""
        if self._window is None:
            self._window = asyncio.get_running_loop().call_later(_WINDOW_S, self.end_window)
        if isinstance(error, WrongCluster):
            # Processes of an earlier scheduler at this address, which try to come back for some
            # time. The advice in the error is for them.
            host = peer if peer.startswith("unix:") else peer.rpartition(":")[0]
            if host not in self._strayed and len(self._strayed) < _LOGGED_PER_WINDOW:
                self._strayed.add(host)
                what = one_line(error.text).partition("; ")[0]
                logger.info("%s: connection from %s refused: %s", self._address, host, what)
        elif self._left:
            self._left -= 1
            logger.warning(
                "%s: connection from %s refused: %s",
                self._address,
                one_line(peer),
                one_line(error),
                extra={"code": "connection-refused"},
            )
        else:
            self._suppressed += 1

    def end_window(self) -> None:
        """Log how many refusals were left out, and begin a new minute with the next one."""
        if self._window is not None:
            self._window.cancel()
            self._window = None
        if self._suppressed:
            logger.warning(
                "%s: %d more connections refused",
                self._address,
                self._suppressed,
                extra={"code": "connection-refused"},
            )
        self._left, self._suppressed = _LOGGED_PER_WINDOW, 0
        self._strayed.clear()


def one_line(value: object) -> str:
    """Make text from a peer fit for one line of a log."""
    return "".join(c if c.isprintable() else "?" for c in str(value)[:400])


class Listener:
    """A listening end, which accepts connections from `start` until `close`.

    Args:
        address: `tcp://host:port` (0 = any free one), `tls://host:port`, `unix:///path` or
            `inproc://name`.
        role: the role of this end.
        accepted_roles: the roles of peers that may connect.
        security: must have a cluster id; for TLS, certificate and key as well.
        on_connection: called with each authenticated connection; returns its handler.
        limits: of the frames that peers send.
        handshake_timeout_s: for the whole handshake of a connection.
        progress_timeout_s: the pause within a frame that is always allowed; twice as long never
            is. A frame that takes longer in all must arrive at 2 KiB/s at least.
        max_unauthenticated: limit of connections whose handshake is not complete.
        max_unauthenticated_per_host: the same for each host, except this one.
        unfinished: counts and limits the memory of half received frames, for several listeners
            together; None = for this one alone.
        allow_plaintext: allow a `tcp://` address that other machines can reach. Everything is then
            readable on the network.

    Attributes:
        address: the address that it listens at; the actual port is known once it has started.
        connections: those that are authenticated and open.
        auth_failures: number of connections that were refused before they were authenticated.
    """

    def __init__(
        self,
        address: str,
        *,
        role: Role,
        accepted_roles: Collection[Role],
        security: Security,
        on_connection: OnConnection,
        limits: FrameLimits | None = None,
        handshake_timeout_s: float = 5.0,
        progress_timeout_s: float = 30.0,
        max_unauthenticated: int = 256,
        max_unauthenticated_per_host: int = 32,
        unfinished: UnfinishedFrames | None = None,
        allow_plaintext: bool = False,
    ) -> None:
        if security.cluster_id is None:
            raise LocalProtocolError("a listening end needs a cluster id")
        self.address = address
        self.connections: dict[Connection, None] = {}
        self.auth_failures = 0
        self._role = role
        self._accepted_roles = accepted_roles
        self._security = security
        self._on_connection = on_connection
        self._limits = limits or FrameLimits()
        self._handshake_timeout_s = handshake_timeout_s
        self._progress_timeout_s = progress_timeout_s
        self._max_unauthenticated = max_unauthenticated
        self._max_unauthenticated_per_host = max_unauthenticated_per_host
        self._unfinished = unfinished or UnfinishedFrames()
        self._allow_plaintext = allow_plaintext
        #: {connection: host} of those not authenticated; "" = no limit per host applies.
        self._unauthenticated: dict[StreamConnection, str] = {}
        #: {host: number of its connections in _unauthenticated}. No zeros.
        self._n_by_host: dict[str, int] = {}
        #: Every connection that was accepted and has not ended.
        self._alive: dict[StreamConnection, None] = {}
        #: The socket of each connection that has no transport yet, or is in its TLS handshake.
        self._setups: dict[asyncio.Task[None], socket.socket] = {}
        #: Set by the last of _alive while `close` waits.
        self._all_gone: asyncio.Future[None] | None = None
        self._sockets: list[socket.socket] = []
        #: The listening sockets that are not watched during the pause after a failure.
        self._pauses: dict[socket.socket, asyncio.TimerHandle] = {}
        self._socket_file: SocketFile | None = None
        self._inproc: InprocServer | None = None
        self._scheme = ""
        self._context: ssl.SSLContext | None = None
        self._binding = b""
        self._closed = False
        self._traffic = TrafficByRole()
        self._log = RefusalLog("")

    def traffic(self) -> dict[str, Traffic]:
        """Return what went over all connections, open and ended, by the role of the other end.

        "unknown" is that of connections that ended before they were authenticated.
        """
        return self._traffic.sums()

    # --- Opening and closing ----------------------------------------------------------------------

    async def start(self) -> Listener:
        """Start accepting; return this. Called once.

        Raises:
            CommError: the address cannot be listened at.
            ConfigError: the address is malformed, or needs TLS.
        """
        address = parse_address(self.address)
        if address.scheme == "inproc":
            self._inproc = InprocServer(
                address.host,
                role=self._role,
                accepted_roles=self._accepted_roles,
                security=self._security,
                on_connection=self._on_inproc,
                on_gone=self._on_inproc_gone,
            )
            self.address = self._inproc.address
        elif address.scheme == "unix":
            sock, self._socket_file = bind_unix(address.host)
            self._sockets = [sock]
            self.address = str(address)
        else:
            self._prepare_tls(address)
            assert address.port is not None
            self._sockets = await bind_tcp(address.host, address.port)
            self.address = str(address._replace(port=self._sockets[0].getsockname()[1]))
        self._scheme = address.scheme
        self._log = RefusalLog(self.address)
        for sock in self._sockets:
            self._watch(sock)
        return self

    def _prepare_tls(self, address: Address) -> None:
        if address.scheme == "tls":
            self._context = server_ssl_context(self._security)
            assert self._security.certificate_pem is not None
            self._binding = channel_binding(certificate_der(self._security.certificate_pem))
        elif needs_tls(address.host) and not self._allow_plaintext:
            raise ConfigError(
                f"{address} can be reached from other machines and does not encrypt: use tls://, "
                "or listen at a loopback address"
            )

    async def close(self) -> None:
        """Stop accepting, close every connection accepted here, and wait until they are gone.

        Messages that were sent are written first, but to a peer that does not read only for a few
        seconds.
        """
        if not self._closed:
            self._closed = True
            if self._inproc is not None:
                self._inproc.close()
            self._stop_accepting()
            for connection in list(self._unauthenticated):
                connection.discard()
            for sock in self._setups.values():
                # Cancelling the task would leak the socket under uvloop. This ends the task, too.
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
            for other in list(self.connections):
                other.close()
        if self._alive or self.connections:
            if self._all_gone is None:
                self._all_gone = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._all_gone)
        self._log.end_window()

    def _stop_accepting(self) -> None:
        loop = asyncio.get_running_loop()
        for sock in self._sockets:
            pause = self._pauses.pop(sock, None)
            if pause is not None:
                pause.cancel()
            loop.remove_reader(sock)
            sock.close()
        if self._socket_file is not None:
            self._socket_file.remove()

    # --- Accepting --------------------------------------------------------------------------------

    # asyncio's `sock_accept` loses a connection when it is cancelled just after it was accepted,
    # so the sockets are watched here.

    def _watch(self, listening: socket.socket) -> None:
        self._pauses.pop(listening, None)
        asyncio.get_running_loop().add_reader(listening, self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        # A few per iteration of the loop, so that a flood of connections does not delay all else.
        for _ in range(_ACCEPTED_PER_TURN):
            try:
                sock, peer = listening.accept()
            except BlockingIOError:
                return
            except (ConnectionAbortedError, InterruptedError):
                continue
            except OSError as error:
                # Most likely out of file descriptors. The connections wait in the kernel.
                self._log.refused("anybody", f"{error.strerror}; next try in {_PAUSE_S:g} s")
                loop = asyncio.get_running_loop()
                loop.remove_reader(listening)
                self._pauses[listening] = loop.call_later(_PAUSE_S, self._watch, listening)
                return
            sock.setblocking(False)
            self._on_accepted(sock, peer)

    def _on_accepted(self, sock: socket.socket, peer: object) -> None:
        address = _peer_address(self._scheme, sock, peer)
        host = str(peer[0]) if isinstance(peer, tuple) else ""
        if host and is_loopback(host):
            # All processes of this machine connect from there, for instance a large local cluster.
            host = ""
        n, n_of_host = len(self._unauthenticated), self._n_by_host.get(host, 0)
        if n >= self._max_unauthenticated or n_of_host >= self._max_unauthenticated_per_host:
            sock.close()
            self.auth_failures += 1
            self._log.refused(address, f"{n} others have not finished their handshake")
            return
        connection = StreamConnection(
            self,
            self.address,
            WireState(self._limits),
            self._handshake_timeout_s,
            self._progress_timeout_s,
            self._unfinished,
        )
        connection.peer_address = address
        self._alive[connection] = None
        self._unauthenticated[connection] = host
        if host:
            self._n_by_host[host] = n_of_host + 1
        task = asyncio.get_running_loop().create_task(self._set_up(connection, sock))
        self._setups[task] = sock
        task.add_done_callback(lambda task: self._on_set_up(task, connection))

    async def _set_up(self, connection: StreamConnection, sock: socket.socket) -> None:
        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: connection,
            sock,
            ssl=self._context,
            ssl_handshake_timeout=self._handshake_timeout_s if self._context else None,
        )

    def _on_set_up(self, task: asyncio.Task[None], connection: StreamConnection) -> None:
        del self._setups[task]
        error = None if task.cancelled() else task.exception()
        if connection.is_connected:
            return
        # asyncio does not notify the protocol when TLS failed or the task was cancelled.
        if isinstance(error, ConnectionResetError):
            connection.connection_lost(error)
        elif error is not None:
            connection.fail(HandshakeError(f"TLS: {tls_reason(error)}"))
        connection.connection_lost(None)

    def belong_to(self, token: bytes, cluster_id: bytes) -> None:
        """Accept only peers of this cluster from now on; open connections are not affected."""
        self._security = dataclasses.replace(self._security, token=token, cluster_id=cluster_id)

    # --- Calls of the connections (stream.Owner) --------------------------------------------------

    def on_transport(self, connection: StreamConnection, transport: asyncio.Transport) -> None:
        """See `stream.Owner`."""
        assert self._security.cluster_id is not None
        handshake = ServerHandshake(
            self._security.token,
            self._security.cluster_id,
            self._role,
            self._accepted_roles,
            self._binding,
            secrets.token_bytes(NONCE_BYTES),
        )
        connection.begin(transport, handshake)

    def on_authenticated(self, connection: StreamConnection) -> Handler:
        """See `stream.Owner`."""
        self._forget_unauthenticated(connection)
        self.connections[connection] = None
        self._traffic.begin(connection)
        return self._on_connection(connection)

    def on_failed(self, connection: StreamConnection, error: CommError | ProtocolError) -> None:
        """See `stream.Owner`."""
        if not connection.authenticated:
            if isinstance(error, CommClosed):
                # The peer sent nothing: a health probe, or a client that has given up.
                logger.debug(
                    "%s: %s closed the connection without sending anything",
                    self.address,
                    connection.peer_address,
                )
                return
            self.auth_failures += 1
            self._log.refused(connection.peer_address, error)
        else:
            logger.warning(
                "%s: connection of %s %s closed: %s",
                self.address,
                connection.peer_role.name.lower(),
                one_line(connection.peer_address),
                one_line(error),
                extra={"code": "connection-failed"},
            )

    def on_gone(self, connection: StreamConnection) -> None:
        """See `stream.Owner`."""
        self._forget_unauthenticated(connection)
        self.connections.pop(connection, None)
        if connection in self._alive:
            self._traffic.end(connection, authenticated=connection.authenticated)
            del self._alive[connection]
        self._tell_all_gone()

    def _tell_all_gone(self) -> None:
        if self._all_gone is None or self._all_gone.done():
            return
        if not self._alive and not self.connections:
            self._all_gone.set_result(None)

    def _forget_unauthenticated(self, connection: StreamConnection) -> None:
        host = self._unauthenticated.pop(connection, "")
        if host:
            self._n_by_host[host] -= 1
            if not self._n_by_host[host]:
                del self._n_by_host[host]

    # --- In process -------------------------------------------------------------------------------

    def _on_inproc(self, connection: Connection) -> Handler:
        self.connections[connection] = None
        self._traffic.begin(connection)
        return self._on_connection(connection)

    def _on_inproc_gone(self, connection: Connection) -> None:
        if self.connections.pop(connection, 0) is None:
            self._traffic.end(connection, authenticated=True)
        self._tell_all_gone()


def _peer_address(scheme: str, sock: socket.socket, peer: object) -> str:
    if scheme == "unix" and hasattr(socket, "SO_PEERCRED"):
        # A connecting Unix socket has no name; the kernel reports which process it belongs to.
        credentials = struct.Struct("iii")
        raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, credentials.size)
        pid, uid, _ = credentials.unpack(raw)
        return f"unix://pid={pid},uid={uid}"
    return socket_address(scheme, peer)
