"""Connections to data ports: each request is answered once, whatever the other end does."""

from __future__ import annotations

import asyncio

import pytest

from tests.protocol.transport_kit import PLAIN, End, Server
from weft.protocol.net import data_connection
from weft.protocol.net.data_connection import DataConnections
from weft.protocol.net.deadline import within
from weft.protocol.wire.messages import GetData, KeysData, Unsupported
from weft.protocol.wire.roles import Role


def get(request):
    return GetData(request=request, keys=["k"])


class Port(End):
    """A data port that answers requests, unless it is set to be silent."""

    is_silent = False

    def on_messages(self, connection, messages):
        super().on_messages(connection, messages)
        for message in messages:
            if not self.is_silent:
                connection.send([answer(message.request)])


class SilentPort(Port):
    is_silent = True


def answer(request):
    return KeysData(request=request, keys=[], results=[], missing=["k"])


class Asker:
    def __init__(self, **options):
        self.answers, self.failures = [], []
        self._changed = asyncio.Event()
        self.connections = DataConnections(
            lambda: PLAIN, self.on_answer, self.on_failed, connect_timeout_s=5.0, **options
        )

    def on_answer(self, address, message):
        self.answers.append(message.request)
        self._changed.set()

    def on_failed(self, address, request, reason):
        self.failures.append((request, reason))
        self._changed.set()

    async def until(self, condition):
        while not condition():
            self._changed.clear()
            await within(20, self._changed.wait())


class Worker(Server):
    """A data port that reports when a peer has connected to it."""

    def __init__(self, make):
        super().__init__(make)
        self._changed = asyncio.Event()

    def on_connection(self, connection):
        self._changed.set()
        return super().on_connection(connection)

    async def end(self, n):
        """Return the handler of the n-th connection."""
        while len(self.ends) <= n:
            self._changed.clear()
            await within(20, self._changed.wait())
        return self.ends[n]


async def started(address, make=Port):
    server = Worker(make)
    address = await server.start(
        address, role=Role.WORKER_DATA, accepted_roles={Role.PEER}, security=PLAIN
    )
    return server, address


def test_requests_before_and_after_the_connection_are_answered_over_one(run, tmp_path):
    async def main():
        server, address = await started(f"unix://{tmp_path}/s")
        asker = Asker()
        asker.connections.ask(address, get(1))
        asker.connections.ask(address, get(2))
        await asker.until(lambda: asker.answers == [1, 2])
        asker.connections.ask(address, get(3))
        await asker.until(lambda: asker.answers == [1, 2, 3])
        assert len(server.connections) == 1
        assert asker.failures == []
        await asker.connections.close()
        await server.listener.close()

    run(main())


def test_a_worker_out_of_reach_fails_each_request_once(run, tmp_path):
    async def main():
        asker = Asker()
        for request in (1, 2):
            asker.connections.ask(f"unix://{tmp_path}/nobody", get(request))
        await asker.until(lambda: len(asker.failures) == 2)
        assert [request for request, _ in asker.failures] == [1, 2]
        await asker.connections.close()
        assert len(asker.failures) == 2

    run(main())


def test_a_connection_that_is_lost_fails_its_requests_and_the_next_request_opens_another(
    run, tmp_path
):
    async def main():
        server, address = await started(f"unix://{tmp_path}/s", SilentPort)
        asker = Asker()
        asker.connections.ask(address, get(1))
        await (await server.end(0)).got(1)
        server.connections[0].abort()
        await asker.until(lambda: asker.failures)
        asker.connections.ask(address, get(2))
        await (await server.end(1)).got(1)
        assert [request for request, _ in asker.failures] == [1]
        await asker.connections.close()
        await server.listener.close()

    run(main())


