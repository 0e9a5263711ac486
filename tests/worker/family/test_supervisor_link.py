"""The supervisor's line to the scheduler, with the test as the scheduler."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from weft.protocol.errors import CommClosed, CommError
from weft.protocol.net.connection import Connection
from weft.protocol.net.liveness import MISSED_HEARTBEATS, Silence
from weft.protocol.net.transport import Listener, listen
from weft.protocol.trust.security import Security
from weft.protocol.wire.handshake import Role
from weft.protocol.wire.message import Message
from weft.protocol.wire.messages import Bye, RegisterSupervisor, Welcome, WorkerExited, WorkersAlive
from weft.worker.family.supervisor_link import SupervisorLink

SECURITY = Security(b"a token for tests only", b"cluster-of-tests")


def welcome(session: int = 1) -> Welcome:
    return Welcome(epoch=7, session=session, heartbeat_ms=100, lease_ms=1000, facts={})


class Line:
    """Accepts supervisors at `inproc://name`; `on_registered` says what becomes of each."""

    def __init__(self, name: str, on_registered: Callable[[Connection], object]) -> None:
        self.address = f"inproc://{name}"
        self.heard: list[Message] = []
        self.n_closed = 0
        self._on_registered = on_registered
        self._listener: Listener | None = None
        self._news = asyncio.Event()

    async def start(self) -> None:
        self._listener = await listen(
            self.address,
            role=Role.SCHEDULER,
            accepted_roles={Role.SUPERVISOR},
            security=SECURITY,
            on_connection=lambda _: self,
        )

    async def stop(self) -> None:
        assert self._listener is not None
        await self._listener.close()

    def on_messages(self, connection: Connection, messages: list[Message]) -> None:
        self.heard += messages
        if isinstance(messages[0], RegisterSupervisor):
            self._on_registered(connection)
        self._news.set()

    def on_writable(self, connection: Connection) -> None:
        pass

    def on_closed(self, connection: Connection, error: object) -> None:
        self.n_closed += 1
        self._news.set()

    async def until(self, condition: Callable[[], object]) -> None:
        while not condition():
            self._news.clear()
            await asyncio.wait_for(self._news.wait(), 20)

    def of(self, kind: type[Message]) -> list[Message]:
        return [message for message in self.heard if isinstance(message, kind)]


def greet(connection: Connection) -> None:
    connection.send([welcome()])


def greet_and_go(connection: Connection) -> None:
    connection.send([welcome()])
    connection.close()


def ignore(connection: Connection) -> None:
    pass


@pytest.fixture
async def lines() -> AsyncIterator[dict[str, Line]]:
    made = {
        name: Line(name, on_registered)
        for name, on_registered in [("good", greet), ("short", greet_and_go), ("silent", ignore)]
    }
    for line in made.values():
        await line.start()
    yield made
    for line in made.values():
        await line.stop()


@pytest.fixture
async def link() -> AsyncIterator[SupervisorLink]:
    link = SupervisorLink("sup", lambda: {"w": 5}, lambda reason: None)
    yield link
    link.abort()


async def test_reports_wait_for_a_session_and_come_before_the_heartbeat(lines, link):
    good = lines["good"]
    link.report_exit("w", "killed", [3])
    await link.connect([good.address], SECURITY, timeout_s=20)
    assert link.connected
    await good.until(lambda: good.of(WorkersAlive))
    report = WorkerExited(worker_id="w", reason="killed", running=[3])
    assert good.heard[1:] == [report, WorkersAlive(worker_ids=["w"], rss=[5])]
    await link.leave("x" * 100_000)
    assert good.of(Bye) == [Bye(reason="x" * 1000)]
    assert not link.connected


async def test_a_scheduler_that_leaves_as_it_says_welcome_is_an_ended_session(lines, link):
    short = lines["short"]
    with pytest.raises(CommClosed):
        await link.connect([short.address], SECURITY, timeout_s=20)
    assert not link.connected
    await link.connect([lines["good"].address], SECURITY, timeout_s=20)
    assert link.connected


async def test_the_end_of_one_attempt_does_not_end_the_next(lines, link):
    addresses = [lines["silent"].address, lines["good"].address]
    await link.connect(addresses, SECURITY, timeout_s=0.2)
    await lines["silent"].until(lambda: lines["silent"].n_closed)
    assert link.connected
    await lines["good"].until(lambda: lines["good"].of(WorkersAlive))


async def test_an_attempt_that_is_cancelled_leaves_no_connection(lines, link):
    silent = lines["silent"]
    attempt = asyncio.ensure_future(link.connect([silent.address], SECURITY, timeout_s=20))
    await silent.until(lambda: silent.heard)
    attempt.cancel()
    with pytest.raises(asyncio.CancelledError):
        await attempt
    await silent.until(lambda: silent.n_closed)


async def test_nobody_who_answers_is_an_error(lines, link):
    with pytest.raises(CommError, match="did not answer our registration"):
        await link.connect([lines["silent"].address], SECURITY, timeout_s=0.1)


async def test_a_scheduler_that_says_nothing_any_more_is_left(lines, link, monkeypatch):
    monkeypatch.setattr("weft.worker.family.supervisor_link.MISSED_HEARTBEATS", 2)
    good = lines["good"]
    await link.connect([good.address], SECURITY, timeout_s=20)
    assert await asyncio.wait_for(link.wait_closed(), 20) == "it was silent for 0.2 s"
    assert not link.connected
    await good.until(lambda: good.n_closed)


class Heard:
    """As much of a connection as silence is about."""

    bytes_in = frames_in = 0


def test_silence_is_counted_in_looks_one_after_the_other():
    silence, connection = Silence(), Heard()
    for _ in range(3):
        assert [silence.look(connection) for _ in range(MISSED_HEARTBEATS)] == (
            [False] * MISSED_HEARTBEATS
        )
        connection.bytes_in += 1
    assert not silence.look(connection)
    connection.frames_in += 1
    assert [silence.look(connection) for _ in range(MISSED_HEARTBEATS + 1)][-2:] == [False, True]
