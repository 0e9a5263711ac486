"""Whole workers over real transports, with the test as their scheduler."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest

from tests.worker.builders import assign_call
from weft.protocol.errors import (
    CommError,
    ConfigError,
    ConnectRefused,
    HandshakeError,
    UnpicklableResult,
    WrongToken,
)
from weft.protocol.net.connection import Connection
from weft.protocol.net.transport import Listener, connect, listen
from weft.protocol.trust.security import Security, generate_certificate, new_cluster_id, new_token
from weft.protocol.values.serialize import loads, reduce_future
from weft.protocol.wire.handshake import Role
from weft.protocol.wire.message import Message
from weft.protocol.wire.messages import (
    AssignTasks,
    AttemptsFinished,
    Bye,
    DropAttempts,
    FetchKeys,
    GetData,
    Heartbeat,
    HoldersGone,
    InventoryHeld,
    KeysData,
    KeysMissing,
    Refused,
    RegisterWorker,
    ReplicasAdded,
    Stop,
    Welcome,
    WorkerStatus,
)
from weft.worker.config import WorkerConfig
from weft.worker.core.validate import validate
from weft.worker.server import WorkerServer

EPOCH = 7


class Ref:
    def __init__(self, key: str):
        self.key = key

    def __reduce__(self):
        return reduce_future(self.key)


class Scheduler:
    """Accepts workers, keeps their messages, and sends those of the test."""

    def __init__(self, security: Security):
        self.security = security
        self.listener: Listener | None = None
        self.connections: dict[str, Connection] = {}
        self.registrations: list[RegisterWorker] = []
        self.heard: list[tuple[str, Message]] = []
        self.refuses = ""
        #: Heartbeats are not answered.
        self.is_mute = False
        self._news = asyncio.Event()
        self.last_attempt = 0

    async def start(self, address: str) -> None:
        self.listener = await listen(
            address,
            role=Role.SCHEDULER,
            accepted_roles={Role.WORKER},
            security=self.security,
            on_connection=lambda connection: self,
        )

    async def stop(self) -> None:
        assert self.listener is not None
        await self.listener.close()

    def on_messages(self, connection: Connection, messages: list[Message]) -> None:
        for message in messages:
            if isinstance(message, RegisterWorker):
                self.registrations.append(message)
                if self.refuses:
                    connection.send([Refused(reason=self.refuses)])
                    continue
                self.connections[message.worker_id] = connection
                connection.send(
                    [
                        Welcome(
                            epoch=EPOCH,
                            session=message.session,
                            heartbeat_ms=50,
                            facts={},
                        )
                    ]
                )
                connection.wire.epoch, connection.wire.session = EPOCH, message.session
            else:
                worker_id = next(i for i, c in self.connections.items() if c is connection)
                self.heard.append((worker_id, message))
                if isinstance(message, Heartbeat) and not self.is_mute:
                    connection.send([message])
        self._news.set()

    def on_writable(self, connection: Connection) -> None:
        pass

    def on_closed(self, connection: Connection, error: object) -> None:
        self.connections = {i: c for i, c in self.connections.items() if c is not connection}
        self._news.set()

    async def until(self, condition: Callable[[], object]) -> None:
        while not condition():
            self._news.clear()
            await asyncio.wait_for(self._news.wait(), 20)

    def of(self, kind: type[Message]) -> list[Message]:
        return [message for _, message in self.heard if isinstance(message, kind)]

    def send(self, worker: WorkerServer, *messages: Message) -> None:
        self.connections[worker.config.worker_id].send(messages)

    def task(
        self, function: Callable[..., object], *args: object, key: str, wanted: int = 1
    ) -> AssignTasks:
        self.last_attempt += 1
        return assign_call(function, args, key, self.last_attempt, wanted)

    def located(self, task: AssignTasks, key: str, attempt: int, *holders: str) -> AssignTasks:
        task.located_keys, task.located_attempts = [key], [attempt]
        task.located_nbytes, task.located_holders = [100], [list(holders)]
        return task

    def results(self) -> dict[int, object]:
        return {
            attempt: None if blob is None else loads(blob)
            for message in self.of(AttemptsFinished)
            for attempt, blob in zip(message.attempts, message.results, strict=True)
        }

    async def until_done(self, n: int) -> dict[int, object]:
        await self.until(lambda: len(self.results()) >= n)
        return self.results()


class Cluster:
    def __init__(self, scheduler: Scheduler, tmp_path: Path):
        self.scheduler = scheduler
        self.workers: list[WorkerServer] = []
        self.runs: list[asyncio.Task[None]] = []
        self.tmp_path = tmp_path

    def add(self, **options) -> WorkerServer:
        assert self.scheduler.listener is not None
        options = {
            "scheduler": self.scheduler.listener.address,
            "security": self.scheduler.security,
            **options,
        }
        worker = WorkerServer(WorkerConfig(**options))
        self.workers.append(worker)
        self.runs.append(asyncio.get_running_loop().create_task(worker.run()))
        return worker

    async def start(self, **options) -> WorkerServer:
        worker = self.add(**options)
        await asyncio.wait_for(worker.registered.wait(), 20)
        return worker


@pytest.fixture
def security() -> Security:
    return Security(token=new_token().encode(), cluster_id=new_cluster_id())


@asynccontextmanager
async def running(address: str, security: Security, tmp_path: Path) -> AsyncIterator[Cluster]:
    scheduler = Scheduler(security)
    await scheduler.start(address)
    cluster = Cluster(scheduler, tmp_path)
    try:
        yield cluster
    finally:
        for worker in cluster.workers:
            worker.stop("the test ends")
        await asyncio.wait_for(asyncio.gather(*cluster.runs, return_exceptions=True), 20)
        await scheduler.stop()
        for worker in cluster.workers:
            if worker._executor is not None:
                validate(worker.executor.state)
                assert len(worker.executor.store) == 0
        # Its thread looked names up.
        await asyncio.get_running_loop().shutdown_default_executor()


@pytest.fixture
async def cluster(security: Security, tmp_path: Path) -> AsyncIterator[Cluster]:
    async with running("tcp://127.0.0.1:0", security, tmp_path) as cluster:
        yield cluster


def inc(x):
    return x + 1


def total(array):
    return float(array.sum())


# --- Everything, over each transport --------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["tcp", "tls", "unix", "inproc"])
async def test_tasks_run_and_data_moves_between_workers(scheme, security, tmp_path):
    address = {"unix": f"unix://{tmp_path}/s", "inproc": "inproc://s"}.get(
        scheme, f"{scheme}://127.0.0.1:0"
    )
    if scheme == "tls":
        certificate, key = generate_certificate(security.cluster_id)
        security = dataclasses.replace(security, certificate_pem=certificate, private_key_pem=key)
    async with running(address, security, tmp_path) as cluster:
        scheduler = cluster.scheduler
        # A worker has no key of the cluster's certificate, and learns the cluster's id.
        own = dataclasses.replace(security, private_key_pem=None, cluster_id=None)
        a = await cluster.start(name="a", security=own)
        b = await cluster.start(name="b", nthreads=2, security=own)
        assert a.address.startswith(f"{scheme}://")
        scheduler.send(a, scheduler.task(inc, 1, key="x"))
        scheduler.send(a, scheduler.task(np.ones, 300_000, key="big"))
        assert await scheduler.until_done(2) == {1: 2, 2: None}
        scheduler.send(
            b, scheduler.located(scheduler.task(total, Ref("big"), key="t"), "big", 2, a.address)
        )
        assert (await scheduler.until_done(3))[3] == 300_000.0
        assert scheduler.of(ReplicasAdded) == [ReplicasAdded(attempts=[2], keys=["big"])]
        assert isinstance(b.executor.store.load(2), np.ndarray)


# --- Registration ---------------------------------------------------------------------------------


async def test_a_worker_registers_with_its_properties_and_sends_heartbeats(cluster):
    worker = await cluster.start(
        name="w", nthreads=3, memory_limit=1 << 30, resources={"gpu": 1.0}, supervisor_id="s1"
    )
    (said,) = cluster.scheduler.registrations
    assert said.worker_id == worker.config.worker_id
    assert (said.name, said.nthreads, said.memory_limit) == ("w", 3, 1 << 30)
    assert (said.session, said.last_epoch, said.address) == (1, 0, worker.address)
    assert (said.resources, said.supervisor_id) == ({"gpu": 1.0}, "s1")
    await cluster.scheduler.until(lambda: len(cluster.scheduler.of(Heartbeat)) >= 2)
    status = cluster.scheduler.of(WorkerStatus)[0]
    assert (status.state, status.nthreads, status.managed_nbytes) == ("running", 3, 0)
    assert status.resident_nbytes > 0


async def test_a_refused_worker_does_not_try_again(cluster):
    cluster.scheduler.refuses = "wrong version of weft"
    cluster.add()
    with pytest.raises(HandshakeError, match="wrong version of weft"):
        await cluster.runs[0]


async def test_a_wrong_token_ends_the_worker(cluster):
    cluster.add(security=Security(token=b"0123456789abcdefgh"))
    with pytest.raises(WrongToken):
        await cluster.runs[0]


async def test_without_reconnect_a_missing_scheduler_is_an_error(security, tmp_path):
    worker = WorkerServer(
        WorkerConfig(scheduler=f"unix://{tmp_path}/none", security=security, reconnect=False)
    )
    with pytest.raises(ConnectRefused):
        await worker.run()


async def test_a_worker_waits_for_a_scheduler_that_is_not_there_yet(security, tmp_path):
    address = f"unix://{tmp_path}/s"
    worker = WorkerServer(WorkerConfig(scheduler=address, security=security))
    run = asyncio.get_running_loop().create_task(worker.run())
    scheduler = Scheduler(security)
    await asyncio.sleep(0)
    await scheduler.start(address)
    await asyncio.wait_for(worker.registered.wait(), 20)
    worker.stop("done")
    await run
    await scheduler.stop()


async def test_find_is_called_at_each_attempt(cluster, security, tmp_path):
    asked = []

    def find():
        asked.append(1)
        addresses = [f"unix://{tmp_path}/none", cluster.scheduler.listener.address]
        return (addresses[: len(asked)], security)

    await cluster.start(scheduler="", find=find)
    assert len(asked) == 2


async def test_a_file_that_is_older_than_the_scheduler_is_read_again(cluster, security):
    asked = []

    def find():
        asked.append(1)
        found = [
            Security(security.token, b"the one before it"[:16]),
            Security(token=b"0123456789abcdefgh"),
            security,
        ]
        return [cluster.scheduler.listener.address], found[len(asked) - 1]

    await cluster.start(scheduler="", find=find)
    assert len(asked) == 3


# --- Ends -----------------------------------------------------------------------------------------


async def test_stop_from_the_scheduler_ends_the_worker(cluster, caplog):
    worker = await cluster.start()
    with caplog.at_level(logging.INFO, "weft.worker"):
        cluster.scheduler.send(worker, Stop(reason="scaled down"))
        await asyncio.wait_for(cluster.runs[0], 20)
    assert "scaled down" in caplog.text
    assert not [record for record in caplog.records if record.levelno > logging.INFO]
    await cluster.scheduler.until(lambda: cluster.scheduler.of(Bye))
    with pytest.raises(CommError):
        await connect(
            worker.address,
            role=Role.PEER,
            server_role=Role.WORKER_DATA,
            security=cluster.scheduler.security,
            handler=cluster.scheduler,
        )


async def test_without_reconnect_the_end_of_the_scheduler_is_the_end(cluster):
    worker = await cluster.start(reconnect=False)
    cluster.scheduler.connections[worker.config.worker_id].abort()
    await asyncio.wait_for(cluster.runs[0], 20)


async def test_a_worker_that_finds_its_scheduler_again_has_kept_everything(cluster):
    scheduler = cluster.scheduler
    worker = await cluster.start()
    scheduler.send(worker, scheduler.task(inc, 1, key="x"))
    await scheduler.until_done(1)
    scheduler.connections[worker.config.worker_id].abort()
    await scheduler.until(lambda: len(scheduler.registrations) == 2)
    again = scheduler.registrations[1]
    assert (again.session, again.last_epoch) == (2, EPOCH)
    assert again.address == scheduler.registrations[0].address
    await asyncio.wait_for(worker.registered.wait(), 20)
    assert len(worker.executor.store) == 1
    await scheduler.until(lambda: scheduler.of(InventoryHeld))
    (held,) = scheduler.of(InventoryHeld)
    assert isinstance(held, InventoryHeld)
    assert held.keys == ["x"]
    scheduler.send(worker, scheduler.task(inc, 5, key="x"))
    assert (await scheduler.until_done(2))[2] == 6


async def test_a_worker_whose_scheduler_does_not_come_back_ends_after_its_lease(cluster, caplog):
    await cluster.start(orphan_lease_s=0.3)
    await cluster.scheduler.stop()
    for connection in list(cluster.scheduler.connections.values()):
        connection.abort()
    await asyncio.wait_for(asyncio.shield(cluster.runs[0]), 20)
    assert "no scheduler has come back within 0.3 s" in caplog.text
    await cluster.scheduler.start("tcp://127.0.0.1:0")


def refuted_by_the_boundary(scheduler: Scheduler) -> Message:
    bad = scheduler.task(inc, 1, key="x")
    bad.function_of = [3]
    return bad


def refuted_by_the_core(scheduler: Scheduler) -> Message:
    bad = scheduler.task(inc, 1, key="x")
    bad.args = [None]
    return bad


def refuted_by_the_shell(scheduler: Scheduler) -> Message:
    return GetData(request=1, keys=["x"])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (refuted_by_the_boundary, "function_of points beyond its table"),
        (refuted_by_the_core, "tasks without arguments"),
        (refuted_by_the_shell, "does not handle GetData"),
    ],
)
async def test_an_invalid_message_of_the_scheduler_ends_the_session_only(
    cluster, caplog, make, words
):
    scheduler = cluster.scheduler
    worker = await cluster.start()
    scheduler.send(worker, make(scheduler))
    await scheduler.until(lambda: len(scheduler.registrations) == 2)
    (warning,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert "invalid message" in warning.getMessage()
    assert words in warning.getMessage()
    await asyncio.wait_for(worker.registered.wait(), 20)
    scheduler.send(worker, scheduler.task(inc, 1, key="x"))
    assert 2 in (await scheduler.until_done(1)).values()


#: For documentation (RFC 5737), and so of no machine.
NOBODYS = "tcp://203.0.113.1:0"


async def test_a_data_port_that_cannot_be_opened_is_not_tried_again(cluster):
    worker = cluster.add(listen_address=NOBODYS)
    with pytest.raises(ConfigError, match=r"data port.* cannot listen: .*203\.0\.113\.1.*--host"):
        await asyncio.wait_for(cluster.runs[0], 20)
    assert not worker.registered.is_set()
    assert cluster.scheduler.registrations == []


ENTERED, LEAVE = threading.Event(), threading.Event()


def hang():
    ENTERED.set()
    assert LEAVE.wait(20)


async def test_a_task_that_does_not_end_does_not_hold_up_the_stop(cluster):
    scheduler = cluster.scheduler
    worker = await cluster.start(stop_timeout_s=0.0)
    scheduler.send(worker, scheduler.task(hang, key="x"))
    assert await asyncio.get_running_loop().run_in_executor(None, ENTERED.wait, 20)
    worker.stop("enough")
    await asyncio.wait_for(cluster.runs[0], 20)
    LEAVE.set()
    assert worker.executor.join(20)


# --- Data -----------------------------------------------------------------------------------------


class Asker:
    """A client or peer at a worker's data port."""

    def __init__(self) -> None:
        self.answers: asyncio.Queue[KeysData] = asyncio.Queue()
        self.closed = asyncio.Event()

    def on_messages(self, connection: Connection, messages: list[Message]) -> None:
        for message in messages:
            assert isinstance(message, KeysData)
            self.answers.put_nowait(message)

    def on_writable(self, connection: Connection) -> None:
        pass

    def on_closed(self, connection: Connection, error: object) -> None:
        self.closed.set()


