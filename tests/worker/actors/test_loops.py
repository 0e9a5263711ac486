"""Threads and event loops of actors: their ends, their failures, and readers that do not read."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.worker.actors.actors_kit import (
    End,
    Leaves,
    Slot,
    Stubborn,
    Task,
    called,
    ended,
    gate,
    message_of,
    until,
)
from weft.protocol.errors import StuckPeer
from weft.protocol.wire import messages as m
from weft.worker.actors import actor_thread
from weft.worker.actors.actor_thread import Mail
from weft.worker.actors.actors import Actors, make_actor
from weft.worker.context import WorkerContext, set_worker
from weft.worker.core.features import FEATURES
from weft.worker.core.state import WorkerState
from weft.worker.data.store import Store
from weft.worker.slots.interrupting import Interrupts, TaskInterrupted


class StubbornLeaves(Stubborn, Leaves):
    """What it has begun goes on when its event loop is ended."""


class Adds:
    """Has a coroutine function, and so an event loop."""

    def __init__(self) -> None:
        self.n = 0

    def add(self) -> int:
        self.n += 1
        return self.n

    async def add_later(self) -> int:
        return self.add()


class Endless:
    """Is never made, unless it is interrupted."""

    def __init__(self) -> None:
        making.set()
        while True:
            sum(range(10))


making = threading.Event()


def failed_requests(end: End) -> list[int]:
    """Return the requests that were answered by failures."""
    failures = [message for message in end.sent if isinstance(message, m.ActorFailures)]
    return [request for message in failures for request in message.requests]


async def test_calls_that_come_while_an_actor_ends_are_answered(slot):
    actor = slot.actor
    slot.handle = None
    await until(lambda: not actor.thread.is_alive())
    end = End()
    actor.put(Mail(end, slot.calls(1, "append")))  # as a thread that found it alive just before
    assert end.sent[0].failures[0][0] == "actor-lost"


async def test_calls_of_an_actor_whose_event_loop_was_ended_fail_and_name_the_cause():
    slot = Slot(Leaves)
    actor, end = slot.actor, End()
    slot.actors.on_calls(end, message_of(slot, called("wait"), called("leave")))
    await until(lambda: not actor.thread.is_alive())
    slot.actors.on_calls(end, message_of(slot, called("wait"), first=2))
    actor.put(Mail(end, message_of(slot, called("wait"), first=3)))
    failures = {
        request: failure
        for message in end.sent
        if isinstance(message, m.ActorFailures)
        for request, failure in zip(message.requests, message.failures, strict=True)
    }
    kinds = {request: failure[0] for request, failure in failures.items()}
    assert kinds.pop(1, "actor-in-doubt") == "actor-in-doubt"  # unless it was answered before
    assert kinds == {0: "actor-in-doubt", 2: "actor-lost", 3: "actor-lost"}
    assert all("SystemExit: 3" in failure[2] for failure in failures.values())
    await ended(slot)


async def test_begun_calls_fail_at_once_though_their_coroutines_go_on_after_the_end_of_the_loop(
    caplog,
):
    slot = Slot(StubbornLeaves)
    actor, end = slot.actor, End()
    slot.actors.on_calls(end, message_of(slot, called("wait"), called("leave")))
    await until(lambda: 0 in failed_requests(end))
    assert actor.thread.is_alive()
    gate.set()
    await until(lambda: not actor.thread.is_alive())
    answered = [r for message in end.sent for r in message.requests]
    assert sorted(answered) == [0, 1], "each once"
    await ended(slot)
    gc.collect()  # of the task that has ended the loop, too
    assert "Task exception was never retrieved" not in caplog.messages, "the log has its cause"


async def test_a_coroutine_that_never_ends_keeps_no_thread_after_the_end_of_the_loop(
    monkeypatch, caplog
):
    monkeypatch.setattr(actor_thread, "_LEFT_S", 0.01)
    slot = Slot(StubbornLeaves)
    actor, end = slot.actor, End()
    slot.actors.on_calls(end, message_of(slot, called("wait"), called("leave")))
    await until(lambda: not actor.thread.is_alive())
    assert not gate.is_set()
    assert "1 coroutine of the actor list-1 did not end with it" in caplog.messages
    await ended(slot)


class Forever:
    def __await__(self) -> Iterator[None]:
        while True:
            yield


async def test_a_call_that_is_destroyed_after_its_loop_answers_nothing(slot):
    end = End()
    call = slot.actor._finish(end, 0, "wait", Forever())
    call.send(None)

    failures: list[BaseException] = []

    def destroy() -> None:  # in a thread without a loop, as the garbage collector may
        try:
            call.close()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=destroy)
    thread.start()
    thread.join()
    assert not failures
    assert not end.sent


async def test_an_actor_that_finds_its_reader_reading_again_wakes_the_others(slot):
    class Half(End):
        """Is stuck, until the second look of the second actor."""

        writable = False
        n_looks = 0

        @property
        def unsent(self) -> int:  # type: ignore[override]
            self.n_looks += 1
            return 0 if self.n_looks > 3 else 100 << 20

    end = Half()
    other = threading.Thread(target=slot.actors.wait_for_reader, args=(end,))
    other.start()
    await until(lambda: end.n_looks == 2)
    slot.actors.wait_for_reader(end)
    await until(lambda: not other.is_alive())


class Full(End):
    """Is full after one answer, until somebody reads."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[BaseException] = []
        self.peer_address = "tcp://there:1"

    @property
    def n_answers(self) -> int:
        return sum(len(message.requests) for message in self.sent)

    @property
    def unsent(self) -> int:  # type: ignore[override]
        return self.n_answers * (64 << 20)

    @property
    def writable(self) -> bool:  # type: ignore[override]
        return not self.n_answers

    def fail(self, error: BaseException) -> None:
        self.errors.append(error)
        self.closed = True


