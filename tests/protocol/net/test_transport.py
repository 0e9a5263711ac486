"""Real connections over every kind of address, on both event loops."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from pathlib import Path
from typing import Any

import pytest

from tests.protocol.transport_kit import (
    CLUSTER,
    PLAIN,
    TOKEN,
    End,
    Healthy,
    Run,
    Server,
    dial,
    hung_up,
    lines,
    raw,
)
from weft.protocol.errors import (
    CommClosed,
    CommError,
    ConfigError,
    ConnectRefused,
    ConnectTimeout,
    HandshakeError,
    LocalProtocolError,
    ProtocolError,
    WrongRole,
)
from weft.protocol.net.transport import Connection
from weft.protocol.trust.security import Security
from weft.protocol.wire.address import parse_address, socket_address
from weft.protocol.wire.message import Message
from weft.protocol.wire.messages import GetData, Heartbeat, KeysData, Refused
from weft.protocol.wire.payload import Payload
from weft.protocol.wire.roles import Role

# --- Messages -------------------------------------------------------------------------------------


def test_messages_arrive_in_order_with_their_blobs(
    run: Run, address: str, log: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        server = Server()
        at = await server.start(address)
        end = End()
        connection = await dial(at, end)
        blob = Payload(b"pickle", [bytes(300_000), bytearray(b"small"), bytearray(5 << 20)])
        sent: list[Message] = [
            Heartbeat(next_ms=1),
            KeysData(request=1, keys=["a", "b"], results=[blob, b"plain"], missing=["c"]),
            *[Refused(reason=f"{i}" + "x" * 50_000) for i in range(50)],
            KeysData(request=2, keys=["d"], results=[Payload(b"q", [bytes(70_000)])], missing=[]),
        ]
        connection.send(sent[:1])
        connection.send(sent[1:])
        assert await end.got(len(sent)) == sent
        connection.close()
        assert await end.closed() is None
        assert isinstance(await server.ends[0].closed(), CommClosed)
        await server.listener.close()

    run(main())
    assert lines(log) == []


def test_both_ends_have_each_other_s_address_and_role(run: Run, address: str) -> None:
    async def main() -> None:
        server = Server()
        at = await server.start(address)
        assert not at.endswith(":0")
        connection = await dial(at, End(), role=Role.WORKER, security=Security(TOKEN))
        (accepted,) = server.connections
        assert connection.peer_role is Role.SCHEDULER
        assert accepted.peer_role is Role.WORKER
        assert connection.cluster_id == accepted.cluster_id == CLUSTER
        assert connection.address == accepted.address == at
        assert connection.peer_address
        assert accepted.peer_address
        assert connection.writable
        assert not connection.closed
        assert list(server.listener.connections) == [accepted]
        await server.listener.close()
        assert server.listener.connections == {}

    run(main())


def test_counters_agree_on_both_ends(run: Run, stream_address: str) -> None:
    async def main() -> None:
        server = Server()
        at = await server.start(stream_address)
        end = End()
        connection = await dial(at, end)
        for i in range(3):
            connection.send([GetData(request=i, keys=["k"])])
        await end.got(3)
        (accepted,) = server.connections
        assert connection.frames_out == connection.frames_in == 3
        (before,) = server.listener.traffic().values()
        assert connection.bytes_out == accepted.bytes_in == before.bytes_in
        assert connection.bytes_in == accepted.bytes_out == before.bytes_out
        assert connection.wire.acked >= 1
        connection.close()
        await server.ends[0].closed()
        await server.listener.close()
        # The counts of former connections are included.
        assert [*server.listener.traffic().values()] == [before]
        assert before.frames_in == 3
        assert server.listener.auth_failures == 0

    run(main())


def test_traffic_is_counted_by_role_and_no_count_goes_back(run: Run, stream_address: str) -> None:
    async def main() -> None:
        server = Server()
        at = await server.start(stream_address)
        end = End()
        reader, writer = await raw(at)
        writer.write(b"nonsense" * 20)
        await hung_up(reader, writer)
        counted: list[dict[str, int]] = []

        def look() -> dict[str, int]:
            now = {role: traffic.bytes_in for role, traffic in server.listener.traffic().items()}
            for role, nbytes in (counted[-1] if counted else {}).items():
                assert now[role] >= nbytes, role
            counted.append(now)
            return now

        connection = await dial(at, end)
        look()
        connection.send([GetData(request=1, keys=["k"])])
        await end.got(1)
        (accepted,) = server.connections
        role = accepted.peer_role.name.lower()
        assert look()[role] == accepted.bytes_in
        connection.close()
        await server.ends[-1].closed()
        look()
        await server.listener.close()
        assert look() == {role: accepted.bytes_in, "unknown": counted[-1]["unknown"]}
        # In TLS nothing of it came as far as the connection.
        assert bool(counted[-1]["unknown"]) == (not at.startswith("tls:"))

    run(main())


def test_writable_is_false_while_the_reader_is_slow(run: Run, stream_address: str) -> None:
    async def main() -> None:
        server = Server(End)
        at = await server.start(stream_address)
        end = End()
        connection = await dial(at, end)
        blob = Payload(b"", [bytes(4 << 20)])
        big = KeysData(request=1, keys=["a"], results=[blob], missing=[])
        n = 0
        # No iteration of the loop between them, so nothing is read meanwhile.
        while connection.writable:
            connection.send([big])
            n += 1
            assert n < 20
        await end.wait(lambda: end.n_writable)
        connection.send([Heartbeat()])
        assert await server.ends[0].got(n + 1) == [*[big] * n, Heartbeat()]
        assert end.n_writable == 1
        await server.listener.close()

    run(main())


def test_close_sends_the_remaining_messages(run: Run, address: str) -> None:
    async def main() -> None:
        server = Server(End)
        at = await server.start(address)
        end = End()
        connection = await dial(at, end)
        big = KeysData(request=1, keys=["a"], results=[Payload(b"", [bytes(8 << 20)])], missing=[])
        connection.send([big, Heartbeat()])
        connection.close()
        assert connection.closed
        connection.send([Heartbeat(next_ms=9)])
        assert await server.ends[0].got(2) == [big, Heartbeat()]
        assert isinstance(await server.ends[0].closed(), CommClosed)
        assert server.ends[0].messages == []
        assert await end.closed() is None
        connection.close()
        connection.abort()
        await server.listener.close()
        assert len(end.errors) == 1

    run(main())


def test_abort_closes_at_once(run: Run, address: str, log: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        server = Server()
        at = await server.start(address)
        end = End()
        connection = await dial(at, end)
        connection.abort()
        assert connection.closed
        assert await end.closed() is None
        assert isinstance(await server.ends[0].closed(), CommClosed)
        await server.listener.close()

    run(main())
    assert lines(log) == []


def test_handler_may_close_between_two_received_messages(run: Run, address: str) -> None:
    class Once(End):
        def on_messages(self, connection: Connection, messages: list[Message]) -> None:
            super().on_messages(connection, messages)
            connection.close()

    async def main() -> None:
        server = Server(Once)
        at = await server.start(address)
        end = End()
        connection = await dial(at, end)
        for i in range(100):
            connection.send([GetData(request=i, keys=[])])
        assert isinstance(await end.closed(), CommError)
        assert await server.ends[0].closed() is None
        await server.listener.close()

    run(main())


def test_names_with_two_addresses_have_one_port(run: Run) -> None:
    async def main() -> None:
        server = Server()
        at = await server.start("tcp://localhost:0")
        await (await Healthy().start(at)).check()
        await server.listener.close()

    run(main())


def test_many_connections_at_once_from_one_machine(
    run: Run, stream_address: str, log: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        server = Server()
        at = await server.start(stream_address)
        ends = [End() for _ in range(60)]
        connections = await asyncio.gather(*[dial(at, end) for end in ends])
        for i, connection in enumerate(connections):
            connection.send([GetData(request=i, keys=[])])
        for i, end in enumerate(ends):
            assert await end.got(1) == [GetData(request=i, keys=[])]
        await server.listener.close()
        for end in ends:
            assert isinstance(await end.closed(), CommClosed)

    run(main())
    assert lines(log) == []


# --- Connecting and listening ---------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["tcp", "tls", "unix", "inproc"])
def test_connecting_where_no_process_listens_is_refused(
    run: Run, tmp_path: Path, scheme: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]
    where = {"unix": f"{tmp_path}/socket", "inproc": "nobody"}.get(scheme, f"127.0.0.1:{port}")

    async def main() -> None:
        with pytest.raises(ConnectRefused) as caught:
            await dial(f"{scheme}://{where}", End())
        assert caught.value.address == f"{scheme}://{where}"

    run(main())


@pytest.mark.parametrize("scheme", ["tcp", "tls"])
def test_connecting_to_a_server_that_never_answers_times_out(run: Run, scheme: str) -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as sock, pytest.raises(ConnectTimeout):
            await dial(f"{scheme}://127.0.0.1:{sock.getsockname()[1]}", End(), timeout_s=0.2)

    run(main())


@pytest.mark.parametrize(
    ("scheme", "answer", "error", "text"),
    [
        ("tcp", b"", CommClosed, "tcp:// or tls://"),
        ("tcp", b"HTTP/1.1 400 Bad Request\r\n\r\n", HandshakeError, "HTTP"),
        ("tls", b"HTTP/1.1 400 Bad Request\r\n\r\n", HandshakeError, "tcp:// or tls://"),
        ("tls", b"", CommError, "closed before TLS began; is it a weft process"),
    ],
)
def test_connecting_to_a_server_of_another_kind_is_an_error(
    run: Run, scheme: str, answer: bytes, error: type[Exception], text: str
) -> None:
    async def answer_and_leave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(answer)
        writer.close()
        await writer.wait_closed()

    async def main() -> None:
        server = await asyncio.start_server(answer_and_leave, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(error, match=text):
            await dial(f"{scheme}://127.0.0.1:{port}", End())
        server.close()
        await server.wait_closed()

    run(main())


def test_cancelled_connect_leaves_nothing(run: Run, stream_address: str) -> None:
    async def main() -> None:
        server = Server()
        at = await server.start(stream_address)
        for turns in range(12):
            end = End()
            attempt = asyncio.ensure_future(dial(at, end))
            for _ in range(turns):
                await asyncio.sleep(0)
            attempt.cancel()
            try:
                connection = await attempt
            except asyncio.CancelledError:
                assert end.errors == []
            else:
                # The last ones are connected by then.
                assert turns > 3
                connection.abort()
                await end.closed()
        await server.listener.close()

    run(main())


def test_closing_a_listener_in_every_stage_of_its_connections(
    run: Run, stream_address: str
) -> None:
    async def main() -> None:
        for turns in range(12):
            server = Server()
            at = await server.start(stream_address)
            end = End()
            connection = await dial(at, end)
            silent = await raw(at)
            attempt = asyncio.ensure_future(dial(at, End()))
            for _ in range(turns):
                await asyncio.sleep(0)
            await server.listener.close()
            await server.listener.close()
            assert isinstance(await end.closed(), CommClosed)
            assert connection.closed
            await hung_up(*silent)
            try:
                (await attempt).abort()
            except (CommError, ProtocolError):
                pass
            with pytest.raises(ConnectRefused):
                await dial(at, End())

    run(main())


def test_unix_socket_is_private_and_goes_with_its_listener(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "socket"

    async def main() -> None:
        server = Server()
        at = await server.start(f"unix://{path}")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        healthy = await Healthy().start(at)
        assert f"pid={os.getpid()}" in server.connections[0].peer_address
        # In use: not to be taken over.
        with pytest.raises(CommError, match="in use"):
            await Server().start(f"unix://{path}")
        await healthy.check()
        await server.listener.close()
        assert not path.exists()

    run(main())


def test_socket_file_of_a_dead_process_is_replaced(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))

    async def main() -> None:
        server = Server()
        await (await Healthy().start(await server.start(f"unix://{path}"))).check()
        # The file of a successor must not be removed.
        path.unlink()
        path.write_text("another")
        await server.listener.close()
        assert path.read_text() == "another"

    run(main())
    path.unlink()
    path.mkdir()

    async def blocked() -> None:
        with pytest.raises(CommError, match="cannot listen"):
            await Server().start(f"unix://{path}")

    run(blocked())


def test_addresses_that_cannot_be_listened_at_are_refused(run: Run) -> None:
    async def main() -> None:
        with (
            socket.create_server(("127.0.0.1", 0)) as taken,
            pytest.raises(CommError, match="in use"),
        ):
            await Server().start(f"tcp://127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(ConfigError, match="tls://"):
            await Server().start("tcp://0.0.0.0:0")
        with pytest.raises(ConfigError, match="certificate"):
            await Server().start("tls://127.0.0.1:0", security=PLAIN)
        with pytest.raises(LocalProtocolError, match="cluster id"):
            await Server().start("tcp://127.0.0.1:0", security=Security(TOKEN))
        server = Server()
        await server.start("inproc://taken")
        with pytest.raises(CommError, match="taken"):
            await Server().start("inproc://taken")
        await server.listener.close()
        await server.start("inproc://taken")
        await server.listener.close()

    run(main())


def test_inproc_hands_over_the_objects_themselves(run: Run) -> None:
    async def main() -> None:
        server = Server()
        at = await server.start("inproc://objects")
        end = End()
        connection = await dial(at, end)
        sent = [Heartbeat(next_ms=1)]
        connection.send(sent)
        # Never within `send`: the sender may be in the middle of something.
        assert server.ends[0].messages == []
        (arrived,) = await end.got(1)
        assert arrived is sent[0]
        with pytest.raises(WrongRole):
            await dial(at, End(), role=Role.VIEWER)
        await server.listener.close()

    run(main())


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("tcp://127.0.0.1:80", ("tcp", "127.0.0.1", 80)),
        ("tls://[::1]:0", ("tls", "::1", 0)),
        ("tcp://host.name:65535", ("tcp", "host.name", 65535)),
        ("unix:///tmp/a b", ("unix", "/tmp/a b", None)),
        ("inproc://name", ("inproc", "name", None)),
    ],
)
def test_address_is_taken_apart_and_put_together(text: str, parts: tuple[Any, ...]) -> None:
    address = parse_address(text)
    assert tuple(address) == parts
    assert str(address) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "host:80",
        "http://host:80",
        "tcp://host",
        "tcp://:80",
        "tcp://host:65536",
        "tcp://host:-1",
        "tcp://host:٣",
        "tcp://::1:80",
        "tcp://user@host:80",
        "tcp://host/path:80",
        "tcp://host:80/path",
        "tcp://host:80?query",
        "unix://relative",
        "unix://",
        "inproc://",
    ],
)
def test_a_text_that_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_address(text)


def test_socket_names_become_addresses() -> None:
    assert socket_address("tcp", ("1.2.3.4", 5)) == "tcp://1.2.3.4:5"
    assert socket_address("tls", ("::1", 5, 0, 0)) == "tls://[::1]:5"
    assert socket_address("tcp", ("::ffff:1.2.3.4", 5, 0, 0)) == "tcp://1.2.3.4:5"
    assert socket_address("unix", b"\x00abstract") == "unix://\x00abstract"
    assert socket_address("unix", "") == "unix://"
