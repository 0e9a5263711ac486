"""The first exchange on every connection: both ends state their role and prove their token.

Sans-IO: two state machines, `ClientHandshake` (the end that connected) and `ServerHandshake` (the
end that accepted). They own the order in which the two ends prove themselves, with four fixed-size
messages whose layout is in `handshake_messages`. They never parse anything of variable size, never
decode MessagePack, never read a clock or a random source: nonces come in with the constructor,
deadlines are the shell's.

    client                                server
      | -- hello (role and level, ...) ----> |
      | <-- hello (role, versions, nonce) -- |
      | -- proof --------------------------> |   checked before the server sends its own
      | <-- proof, or reject with a reason - |   checked by the client before it sends a frame

A proof is an HMAC-SHA256 over "weft2", the direction, the agreed version, both hellos byte for byte
(so: both roles, the level, both version ranges, the cluster and both nonces) and the channel
binding. The purpose of each part:

- *Both nonces*: a recorded exchange cannot be replayed.
- *Direction and roles*: a proof sent back to its maker does not verify (reflection).
- *Channel binding*, the hash of the certificate that TLS showed: a man in the middle must show
  another certificate, so the two ends bind different values and a relayed proof fails.
- *Version ranges*: an attacker cannot make the two ends agree on an older version.
- *One key per level and role*, derived from the token of that level by HKDF: the proof of a viewer
  is not valid for a worker, and that of a worker's token not for a client's.
- *The level in the hello*: a client states the level of its token (`levels`) and proves that very
  token; a port that only knows a lower one, a worker's data port, is shown that one. There is no
  second attempt with another level, so an attacker who changes it, or answers that it is not
  known, ends the connection and wins nothing. The server proves the same token, so the holder of a
  worker's token cannot pass for the scheduler towards a client.
- *The user*: the token of a client that carries the name of a user has a number of its own in the
  place of the level. The name follows the client's proof, in a fixed size. The key depends on it,
  so with another name the proof is not valid. A server that does not know such tokens refuses the
  level.
- *Client first*: a peer without the token gets no keyed value from a server, so a server is
  no oracle. A client does send one to an unproved server; tokens of 256 random bits cannot be
  guessed from it (`security.MIN_TOKEN_BYTES` refuses short ones).

A shell drives either end as follows. It never reads more than `bytes_wanted`, so that the first
frame behind the handshake stays in the socket:

    data = handshake.start()
    while True:
        write(data)
        if handshake.done:
            break
        chunk = read(handshake.bytes_wanted)  # what has come, at most that much
        if not chunk:
            raise handshake.on_eof()
        data = handshake.feed(chunk)

`feed` raises a `HandshakeError` as soon as nothing is left to send. If a reject has to be sent, it
is returned first, `error` is set, nothing more is wanted, and `on_eof` and the next `feed` give
that error; so the loop above needs no special case. A shell that is called with data, rather than
reading it, must look at `error` after each `feed`.

Binding roles and challenges both ways is HyperQueue's idea. Nothing is parsed before the proof
because parsers of unauthenticated input have been the way into comparable systems.
"""

from __future__ import annotations

import hmac
import struct
from collections.abc import Collection
from typing import Final

from ..errors import (
    HandshakeError,
    LocalProtocolError,
    WrongCluster,
    WrongRole,
    WrongToken,
    WrongVersion,
)
from .handshake_messages import (
    ANSWER,
    CLUSTER_ID_BYTES,
    HELLO,
    NAMED_CLIENT,
    NONCE_BYTES,
    PREAUTH_BYTES,
    PROTOCOL_MAX,
    PROTOCOL_MIN,
    UNKNOWN_CLUSTER,
    USER,
    HandshakeKind,
    Hello,
    Inbox,
    Reason,
    common_version,
    level_name,
    pack_answer,
    pack_hello,
    role_name,
    unpack_hello,
)
from .levels import (
    Level,
    demand_text,
    hkdf_sha256,
    is_user,
    level_of,
    lowered,
    user_of,
    with_user,
)
from .roles import ROLE_LEVELS, Role

__all__ = [
    "CLUSTER_ID_BYTES",
    "NONCE_BYTES",
    "PREAUTH_BYTES",
    "PROTOCOL_MAX",
    "PROTOCOL_MIN",
    "ClientHandshake",
    "ServerHandshake",
]

