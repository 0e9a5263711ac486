"""Actors as users call them, on real workers."""

from __future__ import annotations

import asyncio
import pickle
import threading
from functools import partial

import pytest

import weft
from tests.client.actors.actors_kit import Counter, add_in_task
from weft import Actor, ActorCallInDoubt, ActorFuture, ActorLost, Client
from weft.protocol.errors import ClientClosed
from weft.protocol.wire.framing import FrameLimits

pytestmark = [pytest.mark.slow, pytest.mark.shares_resources]


class Waiting:
    """Its coroutines note when they begin."""

    def __init__(self) -> None:
        self.begun: list[object] = []
        self.gate = asyncio.Event()

    async def wait(self, i: int) -> int:
        self.begun.append(i)
        await self.gate.wait()
        return i

    def open(self) -> None:
        self.begun.append("open")
        self.gate.set()


# --- Calls ----------------------------------------------------------------------------------------


def test_calls_change_one_object_and_return_what_its_methods_return(client):
    future = client.submit(Counter, 5, actor=True)
    counter = future.result()
    call = counter.add()
    assert isinstance(call, ActorFuture)
    assert (call.result(timeout=30), call.done(), call.status) == (6, True, "finished")
    assert counter.add(k=3).result() == 9
    assert counter.n == 9
    assert future.result().add().result() == 10
    assert future.result() == counter
    assert counter.is_same_thread().result() is True
    assert client.gather(future).n == 10


def test_calls_of_one_holder_are_done_in_their_order(counter):
    calls = [counter.add() for _ in range(20_000)]
    assert [call.result() for call in calls] == list(range(1, 20_001))


def test_each_submission_makes_another_actor(client):
    one, other = (client.submit(Counter, actor=True).result() for _ in range(2))
    one.add(5).result()
    assert (one.n, other.n) == (5, 0)
    assert one != other
    a, b = client.gather(client.map(Counter, [3, 4], actor=True))
    assert (a.n, b.n) == (3, 4)


@pytest.mark.parametrize("make", [lambda: Counter(5), partial(Counter, 5)], ids=["def", "partial"])
def test_an_object_made_by_a_function_is_an_actor_of_its_class(client, make):
    counter = client.submit(make, actor=True, pure=False).result()
    assert repr(counter).startswith("<Actor: Counter, ")
    assert [counter.add(2).result() for _ in range(2)] == [7, 9]
    assert counter.n == 9


def test_the_exception_of_a_method_is_raised_by_its_future_and_the_actor_goes_on(counter):
    call = counter.boom()
    assert isinstance(call.exception(), KeyError)
    with pytest.raises(KeyError, match="no such thing"):
        call.result()
    assert call.status == "error"
    with pytest.raises(AttributeError, match="missing"):
        counter.missing
    with pytest.raises(weft.UnpicklableResult, match=r"'Counter-.*\.lock' cannot be pickled"):
        counter.lock().result()
    assert counter.add().result() == 1


def test_an_actor_that_cannot_be_made_fails_as_a_task_does(client):
    with pytest.raises(ValueError, match="not negative"):
        client.submit(Counter, -1, actor=True).result()


def test_arrays_are_as_they_were_at_the_call(client):
    np = pytest.importorskip("numpy", reason="numpy is missing: pip install numpy")
    store = client.submit(list, actor=True).result()
    array = np.zeros(100_000)
    call = store.append(array)
    array[:] = 1.0
    call.result()
    assert store.pop().result().sum() == 0.0


def test_a_result_can_be_waited_for_with_a_limit_and_by_callbacks(client):
    waiting = client.submit(Waiting, actor=True).result()
    call = waiting.wait(1)
    with pytest.raises(TimeoutError, match="goes on"):
        call.result(timeout="10 ms")
    called = threading.Event()
    call.add_done_callback(lambda future: future is call and called.set())
    waiting.open().result()
    assert called.wait(30)
    assert call.result() == 1


def test_coroutines_begin_in_order_and_wait_beside_each_other(client):
    waiting = client.submit(Waiting, actor=True).result()
    calls = [waiting.wait(i) for i in range(50)]
    waiting.open()
    assert [call.result() for call in calls] == list(range(50))
    assert waiting.begun == [*range(50), "open"]


