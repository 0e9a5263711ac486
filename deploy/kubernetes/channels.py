"""A forwarded port on a websocket of Kubernetes: frames of `v4.channel.k8s.io`. Pure.

Of the one port of a connection, channel 0 has the data and channel 1 the reason for which it
failed. The first message of each channel is the number of the port.
"""

from __future__ import annotations

from typing import Final

#: Frames larger than this are not ones of port forwarding.
MAX_FRAME_BYTES: Final = 1 << 26

_CONTINUATION, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
_DATA, _ERROR = 0, 1
#: An unmasked frame begins with 2 bytes, or with 2 or 8 more if its length needs them.
_HEADER_BYTES: Final = {126: 4, 127: 10}
_MASK: Final = 0x80


class NotForwarding(Exception):
    """The other end sent what has no meaning on a forwarded port."""


class Channels:
    """The receiving end of one connection.

    Attributes:
        has_ended: no data follows.
        failure: the reason that the other end gave for the end, "" if it gave none.
        pings: payloads of pings that are to be answered.
    """

    def __init__(self) -> None:
        self.has_ended = False
        self.failure = ""
        self.pings: list[bytes] = []
        self._received = bytearray()
        #: The message whose last frame has not arrived.
        self._message = bytearray()
        self._is_in_message = False
        self._begun: set[int] = set()

    def receive(self, received: bytes) -> bytes:
        """Take what the websocket received; return the data of the port that it completes.

        Raises:
            NotForwarding: it cannot be understood.
        """
        self._received += received
        data = bytearray()
        while not self.has_ended and (frame := self._next_frame()) is not None:
            is_last, opcode, payload = frame
            if opcode == _CLOSE:
                self.has_ended = True
                if not self.failure and len(payload) > 2:
                    self.failure = payload[2:].decode("utf-8", "replace")
            elif opcode == _PING:
                self.pings.append(payload)
            elif opcode in (_CONTINUATION, _TEXT, _BINARY):
                if (opcode == _CONTINUATION) != self._is_in_message:
                    raise NotForwarding("a message begins within another one")
                self._message += payload
                self._is_in_message = not is_last
                if is_last:
                    data += self._take_message(bytes(self._message))
                    self._message.clear()
            elif opcode != _PONG:
                raise NotForwarding(f"a frame of the unknown kind {opcode}")
        return bytes(data)

    def _next_frame(self) -> tuple[bool, int, bytes] | None:
        received = self._received
        if len(received) < 2:
            return None
        if received[1] & _MASK:
            raise NotForwarding("a frame that only a client sends")
        length = received[1]
        start = _HEADER_BYTES.get(length, 2)
        if len(received) < start:
            return None
        if start > 2:
            length = int.from_bytes(received[2:start], "big")
        if length + len(self._message) > MAX_FRAME_BYTES:
            raise NotForwarding(f"a frame of {length} bytes")
        if len(received) < start + length:
            return None
        payload = bytes(received[start : start + length])
        first = received[0]
        del received[: start + length]
        return bool(first & 0x80), first & 0x0F, payload

    def _take_message(self, message: bytes) -> bytes:
        if not message:
            return b""
        channel, content = message[0], message[1:]
        if channel not in (_DATA, _ERROR):
            raise NotForwarding(f"a message of the unknown channel {channel}")
        if channel not in self._begun:
            self._begun.add(channel)  # the content is the number of the port
            return b""
        if channel == _DATA:
            return content
        self.failure += content.decode("utf-8", "replace")
        self.has_ended = True
        return b""


def data_frame(data: bytes, mask: bytes) -> bytes:
    """Return the frame with data for the port; `mask` is 4 bytes at random."""
    return _frame(_BINARY, bytes((_DATA,)) + data, mask)


def pong_frame(payload: bytes, mask: bytes) -> bytes:
    """Return the answer to a ping."""
    return _frame(_PONG, payload, mask)


def close_frame(mask: bytes) -> bytes:
    """Return the frame that ends the connection, without a failure."""
    return _frame(_CLOSE, (1000).to_bytes(2, "big"), mask)


def _frame(opcode: int, payload: bytes, mask: bytes) -> bytes:
    n = len(payload)
    if n < 126:
        length = bytes((_MASK | n,))
    elif n < 1 << 16:
        length = bytes((_MASK | 126,)) + n.to_bytes(2, "big")
    else:
        length = bytes((_MASK | 127,)) + n.to_bytes(8, "big")
    # One operation on a large number: many times as fast as one on each byte.
    key = int.from_bytes((mask * (n // 4 + 1))[:n], "big")
    masked = (int.from_bytes(payload, "big") ^ key).to_bytes(n, "big")
    return bytes((0x80 | opcode,)) + length + mask + masked
