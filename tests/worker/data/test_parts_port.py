"""Parts at the data port: requests that are wrong, and holders that answer them wrongly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.worker.server_kit import Cluster, ask
from weft.protocol.errors import UnsupportedRequest
from weft.protocol.net.connection import Connection
from weft.protocol.net.transport import Listener
from weft.protocol.trust.security import Security
from weft.protocol.values.exceptions import unpack_exception
from weft.protocol.values.frame_parts import split_frame
from weft.protocol.values.parts import read_parts
from weft.protocol.values.serialize import dumps, loads
from weft.protocol.wire.message import MAX_ITEMS, Message
from weft.protocol.wire.messages import (
    AttemptsErred,
    GetParts,
    KeysData,
    KeysMissing,
    Unsupported,
)
from weft.protocol.wire.part_index import PartIndex, as_value
from weft.protocol.wire.roles import Role


class BreaksWhenRead:
    def __init__(self, error: type[BaseException]) -> None:
        self.error = error

    def __getitem__(self, number: int) -> Any:
        raise self.error("by the user")


def frame_parts():
    return split_frame(pd.DataFrame({"n": [0, 1, 2], "x": [4, 5, 6]}), "n", 3, True)


#: {what is wrong: (the value, the numbers, how many for each attempt, what the reader gets)}
WRONG = {
    "a number that is too high": (lambda: [1, 2], [2], 0, IndexError),
    "a box beyond an array": (lambda: np.ones(4), [2, 5], 0, IndexError),
    "a box of an axis too many": (lambda: np.ones(4), [0, 1, 0, 1], 0, IndexError),
    "a box that ends before it begins": (lambda: np.ones(4), [2, 1], 0, IndexError),
    "half a box": (lambda: np.ones(4), [2], 0, IndexError),
    "a part that a frame does not have": (frame_parts, [3], 0, IndexError),
    "two numbers of a frame": (frame_parts, [0, 1], 0, TypeError),
    "two numbers of an item": (lambda: [1, 2], [0, 1], 0, IndexError),
    "no number": (lambda: [1, 2], [], 0, IndexError),
    "a value without parts": (lambda: 7, [0], 0, TypeError),
    "no name for the only value": (lambda: [1, 2], [], 1, ValueError),
    "very many names for one value": (lambda: [1, 2], [0] * 200_000, 1, ValueError),
    "an error of the user": (lambda: BreaksWhenRead(KeyError), [0], 0, KeyError),
}


@pytest.mark.parametrize("what", WRONG)
async def test_a_wrong_request_for_parts_is_answered_by_its_error(cluster, security, what):
    make, numbers, n_numbers, error = WRONG[what]
    scheduler = cluster.scheduler
    worker = await cluster.start()
    scheduler.send(worker, scheduler.task(make, key="x", wanted=0))
    await scheduler.until_done(1)
    asker, connection = await ask(
        worker,
        security,
        GetParts(request=1, attempts=[1], numbers=numbers, n_numbers=n_numbers),
        GetParts(request=2, attempts=[1, 99, 98], numbers=[0]),
    )
    answer = await asyncio.wait_for(asker.answers.get(), 20)
    assert (answer.request, answer.keys, answer.missing) == (1, ["parts"], [])
    with pytest.raises(error) as caught:
        loads(answer.results[0])
    assert type(caught.value) is error
    # The next request is answered all the same.
    answer = await asyncio.wait_for(asker.answers.get(), 20)
    assert (answer.request, answer.results, answer.missing) == (2, [], ["99", "98"])
    connection.close()


class Holder:
    """Answers each request for parts by what a test says."""

    def __init__(self, answer: Callable[[GetParts], Message]) -> None:
        self.answer = answer
        self.n_requests = 0

    def on_messages(self, connection: Connection, messages: list[Message]) -> None:
        for message in messages:
            assert isinstance(message, GetParts)
            self.n_requests += 1
            connection.send([self.answer(message)])

    def on_writable(self, connection: Connection) -> None:
        pass

    def on_closed(self, connection: Connection, error: object) -> None:
        pass


@asynccontextmanager
async def listening(
    answer: Callable[[GetParts], Message], security: Security
) -> AsyncIterator[tuple[Holder, str]]:
    holder = Holder(answer)
    listener = await Listener(
        "tcp://127.0.0.1:0",
        role=Role.WORKER_DATA,
        accepted_roles={Role.PEER},
        security=security,
        on_connection=lambda connection: holder,
    ).start()
    try:
        yield holder, listener.address
    finally:
        await listener.close()


def index_of(address: str, n: int = 2) -> Any:
    """Return the index of the attempts from 11 on, all at one holder."""
    attempts = [*range(11, 11 + n)]
    keys = [f"a{attempt}" for attempt in attempts]
    return loads(as_value(PartIndex(keys, attempts, [[0]] * n, [address])))


def read(index: bytes) -> Any:
    return [taken.parts for taken in read_parts(index, [0])]


async def end_of_reader(
    cluster: Cluster, security: Security, answer: Callable[[GetParts], Message]
) -> tuple[Any, str, list[KeysMissing]]:
    """Return the failure of a task that reads parts, where from, and what was reported missing."""
    scheduler = cluster.scheduler
    worker = await cluster.start()
    async with listening(answer, security) as (_, address):
        scheduler.send(worker, scheduler.task(read, index_of(address), key="r"))
        await scheduler.until(lambda: scheduler.of(AttemptsErred))
    (erred,) = scheduler.of(AttemptsErred)
    (failure,) = erred.failures
    return failure, address, scheduler.of(KeysMissing)


def data(request: int, **fields: Any) -> KeysData:
    return KeysData(**{"keys": [], "results": [], "missing": [], **fields, "request": request})


async def test_a_holder_of_an_earlier_version_is_an_error_that_names_it(cluster, security):
    def answer(message):
        return Unsupported(request=message.request, unknown_code=78)

    failure, address, missing = await end_of_reader(cluster, security, answer)
    assert missing == []
    assert failure[0] == "exception"
    error = unpack_exception(failure[2:])
    assert type(error) is UnsupportedRequest
    assert str(error) == (
        f"the worker at {address} does not know requests for parts of results, because it runs "
        "another version of weft; install the same version on both machines"
    )


#: {what a holder answers: its fields}
NO_ANSWERS = {
    "nothing": {},
    "an attempt that was not asked for": {"missing": ["7"]},
    "a text in the place of an attempt": {"missing": ["a11"]},
    "two results": {"keys": ["parts", "more"], "results": [dumps(1), dumps(2)]},
    "no result": {"keys": ["parts"], "results": [None]},
    "another holder": {"elsewhere": "tcp://127.0.0.1:1"},
}


@pytest.mark.parametrize("what", NO_ANSWERS)
async def test_an_answer_that_says_nothing_counts_as_a_holder_out_of_reach(cluster, security, what):
    failure, address, missing = await end_of_reader(
        cluster, security, lambda message: data(message.request, **NO_ANSWERS[what])
    )
    assert missing == [
        KeysMissing(keys=["a11", "a12"], holder=address, unreachable=True, attempts=[11, 12])
    ]
    assert failure[:2] == ["reschedule", "r"]
    assert failure[2].startswith(f"parts of results are out of reach: {address}: ")


async def test_attempts_that_a_holder_does_not_have_are_reported(cluster, security):
    failure, address, missing = await end_of_reader(
        cluster, security, lambda message: data(message.request, missing=["12", "7"])
    )
    assert missing == [KeysMissing(keys=["a12"], holder=address, attempts=[12])]
    assert failure == ["reschedule", "r", "parts of results are not where they were"]


async def test_the_error_of_a_holder_is_that_of_the_task(cluster, security):
    scheduler = cluster.scheduler
    holder, reader = await cluster.start(name="holder"), await cluster.start(name="reader")
    scheduler.send(holder, scheduler.task(BreaksWhenRead, SystemExit, key="a11", wanted=0))
    await scheduler.until_done(1)
    index = loads(as_value(PartIndex(["a11"], [1], [[0]], [holder.address])))
    scheduler.send(reader, scheduler.task(read, index, key="r"))
    await scheduler.until(lambda: scheduler.of(AttemptsErred))
    (failure,) = scheduler.of(AttemptsErred)[0].failures
    error = unpack_exception(failure[2:])
    assert isinstance(error.__cause__, SystemExit)
    assert "task parts on worker holder" in "".join(error.__notes__)


async def test_a_request_with_more_rows_than_a_list_may_have_is_sent_in_several(cluster, security):
    n = MAX_ITEMS + 1

    def answer(message):
        return data(message.request, keys=["parts"], results=[dumps(len(message.attempts))])

    scheduler = cluster.scheduler
    worker = await cluster.start()
    async with listening(answer, security) as (holder, address):
        scheduler.send(worker, scheduler.task(read, index_of(address, n), key="r"))
        results = await scheduler.until_done(1)
    assert sum(results[1]) == n
    assert holder.n_requests > 1


class SlowHolder:
    """Answers requests for parts when a test says so."""

    def __init__(self, news: asyncio.Event) -> None:
        #: what the test waits for
        self.news = news
        self.asked: list[tuple[Connection, GetParts]] = []

    def on_messages(self, connection: Connection, messages: list[Message]) -> None:
        for message in messages:
            assert isinstance(message, GetParts)
            self.asked.append((connection, message))
        self.news.set()

    def on_writable(self, connection: Connection) -> None:
        pass

    def on_closed(self, connection: Connection, error: object) -> None:
        pass

    def answer(self) -> None:
        for connection, message in self.asked:
            connection.send([data(message.request, keys=["parts"], results=[dumps(7)])])


def double(x: int) -> int:
    return 2 * x


async def test_a_reader_that_waits_for_a_holder_lets_another_task_use_its_thread(cluster, security):
    scheduler = cluster.scheduler
    holder = SlowHolder(scheduler.news)
    worker = await cluster.start(nthreads=1)
    listener = await Listener(
        "tcp://127.0.0.1:0",
        role=Role.WORKER_DATA,
        accepted_roles={Role.PEER},
        security=security,
        on_connection=lambda _: holder,
    ).start()
    try:
        reading = [scheduler.task(read, index_of(listener.address), key=f"r{i}") for i in range(3)]
        scheduler.send(worker, *reading)
        scheduler.send(worker, scheduler.task(double, 4, key="d"))
        # One of the readers lets another one begin, and no more of them: each holds what it got.
        await scheduler.until(lambda: len(holder.asked) == 2)
        holder.answer()
        holder.asked.clear()
        await scheduler.until(lambda: len(holder.asked) == 1)
        await scheduler.until(lambda: scheduler.results().get(4) == 8)
        assert 3 not in scheduler.results()
        holder.answer()
        results = await scheduler.until_done(4)
    finally:
        await listener.close()
    assert results == {1: [7], 2: [7], 3: [7], 4: 8}
