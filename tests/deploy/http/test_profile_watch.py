"""The profile for browsers: what counts begins where a visitor says, whichever worker is shown."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from weft.deploy.http import profile_watch
from weft.deploy.http.profile_watch import NOW, ProfileWatch
from weft.protocol.stack_tree import StackFrame, StackTree, WorkerSamples

WORKERS = {"tcp://a:1": {"id": "a", "name": "alice"}, "tcp://b:1": {"id": "b", "name": "bob"}}


class Sampled:
    """A viewer whose workers have sampled some stacks."""

    def __init__(self):
        self.trees = {worker["id"]: StackTree() for worker in WORKERS.values()}
        self.workers = self

    def sample(self, worker, n):
        self.trees[worker].add([StackFrame("work"), StackFrame("load", "x.py", 1)], n)

    async def get(self):
        return WORKERS

    async def ask_all(self, *asked, to, process, visit):
        return WorkerSamples("1", self.trees[to], 0.01).to_info()


@pytest.fixture
def clock(monkeypatch):
    clock = SimpleNamespace(now=100.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(profile_watch, "time", clock)
    monkeypatch.setattr(profile_watch, "HOLDS_S", 0.0)
    return clock


@pytest.fixture
def sampled():
    return Sampled()


@pytest.fixture
def watch(sampled, clock):
    return ProfileWatch(sampled, sampled)


@pytest.fixture
def look(watch, clock):
    """Return a function: a second later, how many samples there are, and the beginning's name."""

    async def look(worker="", **asked):
        clock.now += 1.0
        data = json.loads(await watch.answer("visit", worker, **asked))
        return sum(data["counts"]), data["since"]

    return look


async def test_a_beginning_holds_for_each_worker_that_is_looked_at_later(sampled, look):
    assert await look() == (0, "")
    sampled.sample("a", 7)
    sampled.sample("b", 5)
    assert await look() == (12, "")
    n, since = await look(since=NOW)
    assert n == 0
    sampled.sample("a", 2)
    sampled.sample("b", 1)
    assert await look(since=since) == (3, since)
    assert await look("alice", since=since) == (2, since)
    assert await look("bob", since=since) == (1, since)
    assert await look("bob") == (6, "")


async def test_each_visitor_has_a_beginning_of_its_own(sampled, look):
    await look()
    sampled.sample("a", 1)
    _, first = await look(since=NOW)
    sampled.sample("a", 10)
    _, second = await look(since=NOW)
    sampled.sample("a", 100)
    assert await look(since=first) == (110, first)
    assert await look(since=second) == (100, second)


async def test_a_beginning_that_is_not_kept_counts_as_none(sampled, look, clock, monkeypatch):
    await look()
    _, since = await look(since=NOW)
    sampled.sample("a", 3)
    assert await look(since="nan") == (3, "")
    clock.now += profile_watch.KEEP_S  # nobody looks, and workers stop to sample
    assert await look(since=since) == (0, "")
    monkeypatch.setattr(profile_watch, "MAX_BEGINNINGS", 2)
    _, since = await look(since=NOW)
    for _ in range(2):
        await look(since=NOW)
    assert (await look(since=since))[1] == ""
