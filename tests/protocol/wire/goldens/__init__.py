"""Recorded bytes of every message of protocol version 2, and of the handshake.

    python -m tests.protocol.wire.goldens --record

adds what is not recorded yet to `recorded.txt`: messages that are new, and those that have grown at
their end, whose older bytes stay. A message that has changed in another way would not be understood
by other versions of weft with this protocol version: it is refused, unless `--force` is given.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack

from tests.protocol.strategies import CLASSES, schema_names
from weft.protocol.wire.codec import WireState
from weft.protocol.wire.framing import FrameDecoder
from weft.protocol.wire.handshake import NONCE_BYTES, PROTOCOL_MAX, ClientHandshake, ServerHandshake
from weft.protocol.wire.handshake_messages import HandshakeKind, Reason, pack_answer
from weft.protocol.wire.message import Message
from weft.protocol.wire.payload import Payload
from weft.protocol.wire.roles import Role

FILE = Path(__file__).parent / "recorded.txt"

#: The values of a field, by its type. New fields must not change those of older ones.
VALUES: dict[str, Any] = {
    "Keys": ["a key", "schlüssel"],
    "Texts": ["tcp://127.0.0.1:8786", ""],
    "Ints": [1, 2**40],
    "Sizes": [1, 2**40],
    "Ids": [bytes(range(16)), bytes(16)],
    "Blobs": [b"a pickle", None],
    "KeyLists": [["a key", "another"], []],
    "Failures": [["cancelled", "a key", "why"], ["exception", "b", None, b"pickle", 1]],
    "Options": [{"priority": -3, "retries": 2}, {"workers": ["w"], "resources": {"GPU": 1.5}}],
    "Number": 2**33,
    "Text": "a text",
    "Flag": True,
    "Amounts": {"GPU": 1.5},
    "Facts": {"text": "a", "list": [1, 1.5, None, True]},
    "Info": {"workers": {"w": {"n": 1}}},
}
NUMBERS = (2**60, 3, 4, 5)


def sample(cls: type[Message], n_rows: int) -> Message:
    """Return a message with this number of rows in all columns and lists."""
    fields: dict[str, Any] = {}
    indexes = dict(cls._indexes)
    for name, kind in schema_names(cls).items():
        value = VALUES[kind]
        if name in indexes:
            value = [0, 1]
        if kind == "Blobs" and n_rows == 3:
            value = [Payload(b"stream", [b"buffer", b"another"]), None, b"plain"]
        elif type(value) is list and n_rows == 3:
            value = [*value, value[0]]
        fields[name] = value[:n_rows] if type(value) is list else value
    return cls(**fields)


def samples() -> Iterator[tuple[str, Message]]:
    """Yield the messages that are recorded, each with its name."""
    for cls in sorted(CLASSES, key=lambda cls: cls.code):
        yield f"{cls.code} {cls.__name__} empty", sample(cls, 0)
        yield f"{cls.code} {cls.__name__} one", sample(cls, 1)
        yield f"{cls.code} {cls.__name__} three", sample(cls, 3)


def encoded(message: Message) -> bytes:
    """Return the one frame of a message."""
    wire = WireState()
    wire.epoch, wire.session, seq, wire.seq_in = NUMBERS
    wire.seq_out = seq - 1
    (frame,) = wire.encode([message])
    return b"".join(bytes(part) for part in frame)


def decoded(data: bytes) -> Message:
    """Return the one message of a frame."""
    decoder = FrameDecoder()
    decoder.get_buffer(-1)[: len(data)] = data
    (frame,) = decoder.received(len(data))
    wire = WireState()
    wire.epoch, wire.session, seq, wire.seq_out = NUMBERS
    wire.seq_in = seq - 1
    (message,) = wire.decode(frame)
    assert wire.acked == NUMBERS[3]
    return message


def wire_of(data: bytes) -> list[Any]:
    """Return the fields of the recorded message, with its code."""
    decoder = FrameDecoder()
    decoder.get_buffer(-1)[: len(data)] = data
    (frame,) = decoder.received(len(data))
    wire: list[Any] = msgpack.unpackb(frame.payload, strict_map_key=False)[4][0]
    return wire


def handshake() -> Iterator[tuple[str, bytes]]:
    """Yield the messages of one handshake, and each reject."""
    token, cluster = b"a token of the recorded handshake", bytes(range(16))
    client = ClientHandshake(
        token, None, Role.CLIENT, Role.SCHEDULER, b"binding", b"c" * NONCE_BYTES
    )
    server = ServerHandshake(
        token, cluster, Role.SCHEDULER, [Role.CLIENT], b"binding", b"s" * NONCE_BYTES
    )
    server.start()
    hello = client.start()
    server_hello = server.feed(hello)
    proof = client.feed(server_hello)
    server_proof = server.feed(proof)
    client.feed(server_proof)
    assert client.done
    assert server.done
    assert client.version == PROTOCOL_MAX == 2
    yield "handshake client-hello", hello
    yield "handshake server-hello", server_hello
    yield "handshake client-proof", proof
    yield "handshake server-proof", server_proof
    for reason in Reason:
        yield (
            f"handshake reject-{reason.name.lower()}",
            pack_answer(HandshakeKind.REJECT, reason),
        )


def current() -> dict[str, bytes]:
    """Return what today's code sends, by name."""
    return {**dict(handshake()), **{name: encoded(message) for name, message in samples()}}


def recorded() -> dict[str, list[bytes]]:
    """Return what was recorded, by name: the bytes of each version that changed them, in order."""
    found: dict[str, list[bytes]] = {}
    for line in FILE.read_text().splitlines() if FILE.exists() else ():
        name, _, data = line.rpartition(" ")
        found.setdefault(name, []).append(bytes.fromhex(data))
    return found


def has_grown(old: bytes, new: bytes) -> bool:
    """Return whether a message has only got more fields at its end."""
    before, after = wire_of(old), wire_of(new)
    return len(before) < len(after) and after[: len(before)] == before


def record(*, force: bool) -> list[str]:
    """Record what is new or has grown; return the names of what has changed otherwise."""
    found = recorded()
    changed = []
    for name, data in current().items():
        lines = found.setdefault(name, [])
        if not lines:
            lines.append(data)
        elif data != lines[-1]:
            if not name.startswith("handshake") and has_grown(lines[-1], data):
                lines.append(data)
            elif force:
                lines[-1] = data
            else:
                changed.append(name)
    gone = [name for name in found if name not in current()]
    for name in gone:
        if force:
            del found[name]
        else:
            changed.append(name)
    if not changed:
        text = [f"{name} {data.hex()}\n" for name, lines in found.items() for data in lines]
        FILE.write_text("".join(text))
    return changed
