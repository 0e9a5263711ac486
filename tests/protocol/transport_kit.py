"""The kit for the tests of connections: a server, a healthy neighbour, and raw sockets."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgpack
import pytest
import uvloop

from weft.protocol.errors import (
    CommError,
    ProtocolError,
)
from weft.protocol.net.transport import Connection, Listener, connect
from weft.protocol.trust.security import Security, generate_certificate
from weft.protocol.wire.address import parse_address
from weft.protocol.wire.framing import frame_header
from weft.protocol.wire.handshake import ClientHandshake
from weft.protocol.wire.message import Message
from weft.protocol.wire.messages import GetData
from weft.protocol.wire.roles import Role

CLUSTER = b"cluster-of-tests"
TOKEN = b"a token of the tests, long enough"
CERTIFICATE, KEY = generate_certificate(CLUSTER)
SECURITY = Security(TOKEN, CLUSTER, CERTIFICATE, KEY)
PLAIN = Security(TOKEN, CLUSTER)

Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    """Run a coroutine on a new loop that must end without tasks and without reported errors."""
    complaints: list[dict[str, Any]] = []

    def run(main: Coroutine[Any, Any, None]) -> None:
        loop: asyncio.AbstractEventLoop
        loop = uvloop.new_event_loop() if request.param == "uvloop" else asyncio.new_event_loop()
        loop.set_exception_handler(lambda _, context: complaints.append(context))

        async def whole() -> None:
            await asyncio.wait_for(main, 60)
            # Connections that are being closed need some turns.
            for _ in range(5):
                await asyncio.sleep(0)
            assert asyncio.all_tasks() == {asyncio.current_task()}

        try:
            loop.run_until_complete(whole())
        finally:
            # After a failure only: uvloop does not close while a coroutine waits for a socket.
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            loop.run_until_complete(asyncio.wait(left) if left else asyncio.sleep(0))
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()

    yield run
    assert complaints == []


@pytest.fixture(params=["tcp", "tls", "unix", "inproc"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return {
        "tcp": "tcp://127.0.0.1:0",
        "tls": "tls://127.0.0.1:0",
        "unix": f"unix://{tmp_path}/socket",
        "inproc": "inproc://test",
    }[request.param]


@pytest.fixture(params=["tcp", "tls", "unix"])
def stream_address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return {
        "tcp": "tcp://127.0.0.1:0",
        "tls": "tls://127.0.0.1:0",
        "unix": f"unix://{tmp_path}/socket",
    }[request.param]


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO)
    return caplog


def lines(log: pytest.LogCaptureFixture) -> list[str]:
    assert all(r.name == "weft.transport" and not r.exc_info for r in log.records)
    assert all(r.levelno == logging.WARNING for r in log.records)
    assert all("\n" not in r.getMessage() for r in log.records)
    return [r.getMessage() for r in log.records]


class End:
    """A handler that keeps the messages that it gets."""

    def __init__(self) -> None:
        self.connection: Connection | None = None
        self.messages: list[Message] = []
        self.errors: list[CommError | ProtocolError | None] = []
        self.n_writable = 0
        self._changed = asyncio.Event()

    def on_messages(self, connection: Connection, messages: list[Message]) -> None:
        assert messages
        assert not self.errors
        self.connection = connection
        self.messages += messages
        self._changed.set()

    def on_writable(self, connection: Connection) -> None:
        assert connection.writable
        self.n_writable += 1
        self._changed.set()

    def on_closed(self, connection: Connection, error: CommError | ProtocolError | None) -> None:
        assert connection.closed
        self.connection = connection
        self.errors.append(error)
        self._changed.set()

    async def wait(self, condition: Callable[[], object]) -> None:
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    async def got(self, n: int) -> list[Message]:
        """The first n messages, which are taken away."""
        await self.wait(lambda: len(self.messages) >= n or self.errors)
        taken, self.messages = self.messages[:n], self.messages[n:]
        assert len(taken) == n
        return taken

    async def closed(self) -> CommError | ProtocolError | None:
        await self.wait(lambda: self.errors)
        (error,) = self.errors
        return error


class Echo(End):
    """Sends each message back."""

    def on_messages(self, connection: Connection, messages: list[Message]) -> None:
        super().on_messages(connection, messages)
        connection.send(messages)


class Server:
    """A listener that echoes; one handler per connection."""

    def __init__(self, make: Callable[[], End] = Echo) -> None:
        self.ends: list[End] = []
        self.connections: list[Connection] = []
        self.listener: Listener
        self._make = make

    def on_connection(self, connection: Connection) -> End:
        end = self._make()
        end.connection = connection
        self.connections.append(connection)
        self.ends.append(end)
        return end

    async def start(self, address: str, **options: Any) -> str:
        defaults: dict[str, Any] = {
            "role": Role.SCHEDULER,
            "accepted_roles": [Role.CLIENT, Role.WORKER],
            "security": SECURITY,
            "on_connection": self.on_connection,
        }
        self.listener = await Listener(address, **{**defaults, **options}).start()
        return self.listener.address


async def dial(address: str, end: End, **options: Any) -> Connection:
    defaults: dict[str, Any] = {
        "role": Role.CLIENT,
        "server_role": Role.SCHEDULER,
        "security": SECURITY,
    }
    return await connect(address, handler=end, **{**defaults, **options})


class Healthy:
    """A connection that must go on working whatever happens beside it."""

    def __init__(self) -> None:
        self.end = End()
        self.n = 0

    async def start(self, address: str) -> Healthy:
        self.connection = await dial(address, self.end)
        await self.check()
        return self

    async def check(self) -> None:
        self.n += 1
        self.connection.send([GetData(request=self.n, keys=["still", "here"])])
        assert await self.end.got(1) == [GetData(request=self.n, keys=["still", "here"])]


async def raw(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection below the handshake, for attackers."""
    target = parse_address(address)
    if target.scheme == "unix":
        return await asyncio.open_unix_connection(target.host)
    return await asyncio.open_connection(target.host, target.port)


async def hung_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """The bytes that the server sends before it closes the connection."""
    said = b""
    try:
        while more := await reader.read(1 << 16):
            said += more
    except ConnectionResetError:
        pass
    writer.close()
    try:
        await writer.wait_closed()
    except (ConnectionResetError, BrokenPipeError):
        pass
    return said


async def shake_hands(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """An authenticated connection, below the frames."""
    reader, writer = await raw(address)
    handshake = ClientHandshake(TOKEN, CLUSTER, Role.CLIENT, Role.SCHEDULER, b"", os.urandom(32))
    writer.write(handshake.start())
    while not handshake.done:
        writer.write(handshake.feed(await reader.read(handshake.bytes_wanted)))
    return reader, writer


def frame(*messages: Any, numbers: Sequence[int] = (0, 0, 1, 0)) -> bytes:
    payload: bytes = msgpack.packb([*numbers, list(messages)])
    return frame_header(len(payload)) + payload


async def turns(condition: Callable[[], object]) -> None:
    """Let the loop turn until a condition holds of which there is no notification."""
    for _ in range(100_000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never was so")
