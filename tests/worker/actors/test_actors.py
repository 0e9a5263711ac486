"""Calls of actors as they come over the data port, from peers that may be wrong."""

from __future__ import annotations

import asyncio
import pickle
import weakref
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
    done,
    ended,
    gate,
    message_of,
    until,
)
from weft.client.results.failures import exception_from
from weft.protocol.errors import LocalProtocolError
from weft.protocol.wire import messages as m
from weft.worker.actors.actor_thread import Mail
from weft.worker.context import WorkerContext, get_worker, set_worker
from weft.worker.core.features.output import CatchOutput
from weft.worker.output.output import OutputCatcher


class Gated:
    """Its calls wait for a gate of the test."""

    def __init__(self) -> None:
        self.n = 0

    def add(self) -> int:
        self.n += 1
        return self.n

    def wait(self) -> bool:
        return gate.wait(30)


class AsyncGated(Gated):
    async def later(self) -> None:
        pass


class Prints:
    def __init__(self) -> None:
        print("made", end="")

    def plain(self) -> None:
        print("one\ntwo", end="")


class AsyncPrints(Prints):
    async def later(self) -> None:
        await asyncio.sleep(0)
        print("three", end="")


class Big:
    """An argument of a constructor that does not keep it."""


class Drops:
    def __init__(self, big: Big) -> None:
        self.name = type(big).__name__


class AsyncDrops(Drops):
    async def wait(self) -> None:
        pass


class AtEnd:
    """Has things done before its calls are answered."""

    def plain(self, fails: bool) -> str:
        get_worker().seat.when_task_ends(_fail)
        get_worker().seat.when_task_ends(lambda: done.append(1))
        if fails:
            raise KeyError("of the method")
        return "done"

    def is_cancelled(self) -> bool:
        return get_worker().is_cancelled

    def is_behind(self, *calls: str) -> list[bool]:
        return [get_worker().seat.is_behind(call) for call in calls]


class AsyncAtEnd(AtEnd):
    async def wait(self) -> None:
        pass


def _fail() -> None:
    raise ValueError("at the end")


def texts_of(end: End) -> list[str]:
    """Return the texts of the exceptions among the answers."""
    failures = [
        f for message in end.sent if isinstance(message, m.ActorFailures) for f in message.failures
    ]
    return [str(exception_from(failure, "call")) for failure in failures]


async def test_calls_over_a_connection_that_the_holder_has_given_up_are_not_done(slot, wait_until):
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


async def test_calls_over_an_earlier_connection_are_not_done_after_the_end_of_a_later_one(
    slot, wait_until
):
    old, new = End(), End()
    slot.actors.on_calls(new, slot.calls(2, "append"))
    slot.actors.on_closed(new)
    slot.actors.on_calls(old, slot.calls(1, "append"))  # was on its way for long
    reader = End()
    copy = slot.calls(1, "copy", holder="reader", arguments=[pickle.dumps(())])
    slot.actors.on_calls(reader, copy)
    wait_until(lambda: reader.sent)
    assert pickle.loads(reader.sent[0].results[0]) == [2]
    assert old.sent == []


async def test_holders_of_closed_connections_are_forgotten(slot, wait_until, monkeypatch):
    monkeypatch.setattr("weft.worker.actors.actors._OVER_S", 0.0)
    end = End()
    (actor,) = slot.actors._actors.values()
    slot.actors.on_calls(end, slot.calls(5, "append"))
    wait_until(lambda: end.sent)
    assert len(slot.actors._connections) == 1
    assert actor.begun()
    slot.actors.on_closed(end)
    assert not actor.begun()
    await until(lambda: not len(slot.actors._connections))


@pytest.mark.parametrize("cls", [Gated, AsyncGated])
async def test_calls_that_are_done_after_the_end_of_their_connection_leave_no_holder(cls):
    slot, end = Slot(cls), End()
    slot.actors.on_calls(end, message_of(slot, called("wait"), called("add")))
    await until(lambda: slot.actor.open())
    end.closed = True
    slot.actors.on_closed(end)
    gate.set()
    reader = End()
    slot.actors.on_calls(reader, slot.calls(1, "n", holder="reader"))
    await until(lambda: reader.sent)
    assert pickle.loads(reader.sent[0].results[0]) == 1
    await until(lambda: slot.actor.begun() == [("reader", 1, 0)])
    await ended(slot)


async def test_an_answer_does_not_wait_for_a_later_call_of_the_same_message():
    slot = Slot(Gated)
    end = End()
    slot.actors.on_calls(end, message_of(slot, called("add"), called("wait"), called("add")))
    await until(lambda: end.sent)
    assert [(message.requests, message.results) for message in end.sent] == [
        ([0], [pickle.dumps(1, 5)])
    ]
    gate.set()
    await until(lambda: sum(len(message.requests) for message in end.sent) == 3)
    await ended(slot)


@pytest.mark.parametrize("cls", [AtEnd, AsyncAtEnd])
async def test_an_action_before_an_answer_that_raises_fails_the_call_and_no_other(cls):
    slot = Slot(cls)
    end = End()
    slot.actors.on_calls(end, message_of(slot, called("plain", False)))
    await until(lambda: texts_of(end))
    slot.actors.on_calls(end, message_of(slot, called("plain", True), first=1))
    await until(lambda: len(texts_of(end)) == 2)
    assert ["at the end" in text for text in texts_of(end)] == [True, False]
    assert done == [1, 1]
    slot.actors.on_calls(end, message_of(slot, called("is_cancelled"), first=2))
    await until(lambda: len(end.sent) == 3)
    assert end.sent[2].results == [pickle.dumps(False, 5)]
    await ended(slot)