_LABEL: Final = b"weft2"
_MAX_BINDING_BYTES: Final = 64

# Disjoint on purpose: a hello of one end is never valid as one of the other.
_CONNECTING: Final = frozenset(
    {Role.CLIENT, Role.WORKER, Role.SUPERVISOR, Role.VIEWER, Role.PEER, Role.TASK_CLIENT}
)
_ACCEPTING: Final = frozenset({Role.SCHEDULER, Role.WORKER_DATA})

#: {role of an accepting end: the level of the token that it holds, and so the highest it can check}
_PORT_LEVELS: Final = {Role.SCHEDULER: Level.ADMIN, Role.WORKER_DATA: Level.WORKER}


# --- Keys and proofs ------------------------------------------------------------------------------


def _role_key(token: bytes, level: int, role: int) -> bytes:
    """The key of the connecting end's level and role; both directions of a connection use it."""
    info = b"handshake|" + Role(role).name.lower().encode()
    return hkdf_sha256(lowered(token, Level(level)), salt=_LABEL, info=info)


def _check_secrets(token: bytes, binding: bytes) -> None:
    # HMAC accepts an empty key, so two ends without a token would prove themselves to each other.
    if not token:
        raise LocalProtocolError("a handshake needs a token")
    if len(binding) > _MAX_BINDING_BYTES:
        raise LocalProtocolError(f"a channel binding has at most {_MAX_BINDING_BYTES} bytes")


# --- Error texts ----------------------------------------------------------------------------------


def _wrong_version(client: Hello, server: Hello) -> WrongVersion:
    return WrongVersion(
        f"no common protocol version: the client speaks {client.proto_min} to {client.proto_max}, "
        f"the server {server.proto_min} to {server.proto_max}; install the same version of weft on "
        "both"
    )


def _wrong_cluster(client: Hello, server: Hello) -> WrongCluster:
    return WrongCluster(
        f"the client looks for cluster {client.cluster_id.hex()}, the server belongs to cluster "
        f"{server.cluster_id.hex()}; if the scheduler was restarted, read its connection file again"
    )


_TOKEN_SOURCE: Final = (
    "the token must be that of the scheduler's connection file (--connection-file, "
    "$WEFT_CONNECTION_FILE) or of the file that $WEFT_TOKEN_FILE names"
)
_MIDDLE: Final = "over TLS, a proxy that ends TLS between the two has the same effect"


def _level_text(client: Hello, server: Hello) -> str:
    """Describe a token of a level that does not permit the client's role, or is not known."""
    needed = ROLE_LEVELS[Role(client.role)]
    if client.level == NAMED_CLIENT:
        return (
            f"the {role_name(server.role)} cannot check a token of role "
            f"{level_name(client.level)}: use one without"
        )
    if needed <= client.level <= Level.ADMIN:
        return (
            f"the {role_name(server.role)} cannot check a token of role {level_name(client.level)}"
        )
    if client.level not in set(Level):
        return f"the client sent a token of {level_name(client.level)}"
    return demand_text(f"a {role_name(client.role)}", needed, Level(client.level))


# --- The two ends ---------------------------------------------------------------------------------


