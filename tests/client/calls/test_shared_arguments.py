"""Large arguments of the client, against a scheduler that answers over a real socket."""

from __future__ import annotations

import gc
import itertools
import threading
from collections import Counter

import numpy as np
import pytest

from weft.client import Client
from weft.client.calls import shared_arguments
from weft.client.core.tasks import FutureState, TaskColumns, TaskRecord
from weft.protocol.errors import SerializationError
from weft.protocol.values.serialize import dumps
from weft.protocol.values.shared import PackedArgument
from weft.protocol.wire.messages import KeysErred, SubmitTasks
from weft.protocol.wire.payload import blob_nbytes

LARGE = 200_000  # numbers, 1.6 MB


def total(x, i=0):
    return float(x.sum()) + i


def change(x, i):
    x[:] = i
    return float(x.sum())


def length(items, *_):
    return len(items)


def large(seed=0):
    return np.arange(LARGE, dtype=float) + seed


def rows(scheduler):
    """Return (key, size of the arguments, priority) of all submitted tasks."""
    puts = {
        key: blob_nbytes(blob)
        for message in scheduler.puts
        for key, blob in zip(message.keys, message.values, strict=True)
    }
    return [
        (key, puts.get(key, blob_nbytes(blob)), message.options[option].get("priority", 0))
        for message in scheduler.heard(SubmitTasks)
        for key, blob, option in zip(
            message.keys,
            message.args,
            message.option_of or [0] * len(message.keys),
            strict=True,
        )
    ]


def hidden(scheduler):
    return [key for key, _, _ in rows(scheduler) if key.startswith("data-")]