async def ask(
    worker: WorkerServer, security: Security, *messages: Message
) -> tuple[Asker, Connection]:
    asker = Asker()
    connection = await connect(
        worker.address,
        role=Role.PEER,
        server_role=Role.WORKER_DATA,
        security=security,
        handler=asker,
    )
    connection.send(messages)
    return asker, connection


def make_lock():
    return threading.Lock()


async def test_the_data_port_sends_values_that_are_here_and_lists_missing_keys(cluster, security):
    scheduler = cluster.scheduler
    worker = await cluster.start()
    scheduler.send(
        worker,
        scheduler.task(inc, 1, key="x", wanted=0),
        scheduler.task(make_lock, key="lock", wanted=0),
        scheduler.task(np.arange, 100_000, key="big", wanted=0),
    )
    await scheduler.until_done(3)
    asker, connection = await ask(
        worker,
        security,
        GetData(request=1, keys=["x", "y", "lock"]),
        GetData(request=2, keys=["big"]),
    )
    first = await asyncio.wait_for(asker.answers.get(), 20)
    assert (first.request, first.keys, first.missing) == (1, ["x", "lock"], ["y"])
    assert loads(first.results[0]) == 2
    with pytest.raises(UnpicklableResult, match=r"_thread\.lock"):
        loads(first.results[1])
    second = await asyncio.wait_for(asker.answers.get(), 20)
    assert second.request == 2
    assert loads(second.results[0]).sum() == 100_000 * 99_999 // 2
    connection.close()
    await asyncio.wait_for(asker.closed.wait(), 20)


