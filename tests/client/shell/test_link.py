"""The client's session with its scheduler, with the test as the scheduler, in one loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from weft.client.core.events import ClientEvent, Connected, Disconnected, GaveUp
from weft.client.shell.link import SchedulerLink
from weft.client.shell.loop import LoopThread
from weft.protocol.net.connection import Connection
from weft.protocol.net.transport import Listener
from weft.protocol.trust.security import Security
from weft.protocol.wire.message import Message
from weft.protocol.wire.messages import Bye, Heartbeat, RegisterClient, Welcome
from weft.protocol.wire.roles import Role

SECURITY = Security(b"a token for tests only", b"cluster-of-tests")


class SchedulerOfClients:
    """Accepts clients; `on_registered` decides about each."""

    def __init__(self) -> None:
        self.address = "inproc://scheduler-of-links"
        self.registrations: list[RegisterClient] = []
        self.n_beats = 0
        self.n_closed = 0
        self.on_registered: Callable[[Connection], object] = self.greet
        self.is_mute = False
        self._listener: Listener | None = None
        self._news = asyncio.Event()

    async def start(self) -> SchedulerOfClients:
        self._listener = await Listener(
            self.address,
            role=Role.SCHEDULER,
            accepted_roles={Role.CLIENT},
            security=SECURITY,
            on_connection=lambda _: self,
        ).start()
        return self

    async def stop(self) -> None:
        assert self._listener is not None
        await self._listener.close()

    def greet(self, connection: Connection) -> None:
        n = len(self.registrations)
        connection.send([Welcome(epoch=7, session=n, heartbeat_ms=50, facts={})])

    def greet_and_abort(self, connection: Connection) -> None:
        self.greet(connection)
        asyncio.get_running_loop().call_later(0.01, connection.abort)

    def on_messages(self, connection: Connection, messages: list[Message]) -> None:
        for message in messages:
            if isinstance(message, RegisterClient):
                self.registrations.append(message)
                self.on_registered(connection)
            elif isinstance(message, Bye):
                connection.close()
            elif isinstance(message, Heartbeat):
                self.n_beats += 1
                if not self.is_mute:
                    connection.send([message])
        self.tell()

    def on_writable(self, connection: Connection) -> None:
        pass

    def on_closed(self, connection: Connection, error: object) -> None:
        self.n_closed += 1
        self.tell()

    def tell(self) -> None:
        self._news.set()

    async def until(self, condition: Callable[[], object]) -> None:
        while not condition():
            self._news.clear()
            await asyncio.wait_for(self._news.wait(), 20)


class Link:
    """A link, and the parts of an engine that it uses."""

    def __init__(self, scheduler: SchedulerOfClients, reconnect_timeout_s: float = 20.0) -> None:
        self.scheduler = scheduler
        self.events: list[ClientEvent] = []
        self.problem: Exception | None = None
        #: What the link uses of its engine.
        self.client_id = self.name = "alice"
        self.lock = threading.RLock()
        self.worker_of_tasks = self.shown = None
        self.link = SchedulerLink(self, self.find, {}, reconnect_timeout_s)

    def find(self) -> tuple[list[str], Security]:
        if self.problem is not None:
            raise self.problem
        return [self.scheduler.address], SECURITY

    def count_pending(self) -> int:
        return 0

    def on_writable(self) -> None: ...

    def on_event(self, event: ClientEvent) -> None:
        self.events.append(event)
        self.scheduler.tell()

    def of(self, kind: type[ClientEvent]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


@pytest.fixture
async def scheduler() -> AsyncIterator[SchedulerOfClients]:
    scheduler = await SchedulerOfClients().start()
    yield scheduler
    await scheduler.stop()


@pytest.fixture
async def bench(scheduler: SchedulerOfClients) -> AsyncIterator[Link]:
    bench = Link(scheduler)
    yield bench
    await bench.link.close("the test ends", 5.0)
    await scheduler.until(lambda: scheduler.n_closed == len(scheduler.registrations))


async def test_an_attempt_that_is_cancelled_before_the_welcome_leaves_no_connection(
    scheduler, bench
):
    scheduler.on_registered = lambda connection: None
    opening = asyncio.ensure_future(bench.link.open(20.0))
    await scheduler.until(lambda: scheduler.registrations)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    await scheduler.until(lambda: scheduler.n_closed)
    assert bench.events == []


async def test_a_close_before_the_welcome_leaves_no_connection(scheduler, bench):
    await bench.link.open(20.0)
    late: list[Connection] = []
    scheduler.on_registered = late.append
    bench.link.connection.abort()
    await scheduler.until(lambda: late)
    closing = asyncio.ensure_future(bench.link.close("enough", 5.0))
    await asyncio.sleep(0)
    scheduler.greet(late[0])
    await closing
    await scheduler.until(lambda: scheduler.n_closed == 2)
    assert len(bench.of(Connected)) == 1


async def test_a_silent_scheduler_is_abandoned(scheduler, bench, monkeypatch):
    monkeypatch.setattr("weft.protocol.wire.session.MISSED_HEARTBEATS", 3)
    await bench.link.open(20.0)
    await scheduler.until(lambda: scheduler.n_beats > 5)
    assert bench.of(Disconnected) == []
    scheduler.is_mute = True
    await scheduler.until(lambda: bench.of(Disconnected))
    assert "it was silent" in str(bench.link._runner.session.outage.error)
    scheduler.is_mute = False
    await scheduler.until(lambda: len(bench.of(Connected)) == 2)


async def test_a_bug_in_the_search_is_reported_to_pending_futures(scheduler, bench, caplog):
    await bench.link.open(20.0)
    bench.problem = RuntimeError("a bug in the finder")
    bench.link.connection.abort()
    await scheduler.until(lambda: bench.of(GaveUp))
    assert "a bug in the finder" in bench.of(GaveUp)[0].reason
    assert "a bug of weft ends the session" in caplog.text


def test_a_coroutine_posted_while_the_loop_closes_is_cancelled(monkeypatch):
    """It was posted too late to be started; if it was not cancelled, its caller would wait."""
    closing, posted = threading.Event(), threading.Event()
    loop = asyncio.new_event_loop()
    close = loop.close

    def close_late() -> None:
        closing.set()
        assert posted.wait(20)
        close()

    post = loop.call_soon_threadsafe

    def post_and_tell(*args: Any) -> Any:
        handle = post(*args)
        # `stop` posts as well, and may return from that only when the loop is closing.
        if threading.current_thread() is caller:
            posted.set()
        return handle

    monkeypatch.setattr(loop, "close", close_late)
    monkeypatch.setattr(loop, "call_soon_threadsafe", post_and_tell)
    monkeypatch.setattr("weft.client.shell.loop.new_event_loop", lambda: loop)
    thread = LoopThread()
    thread.start()
    ended: list[BaseException] = []

    async def never() -> None:
        raise AssertionError("it ran")

    def late() -> None:
        assert closing.wait(20)
        thread._loop = loop  # as it was when this caller looked
        try:
            thread.run_coroutine(never())
        except BaseException as error:
            ended.append(error)

    caller = threading.Thread(target=late, daemon=True)
    caller.start()
    thread.stop()
    caller.join(20)
    assert [type(error).__name__ for error in ended] == ["CancelledError"]
