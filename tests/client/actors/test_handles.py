"""Handles of actors: passed around, used wrongly, and what is left when they are gone."""

from __future__ import annotations

import gc
import pickle
import subprocess
import sys
import threading

import pytest

import weft
from tests.client.actors.actors_kit import Counter, add_in_task
from tests.client.client_kit import Cycle
from weft import Actor, Client
from weft.protocol.errors import ClientClosed, SerializationError

pytestmark = [pytest.mark.slow, pytest.mark.shares_resources]


class Caller:
    """Has the handle of another actor."""

    def __init__(self, other: Actor) -> None:
        self.other = other

    def add(self, k: int) -> int:
        return self.other.add(k).result()

    def take(self, other: Actor) -> None:
        self.other = other

    def give(self) -> Actor:
        return self.other

    def add_to_itself(self, k: int) -> int:
        return self.other.add_to_itself(k).result()

    def wait_for_itself(self, how: str) -> object:
        call = self.other.give()
        if how == "wait":
            return weft.wait(call)
        if how == "gather":
            return weft.get_client().gather([call])
        return list(weft.as_completed([call]))


class Result:
    """Reads the futures that it is given, and makes some itself."""

    def value(self, future: weft.Future) -> int:
        return future.result()

    def sum_of(self, numbers: list[int]) -> int:
        client = weft.get_client()
        return sum(client.gather(client.map(abs, numbers)))

    def future_of(self, number: int) -> weft.Future:
        return weft.get_client().submit(abs, number, pure=False)

    def keep(self, future: weft.Future) -> None:
        self.kept = future

    def value_of_kept(self) -> int:
        return self.kept.result()


# --- Being passed around --------------------------------------------------------------------------


def test_tasks_call_an_actor_by_its_handle_and_by_its_future(client):
    future = client.submit(Counter, actor=True)
    counter = future.result()
    calls = client.map(add_in_task, [counter] * 5 + [future] * 5, [1] * 10, pure=False)
    assert sorted(client.gather(calls)) == list(range(1, 11))


def test_an_actor_keeps_the_one_alive_whose_handle_it_has(client):
    caller = client.submit(Caller, client.submit(Counter, actor=True), actor=True).result()
    assert [caller.add(1).result() for _ in range(3)] == [1, 2, 3]
    caller.take(client.submit(Counter, 10, actor=True).result()).result()
    assert caller.add(1).result() == 11
    given = caller.give().result()
    del caller
    assert given.add().result() == 12


def test_a_method_that_waits_for_its_own_actor_is_refused(client, counter):
    caller = client.submit(Caller, counter, actor=True).result()
    caller.take(caller).result()
    with pytest.raises(weft.WaitingCycle, match="would wait for itself"):
        caller.add_to_itself(1).result(timeout=60)
    for how in ("wait", "gather", "as_completed"):
        with pytest.raises(weft.WaitingCycle, match="would wait for itself"):
            caller.wait_for_itself(how).result(timeout=60)


def test_futures_among_the_arguments_reach_the_actor_as_futures(client):
    actor = client.submit(Result, actor=True).result()
    assert actor.value(client.submit(abs, -7)).result() == 7


def test_methods_submit_tasks_wait_for_them_and_return_their_futures(client):
    one, other = client.gather([client.submit(Result, actor=True) for _ in range(2)])
    calls = [actor.sum_of([-1, i, -3]) for i in range(5) for actor in (one, other)]
    assert sum(call.result(timeout=60) for call in calls) == 60
    future = one.future_of(-9).result(timeout=60)
    assert future.result(timeout=60) == 9


def n_handed() -> int:
    """Return how many results with futures wait on this worker to be taken."""
    actors = weft.get_worker().actors
    return len(actors._handed)


def test_futures_in_a_result_are_held_by_the_caller_from_its_arrival_on(client, wait_until):
    one = client.submit(Result, actor=True).result()
    call = one.future_of(-9)
    assert weft.wait(call, 60).done
    (kept,) = call.kept
    assert kept._engine is one._hold._engine
    wait_until(lambda: not any(client.run(n_handed).values()))
    assert kept.result(60) == 9
    del kept
    assert call.result().result(60) == 9
    assert call.kept is None


def test_an_actor_may_keep_a_future_that_its_caller_drops(client):
    one = client.submit(Result, actor=True).result()
    for i in range(20):
        one.keep(client.submit(abs, -i, pure=False)).result(60)
        assert one.value_of_kept().result(60) == i


def test_handles_travel_through_queues_and_pickles(client, counter):
    queue = weft.Queue()
    queue.put([counter])
    (found,) = queue.get()
    assert found.add().result() == 1
    assert pickle.loads(pickle.dumps(counter)).add().result() == 2


# --- Wrong use ------------------------------------------------------------------------------------


def test_wrong_use_of_handles_is_refused(client, counter):
    with pytest.raises(AttributeError, match="cannot be set from outside"):
        counter.n = 5
    with pytest.raises(AttributeError, match="cannot be deleted"):
        del counter.n
    with pytest.raises(SerializationError, match="arguments of Counter"):
        counter.add(threading.Lock())
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(counter.add())
    with pytest.raises(TypeError, match="not subscriptable"):
        counter[0]
    with pytest.raises(TypeError, match="call of an actor"):
        client.cancel([counter.add()])
    with pytest.raises(TypeError, match="an iterable of futures"):
        weft.as_completed(counter.add())
    assert not hasattr(counter, "__array__")
    assert "add" in dir(counter)
    assert "Counter" in repr(counter)


def test_calls_through_a_closed_client_are_refused(cluster):
    with Client(cluster) as client:
        counter = client.submit(Counter, actor=True).result()
        call = counter.add()
        assert call.result() == 1
    with pytest.raises(ClientClosed):
        counter.add()
    assert call.result() == 1


FIRST_USES = """
import threading
from weft.deploy.workers.offering import offer_client
from weft.protocol.values import actors

offer_client()

def use():
    barrier.wait(30)
    found.append(callable(actors._calls().kept))

found = []
barrier = threading.Barrier(4)
threads = [threading.Thread(target=use) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(found)
"""


def test_a_finalizer_may_call_an_actor_wherever_the_collector_runs_it(client, counter):
    before = gc.get_threshold()
    calls = []

    def call():
        calls.append(counter.add())

    try:
        for n in range(1, 150):  # so many objects are made until the collector runs
            gc.collect(0)
            gc.set_threshold(n, 10_000, 10_000)
            Cycle(call)
            calls += [counter.add(), counter.add()]
            calls[-1].result(timeout=30)
    finally:
        gc.set_threshold(*before)
    gc.collect()
    assert sorted(call.result(timeout=30) for call in calls) == [*range(1, 3 * 149 + 1)]


def test_several_threads_of_a_worker_may_use_their_first_actor_at_once():
    command = [sys.executable, "-c", FIRST_USES]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.stderr) == (f"{[True] * 4}\n", "")


def test_the_future_of_an_actor_names_its_result_where_a_method_is_called_on_it(client):
    future = client.submit(Counter, actor=True)
    with pytest.raises(AttributeError, match=r"no attribute 'add': its result\(\) is the actor"):
        future.add(1)
    with pytest.raises(AttributeError, match=r"no Future\.running: a client does not know it"):
        future.running
    assert not hasattr(future, "__dask_graph__")
    actor = future.result(60)
    with pytest.raises(SerializationError, match="is part of a function, where nothing keeps it"):
        client.submit(lambda: actor.add(1))
