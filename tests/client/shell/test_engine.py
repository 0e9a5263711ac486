"""The queue of operations, and how the loop takes them."""

from __future__ import annotations

import threading

import pytest

from weft.client.core.events import Operations
from weft.client.core.tasks import FutureState

SLICE = 100


@pytest.fixture(autouse=True)
def small_slices(monkeypatch):
    monkeypatch.setattr("weft.client.shell.engine.SLICE", SLICE)


@pytest.fixture
def turns(client):
    """A record of the loop's steps: numbers of rows that its core gets, and notes of other code."""
    core = client._engine.core
    handle = core.handle
    turns = []

    def note(event, now):
        if isinstance(event, Operations) and (n := sum(map(count, event.operations))):
            turns.append(n)
        handle(event, now)

    def count(operation):
        if isinstance(operation, FutureState):
            return 1
        return len(getattr(operation, "states", ()))

    core.handle = note
    yield turns
    del core.handle


class Held:
    """While this is entered, the client's loop is blocked."""

    def __init__(self, client):
        self.loop = client._engine.loop
        self.stands = threading.Event()
        self.goes_on = threading.Event()

    def __enter__(self):
        self.loop.call_soon_threadsafe(self.hold)
        assert self.stands.wait(60)

    def hold(self):
        self.stands.set()
        assert self.goes_on.wait(60)

    def __exit__(self, *_):
        self.goes_on.set()


def test_a_large_queue_is_taken_in_slices_and_others_come_in_between(client, turns):
    n = 6 * SLICE
    futures = client.map(abs, range(n), pure=False)
    client._engine.settle()
    turns.clear()
    with Held(client):
        for future in futures:
            future.release()
        client._engine.loop.call_soon_threadsafe(turns.append, "others")
        futures.clear()
    client._engine.settle()
    assert "others" in turns[:-1]  # a sweep may be due at once, so not always after the first
    assert sum(turn for turn in turns if turn != "others") == n
    assert max(turn for turn in turns if turn != "others") == SLICE
    assert not client._engine.table.states


def test_rows_of_map_count_in_a_slice(client, turns):
    n = 3 * SLICE
    with Held(client):
        futures = [
            future
            for i in range(3)
            for future in client.map(abs, range(i * SLICE, (i + 1) * SLICE), pure=False)
        ]
    client._engine.settle()
    assert len(futures) == sum(turns) == n
    assert len(turns) == 3


async def test_everything_is_handled_before_the_loop_itself_goes_on(scheduler):
    from weft.client import Client

    async with Client(scheduler, asynchronous=True) as client:
        futures = client.map(abs, range(2 * SLICE + 1), pure=False)
        for future in futures:
            future.release()
        client._engine.settle()
        assert not client._engine.table.states