class _Handshake:
    """Common part of both ends: one message in, at most one out, until done or failed."""

    __slots__ = (
        "_binding",
        "_inbox",
        "_level",
        "_ours",
        "_theirs",
        "_user",
        "_version",
        "done",
        "error",
    )

    def __init__(self, ours: Hello, channel_binding: bytes) -> None:
        self._ours = ours
        self._binding = channel_binding
        self._inbox = Inbox()
        #: None until the peer's hello has come.
        self._theirs: Hello | None = None
        self._version = 0
        #: Of the token that is proved; a server's is right only after the client's hello.
        self._level = Level.VIEW
        self._user = ""
        #: Both ends are proved once the bytes that `feed` returned are sent; no more are wanted.
        self.done = False
        #: Set once, when the handshake failed; every later `feed` raises it.
        self.error: HandshakeError | None = None

    @property
    def bytes_wanted(self) -> int:
        """The largest number of bytes to read before the next `feed`; 0 at the end."""
        return self._inbox.bytes_wanted

    @property
    def peer_role(self) -> Role:
        """The role that the peer has proved. Only when `done`."""
        return Role(self._proved_peer().role)

    @property
    def level(self) -> Level:
        """The level of the token that both ends have proved. Only when `done`."""
        self._proved_peer()
        return self._level

    @property
    def user(self) -> str:
        """The user that the token carries which both ends have proved, or "". Only when `done`."""
        self._proved_peer()
        return self._user

    @property
    def version(self) -> int:
        """The agreed protocol version. Only when `done`."""
        self._proved_peer()
        return self._version

    def feed(self, data: bytes | bytearray | memoryview) -> bytes:
        """Take at most `bytes_wanted` bytes of the peer; return the bytes to send, perhaps none.

        After a server's reject was returned, `error` is set and the next call raises it.

        Raises:
            HandshakeError: or a subclass; the connection must be closed.
            LocalProtocolError: more bytes than wanted were fed; a bug of the caller.
        """
        if self.error is not None:
            raise self.error
        try:
            message = self._inbox.feed(data)
            return b"" if message is None else self._on_message(message)
        except HandshakeError as error:
            self._inbox = Inbox()
            self.error = error
            raise

    def on_eof(self) -> HandshakeError:
        """Return the error to raise if the peer closes the connection during the handshake."""
        if self.error is None:
            self.error = self._on_eof()
        return self.error

    def _on_message(self, message: bytes) -> bytes:
        raise NotImplementedError

    def _on_eof(self) -> HandshakeError:
        raise NotImplementedError

    def _proved_peer(self) -> Hello:
        # The claims of an unproved peer must not reach decisions.
        if not self.done or self._theirs is None:
            raise LocalProtocolError("the handshake is not done")
        return self._theirs

    def _token_source(self) -> str:
        """Return where the right token is, and over TLS what else may be the cause."""
        return f"{_TOKEN_SOURCE}; {_MIDDLE}" if self._binding else _TOKEN_SOURCE

    def _proof(self, key: bytes, kind: HandshakeKind, client: Hello, server: Hello) -> bytes:
        # All parts but the binding have a fixed size, and the binding is last, after its length:
        # no two different exchanges have the same transcript.
        head = struct.pack(">5sBHB", _LABEL, kind, self._version, len(self._binding))
        return hmac.digest(key, head + client.raw + server.raw + self._binding, "sha256")


