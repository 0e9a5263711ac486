"""Actors in a slot without a worker, the ends of connections to them, and calls."""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests import leaks
from weft.protocol.wire import messages as m
from weft.worker.actors.actors import Actors, make_actor
from weft.worker.context import WorkerContext, set_worker


class End:
    """A connection that keeps what is sent."""

    writable = True
    closed = False
    unsent = 0

    def __init__(self) -> None:
        self.sent: list[Any] = []

    def allow_bypass(self) -> bool:
        return True

    def send(self, messages: list[Any]) -> None:
        self.sent += messages

    def send_past_loop(self, messages: list[Any]) -> bool:
        self.send(messages)
        return True


class Task:
    key = "list-1"
    attempt = 7


class Stubborn:
    """Its coroutine takes no notice of its cancellation until the gate is open."""

    async def wait(self) -> None:
        while not gate.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.005)  # workload


class Leaves:
    """Its event loop is ended by a task that it has started."""

    async def leave(self) -> None:
        async def later() -> None:
            raise SystemExit(3)

        self.task = asyncio.get_running_loop().create_task(later())

    async def wait(self) -> None:
        await asyncio.Event().wait()


gate = threading.Event()


done: list[int] = []


class Slot:
    """A worker with one actor, a list, and its secret."""

    def __init__(self, cls: Any = list, *args: Any, output: Any = None) -> None:
        gate.clear()
        done.clear()
        self.actors = Actors("worker", "tcp://here:1", asyncio.get_running_loop())
        context = WorkerContext("worker", "tcp://here:1", "id")
        context.set_own(actors=self.actors, output=output)
        context.here.task = Task()  # type: ignore[assignment]
        set_worker(context)
        self.handle = make_actor(cls, *args)
        set_worker(None)
        self.secret = self.handle._info.secret

    @property
    def actor(self) -> Any:
        return self.actors._actors[self.secret]

    def calls(self, connection: int, *names: str, **fields: Any) -> m.ActorCalls:
        arguments = [pickle.dumps((connection,)) if name == "append" else None for name in names]
        requests = [*range(len(names))]
        given = {"actor": self.secret, "holder": "h", "arguments": arguments, **fields}
        return m.ActorCalls(connection=connection, names=[*names], requests=requests, **given)


async def ended(slot: Slot) -> None:
    """End the actor; its thread may need the loop for that."""
    gate.set()
    slot.actors.close()
    await until(slot.actors.have_ended)


async def until(condition: Callable[[], object]) -> None:
    """Let the loop run until a condition holds."""
    with ThreadPoolExecutor(1) as pool:
        await asyncio.get_running_loop().run_in_executor(pool, leaks.wait_until, condition)


def called(name: str, *args: Any) -> tuple[str, bytes]:
    return name, pickle.dumps(args)


def message_of(slot: Slot, *calls: tuple[str, bytes], first: int = 0) -> m.ActorCalls:
    return m.ActorCalls(
        actor=slot.secret,
        holder="h",
        connection=1,
        requests=[*range(first, first + len(calls))],
        names=[name for name, _ in calls],
        arguments=[arguments for _, arguments in calls],
    )
