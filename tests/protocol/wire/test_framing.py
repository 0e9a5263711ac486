"""Frames come out as they went in, however the stream is cut, and nothing large is copied."""

from __future__ import annotations

import mmap
import random
import struct
import sys
import tracemalloc
from collections.abc import Callable, Iterable

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.protocol.errors import RemoteProtocolError
from weft.protocol.host.buffers import new_buffer
from weft.protocol.wire import framing
from weft.protocol.wire.framing import (
    MAGIC,
    MEMORY_BYTES,
    Frame,
    FrameDecoder,
    FrameLimits,
    frame_header,
)

Parts = tuple[bytes, list[bytes]]


def encode(frames: Iterable[Parts]) -> bytes:
    return b"".join(
        frame_header(len(payload), [len(b) for b in buffers]) + payload + b"".join(buffers)
        for payload, buffers in frames
    )


class Feeder:
    """Feeds a decoder as a socket would, and copies payloads as long as they are valid."""

    def __init__(self, decoder: FrameDecoder) -> None:
        self.decoder = decoder
        self.frames: list[Parts] = []

    def feed(self, data: bytes, most: int | None = None) -> None:
        rest = memoryview(data)
        while rest:
            buffer = self.decoder.get_buffer(-1)
            assert len(buffer) > 0
            n = min(len(buffer), len(rest), most or len(rest))
            buffer[:n] = rest[:n]
            rest = rest[n:]
            for payload, buffers in self.decoder.received(n):
                self.frames.append((bytes(payload), [bytes(b) for b in buffers]))


SMALL: list[Parts] = [
    (b"", []),
    (b"payload", []),
    (b"", [b""]),
    (b"p", [b"buffer", b"", b"b"]),
    (b"last", []),
]


def test_small_stream_survives_every_pair_of_cuts() -> None:
    stream = encode(SMALL)
    for first in range(len(stream) + 1):
        for second in range(first, len(stream) + 1):
            feeder = Feeder(FrameDecoder())
            feeder.feed(stream[:first])
            feeder.feed(stream[first:second])
            feeder.feed(stream[second:])
            assert feeder.frames == SMALL
            assert not feeder.decoder.half_received


def test_frame_is_half_received_from_its_first_byte_to_its_last() -> None:
    stream = encode([(b"payload", [b"buffer", b"other"])])
    feeder = Feeder(FrameDecoder())
    assert not feeder.decoder.half_received
    for i in range(len(stream) - 1):
        feeder.feed(stream[i : i + 1])
        assert feeder.decoder.half_received
    feeder.feed(stream[-1:])
    assert not feeder.decoder.half_received
    assert len(feeder.frames) == 1


# Around the sizes at which memory changes hands: 64 KiB in place, 256 KiB of reused memory.
_sizes = st.one_of(
    st.integers(0, 100),
    st.sampled_from(
        [edge + d for edge in (64 << 10, 128 << 10, 256 << 10) for d in (-13, -12, -1, 0, 1, 12)]
    ),
    st.integers(0, 300_000),
)


def _content(size: int, salt: int) -> bytes:
    return bytes(range(salt % 251, 256)) * (size // (256 - salt % 251) + 1)


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.tuples(_sizes, st.lists(_sizes, max_size=4)), max_size=4),
    cuts=st.lists(st.one_of(st.integers(1, 40), _sizes.filter(bool)), min_size=1, max_size=8),
    new_buffer=st.sampled_from([None, new_buffer]),
)
def test_stream_survives_any_cuts(
    sizes: list[tuple[int, list[int]]],
    cuts: list[int],
    new_buffer: Callable[[int], memoryview] | None,
) -> None:
    frames = [
        (_content(n, i)[:n], [_content(m, i + j)[:m] for j, m in enumerate(ms)])
        for i, (n, ms) in enumerate(sizes)
    ]
    stream = encode(frames)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(framing, "LARGE_NBYTES", 70_000)
        feeder = _feed_in_pieces(FrameDecoder(new_buffer=new_buffer), stream, cuts)
    assert feeder.frames == frames
    assert not feeder.decoder.half_received
    assert feeder.decoder.held == 0


def _feed_in_pieces(decoder: FrameDecoder, stream: bytes, cuts: list[int]) -> Feeder:
    feeder = Feeder(decoder)
    position = i = 0
    while position < len(stream):
        # Tiny pieces for a while, then large ones, or a run of a hundred thousand would take long.
        n = cuts[i % len(cuts)] if i < 200 else max(cuts) + 10_000
        feeder.feed(stream[position : position + n])
        position += n
        i += 1
    return feeder