class ClientHandshake(_Handshake):
    """The connecting end.

    Args:
        token: the cluster's secret of any level, not empty; the highest level is proved that the
            server can check.
        cluster_id: 16 bytes; None = not known, learned from the server (see `cluster_id`).
        role: the role of this process.
        expected_server_role: the role that the server must have.
        channel_binding: `security.channel_binding` of the server's certificate.
        nonce: 32 bytes from a cryptographic random source, never used before.
    """

    __slots__ = ("_expected_server_role", "_key")

    def __init__(
        self,
        token: bytes,
        cluster_id: bytes | None,
        role: Role,
        expected_server_role: Role,
        channel_binding: bytes,
        nonce: bytes,
    ) -> None:
        _check_secrets(token, channel_binding)
        if role not in _CONNECTING or expected_server_role not in _ACCEPTING:
            raise LocalProtocolError(
                f"a {role_name(role)} does not connect to a {role_name(expected_server_role)}"
            )
        level = min(level_of(token), _PORT_LEVELS[expected_server_role])
        user = user_of(token) if level is Level.CLIENT else ""
        hello = pack_hello(
            HandshakeKind.CLIENT_HELLO,
            role,
            NAMED_CLIENT if user else level,
            UNKNOWN_CLUSTER if cluster_id is None else cluster_id,
            nonce,
        )
        super().__init__(hello, channel_binding)
        self._level, self._user = level, user
        self._key = _role_key(token, level, role)
        self._expected_server_role = expected_server_role

    def start(self) -> bytes:
        """Return the hello, the first bytes to send."""
        self._inbox.expect(HELLO.size)
        return self._ours.raw

    @property
    def cluster_id(self) -> bytes:
        """The 16-byte id of the cluster that the server proved. Only when `done`."""
        return self._proved_peer().cluster_id

    def _on_message(self, message: bytes) -> bytes:
        if self._theirs is None:
            return self._on_hello(unpack_hello(message, HandshakeKind.SERVER_HELLO))
        self._on_answer(message, self._theirs)
        return b""

    def _on_hello(self, theirs: Hello) -> bytes:
        version = common_version(self._ours, theirs)
        if version is None:
            raise _wrong_version(self._ours, theirs)
        if theirs.cluster_id == UNKNOWN_CLUSTER:
            raise HandshakeError("the server sent no cluster id")
        if self._ours.cluster_id not in (UNKNOWN_CLUSTER, theirs.cluster_id):
            raise _wrong_cluster(self._ours, theirs)
        if theirs.role != self._expected_server_role:
            raise WrongRole(
                f"the peer at this address is a {role_name(theirs.role)}, expected was a "
                f"{role_name(self._expected_server_role)}; check the address"
            )
        self._theirs = theirs
        self._version = version
        self._inbox.expect(ANSWER.size)
        proof = pack_answer(
            HandshakeKind.CLIENT_PROOF,
            mac=self._proof(self._key, HandshakeKind.CLIENT_PROOF, self._ours, theirs),
        )
        return proof + USER.pack(self._user.encode()) if self._user else proof

    def _on_answer(self, message: bytes, theirs: Hello) -> None:
        _, kind, reason, mac = ANSWER.unpack(message)
        if kind == HandshakeKind.REJECT:
            raise self._rejected(reason, theirs)
        if kind != HandshakeKind.SERVER_PROOF or reason != 0:
            raise HandshakeError(f"the server sent message kind {kind} where a proof was expected")
        expected = self._proof(self._key, HandshakeKind.SERVER_PROOF, self._ours, theirs)
        if not hmac.compare_digest(mac, expected):
            raise WrongToken(
                "the server did not prove that it holds this cluster's token: "
                + self._token_source()
            )
        self._key = b""
        self.done = True

    def _rejected(self, reason: int, theirs: Hello) -> HandshakeError:
        # A reject is not authenticated. It ends this connection, which anyone able to forge it
        # could have broken anyway.
        if reason == Reason.TOKEN:
            return WrongToken(f"the server did not accept our token: {self._token_source()}")
        if reason == Reason.VERSION:
            return _wrong_version(self._ours, theirs)
        if reason == Reason.CLUSTER:
            return _wrong_cluster(self._ours, theirs)
        if reason == Reason.LEVEL:
            return WrongToken(_level_text(self._ours, theirs))
        if reason == Reason.ROLE:
            return WrongRole(
                f"the {role_name(theirs.role)} at this address does not accept a "
                f"{role_name(self._ours.role)}; check the address"
            )
        return HandshakeError(f"the server refused the connection for unknown reason {reason}")

    def _on_eof(self) -> HandshakeError:
        if self._theirs is None:
            return HandshakeError(
                f"the server closed the connection {self._inbox.n_received} bytes into its hello; "
                "is it a weft process, with the same choice of tcp:// or tls://?"
            )
        return HandshakeError(
            "the server closed the connection before it answered; its log says why"
        )