async def test_the_scheduler_may_fetch_for_a_client(cluster):
    scheduler = cluster.scheduler
    worker = await cluster.start()
    scheduler.send(worker, scheduler.task(inc, 1, key="x", wanted=0))
    await scheduler.until_done(1)
    scheduler.send(worker, FetchKeys(request=5, keys=["x", "y"]))
    await scheduler.until(lambda: scheduler.of(KeysData))
    (answer,) = scheduler.of(KeysData)
    assert (answer.request, answer.keys, answer.missing) == (5, ["x"], ["y"])
    assert loads(answer.results[0]) == 2


async def test_other_messages_at_the_data_port_close_only_that_connection(cluster, security):
    worker = await cluster.start()
    asker, _ = await ask(worker, security, Stop(reason="no"))
    await asyncio.wait_for(asker.closed.wait(), 20)
    assert worker.registered.is_set()


async def test_a_peer_out_of_reach_is_reported_and_the_next_holder_asked(cluster, tmp_path):
    scheduler = cluster.scheduler
    a = await cluster.start(name="a")
    b = await cluster.start(name="b")
    scheduler.send(a, scheduler.task(inc, 1, key="x", wanted=0))
    await scheduler.until_done(1)
    nobody = f"unix://{tmp_path}/nobody"
    task = scheduler.task(inc, Ref("x"), key="y")
    scheduler.send(b, scheduler.located(task, "x", 1, nobody, a.address))
    assert (await scheduler.until_done(2))[2] == 3
    (missing,) = scheduler.of(KeysMissing)
    assert missing == KeysMissing(keys=["x"], holder=nobody, unreachable=True, attempts=[1])


