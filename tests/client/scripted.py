"""A scheduler for tests of the client, with a real socket, that runs the tasks itself.

It runs tasks itself, in its loop, in order of submission; a test can make it hold tasks back, lose
its memory, drop its connection, or keep results on a "worker" (a second port in this process).
"""

from __future__ import annotations

from typing import Any

from weft.client.shell.loop import LoopThread
from weft.protocol.net.connection import Connection
from weft.protocol.net.transport import Listener
from weft.protocol.trust.security import Security, new_cluster_id, new_token
from weft.protocol.values.exceptions import pack_exception
from weft.protocol.values.serialize import dumps, loads, loads_arguments
from weft.protocol.wire.failure import data_lost
from weft.protocol.wire.message import Message
from weft.protocol.wire.messages import (
    PUT_FUNCTION,
    Answer,
    Ask,
    AskFailed,
    Bye,
    CancelKeys,
    ClusterChanged,
    FetchKeys,
    GetData,
    KeysCancelled,
    KeysData,
    KeysErred,
    KeysInMemory,
    KeysPending,
    KeysUnknown,
    Put,
    PutDone,
    PutFailed,
    PutFiles,
    PutWanted,
    RegisterClient,
    ReleaseKeys,
    ReportMissing,
    ResultsReady,
    ShutdownCluster,
    SubmitTasks,
    WantKeys,
    Welcome,
)
from weft.protocol.wire.roles import Role

SECURITY = Security(token=new_token().encode(), cluster_id=new_cluster_id())


def a_worker(name: str) -> dict[str, Any]:
    """Return the description of a worker."""
    return {
        "name": name,
        "host": "here",
        "nthreads": 2,
        "is_leaving": False,
        "last_seen_s": 0.0,
        "supervisor": "",
    }


class Task:
    def __init__(self, function_id: bytes, args: Any, dependencies: list[str]) -> None:
        self.function_id = function_id
        self.args = args
        self.dependencies = dependencies
        self.state = "waiting"
        self.value: Any = None
        self.blob: Any = None
        self.failure: list[Any] | None = None
        self.dependents = 0
        #: The session in which its value was asked for.
        self.asked = 0


class DataPort:
    """A worker's data port, whose data is the scheduler's."""

    def __init__(self, scheduler: ScriptedScheduler) -> None:
        self.scheduler = scheduler

    def on_messages(self, connection: Connection, messages: list[Message]) -> None:
        for message in messages:
            if isinstance(message, GetData):
                self.scheduler.n_fetches += 1
                self.scheduler.answer_data(connection, message.request, message.keys)
            elif isinstance(message, PutFiles):  # that of another host
                connection.send([PutDone(request=message.request, is_taken=False)])
            elif isinstance(message, Put):
                connection.send([PutDone(request=message.request)])
                self.scheduler.on_put(message)

    def on_writable(self, connection: Connection) -> None:
        pass

    def on_closed(self, connection: Connection, error: Any) -> None:
        pass


