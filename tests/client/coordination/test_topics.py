"""Topics and their events as users call them, on a real scheduler."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time

import pytest

import weft
from weft import Client
from weft.client.core.features.coordination import calls_of
from weft.protocol.errors import ClientClosed, SerializationError, TooLarge

pytestmark = [pytest.mark.slow, pytest.mark.shares_resources]


def logs(n):
    weft.get_client().log_event("of tasks", {"n": n})


def test_events_are_kept_with_their_times(client):
    before = time.time()
    client.log_event("kept", {"loss": 0.5})
    client.log_event(["kept", "also kept"], (1, "a"))
    events = client.get_events("kept")
    assert [msg for _, msg in events] == [{"loss": 0.5}, (1, "a")]
    assert before <= events[0][0] <= events[1][0] <= time.time()
    assert client.get_events("never used") == ()
    assert {"kept", "also kept"} <= client.get_events().keys()


def test_a_handler_is_called_for_the_events_of_tasks_and_clients(cluster, client):
    client.log_event("of tasks", "before")
    seen = queue.Queue()
    client.subscribe_topic("of tasks", seen.put)
    client.gather(client.map(logs, range(5)))
    with Client(cluster, set_as_default=False) as other:
        other.log_event("of tasks", "from another client")
    found = [seen.get(timeout=60)[1] for _ in range(6)]
    assert sorted(msg["n"] for msg in found[:5]) == [0, 1, 2, 3, 4]
    assert found[5] == "from another client"
    client.unsubscribe_topic("of tasks")
    client.log_event("of tasks", "after")
    client.subscribe_topic("of tasks", seen.put)
    client.log_event("of tasks", "later")
    assert seen.get(timeout=60)[1] == "later"


def test_a_handler_that_raises_is_logged_and_goes_on(client, caplog):
    seen = queue.Queue()

    def handler(event):
        seen.put(event[1])
        1 / 0

    client.subscribe_topic("raising", handler)
    client.log_event("raising", 1)
    client.log_event("raising", 2)
    assert [seen.get(timeout=60), seen.get(timeout=60)] == [1, 2]
    client.unsubscribe_topic("raising")
    assert "the handler of topic 'raising' raised" in caplog.text


def test_a_second_handler_replaces_the_first(client):
    first, second = queue.Queue(), queue.Queue()
    client.subscribe_topic("twice", first.put)
    client.subscribe_topic("twice", second.put)
    client.log_event("twice", 1)
    assert second.get(timeout=60)[1] == 1
    assert first.empty()


def test_events_that_came_too_fast_are_counted(client, caplog):
    seen, go = queue.Queue(), queue.Queue()

    def handler(event):
        seen.put(event[1])
        if event[1] == -1:
            go.get(timeout=60)

    client.subscribe_topic("fast", handler)
    client.log_event("fast", -1)
    assert seen.get(timeout=60) == -1
    for n in range(100):
        client.log_event("fast", bytes(60_000) + bytes([n]))
    go.put(None)
    assert seen.get(timeout=60)[-1] > 0
    assert "events of topic 'fast' were missed" in caplog.text
    client.unsubscribe_topic("fast")


def test_wrong_arguments_of_events_are_named(cluster, client):
    with pytest.raises(TypeError, match="the name of a topic is a str, not int"):
        client.log_event([5], 1)
    with pytest.raises(ValueError, match="1 to 1024 characters"):
        client.get_events("")
    with pytest.raises(TypeError, match="an event has no futures in it"):
        client.log_event("t", client.submit(abs, -1))
    with pytest.raises(TooLarge, match="the event takes"):
        client.log_event("t", bytes(70_000))
    with pytest.raises(SerializationError):
        client.log_event("t", client)
    with pytest.raises(TypeError, match="a handler of events is a function, not int"):
        client.subscribe_topic("t", 5)

    async def handler(event):
        pass

    for each in (handler, Collector()):
        with pytest.raises(TypeError, match="needs a client with asynchronous=True"):
            client.subscribe_topic("t", each)
    with pytest.raises(ValueError, match="not subscribed to topic 't'"):
        client.unsubscribe_topic("t")
    with Client(cluster, set_as_default=False) as other:
        other.subscribe_topic("t", print)
    for call in (
        lambda: other.log_event("t", 1),
        lambda: other.get_events("t"),
        lambda: other.subscribe_topic("t", print),
        lambda: other.unsubscribe_topic("t"),
    ):
        with pytest.raises(ClientClosed):
            call()


class Collector:
    """An object whose call is a coroutine function."""

    def __init__(self):
        self.seen = asyncio.Queue()

    async def __call__(self, event):
        await self.seen.put(event[1])


async def test_asynchronous_handlers_run_in_the_loop(cluster, caplog):
    caplog.set_level(logging.WARNING)
    seen = asyncio.Queue()

    async def handler(event):
        await seen.put(event[1])

    async with Client(cluster, asynchronous=True, set_as_default=False) as client:
        await client.subscribe_topic("async", handler)
        await client.log_event("async", 1)
        assert await asyncio.wait_for(seen.get(), 60) == 1
        await client.subscribe_topic("async", lambda event: seen.put_nowait(event[1]))
        await client.log_event("async", 2)
        assert await asyncio.wait_for(seen.get(), 60) == 2
        collector = Collector()
        await client.subscribe_topic("async", collector)
        await client.log_event("async", 3)
        assert await asyncio.wait_for(collector.seen.get(), 60) == 3
        client.unsubscribe_topic("async")
        assert [msg for _, msg in await client.get_events("async")] == [1, 2, 3]
        assert "async" in await client.get_events()
    assert not caplog.records


def test_a_program_watches_what_happens_in_the_scheduler(cluster, client):
    seen = queue.Queue()
    client.subscribe_topic("scheduler", seen.put)
    with Client(cluster, set_as_default=False, name="visitor"):
        pass
    future = client.submit(int, "no number")
    assert future.exception(timeout=60) is not None
    found = [seen.get(timeout=60) for _ in range(3)]
    assert [msg["event"] for _, msg in found] == ["client-connected", "client-left", "task-failed"]
    assert found[0][1]["client"] == "visitor"
    assert found[2][1]["text"].startswith("ValueError: ")
    assert abs(found[2][0] - time.time()) < 3600
    with pytest.raises(weft.HeldError, match="is for the events of the scheduler"):
        client.log_event("scheduler", 1)
    assert "worker-joined" in [msg["event"] for _, msg in client.get_events("scheduler")]


def test_a_subscription_that_ends_as_it_asks_for_more_leaves_no_call(client, monkeypatch):
    seen = queue.Queue()
    engine = client._running()
    post = engine.post

    def post_late(operation):
        """Let another thread end the subscription just before its second call is posted."""
        if getattr(operation, "operation", "") == "next" and not seen.empty():
            client.unsubscribe_topic("ending")
            over.set()
        post(operation)

    over = threading.Event()
    client.subscribe_topic("ending", seen.put)
    monkeypatch.setattr(engine, "post", post_late)
    client.log_event("ending", 1)
    assert over.wait(60)
    idle = threading.Event()
    # Behind the call that posts.
    engine.loop.call_soon_threadsafe(engine.call_back, lambda _: idle.set(), None)
    assert idle.wait(60)
    engine.settle()
    assert [x for x in calls_of(engine.core).pending.values() if x.operation == "next"] == []