async def test_a_key_that_a_peer_does_not_have_is_reported(cluster):
    scheduler = cluster.scheduler
    a = await cluster.start(name="a")
    b = await cluster.start(name="b")
    task = scheduler.task(inc, Ref("x"), key="y")
    scheduler.send(b, scheduler.located(task, "x", 99, a.address))
    await scheduler.until(lambda: scheduler.of(KeysMissing))
    assert scheduler.of(KeysMissing) == [KeysMissing(keys=["x"], holder=a.address, attempts=[99])]
    scheduler.send(b, DropAttempts(attempts=[1]))


@pytest.mark.parametrize("peer", ["goes away", "is silent, and lost to the scheduler"])
async def test_a_peer_that_is_lost_before_its_answer_is_reported(cluster, security, peer):
    scheduler = cluster.scheduler
    b = await cluster.start(name="b")
    closed = asyncio.Event()

    class Silent:
        """Accepts connections, reads, and never answers."""

        def on_messages(self, connection: Connection, messages: list[Message]) -> None:
            if peer == "goes away":
                connection.abort()
            else:
                scheduler.send(b, HoldersGone(addresses=[listener.address]))

        def on_writable(self, connection: Connection) -> None:
            pass

        def on_closed(self, connection: Connection, error: object) -> None:
            closed.set()

    listener = await listen(
        "tcp://127.0.0.1:0",
        role=Role.WORKER_DATA,
        accepted_roles={Role.PEER},
        security=security,
        on_connection=lambda connection: Silent(),
    )
    task = scheduler.task(inc, Ref("x"), key="y")
    scheduler.send(b, scheduler.located(task, "x", 99, listener.address))
    await scheduler.until(lambda: scheduler.of(KeysMissing))
    (missing,) = scheduler.of(KeysMissing)
    assert missing == KeysMissing(
        keys=["x"], holder=listener.address, unreachable=True, attempts=[99]
    )
    if peer != "goes away":
        await asyncio.wait_for(closed.wait(), 20)
    await listener.close()