def test_decoders_that_share_memory_do_not_disturb_each_other() -> None:
    memory = bytearray(MEMORY_BYTES)
    frames = [
        [(bytes([65 + i]) * 30_000, [bytes([97 + i]) * 40_000, bytes([i]) * 100_000])] * 2
        for i in range(3)
    ]
    feeders = [Feeder(FrameDecoder(memory=memory)) for _ in frames]
    streams = [encode(f) for f in frames]
    for position in range(0, len(streams[0]), 7_001):
        for feeder in feeders:
            # A wake-up without data, as when a read would block.
            feeder.decoder.get_buffer(-1)
        for feeder, stream in zip(feeders, streams, strict=True):
            feeder.feed(stream[position : position + 7_001])
    assert [feeder.frames for feeder in feeders] == frames


def test_large_buffer_is_received_where_its_consumer_sees_it() -> None:
    size = 1 << 20
    decoder = FrameDecoder()
    head = frame_header(3, [size, 10]) + b"abc"
    decoder.get_buffer(-1)[: len(head)] = head
    assert list(decoder.received(len(head))) == []
    target = decoder.get_buffer(-1).obj
    for _ in range(4):
        view = decoder.get_buffer(-1)
        assert view.obj is target
        view[: size // 4] = b"x" * (size // 4)
        assert list(decoder.received(size // 4)) == []
    decoder.get_buffer(-1)[:10] = b"0123456789"
    (frame,) = decoder.received(10)
    assert frame.buffers[0] is target
    assert bytes(frame.payload) == b"abc"
    assert frame.buffers == [bytearray(b"x" * size), bytearray(b"0123456789")]


def test_large_buffer_takes_no_more_memory_than_its_size() -> None:
    size = 32 << 20
    decoder = FrameDecoder()
    head = frame_header(0, [size])
    decoder.get_buffer(-1)[: len(head)] = head
    tracemalloc.start()
    try:
        assert list(decoder.received(len(head))) == []
        frames: list[Frame] = []
        while size:
            n = len(decoder.get_buffer(-1)[: 1 << 20])
            frames += decoder.received(n)
            size -= n
        assert len(frames) == 1
        assert tracemalloc.get_traced_memory()[1] < (32 << 20) + (64 << 10)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("sizes", [[4 << 30], []], ids=["buffer", "payload"])
def test_announced_data_takes_no_memory_before_it_arrives(sizes: list[int]) -> None:
    feeder = Feeder(FrameDecoder())
    tracemalloc.start()
    try:
        feeder.feed(frame_header(0 if sizes else 16 << 20, sizes))
        assert tracemalloc.get_traced_memory()[1] < (1 << 20) + (64 << 10)
        block = bytes(1 << 20)
        for n in range(1, 12):
            feeder.feed(block)
            assert tracemalloc.get_traced_memory()[1] < (2 * n + 2) << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("size", [(1 << 20) - 1, (1 << 20) + 1, 3_000_001, 5 << 20])
@pytest.mark.parametrize("keeps_views", [False, True])
def test_large_part_is_whole_however_its_memory_grew(size: int, keeps_views: bool) -> None:
    data = random.Random(size).randbytes(size)
    decoder = FrameDecoder()
    rest = memoryview(encode([(data, [data, b"end"]), (b"next", [])]))
    views = []
    frames = []
    while rest:
        view = decoder.get_buffer(-1)
        if keeps_views:
            # A transport that still refers to the buffer: then its memory cannot be enlarged.
            views.append(view)
        n = min(len(view), len(rest), 300_000)
        view[:n] = rest[:n]
        rest = rest[n:]
        del view
        frames += [(bytes(payload), buffers) for payload, buffers in decoder.received(n)]
    assert frames == [(data, [bytearray(data), bytearray(b"end")]), (b"next", [])]
    assert [type(buffer) for buffer in frames[0][1]] == [bytearray, bytearray]


def test_large_buffer_of_mapped_memory_takes_what_has_arrived() -> None:
    decoder = FrameDecoder(new_buffer=new_buffer)
    feeder = Feeder(decoder)
    before = psutil.Process().memory_info().rss
    feeder.feed(frame_header(0, [3 << 30]))
    block = bytes(1 << 20)
    for n in range(1, 24):
        assert decoder.held + decoder.next_nbytes <= (4 * n) << 20
        feeder.feed(block)
        assert n << 20 <= decoder.held <= (2 * n + 2) << 20
    assert psutil.Process().memory_info().rss - before < 100 << 20


def test_large_buffer_of_mapped_memory_is_received_where_its_consumer_sees_it() -> None:
    data = random.Random(1).randbytes(framing.LARGE_NBYTES + 1)
    decoder = FrameDecoder(new_buffer=new_buffer)
    rest = memoryview(encode([(b"payload", [data, b"end"])]))
    found = []
    while rest:
        view = decoder.get_buffer(-1)
        n = min(len(view), len(rest))
        view[:n] = rest[:n]
        rest = rest[n:]
        found += [frame.buffers for frame in decoder.received(n)]
    ((large, small),) = found
    assert isinstance(large, memoryview)
    assert isinstance(large.obj, mmap.mmap)
    assert not large.readonly
    assert (bytes(large), bytes(small)) == (data, b"end")


def test_large_buffer_is_received_where_there_is_no_mapped_memory() -> None:
    def refuse(nbytes: int) -> memoryview:
        raise MemoryError(nbytes)

    data = random.Random(2).randbytes(framing.LARGE_NBYTES)
    feeder = Feeder(FrameDecoder(new_buffer=refuse))
    feeder.feed(encode([(b"", [data])]))
    assert feeder.frames == [(b"", [data])]


LIMITS = FrameLimits(payload=1000, buffer=2000, buffers=3, total=5000)


@pytest.mark.parametrize(
    ("header", "text"),
    [
        (b"HTTP/1.1 200 OK", "began with b'HTTP'"),
        (MAGIC + b"\xff" * 8, "payload of 4294967295 bytes"),
        (frame_header(1001), "payload of 1001 bytes"),
        (struct.pack(">4sII", MAGIC, 0, 4), "4 buffers were announced"),
        (struct.pack(">4sII", MAGIC, 0, 2**32 - 1), "4294967295 buffers"),
        (frame_header(1, [2001]), "the largest 2001"),
        (frame_header(1, [2**64 - 1]), "the largest 18446744073709551615"),
        (frame_header(1, [2**64 - 1] * 3), "the limits are 5000 and 2000"),
        (frame_header(1, [1700, 1700, 1700]), "buffers of 5100 bytes"),
    ],
)
def test_breach_of_a_limit_is_refused_before_anything_is_allocated(
    header: bytes, text: str
) -> None:
    feeder = Feeder(FrameDecoder(LIMITS))
    tracemalloc.start()
    try:
        with pytest.raises(RemoteProtocolError, match=text):
            feeder.feed(header)
        assert tracemalloc.get_traced_memory()[1] < 64 << 10
    finally:
        tracemalloc.stop()
    # The stream has no meaning any more.
    with pytest.raises(RemoteProtocolError, match=text):
        feeder.feed(encode([(b"good", [])]))
    assert feeder.frames == []


def test_all_limits_can_be_reached() -> None:
    frames = [(bytes(1000), [bytes(2000), bytes(2000), bytes(1000)])]
    feeder = Feeder(FrameDecoder(LIMITS))
    feeder.feed(encode(frames))
    assert feeder.frames == frames


def test_frames_before_the_breach_are_delivered() -> None:
    feeder = Feeder(FrameDecoder(LIMITS))
    with pytest.raises(RemoteProtocolError):
        feeder.feed(encode([(b"good", [])]) + b"not a frame at all")
    assert feeder.frames == [(b"good", [])]


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is enforced on Linux only")
def test_memory_that_cannot_be_had_is_the_peers_fault() -> None:
    import resource

    huge = 1 << 62
    feeder = Feeder(FrameDecoder(FrameLimits(buffer=huge, total=huge)))
    feeder.feed(frame_header(0, [huge]))
    data = bytes(512 << 20)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (psutil.Process().memory_info().vms + (256 << 20), hard))
    try:
        with pytest.raises(RemoteProtocolError, match="no memory"):
            feeder.feed(data)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    with pytest.raises(RemoteProtocolError, match="no memory"):
        feeder.feed(b"more")


@settings(max_examples=200, deadline=None)
@given(st.lists(st.binary(max_size=60), max_size=5))
def test_any_bytes_give_frames_or_a_typed_error(chunks: list[bytes]) -> None:
    feeder = Feeder(FrameDecoder(LIMITS))
    try:
        for chunk in chunks:
            feeder.feed(chunk)
    except RemoteProtocolError:
        assert feeder.decoder.failed is not None
