"""Messages sent and received, and frames with wrong contents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgpack

from weft.protocol.wire.codec import (
    WireState,
)
from weft.protocol.wire.framing import Frame, FrameDecoder, FrameLimits
from weft.protocol.wire.message import Message
from weft.protocol.wire.messages import (
    KeysData,
)
from weft.protocol.wire.payload import Blob, Buffer, Payload


def received(frames: Sequence[Sequence[Buffer]]) -> list[Frame]:
    """The messages that a decoder makes of these frames, with payloads that stay valid."""
    decoder = FrameDecoder()
    result = []
    for frame in frames:
        rest = memoryview(b"".join(frame))
        while rest:
            buffer = decoder.get_buffer(-1)
            n = min(len(buffer), len(rest))
            buffer[:n] = rest[:n]
            rest = rest[n:]
            for payload, buffers in decoder.received(n):
                result.append(Frame(memoryview(bytes(payload)), buffers))
    assert len(result) == len(frames)
    return result


def exchange(messages: Sequence[Message], limits: FrameLimits | None = None) -> list[Message]:
    """The messages that arrive when `messages` are sent."""
    sender, receiver = WireState(limits or FrameLimits()), WireState()
    frames = sender.encode(messages)
    arrived = [m for frame in received(frames) for m in receiver.decode(frame)]
    assert receiver.seq_in == sender.seq_out == len(frames)
    return arrived


def normal(value: Any) -> Any:
    """A value as it arrives: a small payload without buffers is plain bytes on the other side."""
    if isinstance(value, Payload):
        buffers = [bytes(b) for b in value.buffers]
        return (bytes(value.data), buffers) if buffers else bytes(value.data)
    return [normal(item) for item in value] if isinstance(value, list) else value


def fields(message: Message) -> list[Any]:
    return [normal(value) for value in message.to_wire()]


def results(*blobs: Blob | None) -> KeysData:
    keys = [f"k{i}" for i in range(len(blobs))]
    return KeysData(request=1, keys=keys, results=list(blobs), missing=[])


def envelope(*messages: Any, numbers: Sequence[Any] = (0, 0, 1, 0)) -> bytes:
    packed: bytes = msgpack.packb([*numbers, list(messages)])
    return packed
