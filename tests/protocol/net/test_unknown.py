"""Messages of codes that this version does not know, on real connections."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.protocol.transport_kit import (
    End,
    Run,
    Server,
    dial,
    frame,
    hung_up,
    shake_hands,
    turns,
)
from weft.protocol.errors import StuckPeer
from weft.protocol.net.connection import Connection, settle_unknown
from weft.protocol.wire.message import Message
from weft.protocol.wire.messages import GetData, Heartbeat, Unsupported


class Settling(End):
    """Settles what it does not know, and keeps the rest."""

    def on_messages(self, connection: Connection, messages: list[Message]) -> None:
        known = settle_unknown(connection, messages)
        if known:
            super().on_messages(connection, known)


async def conversation(address: str) -> tuple[Server, Any, Any]:
    server = Server(Settling)
    reader, writer = await shake_hands(await server.start(address))
    return server, reader, writer


def test_unknown_messages_are_answered_and_the_connection_goes_on(run: Run) -> None:
    async def main() -> None:
        server = Server(Settling)
        asking = End()
        at = await server.start("tcp://127.0.0.1:0")
        connection = await dial(at, asking)
        known = GetData(request=1, keys=["k"])
        codes = iter([[250, 5, {"a": 1}], [251, "text"], [250]])

        class Later(Message):
            __slots__ = ()

            def short_wire(self) -> list[Any]:
                return next(codes)

        connection.send([Later(), known, Later(), Later()])
        assert await asking.got(3) == [
            Unsupported(unknown_code=250, request=5),
            Unsupported(unknown_code=251, request=0),
            Unsupported(unknown_code=250, request=0),
        ]
        assert await server.ends[0].got(1) == [known]
        connection.close()
        await server.listener.close()

    run(main())


def test_an_unsupported_message_without_a_request_is_logged_once_for_each_code(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        server = Server(Settling)
        connection = await dial(await server.start("tcp://127.0.0.1:0"), End())
        about = [(250, 0), (250, 0), (251, 0), (2**40, 0), (252, 9)]
        connection.send([Unsupported(unknown_code=c, request=r) for c, r in about])
        # One that names a request is for the handler.
        assert await server.ends[0].got(1) == [Unsupported(unknown_code=252, request=9)]
        connection.close()
        await server.listener.close()

    run(main())
    assert [record.args[1] for record in caplog.records] == [250, 251]
    assert all("install the same version" in record.getMessage() for record in caplog.records)


def test_a_peer_that_sends_unknown_messages_and_reads_no_answer_is_closed(
    run: Run, tmp_path: Path
) -> None:
    async def main() -> None:
        # The buffers of a Unix socket are small.
        server, reader, writer = await conversation(f"unix://{tmp_path}/socket")
        sent = 0
        while not server.connections[0].closed:
            sent += 1
            writer.write(frame(*[[250, 2**62]] * 5000, numbers=(0, 0, sent, 0)))
            await turns(lambda n=sent: server.connections[0].frames_in >= n)
            assert sent < 10_000
        assert isinstance(await server.ends[0].closed(), StuckPeer)
        await hung_up(reader, writer)
        await server.listener.close()

    run(main())


def test_many_unknown_messages_of_a_peer_that_reads_are_all_answered(run: Run) -> None:
    async def main() -> None:
        server, reader, writer = await conversation("tcp://127.0.0.1:0")
        writer.write(frame(*[[250]] * 20_000, [Heartbeat.code, 0]))
        assert await server.ends[0].got(1) == [Heartbeat()]
        assert not server.connections[0].closed
        writer.close()
        await hung_up(reader, writer)
        await server.listener.close()

    run(main())
