"""Actors, tasks and locks that wait for each other: the wait that closes the cycle fails."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator

import pytest

import weft

pytestmark = [pytest.mark.slow, pytest.mark.shares_resources]


class Node:
    """Calls another actor, waits for tasks, and takes locks."""

    def take(self, other: weft.Actor) -> None:
        self.other = other

    def ask(self) -> str:
        return self.other.ask_back().result()

    def ask_back(self) -> int:
        return self.other.n().result()

    def ask_all(self) -> list[str]:
        return weft.get_client().gather([self.other.ask_back(), weft.get_client().submit(abs, -1)])

    def run_async(self) -> str:
        node = weft.get_client().get_dataset("node")
        return weft.get_client().submit(ask_async, node).result()

    def run(self) -> str:
        return weft.get_client().submit(ask, weft.get_client().get_dataset("node")).result()

    def hold(self, lock: weft.Lock) -> str:
        with lock:
            return weft.get_client().submit(take, lock).result()

    def hold_and_ask(self, lock: weft.Lock) -> str:
        with lock:
            return self.other.acquire(lock).result()

    def acquire(self, lock: weft.Lock) -> str:
        with lock:
            return "taken"

    def n(self) -> int:
        return 1


class AsyncNode(Node):
    """Its methods run in an event loop, which the blocking ones block."""

    async def nothing(self) -> None:
        pass


def ask(node: weft.Actor) -> str:
    return node.ask().result()


async def ask_async(node: weft.Actor) -> str:
    return await node.ask()


def take(lock: weft.Lock) -> str:
    with lock:
        return "taken"


@pytest.fixture(scope="module", params=["processes", "threads"])
def client(request: pytest.FixtureRequest) -> Iterator[weft.Client]:
    with weft.Client(
        n_workers=2, threads_per_worker=2, processes=request.param == "processes"
    ) as client:
        yield client


_numbers = itertools.count()


def pair(client: weft.Client, cls: type = Node) -> tuple[weft.Actor, weft.Actor]:
    keys = [f"{name}-{next(_numbers)}" for name in ("one", "two")]
    one, other = client.gather([client.submit(cls, actor=True, key=key) for key in keys])
    one.take(other).result()
    other.take(one).result()
    return one, other


@contextlib.contextmanager
def apart(*actors: weft.Actor) -> Iterator[None]:
    """Take the handles from each other at the end: actors that keep each other live for ever."""
    try:
        yield
    finally:
        for actor in actors:
            actor.take(None).result(60)


@pytest.mark.parametrize("cls", [Node, AsyncNode])
@pytest.mark.parametrize("how", ["ask", "ask_all"])
def test_two_actors_that_wait_for_each_other(client, cls, how):
    one, other = pair(client, cls)
    with apart(one, other):
        with pytest.raises(weft.WaitingCycle) as caught:
            getattr(one, how)().result(60)
        text = str(caught.value)
        assert f"actor {one.key!r} waits for a call of actor {other.key!r}" in text
        assert f"actor {other.key!r} waits for a call of actor {one.key!r}" in text
        assert one.n().result(60) == other.n().result(60) == 1


@pytest.mark.parametrize("how", ["run", "run_async"])
def test_an_actor_and_a_task_that_wait_for_each_other(client, how):
    node = client.submit(Node, actor=True, key=f"node-{next(_numbers)}").result()
    client.publish_dataset(node=node)
    node.take(node).result()
    with apart(node):
        with pytest.raises(weft.WaitingCycle, match="waits for itself") as caught:
            getattr(node, how)().result(60)
        assert f"waits for a call of actor {node.key!r}" in str(caught.value)
        assert f"actor {node.key!r} waits for task 'ask" in str(caught.value)
    client.unpublish_dataset("node")


def test_an_actor_that_holds_a_lock_and_waits_for_one_who_wants_it(client):
    one, other = pair(client)
    with apart(one, other):
        holder = f"which actor '{one.key}' holds"
        with pytest.raises(weft.WaitingCycle, match=f"lock 'of the actor', {holder}"):
            one.hold(weft.Lock("of the actor")).result(60)
        with pytest.raises(weft.WaitingCycle, match=holder) as caught:
            one.hold_and_ask(weft.Lock("of two")).result(60)
        assert f"actor {one.key!r} waits for a call of actor {other.key!r}" in str(caught.value)


def test_explain_names_what_an_actor_waits_for(client, wait_until):
    gate = weft.Event("explained")
    node = client.submit(Node, actor=True, key=f"waits-{next(_numbers)}").result()
    node.take(Waiter()).result()
    task = client.submit(ask, node, key=f"asks-{next(_numbers)}")

    def texts() -> str:
        return str(task.explain())

    wait_until(lambda: "a method of which waits" in texts() and "call of actor waits-" in texts())
    assert "event 'explained'" in texts()
    gate.set()
    assert task.result(60) == "asked"


class Waiter:
    """Stands for an actor in the place of `Node.other`."""

    def ask_back(self) -> Waiter:
        return self

    def result(self) -> str:
        weft.Event("explained").wait()
        return "asked"