def test_a_worker_that_is_given_up_fails_its_requests_and_accepts_new_ones(run, tmp_path):
    async def main():
        server, address = await started(f"unix://{tmp_path}/s", SilentPort)
        asker = Asker()
        asker.connections.ask(address, get(1))
        await (await server.end(0)).got(1)
        asker.connections.ask(f"unix://{tmp_path}/nobody", get(2))  # which is still connecting
        for each in (address, f"unix://{tmp_path}/nobody", "unix:///never/asked"):
            asker.connections.give_up(each, "lost")
        assert asker.failures == [(1, "lost"), (2, "lost")]
        await server.ends[0].closed()
        asker.connections.ask(address, get(3))
        await (await server.end(1)).got(1)
        await asker.connections.close()
        await server.listener.close()

    run(main())


def test_nothing_is_reported_or_asked_once_the_connections_are_closed(run, tmp_path):
    async def main():
        server, address = await started(f"unix://{tmp_path}/s", SilentPort)
        asker = Asker()
        asker.connections.ask(address, get(1))
        await (await server.end(0)).got(1)
        await asker.connections.close()
        asker.connections.ask(address, get(2))
        await server.ends[0].closed()
        assert (asker.answers, asker.failures) == ([], [])
        assert len(server.connections) == 1
        await server.listener.close()

    run(main())


def test_silence_ends_a_connection_that_owes_an_answer(run, tmp_path, monkeypatch):
    monkeypatch.setattr(data_connection, "_SILENCE_S", 0.12)

    async def main():
        server, address = await started(f"unix://{tmp_path}/s", SilentPort)
        asker = Asker()
        asker.connections.ask(address, get(1))
        await asker.until(lambda: asker.failures)
        assert asker.failures == [(1, "no answer within 0.12 s")]
        await server.ends[0].closed()
        await asker.connections.close()
        await server.listener.close()

    run(main())


def test_an_unused_connection_is_closed_and_an_unused_one_makes_room(run, tmp_path, monkeypatch):
    monkeypatch.setattr(data_connection, "_MAX_CONNECTIONS", 1)

    async def main():
        server, address = await started(f"unix://{tmp_path}/s")
        other, second = await started(f"unix://{tmp_path}/t")
        asker = Asker()
        asker.connections.ask(address, get(1))
        await asker.until(lambda: asker.answers == [1])
        monkeypatch.setattr(data_connection, "_IDLE_S", 0.01)
        asker.connections.ask(second, get(2))
        await server.ends[0].closed()  # room for the second
        await asker.until(lambda: asker.answers == [1, 2])
        await other.ends[0].closed()  # nothing was asked any more
        assert asker.failures == []
        await asker.connections.close()
        for each in (server, other):
            await each.listener.close()

    run(main())


@pytest.mark.parametrize("message", [answer(99), GetData(request=1, keys=["k"])])
def test_data_that_was_not_asked_for_ends_the_connection(run, tmp_path, message):
    async def main():
        server, address = await started(f"unix://{tmp_path}/s", SilentPort)
        asker = Asker()
        asker.connections.ask(address, get(1))
        await (await server.end(0)).got(1)
        server.connections[0].send([message])
        await asker.until(lambda: asker.failures)
        assert asker.failures == [(1, "it sent data that was not requested")]
        await asker.connections.close()
        await server.listener.close()

    run(main())


class EarlierPort(Port):
    """A data port of a version that does not know the request."""

    def on_messages(self, connection, messages):
        End.on_messages(self, connection, messages)
        for message in messages:
            connection.send([Unsupported(unknown_code=GetData.code, request=message.request)])


def test_a_request_that_the_worker_does_not_know_fails_and_the_connection_stays(run):
    async def main():
        server, address = await started("tcp://127.0.0.1:0", EarlierPort)
        asker = Asker()
        for request in (1, 2):
            asker.connections.ask(address, get(request))
            await asker.until(lambda n=request: len(asker.failures) >= n)
        assert [request for request, _ in asker.failures] == [1, 2]
        assert all("install the same version" in reason for _, reason in asker.failures)
        assert len(server.ends) == 1
        await asker.connections.close()
        await server.listener.close()

    run(main())