def test_an_asynchronous_client_awaits_calls_and_attributes(cluster):
    async def run() -> tuple[list[int], int]:
        async with Client(cluster, asynchronous=True) as client:
            counter = await client.submit(Counter, actor=True)
            found = await asyncio.gather(*[counter.add() for _ in range(100)])
            assert await counter.add().result() == 101
            return found, await counter.n

    assert asyncio.run(run()) == (list(range(1, 101)), 101)


def test_a_wait_that_is_over_leaves_nothing_at_the_call(client):
    waiting = client.submit(Waiting, actor=True).result()
    call = waiting.wait(1)
    for wait in (call.result, lambda timeout: weft.wait(call, timeout)):
        for _ in range(3):
            with pytest.raises(TimeoutError):
                wait(timeout=0.001)
    assert not call._callbacks
    completed = weft.as_completed([call])
    completed.clear()
    assert not call._callbacks
    waiting.open().result()


def wait_a_moment(waiting: Actor) -> str:
    try:
        return waiting.wait(1).result(timeout=0.5)
    except TimeoutError as error:
        return str(error)


def test_the_text_of_a_timeout_names_the_time_that_was_given(client):
    waiting = client.submit(Waiting, actor=True).result()
    assert "within 0.5 s" in client.submit(wait_a_moment, waiting).result(60)


class LoadedByAnother(ActorFuture):
    """Another thread unpickles the result while this one begins to."""

    @property
    def _value(self) -> object:
        value = ActorFuture._value.__get__(self)
        if self.done() and self.blob:
            loads, self_blob = pickle.loads, self.blob
            self.blob = None  # no second time
            ActorFuture._value.__set__(self, loads(self_blob))
            self.blob = b""
        return value

    @_value.setter
    def _value(self, value: object) -> None:
        ActorFuture._value.__set__(self, value)


def test_two_threads_may_unpickle_a_result_at_once(client, counter):
    call = LoadedByAnother(counter._hold._engine, counter, "add", pickle.dumps((2,)), None)
    counter._hold._engine.actor_connections().send(call)
    assert weft.wait(call, 60).done == {call}
    assert call.result() == 2


@pytest.mark.parametrize("value", [5, "yes", [Counter]])
def test_actor_takes_truth_values_only_and_else_nothing_is_submitted(client, value):
    with pytest.raises(TypeError, match="is not True or False: actor=True makes an object of"):
        client.submit(Counter, actor=value)
    with pytest.raises(TypeError, match="is not True or False"):
        client.map(Counter, [1, 2], actors=value)
    assert not client._engine.table.states


def test_a_call_beyond_a_limit_of_the_protocol_fails_alone(client, counter):
    assert counter.add().result() == 1
    (connection,) = client._engine.actor_connections()._by_address.values()
    connection._connection.wire.limits = FrameLimits(payload=1000)
    with pytest.raises(ActorLost, match=r"was not called: the arguments of add\(\) cannot be sent"):
        counter.add(b"x" * 2000).result()
    calls = [counter.add(), counter.add(b"x" * 2000), counter.add()]
    assert (calls[0].result(), calls[2].result()) == (2, 3)
    with pytest.raises(ActorLost):
        calls[1].result()
    with pytest.raises(AttributeError, match="no attribute has a name of 70000 characters"):
        getattr(counter, "x" * 70_000)
    assert counter.n == 3


# --- Many at once ---------------------------------------------------------------------------------


def test_wait_as_completed_and_gather_take_calls_beside_futures(client, counter):
    calls = [counter.add() for _ in range(100)]
    future = client.submit(abs, -7)
    done, left = weft.wait([*calls, future], timeout=60)
    assert (len(done), left) == (101, set())
    assert client.gather([*calls, future]) == [*range(1, 101), 7]
    assert client.gather({"a": counter.add(), "b": (future,)}) == {"a": 101, "b": (7,)}
    assert client.gather(counter.add()) == 102
    more = [counter.add() for _ in range(100)]
    found = [item.result() for item in weft.as_completed([*more, future])]
    assert sorted(found) == [7, *range(103, 203)]
    pairs = dict(weft.as_completed([counter.add(), future], with_results=True))
    assert pairs.pop(future) == 7
    assert list(pairs.values()) == [203]


