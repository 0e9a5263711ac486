"""`Client.scatter` against a scheduler that answers over a real socket."""

from __future__ import annotations

import asyncio
from collections import Counter, namedtuple

import numpy as np
import pytest

from weft.client import Client, shared_arguments
from weft.protocol.errors import (
    ClientClosed,
    DataLost,
    InvalidDuration,
    SerializationError,
    UnknownWorker,
)
from weft.protocol.values.serialize import loads
from weft.protocol.wire.failure import scattered_lost
from weft.protocol.wire.messages import KeysErred, SubmitTasks

Point = namedtuple("Point", "x y")


def options_of(scheduler):
    return [option for message in scheduler.heard(SubmitTasks) for option in message.options]


def sent(scheduler):
    """Return the values that were put, in order."""
    return [loads(value) for message in scheduler.puts for value in message.values]


@pytest.mark.parametrize(
    "data", [[1, "two"], (1, 2), Point(1, [2]), {"a": 1, ("b", 2): 2}, {3, 4}, frozenset({5})]
)
def test_containers_are_returned_with_futures_in_the_places_of_values(client, data):
    found = client.scatter(data)
    assert type(found) is type(data)
    assert client.gather(found) == data


@pytest.mark.parametrize(("data", "values"), [(range(3), [0, 1, 2]), (iter("ab"), ["a", "b"])])
def test_iterators_and_ranges_are_lists(client, data, values):
    assert client.gather(client.scatter(data)) == values


@pytest.mark.parametrize("data", ["text", b"bytes", 7, None, Counter("aab"), np.arange(3)])
def test_other_objects_are_one_value(client, data):
    future = client.scatter(data)
    assert future.done()
    assert np.all(future.result() == data)


@pytest.mark.parametrize("data", [[], {}, (), range(0)])
def test_empty_containers_send_nothing(client, scheduler, data):
    assert not client.scatter(data)
    assert scheduler.puts == []


def test_equal_values_have_one_key_and_are_sent_once(client, scheduler):
    x = np.arange(10)
    first = client.scatter([x, x.copy()])
    second = client.scatter(x)
    assert first[0].key == first[1].key == second.key
    assert first[0].key.startswith("scattered-ndarray-")
    assert len(scheduler.puts) == 1
    assert client.scatter(x[:5]).key != second.key


def test_values_that_are_not_hashed_have_keys_of_their_own(client, scheduler):
    first, second = client.scatter([7, 7], hash=False)
    assert first.key != second.key
    assert sent(scheduler) == [7, 7]


def test_the_data_is_marked_and_goes_to_the_named_workers(client, scheduler):
    client.scatter(1, workers="there")
    client.scatter(2, workers=["elsewhere"], allow_other_workers=True)
    assert options_of(scheduler) == [
        {"scattered": True, "workers": ["there"]},
        {"scattered": True, "workers": ["elsewhere"], "allow_other_workers": True},
    ]


def test_the_client_keeps_nothing_of_the_data(client, scheduler):
    scheduler.inline_limit = 0
    future = client.scatter(np.arange(100_000))
    client._engine.settle()
    assert future._state.spec is None
    assert not list(client._engine.core.puts.records)
    assert client._engine.core.recipes.nbytes == 0


def test_a_call_reads_scattered_data_as_any_result(client):
    data = client.scatter([1, 2, 3])
    assert client.submit(sum, data).result() == 6
    assert client.gather(client.map(abs, data)) == [1, 2, 3]


def test_data_whose_copy_is_lost_at_once_is_sent_again(client, scheduler, wait_until):
    scheduler.is_holding = True

    async def scatter_and_lose():
        waiting = asyncio.ensure_future(client.scatter("x", asynchronous=True))
        await asyncio.to_thread(wait_until, lambda: scheduler.tasks)
        (key,) = scheduler.tasks
        scheduler.is_holding = False
        erred = KeysErred(keys=[key], failure_of=[0], failures=[scattered_lost(key)])
        await asyncio.to_thread(scheduler.say, erred)
        return await waiting

    future = asyncio.run(scatter_and_lose())
    assert future.result() == "x"


def test_values_that_are_late_are_released(client, scheduler):
    scheduler.is_holding = True
    with pytest.raises(TimeoutError, match=r"1 values were not at workers within 0\.05 s"):
        client.scatter(["x"], timeout=0.05)
    client._engine.settle()
    assert not client.futures


def test_an_asynchronous_client_awaits_and_sends_a_copy(scheduler, wait_until):
    async def scatter():
        async with Client(scheduler, asynchronous=True) as client:
            x = np.arange(300_000)
            waiting = asyncio.ensure_future(client.scatter([x, 1], workers="there"))
            await asyncio.to_thread(wait_until, lambda: scheduler.heard(SubmitTasks))
            x[:] = 0
            array, one = await waiting
            assert await one == 1
            return await array

    assert asyncio.run(scatter())[-1] == 299_999


def test_a_lost_value_is_an_error_that_names_its_key(client, scheduler, wait_until):
    scheduler.inline_limit = 0  # as a worker, which sends no value with its report
    future = client.scatter("x")
    key = future.key
    scheduler.say(KeysErred(keys=[key], failure_of=[0], failures=[scattered_lost(key)]))
    wait_until(lambda: future.status == "lost")
    with pytest.raises(DataLost, match=rf"{key}.* scatter it again"):
        future.result(30)
    assert client.scatter("x").key == key
    assert len(scheduler.puts) == 2


def test_wrong_arguments_are_refused_before_anything_is_sent(client, scheduler, monkeypatch):
    future = client.submit(abs, -1)
    future.result()
    with pytest.raises(TypeError, match=r"has the future of .* in it"):
        client.scatter([1, [future]])
    with pytest.raises(TypeError, match="has the future of"):
        client.scatter(future)
    with pytest.raises(SerializationError, match="data of scatter"):
        client.scatter([1, (i for i in "ab")])
    with pytest.raises(UnknownWorker, match="'nowhere'"):
        client.scatter(1, workers="nowhere")
    with pytest.raises(TypeError, match="workers= is the address"):
        client.scatter(1, workers=[7])
    with pytest.raises(ValueError, match="workers= is empty"):
        client.scatter(1, workers=[])
    with pytest.raises(TypeError, match="hash= is True or False"):
        client.scatter(1, hash="yes")
    with pytest.raises(TypeError, match="direct="):
        client.scatter(1, direct=False)
    with pytest.raises(InvalidDuration):
        client.scatter(1, timeout=-1)
    monkeypatch.setattr("weft.client.scattering.MAX_NBYTES", 1000)
    with pytest.raises(ValueError, match=r"a value takes .* at most 1000 B"):
        client.scatter(bytes(2000))
    client.close()
    with pytest.raises(ClientClosed):
        client.scatter(1)
    assert scheduler.puts == []
    assert shared_arguments.MAX_NBYTES > 1000
