"""Strangers and attackers: each causes one line in the log, and other peers are not affected."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
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
    frame,
    hung_up,
    lines,
    raw,
    shake_hands,
    turns,
)
from weft.protocol.errors import (
    CommClosed,
    CommError,
    HandshakeError,
    LocalProtocolError,
    RemoteProtocolError,
    StaleEpoch,
    WrongCluster,
    WrongRole,
    WrongToken,
)
from weft.protocol.net import listen as listen_module
from weft.protocol.net.transport import Connection
from weft.protocol.trust.security import Security, generate_certificate
from weft.protocol.wire.framing import MAGIC, FrameLimits, frame_header
from weft.protocol.wire.handshake import ClientHandshake
from weft.protocol.wire.message import Message
from weft.protocol.wire.messages import GetData, Heartbeat, KeysData
from weft.protocol.wire.payload import Payload
from weft.protocol.wire.roles import Role

# --- Peers that are refused -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "reason"),
    [
        ({"security": Security(b"another token, as long")}, WrongToken, "does not hold"),
        ({"role": Role.VIEWER}, WrongRole, "viewer connected to a scheduler"),
    ],
)
def test_stranger_is_refused_with_one_line(
    run: Run,
    stream_address: str,
    log: pytest.LogCaptureFixture,
    options: dict[str, Any],
    error: type[Exception],
    reason: str,
) -> None:
    async def main() -> None:
        server = Server()
        at = await server.start(stream_address)
        healthy = await Healthy().start(at)
        end = End()
        with pytest.raises(error):
            await dial(at, end, **options)
        await healthy.check()
        assert end.errors == []
        assert end.messages == []
        assert len(server.ends) == 1
        await server.listener.close()
        assert server.listener.auth_failures == 1
        assert end.errors == []

    run(main())
    (line,) = lines(log)
    assert reason in line


def test_wrong_kind_of_server_is_refused_by_the_client(run: Run, address: str) -> None:
    async def main() -> None:
        server = Server()
        at = await server.start(address)
        with pytest.raises(WrongRole):
            await dial(at, End(), role=Role.PEER, server_role=Role.WORKER_DATA)
        await server.listener.close()

    run(main())


def test_other_certificate_than_the_pinned_one_is_refused(
    run: Run, log: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        server = Server()
        at = await server.start("tls://127.0.0.1:0")
        other, _ = generate_certificate(CLUSTER)
        with pytest.raises(HandshakeError, match="not the one in the connection file"):
            await dial(at, End(), security=Security(TOKEN, CLUSTER, other))
        await (await Healthy().start(at)).check()
        assert len(server.ends) == 1
        await server.listener.close()

    run(main())
    assert lines(log) == []


def test_tls_without_a_pin_is_bound_by_the_token(run: Run) -> None:
    async def main() -> None:
        server = Server()
        at = await server.start("tls://127.0.0.1:0")
        connection = await dial(at, End(), security=Security(TOKEN))
        assert connection.cluster_id == CLUSTER
        with pytest.raises(WrongToken):
            await dial(at, End(), security=Security(b"another token, as long"))
        await server.listener.close()

    run(main())


@pytest.mark.parametrize(
    ("scheme", "said", "reason"),
    [
        ("tcp", b"GET / HTTP/1.1\r\n\r\n", "speaks HTTP"),
        ("tcp", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", "speaks TLS"),
        ("tcp", b"\x1b[31mred\r\nWARNING fake line\n", "began with"),
        ("tcp", b"WEFT" + b"\xff" * 200, "message kind 255"),
        ("unix", b"\x00" * 100_000, "began with"),
        ("tls", b"GET / HTTP/1.1\r\n\r\n", "http request"),
        ("tls", b"WEFT" + bytes(100), "TLS"),
    ],
)
def test_garbage_before_the_handshake_is_refused(
    run: Run,
    tmp_path: Path,
    log: pytest.LogCaptureFixture,
    scheme: str,
    said: bytes,
    reason: str,
) -> None:
    async def main() -> None:
        server = Server()
        place = f"{tmp_path}/socket" if scheme == "unix" else "127.0.0.1:0"
        at = await server.start(f"{scheme}://{place}")
        healthy = await Healthy().start(at)
        reader, writer = await raw(at)
        writer.write(said)
        await hung_up(reader, writer)
        await healthy.check()
        assert server.listener.auth_failures == 1
        await server.listener.close()

    run(main())
    (line,) = lines(log)
    assert reason in line
    assert line.isprintable()


def test_slow_handshake_is_ended_by_its_deadline(
    run: Run, stream_address: str, log: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        server = Server()
        at = await server.start(stream_address, handshake_timeout_s=0.5)
        healthy = await Healthy().start(at)
        reader, writer = await raw(at)
        # The beginning of a hello, and of a TLS one.
        writer.write(b"\x16\x03\x01\x02\x00" if at.startswith("tls") else MAGIC[:1] + b"EFT\x01")
        await hung_up(reader, writer)
        await healthy.check()
        await server.listener.close()

    run(main())
    (line,) = lines(log)
    assert "0.5 s" in line or "0.5 seconds" in line


def test_a_peer_that_leaves_without_a_message_is_not_logged(
    run: Run, stream_address: str, log: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        server = Server()
        at = await server.start(stream_address)
        for _ in range(3):
            _, writer = await raw(at)
            writer.close()
            await writer.wait_closed()
        await (await Healthy().start(at)).check()
        await server.listener.close()
        assert server.listener.auth_failures == 0

    run(main())
    assert lines(log) == []


def test_flood_of_silent_connections_is_bounded(
    run: Run, stream_address: str, log: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        server = Server()
        at = await server.start(stream_address, max_unauthenticated=4)
        healthy = await Healthy().start(at)
        silent = [await raw(at) for _ in range(4)]
        # Each of these is refused at once, because the four stay connected for five seconds.
        for _ in range(2):
            assert await hung_up(*await raw(at)) == b""
        with pytest.raises(CommError):
            await dial(at, End())
        await healthy.check()
        assert server.listener.auth_failures == 3
        for reader, writer in silent:
            writer.close()
            await writer.wait_closed()
            del reader
        while server.listener._unauthenticated:
            await healthy.check()
        await (await Healthy().start(at)).check()
        await server.listener.close()

    run(main())
    assert len(lines(log)) == 3
    assert all("4 others have not finished their handshake" in line for line in lines(log))


def test_flood_from_one_host_is_bounded(
    run: Run, log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Here all hosts are this one, which has no bound of its own.
    monkeypatch.setattr(listen_module, "is_loopback", lambda host: host == "127.0.0.2")

    async def main() -> None:
        server = Server()
        at = await server.start(
            "tcp://127.0.0.1:0",
            max_unauthenticated_per_host=2,
            security=PLAIN,
            allow_plaintext=True,
        )
        healthy = await Healthy().start(at)
        silent = [await raw(at) for _ in range(2)]
        assert await hung_up(*await raw(at)) == b""
        for _, writer in silent:
            writer.close()
            await writer.wait_closed()
        while server.listener._n_by_host:
            await healthy.check()
        await (await Healthy().start(at)).check()
        await server.listener.close()

    run(main())
    assert len(lines(log)) == 1


def test_refusals_are_logged_ten_at_a_time(run: Run, log: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        server = Server()
        at = await server.start("tcp://127.0.0.1:0")
        for _ in range(25):
            reader, writer = await raw(at)
            writer.write(b"nonsense")
            await hung_up(reader, writer)
        assert server.listener.auth_failures == 25
        await server.listener.close()

    run(main())
    assert len(lines(log)) == 11
    assert lines(log)[-1].endswith("15 more connections refused")


def test_peers_of_another_cluster_are_one_line_of_information_without_their_advice(
    run: Run, log: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        server = Server()
        at = await server.start("tcp://127.0.0.1:0")
        for _ in range(5):
            with pytest.raises(WrongCluster, match="read its connection file again"):
                await dial(at, End(), security=Security(TOKEN, b"another cluster!"))
        await turns(lambda: server.listener.auth_failures == 5)
        await server.listener.close()

    run(main())
    (record,) = log.records
    assert record.levelname == "INFO"
    assert "connection from tcp://127.0.0.1 refused: the client looks for cluster" in record.message
    assert "connection file" not in record.message


# --- Faults of authenticated peers ----------------------------------------------------------------

HALF = frame([GetData.code, 1, ["k"]])
ATTACKS: dict[str, tuple[bytes, str]] = {
    "no frame": (b"\x00" * 12, "a frame began with"),
    "payload of 4 GiB": (struct.pack(">4sII", MAGIC, 2**32 - 1, 0), "4294967295 bytes"),
    "four billion buffers": (struct.pack(">4sII", MAGIC, 1, 2**32 - 1), "4294967295 buffers"),
    "buffer of 2**63": (frame_header(1, [2**63]), "the largest 9223372036854775808"),
    "buffers of 16 GiB": (frame_header(1, [2**32] * 4), "17179869184"),
    "broken payload": (frame_header(1) + b"\xc1", "cannot be decoded"),
    "array of 4 billion": (frame_header(5) + b"\xdd\xff\xff\xff\xff", "max_array_len"),
    "nested 100000 times": (frame_header(100_000) + b"\x91" * 100_000, "cannot be decoded"),
    "extension": (frame_header(3) + b"\xd4\x05a", "cannot be decoded"),
    "invalid utf-8": (frame_header(3) + b"\xa2\xff\xfe", "utf-8"),
    "impossible code": (frame([256]), "message code 256 is not between 1 and 255"),
    "wrong arity": (frame([GetData.code, 1]), "2 fields expected, 1 came"),
    "wrong type": (frame([GetData.code, 1, ["k", 2]]), "keys must be strings"),
    "frame again": (HALF + HALF, "frame 1 came where frame 2 was expected"),
    "acknowledges too much": (frame([7, 0], numbers=(0, 0, 1, 9)), "frame 9 was acknowledged"),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_attack_closes_its_connection_and_no_other(
    run: Run, log: pytest.LogCaptureFixture, name: str
) -> None:
    attack, reason = ATTACKS[name]

    async def main() -> None:
        server = Server()
        at = await server.start("tcp://127.0.0.1:0")
        healthy = await Healthy().start(at)
        reader, writer = await shake_hands(at)
        writer.write(attack)
        await hung_up(reader, writer)
        await healthy.check()
        error = await server.ends[1].closed()
        assert isinstance(error, RemoteProtocolError)
        assert server.listener.auth_failures == 0
        await server.listener.close()

    run(main())
    (line,) = lines(log)
    assert reason in line
    assert "connection of client" in line


def test_frame_that_stops_halfway_is_not_waited_for(
    run: Run, log: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        server = Server()
        at = await server.start("tcp://127.0.0.1:0", progress_timeout_s=0.2)
        healthy = await Healthy().start(at)
        reader, writer = await shake_hands(at)
        writer.write(HALF[:-1])
        await hung_up(reader, writer)
        assert isinstance(await server.ends[1].closed(), RemoteProtocolError)
        # Idle between frames is no offence.
        await healthy.check()
        await server.listener.close()

    run(main())
    (line,) = lines(log)
    assert "stopped halfway" in line


class Jumps:
    """A loop's clock that can be put forward, as if the loop had been held up."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._time, self._jumped = loop.time, 0.0
        loop.time = self  # type: ignore[method-assign]

    def __call__(self) -> float:
        return self._time() + self._jumped

    def jump(self, seconds: float) -> None:
        self._jumped += seconds


