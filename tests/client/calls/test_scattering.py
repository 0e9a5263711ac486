"""`Client.scatter` against a scheduler that answers over a real socket."""

from __future__ import annotations

import asyncio
from collections import Counter, namedtuple

import numpy as np
import pytest

from weft.client import Client
from weft.client.calls import shared_arguments
from weft.client.core.features.puts import ClientPuts
from weft.protocol.errors import (
    ClientClosed,
    DataLost,
    InvalidDuration,
    SerializationError,
    UnknownWorker,
)
from weft.protocol.values.serialize import loads
from weft.protocol.wire.failure import scattered_lost
from weft.protocol.wire.messages import Ask, KeysErred, SubmitTasks

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
    assert not list(client._engine.core.record(ClientPuts).values)
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


def orders(scheduler):
    return [message.arguments for message in scheduler.heard(Ask) if message.name == "replicate"]


def test_copies_are_ordered_of_results_that_are_there(client, scheduler):
    scheduler.answers["replicate"] = [{"keys": ["a", "b"], "n_copies": [2, 1]}]
    futures = [client.submit(abs, -1, key="a"), client.submit(abs, -2, key="b")]
    assert client.replicate({"x": futures}, 2) == {"a": 2, "b": 1}
    (order,) = orders(scheduler)
    assert order["n"] == 2
    assert sorted(order["keys"]) == ["a", "b"]


def test_many_keys_are_ordered_in_parts(client, scheduler):
    scheduler.answers["replicate"] = [{"keys": [], "n_copies": []}]
    client.replicate(client.map(abs, range(250)))
    assert [len(order["keys"]) for order in orders(scheduler)] == [100, 100, 50]
    assert all("n" not in order for order in orders(scheduler))


def test_copies_at_named_workers_are_as_many_at_most(client, scheduler):
    scheduler.answers["replicate"] = [{"keys": ["a"], "n_copies": [1]}]
    client.replicate(client.submit(abs, -1, key="a"), n=5, workers="here")
    assert orders(scheduler) == [{"n": 1, "workers": [scheduler.data_address], "keys": ["a"]}]


@pytest.mark.parametrize(("broadcast", "order"), [(True, {}), (2, {"n": 2}), (1, None)])
def test_a_broadcast_orders_copies_of_the_data(client, scheduler, broadcast, order):
    scheduler.answers["replicate"] = [{"keys": [], "n_copies": []}]
    futures = client.scatter([1, 2], broadcast=broadcast)
    keys = [future.key for future in futures]
    assert orders(scheduler) == ([] if order is None else [{**order, "keys": keys}])


def test_results_that_are_there_are_rebalanced(client, scheduler):
    scheduler.answers["rebalance"] = [{"keys": [], "n_copies": []}]
    futures = client.map(abs, range(120))
    client.gather(futures)
    assert client.rebalance() is None
    assert client.rebalance(futures[:2], workers="there") is None
    *parts, last = [
        message.arguments for message in scheduler.heard(Ask) if message.name == "rebalance"
    ]
    assert [len(part["keys"]) for part in parts] == [100, 20]
    assert last["workers"] == [scheduler.data_address]
    assert sorted(last["keys"]) == sorted(future.key for future in futures[:2])
    with pytest.raises(UnknownWorker):
        client.rebalance(workers="nowhere")
    with pytest.raises(ValueError, match="workers= is empty"):
        client.rebalance(workers=[])
    with pytest.raises(TypeError, match="rebalance takes futures"):
        client.rebalance(7)


def test_an_asynchronous_client_awaits_copies(scheduler):
    scheduler.answers["replicate"] = [{"keys": ["a"], "n_copies": [2]}]

    async def replicate():
        async with Client(scheduler, asynchronous=True) as client:
            future = client.submit(abs, -1, key="a")
            found = await client.replicate(future, 2)
            await client.scatter(1, broadcast=True)
            return found

    assert asyncio.run(replicate()) == {"a": 2}
    assert len(orders(scheduler)) == 2


def test_copies_that_are_late_are_an_error(client, scheduler):
    future = client.submit(abs, -1)
    future.result()
    scheduler.is_holding = True
    pending = client.submit(abs, -2)
    with pytest.raises(TimeoutError, match="1 results were not there"):
        client.replicate([future, pending], timeout=0.05)
    scheduler.go_on()


def test_copies_of_what_cannot_have_any_are_refused(client, scheduler):
    future = client.submit(abs, -1)
    for wrong in (0, -1):
        with pytest.raises(ValueError, match="n= is a number of copies"):
            client.replicate(future, wrong)
        with pytest.raises(ValueError, match="broadcast= is a number"):
            client.scatter(1, broadcast=wrong)
    with pytest.raises(TypeError, match="n= is a number of copies"):
        client.replicate(future, "2")
    with pytest.raises(TypeError, match="broadcast= is a number"):
        client.scatter(1, broadcast="all")
    with pytest.raises(ValueError, match="workers= is empty"):
        client.replicate(future, workers=[])
    with pytest.raises(UnknownWorker, match="'nowhere'"):
        client.replicate(future, workers="nowhere")
    with pytest.raises(TypeError, match="replicate takes futures"):
        client.replicate("a key")
    failed = client.submit(abs, "x")
    with pytest.raises(TypeError, match="abs"):
        client.replicate(failed)
    with pytest.raises(InvalidDuration):
        client.replicate(future, timeout=-1)
    future.release()
    client._engine.settle()
    with pytest.raises(ValueError, match="was released"):
        client.replicate(future)
    client.close()
    with pytest.raises(ClientClosed):
        client.replicate(failed)
    assert orders(scheduler) == []


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
    monkeypatch.setattr("weft.client.calls.scattering.MAX_NBYTES", 1000)
    with pytest.raises(ValueError, match=r"a value takes .* at most 1000 B"):
        client.scatter(bytes(2000))
    client.close()
    with pytest.raises(ClientClosed):
        client.scatter(1)
    assert scheduler.puts == []
    assert shared_arguments.MAX_NBYTES > 1000
