"""Two ends of a handshake, and bytes that are changed on their way."""

from __future__ import annotations

from weft.protocol.wire.handshake import NONCE_BYTES, ClientHandshake, ServerHandshake
from weft.protocol.wire.roles import Role

TOKEN = b"a token that the whole cluster knows"


CLUSTER = bytes(range(16))


BINDING = b"\x11" * 32
CLIENT_NONCE = b"c" * NONCE_BYTES
SERVER_NONCE = b"s" * NONCE_BYTES


# Offsets in a hello and in an answer.
KIND, PROTO_MIN, PROTO_MAX, ROLE, CLUSTER_ID = 4, 5, 7, 9, 10
REASON = 5


def client(
    token: bytes = TOKEN,
    cluster_id: bytes | None = CLUSTER,
    role: Role = Role.CLIENT,
    expected_server_role: Role = Role.SCHEDULER,
    channel_binding: bytes = BINDING,
    nonce: bytes = CLIENT_NONCE,
) -> ClientHandshake:
    return ClientHandshake(token, cluster_id, role, expected_server_role, channel_binding, nonce)


def server(
    token: bytes = TOKEN,
    cluster_id: bytes = CLUSTER,
    server_role: Role = Role.SCHEDULER,
    accepted_roles: tuple[Role, ...] = (Role.CLIENT, Role.WORKER, Role.SUPERVISOR),
    channel_binding: bytes = BINDING,
    nonce: bytes = SERVER_NONCE,
) -> ServerHandshake:
    return ServerHandshake(token, cluster_id, server_role, accepted_roles, channel_binding, nonce)


def patched(message: bytes, offset: int, new: bytes) -> bytes:
    return message[:offset] + new + message[offset + len(new) :]


def run_to_answer(c: ClientHandshake, s: ServerHandshake) -> bytes:
    """Exchange everything up to the server's answer, and return that."""
    s.start()
    return s.feed(c.feed(s.feed(c.start())))


def server_hello_bytes() -> bytes:
    s = server()
    s.start()
    return s.feed(client().start())
