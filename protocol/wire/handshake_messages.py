"""The layout of the handshake's four fixed-size messages.

Owns the numbers on the wire (magic, kinds, reasons, versions), how a hello and an answer
become bytes and back, and `Inbox`, which collects one message of a known size. Only `handshake`
imports it, and exports the sizes that others use.

It must never parse anything of variable size, and decides only whether bytes are such a message.
"""

from __future__ import annotations

import enum
import struct
from typing import Final, NamedTuple

from ..errors import HandshakeError, LocalProtocolError
from .levels import MAX_USER_CHARS, Level
from .roles import Role

#: The oldest and the newest protocol version of this code.
PROTOCOL_MIN: Final = 2
PROTOCOL_MAX: Final = 2

NONCE_BYTES: Final = 32
CLUSTER_ID_BYTES: Final = 16

_MAGIC: Final = b"WEFT"
UNKNOWN_CLUSTER: Final = bytes(CLUSTER_ID_BYTES)

# These two layouts never change, because they carry the versions.
# Hello: magic, kind, proto_min, proto_max, level and role, cluster_id, nonce. The level of the
# token has the high four bits: 0 in a server's hello, and in that of a client of version 1.
HELLO: Final = struct.Struct(f">4sBHHB{CLUSTER_ID_BYTES}s{NONCE_BYTES}s")
# Answer: magic, kind, reason (0 in a proof), HMAC (zeros in a reject). A proof and a reject have
# one size, so that the reader knows how much to read before it knows which of them it gets.
ANSWER: Final = struct.Struct(">4sBB32s")

_LEVEL_SHIFT: Final = 4

#: In the place of a level: the token of a client that carries a user. The name of the user follows
#: the client's proof, filled up with zeros.
NAMED_CLIENT: Final = 5
USER: Final = struct.Struct(f">{MAX_USER_CHARS}s")

#: All that a server reads from an unproved peer: one hello, one proof and one name.
PREAUTH_BYTES: Final = HELLO.size + ANSWER.size + USER.size


class HandshakeKind(enum.IntEnum):
    """The kind of a message. Its numbers are on the wire and never reused."""

    CLIENT_HELLO = 1
    SERVER_HELLO = 2
    CLIENT_PROOF = 3
    SERVER_PROOF = 4
    REJECT = 5


class Reason(enum.IntEnum):
    """The reason of a reject. The numbers are on the wire and never reused."""

    VERSION = 1
    CLUSTER = 2
    ROLE = 3
    TOKEN = 4
    LEVEL = 5


class Hello(NamedTuple):
    """The claims of one end, not yet proved."""

    #: The bytes on the wire, over which the proofs are made.
    raw: bytes
    proto_min: int
    proto_max: int
    #: Not a `Role`: a newer peer may have one that we do not know.
    role: int
    #: Not a `Level`, for the same reason; 0 = none.
    level: int
    cluster_id: bytes


class Inbox:
    """Collects one fixed-size message at a time, and refuses it at its first wrong byte.

    Early refusal is a convenience: a user who enters the address of an HTTP port, or forgets
    `tls://`, gets the error at once and not after the handshake's deadline.
    """

    __slots__ = ("_data", "_size")

    def __init__(self) -> None:
        #: Received bytes of the current message. len(_data) <= _size; empty between messages.
        self._data = bytearray()
        #: Size of the current message, 0 when none is expected.
        self._size = 0

    def expect(self, size: int) -> None:
        """Collect a message of `size` bytes next; the one before must be whole."""
        assert not self._data
        self._size = size

    @property
    def bytes_wanted(self) -> int:
        """The number of bytes that the current message still lacks."""
        return self._size - len(self._data)

    @property
    def n_received(self) -> int:
        """The number of bytes of the current message that have arrived."""
        return len(self._data)

    def feed(self, data: bytes | bytearray | memoryview) -> bytes | None:
        """Take `data`; return the message once it is whole."""
        nbytes = data.nbytes if isinstance(data, memoryview) else len(data)
        if nbytes > self.bytes_wanted:
            raise LocalProtocolError(
                f"{nbytes} bytes were fed to a handshake that wanted {self.bytes_wanted}"
            )
        if not nbytes:
            return None
        self._data += data
        head = bytes(self._data[: len(_MAGIC)])
        if not _MAGIC.startswith(head):
            raise HandshakeError(f"the peer does not speak weft{_guess_protocol(head)}")
        if self.bytes_wanted:
            return None
        message = bytes(self._data)
        self._data.clear()
        self._size = 0
        return message


def _guess_protocol(head: bytes) -> str:
    if head.startswith((b"\x16\x03", b"\x15\x03")):
        return ": it speaks TLS on a connection without; use a tls:// address"
    if head in (b"GET ", b"POST", b"HEAD", b"PUT ", b"HTTP", b"OPTI", b"PRI "):
        return ": it speaks HTTP; the dashboard has an address of its own"
    return f": it began with {head!r}"


def pack_hello(
    kind: HandshakeKind, role: Role, level: int, cluster_id: bytes, nonce: bytes
) -> Hello:
    """Make our own hello, with the versions that this code speaks."""
    if len(nonce) != NONCE_BYTES:
        raise LocalProtocolError(f"a nonce has {NONCE_BYTES} bytes, not {len(nonce)}")
    if len(cluster_id) != CLUSTER_ID_BYTES:
        raise LocalProtocolError(
            f"a cluster id has {CLUSTER_ID_BYTES} bytes, not {len(cluster_id)}"
        )
    both = level << _LEVEL_SHIFT | role
    raw = HELLO.pack(_MAGIC, kind, PROTOCOL_MIN, PROTOCOL_MAX, both, cluster_id, nonce)
    return Hello(raw, PROTOCOL_MIN, PROTOCOL_MAX, role, level, cluster_id)


def unpack_hello(raw: bytes, expected: HandshakeKind) -> Hello:
    """Read a peer's hello, whose size and magic `Inbox` has checked."""
    _, kind, proto_min, proto_max, both, cluster_id, _ = HELLO.unpack(raw)
    if kind != expected:
        raise HandshakeError(f"the peer sent message kind {kind} where a hello was expected")
    if not 1 <= proto_min <= proto_max:
        raise HandshakeError(f"the peer sent an empty version range, {proto_min} to {proto_max}")
    level, role = divmod(both, 1 << _LEVEL_SHIFT)
    return Hello(raw, proto_min, proto_max, role, level, cluster_id)


def pack_answer(kind: HandshakeKind, reason: int = 0, mac: bytes = b"") -> bytes:
    """Make a proof (with its HMAC) or a reject (with its reason)."""
    return ANSWER.pack(_MAGIC, kind, reason, mac)


def common_version(a: Hello, b: Hello) -> int | None:
    """The highest version that both speak, None if there is none."""
    version = min(a.proto_max, b.proto_max)
    return version if version >= max(a.proto_min, b.proto_min) else None


def role_name(role: int) -> str:
    """Return the name of a role for display; a newer peer may have one that we do not know."""
    try:
        return Role(role).name.lower()
    except ValueError:
        return f"unknown role {role}"


def level_name(level: int) -> str:
    """Return the name of a token's level for display; a newer peer may have one of its own."""
    if level == NAMED_CLIENT:
        return "client with a user"
    try:
        return Level(level).label
    except ValueError:
        return f"unknown level {level}"