class ServerHandshake(_Handshake):
    """The accepting end.

    A fault in a client's hello is kept and answered after its proof has arrived: if a server closed
    at once, the proof would arrive at a closed socket, and the reset that this causes can discard
    the reason on its way.

    Args:
        token: the cluster's secret, not empty; of the level admin at a scheduler, at least of the
            level worker at a data port.
        cluster_id: 16 bytes, not all zero.
        server_role: the role of this port.
        accepted_roles: the roles of peers that may connect to it.
        channel_binding: `security.channel_binding` of our own certificate, b"" without TLS.
        nonce: 32 bytes from a cryptographic random source, never used before.
    """

    __slots__ = ("_accepted_roles", "_fault", "_token")

    def __init__(
        self,
        token: bytes,
        cluster_id: bytes,
        server_role: Role,
        accepted_roles: Collection[Role],
        channel_binding: bytes,
        nonce: bytes,
    ) -> None:
        _check_secrets(token, channel_binding)
        if server_role not in _ACCEPTING or not _CONNECTING.issuperset(accepted_roles):
            accepted = ", ".join(map(role_name, accepted_roles))
            raise LocalProtocolError(f"a {role_name(server_role)} does not accept {accepted}")
        if cluster_id == UNKNOWN_CLUSTER:
            raise LocalProtocolError("a server's cluster id must not be all zeros")
        super().__init__(
            pack_hello(HandshakeKind.SERVER_HELLO, server_role, 0, cluster_id, nonce),
            channel_binding,
        )
        self._token = token
        self._accepted_roles = frozenset(accepted_roles)
        #: The fault in the client's hello; not yet `error`, because it is not yet answered.
        self._fault: tuple[Reason, HandshakeError] | None = None

    def start(self) -> bytes:
        """Return b"": the client sends first."""
        self._inbox.expect(HELLO.size)
        return b""

    @property
    def cluster_id(self) -> bytes:
        """The id of our own cluster. Only when `done`."""
        self._proved_peer()
        return self._ours.cluster_id

    def _on_message(self, message: bytes) -> bytes:
        if self._theirs is not None:
            return self._on_proof(message, self._theirs)
        theirs = unpack_hello(message, HandshakeKind.CLIENT_HELLO)
        self._theirs = theirs
        self._fault = self._find_fault(theirs)
        self._version = common_version(theirs, self._ours) or 0
        self._inbox.expect(ANSWER.size + (USER.size if theirs.level == NAMED_CLIENT else 0))
        return self._ours.raw

    def _find_fault(self, theirs: Hello) -> tuple[Reason, HandshakeError] | None:
        if common_version(theirs, self._ours) is None:
            return Reason.VERSION, _wrong_version(theirs, self._ours)
        if theirs.cluster_id not in (UNKNOWN_CLUSTER, self._ours.cluster_id):
            return Reason.CLUSTER, _wrong_cluster(theirs, self._ours)
        if theirs.role not in self._accepted_roles:
            return Reason.ROLE, WrongRole(
                f"a {role_name(theirs.role)} connected to a {role_name(self._ours.role)}, which "
                f"accepts only {', '.join(map(role_name, sorted(self._accepted_roles)))}"
            )
        level = Level.CLIENT if theirs.level == NAMED_CLIENT else theirs.level
        if not ROLE_LEVELS[Role(theirs.role)] <= level <= level_of(self._token):
            return Reason.LEVEL, WrongToken(_level_text(theirs, self._ours))
        self._level = Level(level)
        return None

    def _on_proof(self, message: bytes, theirs: Hello) -> bytes:
        _, kind, reason, mac = ANSWER.unpack_from(message)
        if kind != HandshakeKind.CLIENT_PROOF or reason != 0:
            raise HandshakeError(f"the client sent message kind {kind} where a proof was expected")
        if self._fault is not None:
            return self._reject(*self._fault)
        token = self._token
        if theirs.level == NAMED_CLIENT:
            self._user = message[ANSWER.size :].rstrip(b"\0").decode("ascii", "replace")
            if not is_user(self._user):
                raise HandshakeError("the client sent what cannot be the name of a user")
            token = with_user(token, self._user)
        key = _role_key(token, self._level, theirs.role)
        expected = self._proof(key, HandshakeKind.CLIENT_PROOF, theirs, self._ours)
        if not hmac.compare_digest(mac, expected):
            return self._reject(
                Reason.TOKEN,
                WrongToken(
                    f"a peer that claims to be a {role_name(theirs.role)} does not hold this "
                    f"cluster's token of role {level_name(theirs.level)}"
                    f"{f' {self._user}' if self._user else ''}: {self._token_source()}"
                ),
            )
        self._token = b""
        self.done = True
        return pack_answer(
            HandshakeKind.SERVER_PROOF,
            mac=self._proof(key, HandshakeKind.SERVER_PROOF, theirs, self._ours),
        )

    def _reject(self, reason: Reason, error: HandshakeError) -> bytes:
        self._token = b""
        self.error = error
        return pack_answer(HandshakeKind.REJECT, reason)

    def _on_eof(self) -> HandshakeError:
        if self._fault is not None:
            # The client saw the fault from our hello, and closed.
            return self._fault[1]
        if self._theirs is None:
            return HandshakeError(
                f"the client closed the connection {self._inbox.n_received} bytes into its hello"
            )
        return HandshakeError(
            "the client closed the connection before it proved that it holds the token"
        )
