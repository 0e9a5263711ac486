"""The supervisor's session with the scheduler, with the test as the scheduler."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from weft.protocol.errors import CommError, InternalError, WrongToken
from weft.protocol.net.connection import Connection
from weft.protocol.net.transport import Listener
from weft.protocol.trust.security import Security
from weft.protocol.wire.message import Message
from weft.protocol.wire.messages import (
    Answer,
    Ask,
    AskFailed,
    Bye,
    Heartbeat,
    RegisterSupervisor,
    Stop,
    TearDownOnSupervisor,
    Welcome,
    WorkerExited,
    WorkerHeldUp,
    WorkersAlive,
    WorkersRetired,
)
from weft.protocol.wire.roles import Role
from weft.protocol.wire.session import GiveUp, Outage
from weft.worker.family.places import CannotScale
from weft.worker.family.supervisor_link import SupervisorLink, SupervisorPolicy

SECURITY = Security(b"a token for tests only", b"cluster-of-tests")


def welcome(session: int = 1) -> Welcome:
    return Welcome(epoch=7, session=session, heartbeat_ms=100, facts={})


class SchedulerOfSupervisors:
    """Accepts supervisors at `inproc://name`; `on_registered` decides about each."""

    def __init__(self, name: str, on_registered: Callable[[Connection], object]) -> None:
        self.address = f"inproc://{name}"
        self.heard: list[Message] = []
        self.n_closed = 0
        self._on_registered = on_registered
        self._listener: Listener | None = None
        self._news = asyncio.Event()

    async def start(self) -> None:
        self._listener = await Listener(
            self.address,
            role=Role.SCHEDULER,
            accepted_roles={Role.SUPERVISOR},
            security=SECURITY,
            on_connection=lambda _: self,
        ).start()

    async def stop(self) -> None:
        assert self._listener is not None
        await self._listener.close()

    def on_messages(self, connection: Connection, messages: list[Message]) -> None:
        self.heard += messages
        if isinstance(messages[-1], Bye):
            connection.close()
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


class Family:
    """A link, and the parts of a supervisor that it uses."""

    def __init__(self, address: str, **policy: object) -> None:
        self.ends: list[GiveUp] = []
        self.stops: list[str] = []
        self.sizes = {"w": 5}
        self.held_up: list[WorkerHeldUp] = []
        self.scaled: list[int | None] = []
        self.retired: list[str] = []
        self.ended: list[tuple[list[str], str]] = []
        self.orders: list[Message] = []
        self.link = SupervisorLink(
            "sup",
            lambda: ([address], SECURITY),
            SupervisorPolicy(**policy),
            measure=lambda: (self.sizes, [7]),
            held_up=lambda: self.held_up,
            on_stop=self.stops.append,
            on_scale=self._scale,
            on_retired=self.retired.extend,
            on_end=lambda *order: self.ended.append(order),
            on_plugin=lambda _, order: self.orders.append(order),
            on_over=self.ends.append,
        )

    def _scale(self, n: int | None) -> list[str]:
        if n is not None and n > 9:
            raise CannotScale("9 is the limit")
        self.scaled.append(n)
        return ["w-0"]


async def test_reports_wait_for_a_session_and_come_before_the_heartbeat():
    scheduler = SchedulerOfSupervisors("good", greet)
    await scheduler.start()
    family = Family(scheduler.address)
    family.link.report_exit("w", "killed", [3], "signal")
    assert not family.link.connected
    family.link.start()
    await scheduler.until(lambda: scheduler.of(WorkersAlive))
    assert family.link.connected
    report = WorkerExited(worker_id="w", reason="killed", running=[3], kind="signal")
    assert scheduler.heard[1:] == [report, WorkersAlive(worker_ids=["w"], rss=[5], numbers=[7])]
    family.link.report_exit("v", "exit code 3", [], "exit")
    await scheduler.until(lambda: len(scheduler.of(WorkerExited)) == 2)
    await family.link.leave("x" * 100_000)
    assert scheduler.of(Bye) == [Bye(reason="x" * 1000)]
    assert not family.link.connected
    await scheduler.stop()


async def test_a_report_that_no_answer_covers_is_sent_again_in_the_next_session():
    connections: list[Connection] = []

    def accept(connection: Connection) -> None:
        connections.append(connection)
        connection.send([welcome(len(connections))])

    scheduler = SchedulerOfSupervisors("torn", accept)
    await scheduler.start()
    family = Family(scheduler.address, again_s=60.0)
    family.link.report_exit("w", "killed", [3], "signal")
    family.link.start()
    await scheduler.until(lambda: scheduler.of(WorkerExited))
    connections[0].abort()
    await scheduler.until(
        lambda: len(connections) == 2 and isinstance(scheduler.heard[-1], WorkersAlive)
    )
    assert len(scheduler.of(WorkerExited)) == 2
    connections[1].send([Heartbeat(next_ms=50)])
    connections[1].close()
    await scheduler.until(
        lambda: len(connections) == 3 and isinstance(scheduler.heard[-1], WorkersAlive)
    )
    assert len(scheduler.of(WorkerExited)) == 2
    await family.link.leave("")
    await scheduler.stop()


async def test_the_order_to_stop_is_handed_on():
    scheduler = SchedulerOfSupervisors(
        "bossy", lambda connection: connection.send([welcome(), Stop(reason="enough")])
    )
    await scheduler.start()
    family = Family(scheduler.address)
    family.link.start()
    await scheduler.until(lambda: scheduler.of(WorkersAlive))
    assert family.stops == ["enough"]
    await family.link.leave("")
    await scheduler.stop()


async def test_orders_about_plugins_are_handed_on():
    order = TearDownOnSupervisor(request=1, plugin="p")
    scheduler = SchedulerOfSupervisors(
        "plugins", lambda connection: connection.send([welcome(), order])
    )
    await scheduler.start()
    family = Family(scheduler.address)
    family.link.start()
    await scheduler.until(lambda: scheduler.of(WorkersAlive))
    assert family.orders == [order]
    await family.link.leave("")
    await scheduler.stop()


async def test_the_number_of_workers_is_handed_on_and_answered():
    def boss(connection: Connection) -> None:
        asked = [{"n": 3}, {}, {"n": 10}, {"n": "3"}]
        connection.send(
            [
                welcome(),
                WorkersRetired(worker_ids=["a", "b"]),
                *(Ask(request=i, name="scale", arguments=a) for i, a in enumerate(asked, 1)),
                Ask(request=5, name="why", arguments={}),
            ]
        )

    scheduler = SchedulerOfSupervisors("scaling", boss)
    await scheduler.start()
    family = Family(scheduler.address)
    family.link.start()
    await scheduler.until(lambda: len(scheduler.of(AskFailed)) == 3)
    assert family.scaled == [3, None]
    assert family.retired == ["a", "b"]
    assert [answer.info for answer in scheduler.of(Answer)] == [{"names": ["w-0"]}] * 2
    limit, wrong, unknown = [failed.text for failed in scheduler.of(AskFailed)]
    assert "9 is the limit" in limit
    assert "n= is a number of workers" in wrong
    assert "'why'" in unknown
    await family.link.leave("")
    await scheduler.stop()


async def test_a_silent_scheduler_is_abandoned(monkeypatch, caplog):
    monkeypatch.setattr("weft.protocol.wire.session.MISSED_HEARTBEATS", 2)
    scheduler = SchedulerOfSupervisors("silent", greet)
    await scheduler.start()
    family = Family(scheduler.address)
    family.link.start()
    await scheduler.until(lambda: len(scheduler.of(RegisterSupervisor)) == 2)
    assert "the scheduler is gone: it was silent for 0.2 s; trying to reconnect" in caplog.text
    await scheduler.until(lambda: scheduler.n_closed)
    await family.link.leave("")
    await scheduler.stop()


async def test_after_stay_away_the_loss_of_the_session_is_the_end(caplog):
    scheduler = SchedulerOfSupervisors("last", greet)
    await scheduler.start()
    family = Family(scheduler.address)
    family.link.start()
    await scheduler.until(lambda: scheduler.of(WorkersAlive))
    family.link.stay_away()
    await scheduler.stop()
    end = await asyncio.wait_for(family.link.over, 20)
    assert family.ends == [end]
    assert caplog.text == ""


async def test_a_bug_in_the_measuring_of_workers_ends_the_session(caplog):
    scheduler = SchedulerOfSupervisors("buggy", greet)
    await scheduler.start()
    family = Family(scheduler.address)
    family.sizes = None
    family.link.start()
    await asyncio.wait_for(family.link.over, 20)
    assert isinstance(family.ends[0].error, InternalError)
    assert "a bug of weft" in caplog.text
    await scheduler.stop()


def test_at_first_only_an_absent_scheduler_is_waited_for_and_later_any():
    policy = SupervisorPolicy()
    first, later = Outage(0.0, None), Outage(0.0, CommError("lost"))
    assert not policy.is_final(CommError("refused"), first, 1.0)
    assert policy.is_final(WrongToken(), first, 1.0)
    assert not policy.is_final(WrongToken(), later, 1e6)


def test_an_embedded_supervisor_waits_for_no_scheduler():
    policy = SupervisorPolicy(is_embedded=True)
    assert policy.is_final(CommError("refused"), Outage(0.0, CommError("lost")), 1.0)