@pytest.mark.parametrize("method", ["add", "add_later"])
async def test_an_actor_with_coroutines_begins_no_call_while_its_answers_are_unread(method):
    slot, end = Slot(Adds), Full()
    slot.actors.on_calls(end, message_of(slot, *[called(method)] * 9))
    await until(lambda: slot.actors._readers)
    made = slot.actor._made_object
    assert made.n <= 2  # the second may have begun before the answer of the first was there
    await until(lambda: end.n_answers == made.n)
    end.sent.clear()
    slot.actors.on_writable(end)
    await until(lambda: end.n_answers and slot.actors._readers)
    assert made.n <= 4
    end.closed = True
    slot.actors.on_closed(end)
    await until(lambda: made.n == 9)  # nobody reads what they answer
    await ended(slot)


async def test_the_connection_of_a_caller_that_does_not_read_is_closed(monkeypatch):
    monkeypatch.setattr("weft.worker.actors.actor_thread.UNREAD_S", 0.0)
    slot, end = Slot(Adds), Full()
    slot.actors.on_calls(end, message_of(slot, *[called("add")] * 9))
    await until(lambda: slot.actor._made_object.n == 9)
    assert isinstance(end.errors[0], StuckPeer)
    assert not slot.actors._readers
    await ended(slot)


async def test_an_actor_that_is_being_made_can_be_interrupted():
    making.clear()
    state = WorkerState(1, "", FEATURES)
    state.cancelled.update({7: Task()})  # type: ignore[dict-item]
    contexts: dict[int, Any] = {}
    interrupts = Interrupts(state, contexts, Store(10**9), print, print)
    actors = Actors("worker", "tcp://here:1", asyncio.get_running_loop())
    errors: list[BaseException] = []

    def make() -> None:
        context = WorkerContext("worker", "tcp://here:1", "id")
        context.set_own(actors=actors)
        context.here.task = Task()  # type: ignore[assignment]
        context.here.seat = SimpleNamespace(slot=0)  # type: ignore[assignment]
        contexts[threading.get_ident()] = context
        set_worker(context)
        try:
            make_actor(Endless)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=make)
    thread.start()
    await until(lambda: making.is_set() and all(one.here.stand_in for one in contexts.values()))
    interrupts.ask([7], asyncio.get_running_loop())
    await until(lambda: not thread.is_alive())
    state.cancelled.clear()
    assert isinstance(errors[0], TaskInterrupted)
    await until(lambda: not interrupts._is_stepping)
    await until(actors.have_ended)
    assert not actors._actors
