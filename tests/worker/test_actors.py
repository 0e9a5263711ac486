"""Calls of actors as they come over the data port, from peers that may be wrong."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncIterator
from typing import Any

import pytest

from weft.protocol.wire import messages as m
from weft.worker.actors import Actors, make_actor
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


class Slot:
    """A worker with one actor, a list, and its secret."""

    def __init__(self) -> None:
        self.actors = Actors("worker", "tcp://here:1", asyncio.get_running_loop())
        context = WorkerContext("worker", "tcp://here:1", "id")
        context.actors = self.actors
        context.task = Task()  # type: ignore[assignment]
        set_worker(context)
        self.handle = make_actor(list)
        set_worker(None)  # type: ignore[arg-type]
        self.secret = self.handle._info.secret

    def calls(self, line: int, *names: str, **fields: Any) -> m.ActorCalls:
        arguments = [pickle.dumps((line,)) if name == "append" else None for name in names]
        requests = [*range(len(names))]
        given = {"actor": self.secret, "holder": "h", "arguments": arguments, **fields}
        return m.ActorCalls(line=line, names=[*names], requests=requests, **given)


@pytest.fixture
async def slot(wait_until: Any) -> AsyncIterator[Slot]:
    slot = Slot()
    yield slot
    slot.actors.close()
    wait_until(slot.actors.have_ended)


async def test_calls_over_a_line_that_the_holder_has_given_up_are_not_done(slot, wait_until):
    old, new = End(), End()
    slot.actors.on_calls(old, slot.calls(1, "append"))
    slot.actors.on_calls(new, slot.calls(2, "append"))
    slot.actors.on_calls(old, slot.calls(1, "append"))
    slot.actors.on_calls(new, slot.calls(2, "append"))
    wait_until(lambda: len(new.sent) == 2)
    reader = End()
    pop = slot.calls(1, "copy", holder="reader", arguments=[pickle.dumps(())])
    slot.actors.on_calls(reader, pop)
    wait_until(lambda: reader.sent)
    assert pickle.loads(reader.sent[0].results[0]) == [1, 2, 2]
    assert len(old.sent) == 1


async def test_calls_without_the_secret_are_refused(slot):
    end = End()
    slot.actors.on_calls(end, slot.calls(1, "append", "append", actor="list-1"))
    (answer,) = end.sent
    assert answer.requests == [0, 1]
    assert [failure[0] for failure in answer.failures] == ["actor-lost"] * 2


async def test_arguments_that_cannot_be_read_fail_their_call_alone(slot, wait_until):
    end = End()
    bad = slot.calls(1, "append", "append", arguments=[b"no pickle", pickle.dumps((3,))])
    slot.actors.on_calls(end, bad)
    wait_until(lambda: len(end.sent) == 2)
    results, failures = sorted(end.sent, key=lambda message: message.code)
    assert (results.requests, failures.requests) == ([1], [0])
    assert failures.failures[0][0] == "exception"


async def test_calls_behind_the_end_of_an_actor_are_refused(slot, wait_until):
    actor = slot.actors._actors[slot.secret]
    slot.handle = None
    end = End()
    slot.actors.on_calls(end, slot.calls(1, "append"))
    wait_until(lambda: not actor.thread.is_alive())
    assert end.sent[0].failures[0][0] == "actor-lost"


async def test_lines_of_closed_connections_are_forgotten(slot):
    end = End()
    slot.actors.on_calls(end, slot.calls(5, "append"))
    assert slot.actors._lines
    slot.actors.on_closed(end)
    assert not slot.actors._lines
