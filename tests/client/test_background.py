"""`weft.fire_and_forget` as users call it, on a real scheduler."""

from __future__ import annotations

import pytest

import weft
from weft import Client
from weft.protocol.errors import ClientClosed

pytestmark = [pytest.mark.slow, pytest.mark.shares_resources]


@pytest.fixture
def client(cluster):
    with Client(cluster) as client:
        yield client


def when(event, results, value):
    event.wait()
    results.put(value)


def fires(event, results, value):
    weft.fire_and_forget(weft.get_client().submit(when, event, results, value))
    results.put("ended")


def test_tasks_go_on_when_their_client_is_closed(cluster, client):
    results, go = weft.Queue(client=client), weft.Event(client=client)
    with Client(cluster, set_as_default=False) as other:
        futures = other.map(when, [go] * 3, [results] * 3, range(3))
        weft.fire_and_forget({"some": futures[:2], "one": futures[2]})
        del futures
    go.set()
    assert sorted(results.get(timeout=60) for _ in range(3)) == [0, 1, 2]


def test_a_task_goes_on_after_the_end_of_the_task_that_has_submitted_it(client):
    results, go = weft.Queue(), weft.Event()
    assert client.submit(fires, go, results, 5).result(timeout=60) is None
    assert results.get(timeout=60) == "ended"
    go.set()
    assert results.get(timeout=60) == 5


def test_futures_of_calls_that_are_done_or_cancelled_are_accepted(client, caplog):
    done = client.submit(abs, -1)
    done.result(timeout=60)
    cancelled = client.submit(weft.Event("never").wait)
    cancelled.cancel()
    weft.fire_and_forget([done, cancelled])
    client.submit(abs, -2).result(timeout=60)
    assert not caplog.records


def test_wrong_arguments_of_fire_and_forget_are_named(cluster, client):
    with pytest.raises(TypeError, match="fire_and_forget takes futures, as submit and map return"):
        weft.fire_and_forget(5)
    with pytest.raises(TypeError, match="not str"):
        weft.fire_and_forget("key")
    released = client.submit(abs, -1)
    released.release()
    with pytest.raises(ValueError, match="was released; submit its call again"):
        weft.fire_and_forget(released)
    with Client(cluster, set_as_default=False) as other:
        future = other.submit(weft.Event("never").wait)
    with pytest.raises(ClientClosed):
        weft.fire_and_forget(future)


async def test_an_asynchronous_client_waits_for_the_scheduler_when_it_is_closed(cluster, client):
    results, go = weft.Queue(client=client), weft.Event(client=client)
    async with Client(cluster, asynchronous=True, set_as_default=False) as other:
        weft.fire_and_forget(other.submit(when, go, results, 7))
    go.set()
    assert results.get(timeout=60) == 7
