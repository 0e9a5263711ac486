"""A worker with sockets, and the scheduler that it registers with, which a test plays."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from tests.worker.builders import assign_call
from weft.protocol.net.connection import Connection
from weft.protocol.net.transport import Listener, connect
from weft.protocol.trust.security import Security
from weft.protocol.values.serialize import loads, reduce_future
from weft.protocol.wire.message import Message
from weft.protocol.wire.messages import (
    AskToLeave,
    AssignTasks,
    AttemptsFinished,
    Heartbeat,
    KeysData,
    MayLeave,
    Refused,
    RegisterWorker,
    Welcome,
)
from weft.protocol.wire.roles import Role
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
        #: Workers that ask may leave.
        self.lets_go = True
        self.news = asyncio.Event()
        self.last_attempt = 0

    async def start(self, address: str) -> None:
        self.listener = await Listener(
            address,
            role=Role.SCHEDULER,
            accepted_roles={Role.WORKER},
            security=self.security,
            on_connection=lambda connection: self,
        ).start()

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
                if isinstance(message, AskToLeave) and self.lets_go:
                    connection.send([MayLeave(request=message.request)])
        self.news.set()

    def on_writable(self, connection: Connection) -> None:
        pass

    def on_closed(self, connection: Connection, error: object) -> None:
        self.connections = {i: c for i, c in self.connections.items() if c is not connection}
        self.news.set()

    async def until(self, condition: Callable[[], object]) -> None:
        while not condition():
            self.news.clear()
            await asyncio.wait_for(self.news.wait(), 20)

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


def inc(x):
    return x + 1


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