@pytest.mark.parametrize("cls", [AtEnd, AsyncAtEnd])
async def test_calls_of_an_actor_are_behind_the_one_that_runs_until_they_have_ended(cls):
    slot = Slot(cls)
    end = End()
    calls = {
        "h/1/0": False,
        "h/1/1": True,
        "h/1/2": True,
        "h/0/9": False,
        "new/1/0": True,
        "h": False,
    }
    asked = message_of(
        slot, called("is_cancelled"), called("is_behind", *calls), called("is_cancelled")
    )
    slot.actors.on_calls(end, asked)
    await until(lambda: sum(len(message.requests) for message in end.sent) == 3)
    answers = {
        number: pickle.loads(result)
        for message in end.sent
        for number, result in zip(message.requests, message.results, strict=True)
    }
    assert answers[1] == [*calls.values()]
    await ended(slot)


async def test_calls_behind_the_end_do_not_wait_for_coroutines_that_stay():
    slot = Slot(Stubborn)
    actor, end = slot.actor, End()
    slot.actors.on_calls(end, message_of(slot, called("wait")))
    await until(lambda: actor._running)
    slot.handle = None
    actor.put(Mail(end, message_of(slot, called("wait"), first=1)))
    await until(lambda: end.sent)
    assert end.sent[0].requests == [1]
    assert end.sent[0].failures[0][0] == "actor-lost"
    await ended(slot)


async def test_a_bug_in_the_thread_of_an_actor_fails_its_calls(monkeypatch):
    slot = Slot()
    actor, end = slot.actor, End()

    def broken(connection: object) -> None:
        raise ZeroDivisionError("of weft")

    monkeypatch.setattr(slot.actors, "wait_for_reader", broken)
    slot.actors.on_calls(end, slot.calls(1, "append"))
    await until(lambda: not actor.thread.is_alive())
    slot.actors.on_calls(end, slot.calls(1, "append"))
    assert "ZeroDivisionError: of weft" in end.sent[-1].failures[0][2]
    await ended(slot)


async def test_an_actor_whose_event_loop_cannot_be_made_fails_its_task(monkeypatch):
    def none_left() -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(asyncio, "new_event_loop", none_left)
    with pytest.raises(OSError, match="Too many open files"):
        Slot(Leaves)
    set_worker(None)


@pytest.mark.parametrize("cls", [Prints, AsyncPrints])
async def test_a_line_without_an_end_is_shown_when_the_method_that_prints_it_is_done(cls):
    shown: list[Any] = []
    executor: Any = SimpleNamespace(
        context=WorkerContext("worker", "tcp://here:1", "id"),
        state=SimpleNamespace(by_key={Task.key: SimpleNamespace(client=1)}),
        send_output=shown.extend,
    )
    catcher = OutputCatcher(asyncio.get_running_loop(), keeps=False)
    catcher.begin(executor)
    catcher.want(CatchOutput(50, [1]))  # the collector may have asyncio log errors here
    try:
        slot, end = Slot(cls, output=catcher), End()
        names = ["plain"] if cls is Prints else ["plain", "later"]
        slot.actors.on_calls(end, message_of(slot, *map(called, names)))
        wanted = ["made", "one", "two", *["three"] * (cls is AsyncPrints)]
        await until(lambda: sum(len(event.message.texts) for event in shown) == len(wanted))
        assert [text for event in shown for text in event.message.texts] == wanted
        await until(lambda: not catcher.is_filled)
        await ended(slot)
    finally:
        catcher.give_back()


@pytest.mark.parametrize("cls", [Drops, AsyncDrops])
async def test_the_arguments_of_a_constructor_do_not_live_as_long_as_the_actor(cls):
    big = Big()
    ref = weakref.ref(big)
    slot = Slot(cls, big)
    del big
    await until(lambda: ref() is None)
    assert slot.actor.thread.is_alive()
    await ended(slot)


class Narrow(End):
    """A connection over which the results of some requests are too large, alone and with others."""

    def __init__(self, *too_large: int, past_loop: bool) -> None:
        super().__init__()
        self._too_large = {*too_large}
        self._past_loop = past_loop

    def send(self, messages: list[Any]) -> None:
        for message in messages:
            if isinstance(message, m.ActorResults) and self._too_large & {*message.requests}:
                raise LocalProtocolError("ActorResults is larger than a frame")
        super().send(messages)

    def send_past_loop(self, messages: list[Any]) -> bool:
        if self._past_loop:
            self.send(messages)
        return self._past_loop


@pytest.mark.parametrize("past_loop", [True, False])
async def test_a_result_that_is_too_large_puts_its_call_in_doubt_and_no_other(past_loop):
    slot, end = Slot(list), Narrow(1, 3, past_loop=past_loop)
    slot.actors.on_calls(end, message_of(slot, *[called("copy")] * 5))
    rows = [(0, m.ActorResults), (1, m.ActorFailures), (2, m.ActorResults), (4, m.ActorResults)]
    await until(lambda: sum(len(message.requests) for message in end.sent) == 5)
    sent = {n: type(message) for message in end.sent for n in message.requests}
    assert {*rows} <= {*sent.items()}
    failures = [f for one in end.sent if isinstance(one, m.ActorFailures) for f in one.failures]
    assert [failure[:2] for failure in failures] == [["actor-in-doubt", Task.key]] * 2
    assert all("larger than a frame" in failure[2] for failure in failures)
    await ended(slot)