class ScriptedScheduler:
    """One client at a time."""

    def __init__(self, address: str) -> None:
        self.scheduler_address = address
        self.data_address = f"{address}.data"
        self.security = SECURITY
        self.thread = LoopThread("scripted-scheduler")
        self.epoch = 1
        self.tasks: dict[str, Task] = {}
        self.functions: dict[bytes, Any] = {}
        self.wanted: dict[str, None] = {}
        self.log: list[Message] = []
        self.connection: Connection | None = None
        self.sessions: list[int] = []
        self.n_workers = 0
        self.nthreads = 0
        #: Tasks are accepted and not run.
        self.is_holding = False
        #: Results longer than this stay with the "worker".
        self.inline_limit = 1 << 16
        #: Keys that the worker has lost, which the scheduler does not know.
        self.lost: set[str] = set()
        #: The address of the data port in messages.
        self.holder = self.data_address
        self.n_fetches = 0
        self.n_runs = 0
        #: Values that the client has put, and how often it was asked.
        self.puts: list[Put] = []
        self.n_asked = 0
        #: {question: pages of the answer}
        self.answers: dict[str, list[dict[str, Any]]] = {
            "cluster": [{"epoch": 1, "nthreads": 2, "memory": 0, "tasks": {}}],
            "workers": [{"workers": {self.data_address: a_worker("there")}}],
            "clients": [{"clients": []}],
        }
        self._listener: Listener | None = None
        self._data_listener: Listener | None = None

    # --- For tests --------------------------------------------------------------------------------

    def start(self) -> None:
        self.thread.start()
        self.listen()

    def listen(self) -> None:
        self.thread.run_coroutine(self._listen())

    async def _listen(self) -> None:
        self._listener = await Listener(
            self.scheduler_address,
            role=Role.SCHEDULER,
            accepted_roles=[Role.CLIENT],
            security=self.security,
            on_connection=lambda _: self,
        ).start()
        self._data_listener = await Listener(
            self.data_address,
            role=Role.WORKER_DATA,
            accepted_roles=[Role.PEER],
            security=self.security,
            on_connection=lambda _: DataPort(self),
        ).start()

    def disappear(self) -> None:
        """Close everything, as at the end of the process."""
        self.thread.run_coroutine(self._disappear())

    async def _disappear(self) -> None:
        for listener in (self._listener, self._data_listener):
            if listener is not None:
                await listener.close()
        self._listener = self._data_listener = None

    def forget(self) -> None:
        """Become a new scheduler without any state."""

        async def forget() -> None:
            self.tasks.clear()
            self.functions.clear()
            self.wanted.clear()
            self.epoch += 1

        self.thread.run_coroutine(forget())

    def drop_connection(self) -> None:
        async def drop() -> None:
            assert self.connection is not None
            self.connection.abort()

        self.thread.run_coroutine(drop())

    def go_on(self) -> None:
        """Run the tasks that were held back."""

        async def go_on() -> None:
            self.is_holding = False
            self.run()

        self.thread.run_coroutine(go_on())

    def set_workers(self, n: int) -> None:
        async def change() -> None:
            self.n_workers = self.nthreads = n
            self.send([ClusterChanged(n_workers=n, nthreads=n)])

        self.thread.run_coroutine(change())

    def say(self, *messages: Message) -> None:
        async def say() -> None:
            self.send(list(messages))

        self.thread.run_coroutine(say())

    def heard(self, kind: type[Message]) -> list[Any]:
        return [message for message in self.log if isinstance(message, kind)]

    def stop(self) -> None:
        self.disappear()
        self.thread.stop()

    # --- Handler ----------------------------------------------------------------------------------

    def send(self, messages: list[Message]) -> None:
        if self.connection is not None:
            self.connection.send(messages)

    def on_messages(self, connection: Connection, messages: list[Message]) -> None:
        for message in messages:
            self.log.append(message)
            self.on_message(connection, message)
        self.run()

    def on_writable(self, connection: Connection) -> None:
        pass

    def on_closed(self, connection: Connection, error: Any) -> None:
        if connection is self.connection:
            self.connection = None

    def on_message(self, connection: Connection, message: Message) -> None:
        if isinstance(message, RegisterClient):
            self.connection = connection
            self.sessions.append(message.session)
            self.wanted.clear()
            connection.send(
                [
                    Welcome(
                        epoch=self.epoch,
                        session=message.session,
                        heartbeat_ms=1000,
                        facts={"dashboard": "http://127.0.0.1:1/"},
                    ),
                    ClusterChanged(n_workers=self.n_workers, nthreads=self.nthreads),
                ]
            )
            connection.wire.epoch = self.epoch
            connection.wire.session = message.session
        elif isinstance(message, SubmitTasks):
            self.on_submit(message)
        elif isinstance(message, WantKeys):
            self.on_want(message.keys)
        elif isinstance(message, ReleaseKeys):
            for key in message.keys:
                self.wanted.pop(key, None)
                self.drop(key)
        elif isinstance(message, CancelKeys):
            for key in message.keys:
                self.wanted.pop(key, None)
                task = self.tasks.get(key)
                if task is not None and task.state == "waiting":
                    del self.tasks[key]
            connection.send([KeysCancelled(keys=message.keys, reason=message.reason)])
        elif isinstance(message, FetchKeys):
            self.answer_data(connection, message.request, message.keys)
        elif isinstance(message, ReportMissing):
            # The data is lost and computed again.
            self.lost.difference_update(message.keys)
            for key in message.keys:
                self.tasks[key].state = "waiting"
            connection.send([KeysPending(keys=message.keys)])
        elif isinstance(message, Put):
            self.on_put(message)
        elif isinstance(message, PutFailed):
            for key in message.keys:
                task = self.tasks[key]
                task.state, task.failure = "erred", data_lost(key, message.reason)
                self.tell(key, task)
        elif isinstance(message, Ask):
            self.answer(connection, message)
        elif isinstance(message, (Bye, ShutdownCluster)):
            connection.close()

    def answer(self, connection: Connection, message: Ask) -> None:
        """Answer the question with the pages that the test has set for it."""
        pages = self.answers.get(message.name)
        if pages is None:
            text = f"no answer to {message.name}"
            failed = AskFailed(request=message.request, kind="no-answer", text=text)
            connection.send([failed])
            return
        n = int(message.page or 0)
        next_page = str(n + 1) if n + 1 < len(pages) else ""
        info = pages[n]
        connection.send([Answer(request=message.request, info=info, next_page=next_page)])

    def drop(self, key: str) -> None:
        """Forget a task that is neither wanted nor needed, and its dependencies."""
        keys = [key]
        while keys:
            key = keys.pop()
            task = self.tasks.get(key)
            if task is None or key in self.wanted or task.dependents:
                continue
            del self.tasks[key]
            for dependency in task.dependencies:
                if dependency in self.tasks:
                    self.tasks[dependency].dependents -= 1
                    keys.append(dependency)
        used = {task.function_id for task in self.tasks.values()}
        for function_id in [f for f in self.functions if f not in used]:
            del self.functions[function_id]

    def on_submit(self, message: SubmitTasks) -> None:
        for function_id, blob in zip(message.functions, message.function_blobs, strict=True):
            if blob is not None:
                self.functions[function_id] = loads(blob) if blob else None
            assert function_id in self.functions, "a function was not sent"
        for i, key in enumerate(message.keys):
            self.wanted[key] = None
            if key in self.tasks:
                self.on_want([key])
                continue
            dependencies = message.dependencies[i] if message.dependencies else []
            function_id = message.functions[message.function_of[i]]
            task = self.tasks[key] = Task(function_id, message.args[i], dependencies)
            for dependency in dependencies:
                if dependency in self.tasks:
                    self.tasks[dependency].dependents += 1
                else:
                    task.state = "erred"
                    task.failure = data_lost(dependency, "not known here")
                    self.tell(key, task)

    def on_put(self, message: Put) -> None:
        """Take the values of large arguments, from the data port or through the scheduler."""
        self.puts.append(message)
        for key, blob in zip(message.keys, message.values, strict=True):
            task = self.tasks.get(key)
            if task is not None and task.state == "waiting":
                task.value, task.blob, task.state = loads(blob), blob, "memory"
                self.tell(key, task)
        self.run()

    def ask_for(self, key: str, task: Task) -> None:
        """Ask the client to put a value, once per session."""
        if task.asked != len(self.sessions):
            task.asked = len(self.sessions)
            self.n_asked += 1
            self.send(
                [
                    PutWanted(
                        keys=[key], attempts=[self.n_asked], holder_of=[0], holders=[self.holder]
                    )
                ]
            )

    def on_want(self, keys: list[str]) -> None:
        for key in keys:
            task = self.tasks.get(key)
            if task is None:
                self.send([KeysUnknown(keys=[key])])
                continue
            self.wanted[key] = None
            if task.state == "waiting":
                self.send([KeysPending(keys=[key])])
            else:
                self.tell(key, task)

    def tell(self, key: str, task: Task) -> None:
        if key not in self.wanted:
            return
        if task.failure is not None:
            self.send([KeysErred(keys=[key], failure_of=[0], failures=[task.failure])])
        elif self.is_large(task):
            self.send(
                [
                    KeysInMemory(
                        keys=[key],
                        nbytes=[len(task.blob) if type(task.blob) is bytes else task.blob.nbytes],
                        holder_of=[0],
                        holders=[self.holder],
                    )
                ]
            )
        else:
            self.send([ResultsReady(keys=[key], results=[task.blob])])

    def is_large(self, task: Task) -> bool:
        nbytes = len(task.blob) if type(task.blob) is bytes else task.blob.nbytes
        return bool(nbytes > self.inline_limit)

    def answer_data(self, connection: Connection, request: int, keys: list[str]) -> None:
        found = [
            key
            for key in keys
            if key in self.tasks and self.tasks[key].state == "memory" and key not in self.lost
        ]
        connection.send(
            [
                KeysData(
                    request=request,
                    keys=found,
                    results=[self.tasks[key].blob for key in found],
                    missing=[key for key in keys if key not in found],
                )
            ]
        )

    def run(self) -> None:
        if self.is_holding:
            return
        ready: list[str] = []
        blobs: list[Any] = []
        for key, task in list(self.tasks.items()):
            if task.state != "waiting":
                continue
            if task.function_id == PUT_FUNCTION:
                self.ask_for(key, task)
                continue
            needed = [self.tasks[d] for d in task.dependencies]
            if any(n.state == "waiting" for n in needed):
                continue
            failed = [n for n in needed if n.failure is not None]
            if failed:
                task.state, task.failure = "erred", failed[0].failure
                self.tell(key, task)
                continue
            self.n_runs += 1
            try:
                args, kwargs = loads_arguments(task.args, [n.value for n in needed])
                task.value = self.functions[task.function_id](*args, **kwargs)
                task.blob = dumps(task.value)
                task.state = "memory"
            except Exception as error:
                packed = pack_exception(error, key, "scripted")
                task.state, task.failure = "erred", ["exception", key, *packed]
            if task.failure is not None or self.is_large(task):
                self.tell(key, task)
            elif key in self.wanted:
                ready.append(key)
                blobs.append(task.blob)
        if ready:
            self.send([ResultsReady(keys=ready, results=blobs)])
