"""Frames that are not complete: the limit for all of them, and the slowest allowed rate."""

from __future__ import annotations

import pytest

from tests.protocol.transport_kit import (
    End,
    Healthy,
    Run,
    Server,
    dial,
    hung_up,
    lines,
    shake_hands,
    turns,
)
from weft.protocol.errors import RemoteProtocolError
from weft.protocol.net.unfinished import UnfinishedFrames
from weft.protocol.wire.framing import frame_header
from weft.protocol.wire.messages import KeysData
from weft.protocol.wire.payload import Payload

MIB = 1 << 20


def large(content: bytes) -> KeysData:
    return KeysData(request=1, keys=["x"], results=[Payload(b"", [content])], missing=[])


class Paused:
    """A connection as far as `UnfinishedFrames` knows one."""

    def __init__(self):
        self.paused = False

    def hold_up(self):
        assert not self.paused
        self.paused = True

    def go_on(self):
        assert self.paused
        self.paused = False


def test_the_oldest_frame_is_read_on_and_the_others_wait_for_room():
    frames = UnfinishedFrames(limit=100)
    first, second, third = Paused(), Paused(), Paused()
    frames.update(first, 50, 50)
    frames.update(second, 40, 0)
    assert not second.paused
    frames.update(second, 40, 40)
    frames.update(third, 10, 5)
    assert second.paused
    assert third.paused
    frames.update(first, 400, 400)
    assert not first.paused
    frames.update(first, 0, 0)
    assert not second.paused
    assert not third.paused
    assert frames.nbytes == 50


def test_many_small_buffers_count_as_a_large_one_does():
    frames = UnfinishedFrames(limit=100)
    first, second = Paused(), Paused()
    frames.update(first, 60, 0)
    frames.update(second, 60, 0)
    assert second.paused
    frames.update(first, 0, 0)
    assert not second.paused
    assert frames.nbytes == 60


def test_a_connection_that_ends_makes_room():
    frames = UnfinishedFrames(limit=100)
    first, second = Paused(), Paused()
    frames.update(first, 90, 0)
    frames.update(second, 10, 10)
    assert second.paused
    assert frames.min_rate > UnfinishedFrames().min_rate
    frames.update(second, 0, 0)
    frames.update(first, 0, 0)
    assert frames.nbytes == 0
    assert frames.min_rate == UnfinishedFrames().min_rate


@pytest.mark.slow
def test_many_large_frames_take_bounded_memory_and_all_arrive(run: Run, stream_address):
    content = bytes(range(256)) * (8 * MIB // 256)
    n = 8
    most = 0

    async def main() -> None:
        frames = UnfinishedFrames(limit=6 * MIB)
        update = frames.update

        def measured(*args):
            nonlocal most
            update(*args)
            most = max(most, frames.nbytes)

        frames.update = measured  # type: ignore[method-assign]
        server = Server()
        at = await server.start(stream_address, unfinished=frames)
        healthy = await Healthy().start(at)
        ends = [End() for _ in range(n)]
        connections = [await dial(at, end) for end in ends]
        for connection in connections:
            connection.send([large(content)])
        for end in ends:
            (message,) = await end.got(1)
            assert isinstance(message, KeysData)
            assert message.results[0].buffers == [content]
        await healthy.check()
        assert frames.nbytes == 0
        for connection in connections:
            connection.close()
        await server.listener.close()

    run(main())
    # One frame, the limit, and the memory that each takes before it asks; not all eight frames.
    assert 8 * MIB <= most <= (8 + 6 + n) * MIB


def test_a_frame_for_which_no_other_waits_may_be_larger_than_the_limit(run: Run):
    async def main() -> None:
        frames = UnfinishedFrames(limit=MIB)
        server = Server()
        at = await server.start("tcp://127.0.0.1:0", unfinished=frames)
        end = End()
        connection = await dial(at, end)
        content = bytes(8 * MIB)
        connection.send([large(content)])
        (message,) = await end.got(1)
        assert isinstance(message, KeysData)
        assert message.results[0].buffers == [content]
        connection.close()
        await server.listener.close()

    run(main())


def test_the_unfinished_frame_of_a_lost_connection_is_dropped(run: Run):
    async def main() -> None:
        frames = UnfinishedFrames(limit=8 * MIB)
        server = Server()
        at = await server.start("tcp://127.0.0.1:0", unfinished=frames)
        pairs = [await shake_hands(at) for _ in range(4)]
        for _, writer in pairs:
            writer.write(frame_header(10, [20 * MIB]) + bytes(10 + 4 * MIB))
        await turns(lambda: len(frames._paused) == 3)
        assert frames.nbytes <= 16 * MIB
        # The one that holds up the others is closed first.
        for reader, writer in pairs:
            writer.close()
            await hung_up(reader, writer)
        await turns(lambda: not frames._held)
        assert frames.nbytes == 0
        await server.listener.close()

    run(main())


def test_a_frame_that_trickles_is_not_waited_for(run: Run, log: pytest.LogCaptureFixture):
    async def main() -> None:
        server = Server()
        at = await server.start("tcp://127.0.0.1:0", progress_timeout_s=0.2)
        healthy = await Healthy().start(at)
        reader, writer = await shake_hands(at)
        writer.write(frame_header(100_000) + b"x")
        await turns(lambda: len(server.connections) == 2)
        connection = server.connections[1]
        # One byte between any two looks at the frame: it never stops.
        while not connection.closed:
            looked = connection._progress  # type: ignore[attr-defined]
            writer.write(b"x")
            await turns(lambda: connection._progress is not looked or connection.closed)  # type: ignore[attr-defined]  # noqa: B023
        assert isinstance(await server.ends[1].closed(), RemoteProtocolError)
        await hung_up(reader, writer)
        await healthy.check()
        await server.listener.close()

    run(main())
    (line,) = lines(log)
    assert "a frame comes too slowly: less than 2 KiB/s for 0.2 s" in line