def test_a_process_that_was_held_up_reads_before_it_counts_a_frame_as_stopped(
    log: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        clock = Jumps(asyncio.get_running_loop())
        server = Server()
        at = await server.start("tcp://127.0.0.1:0", progress_timeout_s=50.0)
        reader, writer = await shake_hands(at)
        whole = frame([GetData.code, 1, ["x"]])
        writer.write(whole[:-1])
        await turns(lambda: server.connections and server.connections[0]._progress)  # type: ignore[attr-defined]
        # A task holds the interpreter lock for that long; the timer is overdue, the rest unread.
        for _ in range(4):
            clock.jump(1000)
            for _ in range(3):
                await asyncio.sleep(0)
        writer.write(whole[-1:])
        assert await server.ends[0].got(1) == [GetData(request=1, keys=["x"])]
        await server.listener.close()
        await hung_up(reader, writer)

    asyncio.run(main())
    assert lines(log) == []


def test_a_process_that_was_held_up_lets_a_handshake_go_on(log: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        clock = Jumps(asyncio.get_running_loop())
        server = Server()
        at = await server.start("tcp://127.0.0.1:0", handshake_timeout_s=50.0)
        reader, writer = await raw(at)
        await turns(lambda: server.listener._unauthenticated)
        for _ in range(4):
            clock.jump(1000)
            for _ in range(3):
                await asyncio.sleep(0)
        handshake = ClientHandshake(
            TOKEN, CLUSTER, Role.CLIENT, Role.SCHEDULER, b"", os.urandom(32)
        )
        writer.write(handshake.start())
        while not handshake.done:
            writer.write(handshake.feed(await reader.read(handshake.bytes_wanted)))
        writer.write(frame([GetData.code, 1, ["x"]]))
        await turns(lambda: server.ends)
        assert await server.ends[0].got(1) == [GetData(request=1, keys=["x"])]
        await server.listener.close()
        await hung_up(reader, writer)

    asyncio.run(main())
    assert lines(log) == []


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="there is no such option")
def test_the_kernel_does_not_end_the_connection_of_a_late_reader(run: Run) -> None:
    """TCP_USER_TIMEOUT would count the time in which a living peer reads nothing."""

    async def main() -> None:
        server = Server()
        at = await server.start("tcp://127.0.0.1:0")
        healthy = await Healthy().start(at)
        for connection in (healthy.connection, server.connections[0]):
            sock = connection._transport.get_extra_info("socket")  # type: ignore[attr-defined]
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 0
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        await server.listener.close()

    run(main())


def test_connection_lost_in_the_middle_of_a_frame_is_an_error(
    run: Run, log: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        server = Server()
        at = await server.start("tcp://127.0.0.1:0")
        reader, writer = await shake_hands(at)
        writer.write(HALF[:-1])
        writer.write_eof()
        await hung_up(reader, writer)
        error = await server.ends[0].closed()
        assert isinstance(error, CommClosed)
        assert "middle of a frame" in str(error)
        await server.listener.close()

    run(main())
    assert lines(log) == []


def test_stale_epoch_closes_the_connection(run: Run, log: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        server = Server()
        at = await server.start("tcp://127.0.0.1:0")
        end = End()
        connection = await dial(at, end)
        (accepted,) = server.connections
        accepted.wire.epoch = 7
        connection.wire.epoch = 7
        connection.send([Heartbeat()])
        await end.got(1)
        connection.wire.epoch = 6
        connection.send([Heartbeat()])
        error = await server.ends[0].closed()
        assert isinstance(error, StaleEpoch)
        assert (error.expected, error.got) == (7, 6)
        assert isinstance(await end.closed(), CommClosed)
        await server.listener.close()

    run(main())
    assert len(lines(log)) == 1


def test_handler_that_finds_a_fault_closes_the_connection(
    run: Run, log: pytest.LogCaptureFixture
) -> None:
    class Strict(End):
        def on_messages(self, connection: Connection, messages: list[Message]) -> None:
            raise RemoteProtocolError("not in this state\n\x1b[31m")

    async def main() -> None:
        server = Server(Strict)
        at = await server.start("tcp://127.0.0.1:0")
        end = End()
        connection = await dial(at, end)
        connection.send([Heartbeat()])
        assert isinstance(await end.closed(), CommClosed)
        assert isinstance(await server.ends[0].closed(), RemoteProtocolError)
        await server.listener.close()

    run(main())
    (line,) = lines(log)
    assert "not in this state??[31m" in line


def test_limits_apply_to_what_a_client_receives(run: Run) -> None:
    async def main() -> None:
        server = Server()
        at = await server.start("tcp://127.0.0.1:0")
        end = End()
        connection = await dial(at, end, limits=FrameLimits(total=100_000))
        (accepted,) = server.connections
        blob = Payload(b"", [bytes(200_000)])
        accepted.send([KeysData(request=1, keys=["a"], results=[blob], missing=[])])
        assert isinstance(await end.closed(), RemoteProtocolError)
        assert connection.closed
        await server.listener.close()

    run(main())


def test_message_that_cannot_be_sent_leaves_the_connection_as_it_was(
    run: Run, stream_address: str
) -> None:
    async def main() -> None:
        server = Server()
        at = await server.start(stream_address)
        healthy = await Healthy().start(at)
        with pytest.raises(LocalProtocolError):
            healthy.connection.send([Heartbeat(next_ms=1 << 64)])
        await healthy.check()
        await server.listener.close()

    run(main())