@pytest.fixture
def without_collector():
    """Released objects must not wait for the garbage collector."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def objects(*types):
    """Count the live objects of some types."""
    return Counter(type(x) for x in gc.get_objects() if type(x) in types)


# --- Messages -------------------------------------------------------------------------------------


@pytest.mark.parametrize("priority", [0, 7])
def test_an_argument_of_many_submits_is_sent_once_and_first(client, scheduler, priority):
    x = large()
    scheduler.is_holding = True
    futures = [client.submit(total, x, i, priority=priority) for i in range(20)]
    scheduler.go_on()
    assert client.gather(futures) == [total(x, i) for i in range(20)]
    (key, nbytes, first), *others = rows(scheduler)
    assert key.startswith("data-ndarray-")
    assert x.nbytes < nbytes < x.nbytes + 1000
    assert len(others) == 20
    assert all(nbytes < 500 for _, nbytes, _ in others)
    assert first == priority


def test_an_argument_of_a_map_is_sent_once(client, scheduler):
    x = large()
    scheduler.is_holding = True
    futures = client.map(total, [x] * 300, range(300))
    scheduler.go_on()
    assert client.gather(futures) == [total(x, i) for i in range(300)]
    assert len(hidden(scheduler)) == 1
    assert len(rows(scheduler)) == 301


def test_keyword_arguments_are_shared_too(client, scheduler):
    x = large()
    scheduler.is_holding = True
    future = client.submit(total, x=x, i=1)
    # A future among them keeps them from being a part of the function.
    futures = client.map(lambda i, x, y: total(x, i + y), [1, 2], x=x, y=client.submit(abs, -1))
    scheduler.go_on()
    assert future.result(10) == total(x, 1)
    assert client.gather(futures) == [total(x, 2), total(x, 3)]
    assert len(hidden(scheduler)) == 1


def test_arguments_that_are_not_buffers_are_shared_too(client, scheduler):
    items = [str(i) for i in range(300_000)]
    scheduler.is_holding = True
    futures = [client.submit(length, items, i) for i in range(3)]
    scheduler.go_on()
    assert client.gather(futures) == [len(items)] * 3
    (key,) = hidden(scheduler)
    assert key.startswith("data-list-")


def test_several_large_arguments_of_one_call_are_all_shared(client, scheduler):
    x, y = large(), large(1)
    assert client.submit(lambda a, b, c, d: (a is c, float((b - a).sum()), d), x, y, x, 5).result(
        10
    ) == (True, LARGE, 5)
    assert len(hidden(scheduler)) == 2


def test_equal_arguments_are_two_objects_for_the_task(client, scheduler):
    x = large()
    assert not client.submit(np.shares_memory, x, x.copy()).result(10)
    assert len(hidden(scheduler)) == 1


def test_small_arguments_and_those_with_futures_travel_with_their_call(client, scheduler):
    one = client.submit(abs, -1)
    small = np.zeros(100_000)
    assert client.submit(total, small, 1).result(10) == 1
    assert client.submit(length, [large(), one]).result(10) == 2
    assert client.submit(lambda *arrays: len(arrays), *[small + i for i in range(5)]).result() == 5
    assert hidden(scheduler) == []


def test_a_future_beside_a_large_argument_is_a_dependency_as_ever(client, scheduler):
    x = large()
    three = client.submit(abs, -3)
    assert client.submit(total, x, three).result(10) == total(x, 3)
    assert client.gather(client.map(total, [x, x], [three, three])) == [total(x, 3)] * 2
    assert len(set(hidden(scheduler))) == 1


def test_arguments_that_have_much_in_common_stay_together(client, scheduler):
    x = large()
    same = client.submit(lambda x, items: items[0] is x, x, [x])
    assert same.result(10)
    assert hidden(scheduler) == []


def test_a_map_over_different_large_arguments_goes_row_by_row(client, scheduler):
    arrays = [large(i) for i in range(8)]
    taken = itertools.count()
    scheduler.is_holding = True
    futures = client.map(total, (arrays[next(taken)] for _ in arrays))
    scheduler.go_on()
    assert client.gather(futures) == [total(x) for x in arrays]
    assert [key[:4] for key, _, _ in rows(scheduler)] == ["data", "tota"] * 8


def test_a_large_argument_late_in_a_map_is_shared(client, scheduler):
    x = large()
    values = [np.zeros(3), *[x] * 5, np.ones(3)]
    assert client.gather(client.map(total, values)) == [0.0, *[total(x)] * 5, 3.0]
    assert len(hidden(scheduler)) == 1


def test_an_argument_that_cannot_be_pickled_is_named(client):
    with pytest.raises(SerializationError, match=r"argument args\[1\]\['lock'\] of total"):
        client.submit(total, large(), {"lock": threading.Lock()})


def test_too_much_for_the_protocol_is_the_error_of_the_call(client, scheduler, monkeypatch):
    monkeypatch.setattr(shared_arguments, "MAX_NBYTES", 1_500_000)
    assert client.submit(total, large()).result(10) == total(large())
    assert hidden(scheduler) == []


# --- Names ----------------------------------------------------------------------------------------


def test_the_same_content_is_the_same_call(client, scheduler):
    first = client.submit(total, large(), 1)
    assert client.submit(total, large(), 1).key == first.key
    assert client.map(total, [large()], [1])[0].key == first.key
    assert client.submit(total, large(1), 1).key != first.key
    # Not the bytes alone:
    as_int = client.submit(total, large().view(np.int64), 1)
    assert as_int.key != first.key


def test_a_name_belongs_to_one_content(client):
    first = client.submit(total, large(), key="mine")
    assert client.submit(total, large(), key="mine").key == first.key
    with pytest.raises(ValueError, match="other arguments"):
        client.submit(total, large(1), key="mine")


def test_an_argument_changed_after_submit_is_sent_as_it_was(client, scheduler):
    x = large()
    scheduler.is_holding = True
    expected = total(x)
    future = client.submit(total, x)
    x[:] = 0
    again = client.submit(total, x)
    scheduler.go_on()
    assert (future.result(10), again.result(10)) == (expected, 0.0)


def memory_of(value):
    """Return the memory of the hidden task's arguments."""
    blob = shared_arguments.Content(value, dumps(value)).packed()
    return [getattr(part, "obj", part) for part in blob.buffers]


def test_only_memory_that_cannot_change_is_not_copied():
    data = large().tobytes()
    array = np.frombuffer(data)
    assert array.base is data
    for same in (array, array[:].reshape(2, -1).T):
        assert any(part is data for part in memory_of(same))
    assert not any(part is data for part in memory_of(array[1:]))
    changing = bytearray(data)
    for view in (changing, memoryview(changing).toreadonly()):
        assert not any(part is changing for part in memory_of(np.frombuffer(view)))


def test_an_argument_that_is_not_copied_arrives(client, scheduler):
    array = np.frombuffer(large().tobytes())
    assert client.submit(total, array).result(10) == total(large())


def test_a_call_that_is_not_pure_is_run_each_time(client, scheduler):
    x = large()
    futures = [client.submit(total, x, pure=False) for _ in range(2)]
    futures += client.map(total, [x] * 2, pure=False)
    assert client.gather(futures) == [total(x)] * 4
    assert len({f.key for f in futures}) == 4


def test_a_result_that_is_here_needs_no_argument(client, scheduler, monkeypatch):
    monkeypatch.setattr(shared_arguments, "IDLE_NBYTES", 0)
    first = client.submit(total, large())
    assert first.result(10) == client.submit(total, large()).result(10)
    assert first.key == client.map(total, [large()])[0].key
    assert len(hidden(scheduler)) == 1


# --- Lifetime -------------------------------------------------------------------------------------


