"""Threads that use a connection past its event loop, on every kind of address and loop."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from tests.protocol.transport_kit import End, Run, Server, dial
from weft.protocol.errors import CommClosed, LocalProtocolError, RemoteProtocolError
from weft.protocol.net.bypass import Bypass
from weft.protocol.net.stream import StreamConnection
from weft.protocol.net.transport import Connection
from weft.protocol.wire.message import Message
from weft.protocol.wire.messages import GetData, Heartbeat, KeysData
from weft.protocol.wire.payload import Payload


def ask(number: int) -> GetData:
    return GetData(request=number, keys=["k"])


def test_a_thread_sends_without_the_loop(run: Run, stream_address: str) -> None:
    async def main() -> None:
        server = Server(End)
        connection = await dial(await server.start(stream_address), End())
        assert not connection.send_past_loop([ask(0)])  # it was not allowed yet
        connection.allow_bypass()
        is_plain = not stream_address.startswith("tls:")
        done: list[bool] = []
        # The loop is blocked here, so it has no part in it.
        thread = threading.Thread(target=lambda: done.append(connection.send_past_loop([ask(1)])))
        thread.start()
        thread.join()
        assert done == [is_plain]
        connection.send([ask(2)])
        expected = [ask(1), ask(2)] if is_plain else [ask(2)]
        assert await server.ends[0].got(len(expected)) == expected
        assert connection.frames_out == len(expected)
        await server.listener.close()

    run(main())


def test_inproc_connections_have_no_bypass(run: Run) -> None:
    async def main() -> None:
        server = Server(End)
        connection = await dial(await server.start("inproc://bypass"), End())
        connection.allow_bypass()
        assert not connection.send_past_loop([ask(1)])
        await server.listener.close()

    run(main())


def test_frames_of_threads_and_loop_arrive_whole_and_in_their_numbered_order(
    run: Run, stream_address: str
) -> None:
    """The receiver closes a connection on which a frame is missing, torn or out of order."""
    n_threads, n_each = 4, 60

    def send(connection: Connection, thread: int, refused: list[int]) -> None:
        blob = Payload(b"", [bytes(300_000)])
        for i in range(n_each):
            number = thread * 1000 + i
            big = KeysData(request=number, keys=["a"], results=[blob], missing=[])
            # Large ones fill the socket, so that the rest of a frame is left to the loop.
            if not connection.send_past_loop([big if i % 7 == 0 else ask(number)]):
                refused.append(number)

    async def main() -> None:
        server = Server(End)
        connection = await dial(await server.start(stream_address), End())
        connection.allow_bypass()
        refused: list[int] = []
        loop = asyncio.get_running_loop()
        senders = [
            loop.run_in_executor(None, send, connection, thread, refused)
            for thread in range(n_threads)
        ]
        n_own = 0
        while not all(sender.done() for sender in senders):
            connection.send([ask(100_000 + n_own)])
            n_own += 1
            await asyncio.sleep(0)
        await asyncio.gather(*senders)
        connection.send([Heartbeat()])
        receiver = server.ends[0]
        await receiver.wait(lambda: Heartbeat() in receiver.messages or receiver.errors)
        assert not receiver.errors
        got = [m.request for m in receiver.messages if isinstance(m, (GetData, KeysData))]
        assert sorted(got + refused) == sorted(
            [t * 1000 + i for t in range(n_threads) for i in range(n_each)]
            + [100_000 + i for i in range(n_own)]
        )
        for first in (0, 1000, 2000, 3000, 100_000):
            of_one = [number for number in got if first <= number < first + 1000]
            assert of_one == sorted(of_one)
        await server.listener.close()

    run(main())


@pytest.mark.parametrize("way", ["send", "send_past_loop"])
def test_messages_that_a_finalizer_sends_within_a_frame_come_after_the_frame(
    run: Run, stream_address: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        server = Server(End)
        connection = await dial(await server.start(stream_address), End())
        connection.allow_bypass()
        assert isinstance(connection, StreamConnection)
        encode, past_loop = connection._encode, []

        def encode_and_collect(messages: Any) -> Any:
            parts = encode(messages)
            monkeypatch.undo()
            # As the collector may do, wherever an object is made.
            past_loop.append(connection.send_past_loop([ask(3)]))
            connection.send([ask(2)])
            return parts

        monkeypatch.setattr(connection, "_encode", encode_and_collect)
        if not getattr(connection, way)([ask(1)]) and way == "send_past_loop":
            connection.send([ask(1)])  # TLS has no other way
        assert past_loop == [False]
        assert await server.ends[0].got(2) == [ask(1), ask(2)]
        assert not server.ends[0].errors
        await server.listener.close()

    run(main())


@pytest.mark.parametrize("ending", ["close", "send"])
def test_the_rest_of_a_frame_precedes_what_the_loop_sends_next(
    run: Run, stream_address: str, ending: str
) -> None:
    async def main() -> None:
        server = Server(End)
        connection = await dial(await server.start(stream_address), End())
        connection.allow_bypass()
        blob = Payload(b"", [bytes(16 << 20)])
        big = KeysData(request=1, keys=["a"], results=[blob], missing=[])
        took = connection.send_past_loop([big])  # more than the socket takes
        assert took == (not stream_address.startswith("tls:"))
        assert not connection.send_past_loop([ask(2)]) or not took
        expected = [big] if took else []
        if ending == "send":
            connection.send([ask(3)])
            expected.append(ask(3))
        connection.close()
        receiver = server.ends[0]
        assert isinstance(await receiver.closed(), CommClosed)
        assert receiver.messages == expected
        await server.listener.close()

    run(main())


def test_a_message_beyond_a_limit_changes_nothing(run: Run, stream_address: str) -> None:
    async def main() -> None:
        server = Server(End)
        connection = await dial(await server.start(stream_address), End())
        connection.allow_bypass()
        if not stream_address.startswith("tls:"):
            with pytest.raises(LocalProtocolError):
                connection.send_past_loop([ask(1), ask(1 << 70)])
        connection.send([ask(2)])
        assert await server.ends[0].got(1) == [ask(2)]
        await server.listener.close()

    run(main())


def test_a_thread_may_send_while_the_other_end_closes(run: Run, stream_address: str) -> None:
    """The write fails, or is dropped; the end is reported once, by the loop."""

    async def main() -> None:
        server = Server(End)
        end = End()
        connection = await dial(await server.start(stream_address), end)
        connection.allow_bypass()
        stopped = threading.Event()

        def send() -> None:
            number = 0
            while not stopped.is_set():
                number += 1
                connection.send_past_loop([ask(number)])

        thread = threading.Thread(target=send)
        thread.start()
        try:
            await server.ends[0].got(1)
            server.connections[0].abort()
            assert isinstance(await end.closed(), CommClosed)
        finally:
            stopped.set()
            thread.join()
        assert not connection.send_past_loop([ask(0)])
        await server.listener.close()

    if not stream_address.startswith("tls:"):
        run(main())


# --- Reading --------------------------------------------------------------------------------------


async def lent(server: Server, address: str) -> tuple[Connection, End]:
    """A connection whose reading is lent, to a server that echoes."""
    end = End()
    connection = await dial(await server.start(address), end)
    connection.allow_bypass()
    assert connection.lend_reading() == (not address.startswith("tls:"))
    return connection, end


@pytest.fixture(params=["tcp", "unix"])
def plain_address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "tcp://127.0.0.1:0" if request.param == "tcp" else f"unix://{tmp_path}/socket"


async def in_thread(call: Callable[..., bool], *args: object) -> bool:
    return await asyncio.get_running_loop().run_in_executor(None, call, *args)


def test_a_thread_receives_while_the_reading_is_lent(run: Run, plain_address: str) -> None:
    async def main() -> None:
        server = Server()
        connection, end = await lent(server, plain_address)
        threads: list[int] = []
        on_messages = end.on_messages

        def note(connection: Connection, messages: list[Message]) -> None:
            threads.append(threading.get_ident())
            on_messages(connection, messages)

        end.on_messages = note  # type: ignore[method-assign]
        for number in range(3):
            connection.send([ask(number)])
            assert await in_thread(connection.receive, 20.0)
            assert end.messages == [ask(n) for n in range(number + 1)]
        assert len(threads) == 3
        assert threading.get_ident() not in threads
        assert await in_thread(connection.receive, 0.0)  # nothing has come
        connection.take_reading_back()
        connection.send([ask(9)])
        assert (await end.got(4))[-1] == ask(9)
        await server.listener.close()

    run(main())


def test_connections_without_a_bypass_do_not_lend_their_reading(run: Run) -> None:
    async def main() -> None:
        server = Server()
        connection, end = await lent(server, "tls://127.0.0.1:0")
        connection.send([ask(1)])
        assert await end.got(1) == [ask(1)]
        await server.listener.close()

    run(main())


def test_a_long_frame_and_the_end_are_left_to_the_loop(run: Run, plain_address: str) -> None:
    async def main() -> None:
        server = Server()
        connection, end = await lent(server, plain_address)
        blob = Payload(b"", [bytes(8 << 20)])
        big = KeysData(request=1, keys=["a"], results=[blob], missing=[])
        connection.send([big])
        while await in_thread(connection.receive, 20.0):
            pass
        connection.take_reading_back()
        assert await end.got(1) == [big]
        assert connection.lend_reading()
        server.connections[0].abort()
        while await in_thread(connection.receive, 20.0):
            pass
        assert not end.errors
        connection.take_reading_back()
        assert isinstance(await end.closed(), CommClosed)
        assert not connection.receive(20.0)
        await server.listener.close()

    run(main())


def test_a_thread_that_receives_is_interrupted(run: Run, plain_address: str) -> None:
    async def main() -> None:
        server = Server()
        connection, end = await lent(server, plain_address)
        waiting = asyncio.ensure_future(in_thread(connection.receive, 1000.0))
        await asyncio.sleep(0)
        connection.interrupt()
        assert await waiting
        connection.interrupt()  # of the next one
        assert await in_thread(connection.receive, 1000.0)
        waiting = asyncio.ensure_future(in_thread(connection.receive, 1000.0))
        connection.abort()
        await end.closed()
        await waiting
        await server.listener.close()

    run(main())


def test_a_wait_ends_when_the_loop_closes_the_connection_meanwhile() -> None:
    sock, other = socket.socketpair()
    sock.setblocking(False)
    bypass: Any = Bypass(cast(asyncio.Transport, None), sock)
    poll = bypass._poll

    class ClosedMeanwhile:
        def poll(self, timeout: float) -> list[tuple[int, int]]:
            found: list[tuple[int, int]] = poll.poll(timeout)
            bypass.close()
            return found

    bypass._poll = ClosedMeanwhile()
    bypass.interrupt()
    assert not bypass.wait(20.0)
    assert bypass.receive(memoryview(bytearray(8))) == 0
    other.close()


def test_a_frame_that_is_none_ends_the_connection(run: Run, plain_address: str) -> None:
    async def main() -> None:
        server = Server()
        connection, end = await lent(server, plain_address)
        accepted = server.connections[0]
        assert isinstance(accepted, StreamConnection)
        assert accepted._transport is not None
        accepted._transport.write(b"no frame of weft, but a text that is long enough")
        assert not await in_thread(connection.receive, 20.0)
        assert isinstance(await end.closed(), RemoteProtocolError)
        await server.listener.close()

    run(main())