def test_waits_for_calls_end_at_the_first_one_or_at_a_failure(client, counter):
    waiting = client.submit(Waiting, actor=True).result()
    never = waiting.wait(1)
    first = counter.add()
    assert weft.wait([never, first], return_when="FIRST_COMPLETED").done == {first}
    boom = counter.boom()
    done, left = weft.wait([never, boom], return_when="FIRST_EXCEPTION", timeout=60)
    assert (done, left) == ({boom}, {never})
    with pytest.raises(KeyError, match="no such thing"):
        client.gather([never, boom])
    assert client.gather([first, boom], errors="skip") == [1]
    with pytest.raises(TimeoutError, match="1 of 2"):
        weft.wait([never, first], timeout=0.01)
    with pytest.raises(TimeoutError, match="1 of 2"):
        client.gather([never, first], timeout=0.01)
    ((call, error),) = weft.as_completed([boom], with_results=True, raise_errors=False)
    assert (call, type(error)) == (boom, KeyError)
    waiting.open().result()
    assert list(weft.as_completed([never, never])) == [never, never]


def test_a_wait_for_calls_ends_with_the_client(cluster):
    with Client(cluster) as client:
        waiting = client.submit(Waiting, actor=True).result()
        found: list[object] = []

        def wait() -> None:
            try:
                found.append(weft.wait(waiting.wait(1)))
            except ClientClosed as error:
                found.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        assert waiting.begun == [1]
    thread.join(60)
    assert not thread.is_alive()
    assert found


def sum_in_task(counter: Actor) -> list[int]:
    client = weft.get_client()
    calls = [counter.add() for _ in range(3)]
    futures = [client.submit(abs, -5), *calls]
    weft.wait(futures)
    found = [future.result() for future in weft.as_completed(futures)]
    return [sum(found), sum(client.gather(futures))]


def test_tasks_wait_for_calls_and_futures_together(client, counter):
    assert client.submit(sum_in_task, counter).result(60) == [11, 11]


def test_coroutines_wait_for_calls_and_futures_together(cluster):
    async def run() -> tuple[int, list[int], int]:
        async with Client(cluster, asynchronous=True) as client:
            counter = await client.submit(Counter, actor=True)
            futures = [client.submit(abs, -5), counter.add(), counter.add()]
            done, _ = await weft.wait(futures)
            results = await client.gather(futures)
            n = 0
            async for _ in weft.as_completed(futures):
                n += 1
            return len(done), results, n

    assert asyncio.run(run()) == (3, [5, 1, 2], 3)


# --- The end --------------------------------------------------------------------------------------


def test_calls_of_an_actor_whose_worker_dies_are_in_doubt_and_later_ones_fail(client, wait_until):
    future = client.submit(Counter, actor=True)
    counter = future.result()
    calls = [counter.die(), counter.add()]
    for call in calls:
        with pytest.raises(ActorCallInDoubt, match="may have run"):
            call.result(timeout=60)
    wait_until(lambda: future.status == "error")  # the scheduler has noticed the loss
    with pytest.raises(ActorLost, match="make a new actor"):
        future.result()
    with pytest.raises(ActorLost, match="make a new actor"):
        counter.add()
    with pytest.raises(ActorLost):
        client.submit(add_in_task, counter, 1).result()
    assert client.submit(Counter, actor=True).result().add().result() == 1


class Ending:
    """Reports its end to a test in the same process."""

    def __del__(self) -> None:
        _ended.set()

    def nothing(self) -> None:
        pass


_ended = threading.Event()


def test_an_actor_ends_when_no_holder_is_left():
    with Client(n_workers=1, processes=False) as client:
        actor = client.submit(Ending, actor=True).result()
        actor.nothing().result()
        assert not _ended.is_set()
        del actor
        assert _ended.wait(30)


def test_coroutines_that_wait_end_with_their_worker():
    with Client(n_workers=1, processes=False) as client:
        waiting = client.submit(Waiting, actor=True).result()
        call = waiting.wait(1)
        assert waiting.begun == [1]
    with pytest.raises((ActorLost, ClientClosed, asyncio.CancelledError)):
        call.result()
