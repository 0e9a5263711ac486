"""Frames on a byte stream: cut it into frames, and make frame headers. Sans-IO.

A frame is, in this order:

    magic "WFr1" | payload length u32 | number of buffers u32     (big endian, 12 bytes)
    the length of each buffer, u64
    the payload (one MessagePack value, see wire.py; opaque here)
    the buffers, one after the other

Owns this layout and the limits on it. It never reads a socket or a clock, never decodes a payload,
and never joins or copies a large buffer: `FrameDecoder` has the shape of asyncio's
`BufferedProtocol`, so the shell receives a large buffer straight into the memory that its
consumer will see (pickle protocol 5's out-of-band idea, as in distributed and Ray). Everything
small goes through memory that is reused: a hundred small frames cost one system call.

Every length is checked against `FrameLimits` before anything of that size is allocated.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from ..errors import RemoteProtocolError

MAGIC: Final = b"WFr1"
_HEADER: Final = struct.Struct(">4sII")

#: Small things are received into memory of this size. More gains nothing: the kernel rarely has
#: more at once.
MEMORY_BYTES: Final = 256 << 10
#: From this size on a part that is not complete gets memory of its own and is received in place.
#: A smaller part is copied, which costs less (some µs) than the system call that it saves.
_IN_PLACE_BYTES: Final = 64 << 10

#: A part that is received in place gets at most this much memory at first, and then twice what has
#: arrived, so that a peer cannot take memory by announcing a length.
_FIRST_BYTES: Final = 1 << 20

#: From this size on a part gets memory of `new_buffer`.
LARGE_NBYTES: Final = 8 << 20

_HEADER_PART, _LENGTHS_PART, _PAYLOAD_PART, _BUFFER_PART = range(4)
_NOTHING: Final = memoryview(b"")


@dataclass(frozen=True)
class FrameLimits:
    """The limits of what a peer may announce in one frame; above them is a `RemoteProtocolError`.

    Args:
        payload: bytes of the payload.
        buffer: bytes of one buffer.
        buffers: number of buffers.
        total: bytes of all buffers together.
    """

    payload: int = 16 << 20
    buffer: int = 4 << 30
    buffers: int = 1 << 16
    total: int = 4 << 30


class Frame(NamedTuple):
    """One whole frame.

    The payload may lie in the decoder's reusable memory: it is valid only until the next
    `get_buffer`, so decode it at once. The buffers belong to the caller.
    """

    payload: memoryview
    buffers: list[bytearray | memoryview]


def frame_header(payload_nbytes: int, buffer_nbytes: Sequence[int] = ()) -> bytes:
    """Return the header of a frame: the fixed part and the lengths of the buffers."""
    n = len(buffer_nbytes)
    head = _HEADER.pack(MAGIC, payload_nbytes, n)
    return head + struct.pack(f">{n}Q", *buffer_nbytes) if n else head


class FrameDecoder:
    """Cuts a byte stream into frames.

        while True:
            n = sock.recv_into(decoder.get_buffer(-1))
            for frame in decoder.received(n):
                ...

    After a `RemoteProtocolError` the rest of the stream cannot be read: `failed` is set, and every
    further `received` raises the same error.

    Args:
        limits: of the frames that the peer may announce.
        memory: buffer for small parts, at least 128 KiB; None = memory of its own.
            Decoders may share it if each `get_buffer` is followed by its `received` before another
            decoder's, as in one event loop: then an idle connection costs no memory.
        new_buffer: returns memory for parts from `LARGE_NBYTES` on, which is not really taken
            before it is written to; None = these are `bytearray`s, too.
    """

    __slots__ = (
        "_awaited",
        "_buffers",
        "_lengths",
        "_limits",
        "_memory",
        "_missing",
        "_new_buffer",
        "_open_nbytes",
        "_part",
        "_payload",
        "_payload_nbytes",
        "_rest",
        "_want",
        "failed",
        "held",
    )

    def __init__(
        self,
        limits: FrameLimits | None = None,
        memory: bytearray | memoryview | None = None,
        new_buffer: Callable[[int], memoryview] | None = None,
    ) -> None:
        self._limits = limits or FrameLimits()
        self._new_buffer = new_buffer
        self._memory = memoryview(bytearray(MEMORY_BYTES) if memory is None else memory)
        assert self._memory.nbytes >= 2 * _IN_PLACE_BYTES
        #: The part that is awaited now, and its size.
        self._awaited = _HEADER_PART
        self._want = _HEADER.size
        #: The beginning of it, if it is small. len(_rest) < _want, and < _IN_PLACE_BYTES.
        self._rest = b""
        #: Its own memory, if it is large, and the part of that which is still to be received.
        self._part: bytearray | memoryview | None = None
        #: How much of that may be received into by now.
        self._open_nbytes = 0
        self._missing = _NOTHING
        #: Parts of the current frame.
        self._payload_nbytes = 0
        self._lengths: tuple[int, ...] = ()
        self._payload = _NOTHING
        self._buffers: list[bytearray | memoryview] = []
        #: Bytes of memory that the current frame takes: its buffers so far and `_part`.
        self.held = 0
        #: Set once, when the stream broke the rules.
        self.failed: RemoteProtocolError | None = None

    def use_memory(self, memory: memoryview) -> None:
        """Use other memory for small parts from the next `get_buffer` on."""
        assert memory.nbytes >= 2 * _IN_PLACE_BYTES
        self._memory = memory

    @property
    def half_received(self) -> bool:
        """True while a frame has begun and is not complete, so that bytes of it must follow."""
        return self._awaited != _HEADER_PART or len(self._rest) > 0

    @property
    def next_nbytes(self) -> int:
        """The number of bytes that the next `get_buffer` takes beside `held`."""
        if self._part is None or self._missing:
            return 0
        n = self._open_nbytes
        return min(n, self._want - n)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return a non-empty buffer to receive into. Payloads of earlier frames become invalid."""
        if self._part is not None:
            if not self._missing:
                self._grow(self._part)
            return self._missing
        rest = self._rest
        if not rest:
            return self._memory
        n = len(rest)
        # _rest stays until bytes arrive: another decoder may use the shared memory first.
        self._memory[:n] = rest
        return self._memory[n:]

    def received(self, nbytes: int) -> Iterator[Frame]:
        """Handle `nbytes` in the buffer of the last `get_buffer`; yield the frames now complete.

        Exhaust the iterator before the next `get_buffer`.

        Raises:
            RemoteProtocolError: not a frame, or one beyond the limits; nothing was allocated.
        """
        if self.failed is not None:
            raise self.failed
        memory = self._memory
        start = end = 0
        try:
            if self._part is not None:
                self._missing = self._missing[nbytes:]
                if self._missing or self._open_nbytes < self._want:
                    return
                part, self._part = self._part, None
                self._missing = _NOTHING
                frame = self._on_part(part, memoryview(part))
                if frame is not None:
                    yield frame
            else:
                end = len(self._rest) + nbytes
                self._rest = b""
            while end - start >= (want := self._want):
                if self._awaited != _HEADER_PART:
                    frame = self._on_part(None, memory[start : start + want])
                    start += want
                    if frame is not None:
                        yield frame
                    continue
                self._on_header(*_HEADER.unpack_from(memory, start))
                start += want
                stop = start + self._want
                if self._awaited == _PAYLOAD_PART and stop <= end:
                    # A whole frame without buffers, as most are.
                    self._awaited, self._want = _HEADER_PART, _HEADER.size
                    yield Frame(memory[start:stop], [])
                    start = stop
        except RemoteProtocolError as error:
            self.failed = error
            raise
        if self._awaited == _BUFFER_PART and self._payload.obj is memory.obj:
            # The frame's buffers are still to come, and this memory will be used for them.
            self._payload = memoryview(bytes(self._payload))
        if self._want >= _IN_PLACE_BYTES:
            # A size that reaches the wanted one by doubling, with next to nothing left over.
            doublings = max(0, (self._want - 1).bit_length() - _FIRST_BYTES.bit_length() + 1)
            self._open_nbytes = -(-self._want >> doublings)
            self._part = self._large_part() or bytearray(self._open_nbytes)
            self.held += self._open_nbytes
            self._missing = memoryview(self._part)[: self._open_nbytes]
            self._missing[: end - start] = memory[start:end]
            self._missing = self._missing[end - start :]
        elif end > start:
            self._rest = bytes(memory[start:end])

    def _large_part(self) -> memoryview | None:
        """Return memory for the whole part, if it is large and there is such memory."""
        if self._new_buffer is None or self._want < LARGE_NBYTES:
            return None
        try:
            return self._new_buffer(self._want)
        except MemoryError:  # there may be less, which the part may never need
            return None

    def _grow(self, part: bytearray | memoryview) -> None:
        """Double the memory of the awaited part, all of which is filled."""
        n = self._open_nbytes
        self._missing = _NOTHING
        if isinstance(part, memoryview):
            self._open_nbytes = min(2 * n, self._want)
            self.held += self._open_nbytes - n
            self._missing = part[n : self._open_nbytes]
            return
        try:
            try:
                part *= 2
            except BufferError:
                # A view that an earlier `get_buffer` returned is still in use.
                part = part * 2
            del part[self._want :]
        except MemoryError:
            self._part = None
            self.failed = RemoteProtocolError(f"no memory for {self._want} bytes of a frame")
            self._missing = self._memory
            return
        self._part = part
        self._open_nbytes = len(part)
        self.held += len(part) - n
        self._missing = memoryview(part)[n:]

    def _on_part(self, own: bytearray | memoryview | None, view: memoryview) -> Frame | None:
        """Take the awaited part, which is complete, and decide which part is next."""
        awaited = self._awaited
        if awaited == _LENGTHS_PART:
            self._on_lengths(view)
            return None
        if awaited == _PAYLOAD_PART:
            self._payload = view
        elif own is None:
            self._buffers.append(bytearray(view))
            self.held += len(view)
        else:
            self._buffers.append(own)
        n = len(self._buffers)
        if n < len(self._lengths):
            self._awaited, self._want = _BUFFER_PART, self._lengths[n]
            return None
        frame = Frame(self._payload, self._buffers)
        self._awaited, self._want = _HEADER_PART, _HEADER.size
        self._payload = _NOTHING
        self._lengths = ()
        self._buffers = []
        self.held = 0
        return frame

    def _on_header(self, magic: bytes, payload: int, n_buffers: int) -> None:
        limits = self._limits
        if magic != MAGIC:
            raise RemoteProtocolError(f"a frame began with {magic!r}")
        if payload > limits.payload:
            raise RemoteProtocolError(
                f"a payload of {payload} bytes was announced, the limit is {limits.payload}"
            )
        if n_buffers > limits.buffers:
            raise RemoteProtocolError(
                f"{n_buffers} buffers were announced, the limit is {limits.buffers}"
            )
        if n_buffers:
            self._payload_nbytes = payload
            self._awaited, self._want = _LENGTHS_PART, 8 * n_buffers
        else:
            self._awaited, self._want = _PAYLOAD_PART, payload

    def _on_lengths(self, view: memoryview) -> None:
        lengths: tuple[int, ...] = struct.unpack(f">{view.nbytes // 8}Q", view)
        limits = self._limits
        if max(lengths) > limits.buffer or sum(lengths) > limits.total:
            raise RemoteProtocolError(
                f"buffers of {sum(lengths)} bytes, the largest {max(lengths)}, were announced; the "
                f"limits are {limits.total} and {limits.buffer}"
            )
        self._lengths = lengths
        self._awaited, self._want = _PAYLOAD_PART, self._payload_nbytes
