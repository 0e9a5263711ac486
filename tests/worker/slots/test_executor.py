"""The executor with real threads, real pickles and the real core; only the wire is left out."""

from __future__ import annotations

import asyncio
import pickle

import numpy as np
import pytest

from tests.leaks import wait_until
from tests.worker.slots.slots_kit import Ref, inc
from weft.protocol.values.serialize import loads
from weft.protocol.wire import messages as m
from weft.protocol.wire.messages import (
    ACTOR_FUNCTION,
    DropAttempts,
)
from weft.protocol.wire.payload import Payload
from weft.worker.actors.actors import make_actor
from weft.worker.context import get_worker
from weft.worker.core.events import CopiesFetched
from weft.worker.core.tasks import WorkerFunction

# --- Results --------------------------------------------------------------------------------------


@pytest.mark.parametrize("blob", [ACTOR_FUNCTION, b"cweft.worker.earlier\nmake_actor\n."])
def test_the_function_that_makes_actors_is_known_by_its_id_whatever_its_pickle_names(bench, blob):
    assert bench.executor._load(WorkerFunction(ACTOR_FUNCTION, blob)) is make_actor


def test_wanted_results_ride_along_and_others_stay(bench):
    bench.run(inc, 1)
    bench.run(inc, 2, wanted=0)
    bench.listen_for(2)
    assert bench.results == {1: 2, 2: None}
    assert len(bench.store) == 2
    assert (bench.store.load(1), bench.store.load(2)) == (2, 3)


def test_a_chain_assigned_ahead(bench):
    bench.send(
        bench.task(inc, 0, key="k0"),
        *[bench.task(inc, Ref(f"k{i}"), key=f"k{i + 1}") for i in range(200)],
    )
    bench.listen_for(201)
    assert bench.results[201] == 201


def test_many_tasks_on_several_threads(make_bench):
    bench = make_bench(4)
    for i in range(1000):
        bench.run(inc, i)
    bench.listen_for(1000)
    assert bench.results == {i + 1: i + 1 for i in range(1000)}


def test_large_results_do_not_ride_along(bench):
    bench.run(bytes, 200_000)
    bench.run(np.zeros, 100_000)
    bench.run(int.__pow__, 2, 10_000_000)
    bench.listen_for(3)
    assert bench.results == {1: None, 2: None, 3: None}
    assert all(nbytes > 64 << 10 for message in bench.told for nbytes in message.nbytes)


def test_larger_results_ride_along_where_they_are_asked_for(bench):
    bench.run(bytes, 200_000, wanted=m.WANTED_LARGE)
    bench.run(np.zeros, 100_000, wanted=m.WANTED_LARGE)
    bench.run(bytes, 2 << 20, wanted=m.WANTED_LARGE)
    bench.listen_for(3)
    assert bench.results[1] == bytes(200_000)
    assert (bench.results[2] == np.zeros(100_000)).all()
    assert bench.results[3] is None


def test_results_beyond_4_kib_travel_beside_the_message(bench):
    bench.run(bytes, 5000)
    bench.run(bytes, 50)
    bench.listen_for(2)
    blobs = [blob for message in bench.told for blob in message.results]
    assert isinstance(blobs[0], Payload)
    assert isinstance(blobs[1], bytes)


def test_a_small_array_that_rides_along_is_a_copy(bench, gate):
    bench.run(np.zeros, 1000)
    bench.listen_for(1)
    (message,) = bench.told
    bench.store.load(1)[:] = 7
    assert loads(message.results[0]).sum() == 0


def test_no_object_of_a_task_lives_on_in_an_idle_thread(bench):
    import gc
    import weakref

    class Thing:
        pass

    made: list[weakref.ref[Thing]] = []

    def make():
        thing = Thing()
        made.append(weakref.ref(thing))
        return thing

    # By reference, so that the test sees the object that was made.
    bench.send(bench.task(inc, 1, wanted=0))
    bench.listen_for(1)
    message = bench.task(inc, wanted=0)
    bench.state.functions[message.functions[0]].call = make
    bench.send(message)
    bench.listen_for(2)
    assert made[0]() is not None
    bench.send(DropAttempts(attempts=[2]))
    gc.collect()
    wait_until(lambda: made[0]() is None)


# --- Kinds of tasks, and their context ------------------------------------------------------------


async def double_later(x):
    await asyncio.sleep(0)
    return 2 * x


def test_coroutine_functions_are_run_to_their_end(bench):
    bench.run(double_later, 4)
    bench.listen_for(1)
    assert bench.results == {1: 8}


def who_am_i():
    worker = get_worker()
    return worker.name, worker.address, worker.worker_id, worker.key


@pytest.mark.parametrize(("text", "key"), [("x", "x"), ("('x', 0)", ("x", 0))])
def test_a_task_knows_its_worker_and_key(bench, text, key):
    bench.run(who_am_i, key=text)
    bench.listen_for(1)
    assert bench.results == {1: ("w1", "tcp://me", "id1", key)}
    with pytest.raises(RuntimeError):
        get_worker()


def test_fetched_values_are_unpickled_by_the_task_that_needs_them(bench):
    message = bench.task(inc, Ref("x"))
    message.located_keys, message.located_attempts = ["x"], [99]
    message.located_nbytes, message.located_holders = [10], [["tcp://a"]]
    bench.send(message)
    assert bench.woken.wait(10)
    _, (fetch,) = bench.executor.drain()
    assert (fetch.holder, fetch.keys, fetch.attempts) == ("tcp://a", ["x"], [99])
    bench.store.put_packed(99, pickle.dumps(41))
    bench.executor.handle(CopiesFetched("tcp://a", fetch.request, ["x"], [10]))
    bench.listen_for(1)
    assert bench.results == {1: 42}
    assert len(bench.store) == 2


class Unwilling:
    """An object that can be pickled, and raises where it is unpickled."""

    def __reduce__(self):
        return refuse, ()


def refuse():
    raise ValueError("not here")


async def wait_for(x):
    return x


@pytest.mark.parametrize("function", [inc, wait_for])
def test_the_note_of_an_argument_that_cannot_be_unpickled_names_it(bench, function):
    bench.run(function, 1)
    bench.listen_for(1)
    bench.run(function, [Unwilling()], key="k")
    bench.listen_for(2)
    error = bench.error(2)
    assert (type(error), str(error)) == (ValueError, "not here")
    (note,) = error.__notes__
    what = f"an argument of task k, a call of {function.__name__},"
    assert note == f"weft: {what} could not be unpickled on worker w1; the task has not started"


def test_an_input_that_cannot_be_unpickled_is_named_as_the_result_of_another_task(bench):
    message = bench.task(inc, Ref("x"), key="k")
    message.located_keys, message.located_attempts = ["x"], [99]
    message.located_nbytes, message.located_holders = [10], [["tcp://a"]]
    bench.send(message)
    assert bench.woken.wait(10)
    _, (fetch,) = bench.executor.drain()
    bench.store.put_packed(99, pickle.dumps(Unwilling()))
    bench.executor.handle(CopiesFetched("tcp://a", fetch.request, ["x"], [10]))
    (note,) = bench.error(1).__notes__
    assert "an argument of task k, a call of inc, which is the result of another task," in note


def test_an_exception_of_a_task_has_one_note_with_key_and_worker(bench):
    bench.run(refuse, key="k")
    (note,) = bench.error(1).__notes__
    assert note.startswith("weft: task k on worker w1")