def test_a_shared_argument_lives_as_long_as_a_future_of_its_calls(client, scheduler, wait_until):
    x = large()
    first, second = client.submit(total, x, 1), client.submit(total, x, 2)
    client.gather([first, second])
    (key,) = hidden(scheduler)
    del first
    third = client.submit(total, x, 3)
    assert third.result(10) == total(x, 3)
    assert hidden(scheduler) == [key]
    assert key in scheduler.wanted
    del second, third
    wait_until(lambda: not scheduler.tasks)
    assert client.submit(total, x, 1).result(10) == total(x, 1)
    assert hidden(scheduler) == [key, key]


@pytest.mark.parametrize("when", ["finished", "pending", "cancelled", "failed"])
@pytest.mark.parametrize("how", ["submit", "map"])
def test_no_shared_argument_remains_after_its_calls(
    client, scheduler, wait_until, without_collector, when, how
):
    before = objects(FutureState, TaskRecord, TaskColumns, PackedArgument)
    scheduler.is_holding = when != "finished"
    function = (lambda x, i: 1 / 0) if when == "failed" else total
    if how == "submit":
        futures = [client.submit(function, large(), i) for i in range(3)]
    else:
        futures = client.map(function, [large()] * 3, range(3))
    if when == "cancelled":
        client.cancel(futures)
    if when == "failed":
        scheduler.go_on()
    if when in ("finished", "failed"):
        client.gather(futures, errors="skip")
    del futures
    wait_until(lambda: not scheduler.wanted)
    wait_until(lambda: not client._engine.core.table.states)
    if when == "pending" and how == "map":
        gc.collect()  # columns refer to their states, which refer to them
    scheduler.tasks.clear()
    wait_until(lambda: objects(*before, FutureState, TaskRecord, PackedArgument) <= before)
    assert len(client._encoder.shared._arguments) == 0


def test_cancelling_one_call_leaves_the_others_alone(client, scheduler):
    scheduler.is_holding = True
    x = large()
    first, second = client.submit(total, x, 1), client.submit(total, x, 2)
    first.cancel()
    scheduler.go_on()
    assert second.result(10) == total(x, 2)
    assert len(hidden(scheduler)) == 1


def test_a_released_call_that_others_need_keeps_its_argument(client, scheduler):
    scheduler.is_holding = True
    x = large()
    last = client.submit(abs, client.submit(total, x, 1))
    client._engine.settle()
    scheduler.go_on()
    assert last.result(10) == total(x, 1)


def test_arguments_that_no_call_needs_are_released_beyond_a_limit(
    client, scheduler, wait_until, monkeypatch
):
    monkeypatch.setattr(shared_arguments, "IDLE_NBYTES", 4_000_000)
    futures = [client.submit(total, large(i)) for i in range(5)]
    client.gather(futures)
    keys = hidden(scheduler)
    assert len(keys) == 5
    wait_until(lambda: [key for key in keys if key in scheduler.wanted] == keys[-2:])
    # One that is still here, and one that is not.
    futures += [client.submit(total, large(4), 1), client.submit(total, large(0), 1)]
    client.gather(futures)
    assert hidden(scheduler) == [*keys, keys[0]]
    wait_until(lambda: {k for k in keys if k in scheduler.wanted} == {keys[4], keys[0]})


def test_the_argument_of_the_last_call_stays_whatever_its_size(client, scheduler, monkeypatch):
    monkeypatch.setattr(shared_arguments, "IDLE_NBYTES", 1_000)
    x = large()
    futures = []
    for n in range(3):
        futures.append(client.submit(total, x, n, pure=False))
        futures[-1].result(10)
        client._engine.settle()
    assert len(hidden(scheduler)) == 1


@pytest.mark.parametrize("pure", [True, False])
def test_an_object_that_is_an_argument_again_is_sent_again_if_it_has_changed(
    client, scheduler, pure
):
    x = large()
    sums = [client.submit(total, x, n, pure=pure) for n in range(3)]
    x[0] += 1.0
    changed = [client.submit(total, x, n, pure=pure) for n in range(2)]
    assert client.gather(sums) == [total(large(), n) for n in range(3)]
    assert client.gather(changed) == [total(x, n) for n in range(2)]
    assert len(hidden(scheduler)) == 2


def test_a_call_that_is_pure_gets_a_name_by_content_though_one_that_is_not_came_before(
    client, scheduler
):
    x = large()
    client.submit(total, x, pure=False).result(10)
    one, other = client.submit(total, x), client.submit(total, large())
    assert one.key == other.key
    one.result(10)


