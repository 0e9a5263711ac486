"""Calls of actors as they come over the data port, from peers that may be wrong."""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from tests import leaks
from weft.client.results.failures import exception_from
from weft.protocol.errors import StuckPeer
from weft.protocol.wire import messages as m
from weft.worker.actors import actor_thread
from weft.worker.actors.actor_thread import Mail
from weft.worker.actors.actors import Actors, make_actor
from weft.worker.context import WorkerContext, get_worker, set_worker
from weft.worker.core.events import CatchOutput
from weft.worker.output.output import OutputCatcher
from weft.worker.slots.interrupting import Interrupts, TaskInterrupted


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


class StubbornLeaves(Stubborn, Leaves):
    """What it has begun goes on when its event loop is ended."""


class Big:
    """An argument of a constructor that does not keep it."""


class Drops:
    def __init__(self, big: Big) -> None:
        self.name = type(big).__name__


class AsyncDrops(Drops):
    async def wait(self) -> None:
        pass


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


class AsyncAtEnd(AtEnd):
    async def wait(self) -> None:
        pass


def _fail() -> None:
    raise ValueError("at the end")


gate = threading.Event()
making = threading.Event()
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
        set_worker(None)  # type: ignore[arg-type]
        self.secret = self.handle._info.secret

    @property
    def actor(self) -> Any:
        return self.actors._actors[self.secret]

    def calls(self, line: int, *names: str, **fields: Any) -> m.ActorCalls:
        arguments = [pickle.dumps((line,)) if name == "append" else None for name in names]
        requests = [*range(len(names))]
        given = {"actor": self.secret, "holder": "h", "arguments": arguments, **fields}
        return m.ActorCalls(line=line, names=[*names], requests=requests, **given)


@pytest.fixture
async def slot(wait_until: Any) -> AsyncIterator[Slot]:
    slot = Slot()
    yield slot
    await ended(slot)


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
        line=1,
        requests=[*range(first, first + len(calls))],
        names=[name for name, _ in calls],
        arguments=[arguments for _, arguments in calls],
    )


def texts_of(end: End) -> list[str]:
    """Return the texts of the exceptions among the answers."""
    failures = [
        f for message in end.sent if isinstance(message, m.ActorFailures) for f in message.failures
    ]
    return [str(exception_from(failure, "call")) for failure in failures]


def failed_requests(end: End) -> list[int]:
    """Return the requests that were answered by failures."""
    failures = [message for message in end.sent if isinstance(message, m.ActorFailures)]
    return [request for message in failures for request in message.requests]


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


async def test_calls_over_an_earlier_line_are_not_done_after_the_end_of_a_later_one(
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
    assert len(slot.actors._lines) == 1
    assert actor.begun()
    slot.actors.on_closed(end)
    assert not actor.begun()
    await until(lambda: not len(slot.actors._lines))


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


async def test_begun_calls_fail_at_once_though_their_coroutines_go_on_after_the_end_of_the_loop():
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
    set_worker(None)  # type: ignore[arg-type]


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
    state = SimpleNamespace(slots=[None], cancelled={7: None})
    contexts: dict[int, Any] = {}
    interrupts = Interrupts(state, contexts, print, print)  # type: ignore[arg-type]
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
    await until(lambda: making.is_set() and all(one.stand_in for one in contexts.values()))
    interrupts.ask([7], asyncio.get_running_loop())
    await until(lambda: not thread.is_alive())
    state.cancelled.clear()
    assert isinstance(errors[0], TaskInterrupted)
    await until(lambda: not interrupts._is_stepping)
    await until(actors.have_ended)
    assert not actors._actors
