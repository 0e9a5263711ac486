"""An executor with its store, and what its slots report."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import ClassVar

from tests.worker.builders import assign_call
from weft.protocol.values.exceptions import unpack_exception
from weft.protocol.values.serialize import loads, reduce_future
from weft.protocol.wire.message import Message
from weft.protocol.wire.messages import (
    ACTOR_FUNCTION,
    AssignTasks,
    AttemptsErred,
    AttemptsFinished,
    AttemptsMeasured,
)
from weft.worker.actors.actors import make_actor
from weft.worker.context import WorkerContext
from weft.worker.core.events import SchedulerSent
from weft.worker.core.features import FEATURES
from weft.worker.core.state import WorkerState
from weft.worker.data.store import Store
from weft.worker.slots.executor import TaskExecutor
from weft.worker.slots.started import StartedRecord


class Ref:
    """A future, as arguments see one."""

    def __init__(self, key: str):
        self.key = key

    def __reduce__(self):
        return reduce_future(self.key)


class Bench:
    """An executor, and a scheduler that is the test."""

    def __init__(self, nthreads: int = 1, started: StartedRecord | None = None):
        self.state = WorkerState(nthreads, "tcp://me", FEATURES)
        self.woken = threading.Event()
        self.crashes: list[BaseException] = []
        #: Takes messages in the threads of slots; as long as it refuses, `listen` gets them.
        self.take: Callable[[list[Message]], bool] = lambda messages: False
        self.executor = TaskExecutor(
            self.state,
            WorkerContext("w1", "tcp://me", "id1"),
            Store(),
            wake=self.woken.set,
            watch=self.watch,
            send=lambda messages: self.take(messages),
            crashed=self.crashes.append,
            started=started,
            own={ACTOR_FUNCTION: make_actor},
        )
        self.executor.start()
        self.timers: list[threading.Timer] = []
        self.told: list[Message] = []
        self.measured: list[Message] = []
        self.last_attempt = 0

    def watch(self, after_s: float) -> None:
        """Look after some time whether reports have waited for too long."""

        def look() -> None:
            if self.executor.send_waiting():
                self.watch(after_s)

        self.timers.append(threading.Timer(after_s, look))
        self.timers[-1].start()

    @property
    def store(self) -> Store:
        return self.executor.store

    def send(self, *messages: Message) -> None:
        self.executor.handle(SchedulerSent(messages))

    def run(self, function: Callable[..., object], *args: object, key: str = "", wanted: int = 1):
        """Assign one task; return its attempt."""
        self.send(self.task(function, *args, key=key, wanted=wanted))
        return self.last_attempt

    def task(
        self, function: Callable[..., object], *args: object, key: str = "", wanted: int = 1
    ) -> AssignTasks:
        self.last_attempt += 1
        return assign_call(
            function, args, key or f"key-{self.last_attempt}", self.last_attempt, wanted
        )

    def listen(self) -> list[Message]:
        """Take the executor's messages, waiting until there are some."""
        assert self.woken.wait(10)
        self.woken.clear()
        with self.executor.sending:
            messages, _ = self.executor.drain()
            self.keep(messages)
        return messages

    def keep(self, messages: list[Message]) -> None:
        """Keep what was reported. What attempts have used depends on the machine, and is apart."""
        for message in messages:
            kept = self.measured if isinstance(message, AttemptsMeasured) else self.told
            kept.append(message)

    def listen_for(self, n: int) -> None:
        """Listen until `n` attempts have ended in all."""
        while len(self.results) + len(self.failures) < n:
            self.listen()

    @property
    def results(self) -> dict[int, object]:
        """{attempt: the result that rode along, or None}."""
        return {
            attempt: None if blob is None else loads(blob)
            for message in self.told
            if isinstance(message, AttemptsFinished)
            for attempt, blob in zip(message.attempts, message.results, strict=True)
        }

    @property
    def failures(self) -> dict[int, list[object]]:
        return {
            attempt: failure
            for message in self.told
            if isinstance(message, AttemptsErred)
            for attempt, failure in zip(message.attempts, message.failures, strict=True)
        }

    def error(self, attempt: int) -> BaseException:
        self.listen_for(1)
        kind, _key, *packed = self.failures[attempt]
        assert kind == "exception"
        return unpack_exception(packed)


class Gate:
    """Lets a test block a task. Found by name, because arguments are pickled."""

    gates: ClassVar[dict[str, Gate]] = {}

    def __init__(self):
        self.entered = threading.Event()
        self.open = threading.Event()

    @staticmethod
    def pass_through(name: str) -> str:
        gate = Gate.gates[name]
        gate.entered.set()
        assert gate.open.wait(10)
        return name


def inc(x):
    return x + 1