def test_a_call_of_higher_priority_has_an_argument_task_of_its_own(client, scheduler):
    scheduler.is_holding = True
    x = large()
    low = client.submit(total, x, 1)
    high = client.submit(total, x, 2, priority=5)
    highs = client.map(total, [x] * 2, [3, 4], priority=5)
    also_low = client.submit(total, x, 5, priority=-5)
    assert client.submit(total, x, 1, priority=5).key == low.key
    scheduler.go_on()
    results = client.gather([low, high, *highs, also_low])
    assert results == [total(x, i) for i in range(1, 6)]
    first, second = [row for row in rows(scheduler) if row[0].startswith("data-")]
    assert second[0] == f"{first[0]}-priority-5"
    assert (first[2], second[2]) == (0, 5)
    # Once it is there, it is there for all.
    assert client.submit(total, x, 9, priority=9).result(10) == total(x, 9)
    assert len(hidden(scheduler)) == 2


def test_an_argument_whose_task_failed_is_sent_again(client, scheduler, wait_until):
    scheduler.is_holding = True
    x = large()
    first = client.submit(total, x, 1)
    client._engine.settle()
    wait_until(lambda: hidden(scheduler))
    (key,) = hidden(scheduler)
    failure = ["worker-died", key, 4, "w", "it was killed"]
    scheduler.say(KeysErred(keys=[key], failure_of=[0], failures=[failure]))
    wait_until(lambda: client._engine.table.states[key].status == "error")
    second = client.submit(total, x, 2)
    scheduler.go_on()
    assert second.result(10) == total(x, 2)
    assert hidden(scheduler) == [key, key]
    del first


# --- A lost scheduler -----------------------------------------------------------------------------


@pytest.mark.parametrize("is_there", [True, False], ids=["finished", "pending"])
@pytest.mark.parametrize("is_released", [True, False], ids=["released", "held"])
def test_a_new_scheduler_gets_shared_arguments_again(
    client, scheduler, wait_until, is_there, is_released
):
    x = large()
    scheduler.is_holding = not is_there
    gate = client.submit(total, x, 0)
    if is_there:
        gate.result(10)
        key = hidden(scheduler)[0]
        wait_until(lambda: client._engine.table.states[key].status == "finished")
    scheduler.is_holding = True
    futures = [client.submit(total, x, 1), *client.map(total, [x] * 2, [2, 3])]
    last = client.submit(sum, futures)
    if is_released:
        del futures, gate
    client._engine.settle()
    wait_until(lambda: last.key in scheduler.tasks)
    scheduler.forget()
    scheduler.drop_connection()
    wait_until(lambda: last.key in scheduler.tasks)
    scheduler.go_on()
    assert last.result(10) == total(x, 1) + total(x, 2) + total(x, 3)
    assert len(hidden(scheduler)) == 2


def test_calls_submitted_without_a_connection_are_sent_later_with_their_arguments(
    client, scheduler, wait_until
):
    scheduler.is_holding = True
    scheduler.disappear()
    wait_until(lambda: not client._engine.core.is_linked)
    x = large()
    futures = [client.submit(total, x, i) for i in range(3)]
    scheduler.is_holding = False
    scheduler.listen()
    assert client.gather(futures, timeout=20) == [total(x, i) for i in range(3)]
    assert len(hidden(scheduler)) == 1


# --- Other clients --------------------------------------------------------------------------------


async def test_an_asynchronous_client_shares_arguments_as_well(scheduler):
    async with Client(scheduler, asynchronous=True) as client:
        x = large()
        scheduler.is_holding = True
        futures = [client.submit(total, x, i) for i in range(5)]
        scheduler.go_on()
        assert await client.gather(futures) == [total(x, i) for i in range(5)]
        assert len(hidden(scheduler)) == 1
        del futures


def test_threads_that_submit_at_once_send_an_argument_once(client, scheduler):
    x = large()
    scheduler.is_holding = True
    futures = []

    def submit(n):
        futures.extend([client.submit(total, x, n * 10 + i) for i in range(10)])

    threads = [threading.Thread(target=submit, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    scheduler.go_on()
    assert sorted(client.gather(futures)) == [total(x, i) for i in range(40)]
    assert len(hidden(scheduler)) == 1


def test_a_finalizer_may_submit_while_arguments_are_let_go(client, monkeypatch):
    """In the middle of the look at them, as the collector may run it."""
    monkeypatch.setattr(shared_arguments, "IDLE_NBYTES", 0)
    registry = client._encoder.shared
    looks, nested = [], []

    class Looked(shared_arguments.SharedArgument):
        @property
        def n_pending(self):
            looks.append(self)
            if len(looks) == 2:  # the first one counts a call
                nested.append(client.submit(total, large(7)))
            return 1

        @n_pending.setter
        def n_pending(self, n):
            pass

    monkeypatch.setattr(shared_arguments, "SharedArgument", Looked)
    future = client.submit(total, large(3))
    assert future.result(timeout=10) == large(3).sum()
    assert nested[0].result(timeout=10) == large(7).sum()
    assert len(registry._arguments) == 2
    looks.clear()  # they keep the arguments, whose files are open as long
    nested.clear()
