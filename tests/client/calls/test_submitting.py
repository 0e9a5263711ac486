"""Submitting with a client: arguments, keys, options, and the end of what is not wanted."""

from __future__ import annotations

import operator
import pickle
import threading

import numpy as np
import pytest

from tests.client.client_kit import fail, inc, submitted
from weft.client.calls.encoding import _FIRST_CHUNK, _encode_futures
from weft.protocol.errors import (
    SerializationError,
)
from weft.protocol.values.serialize import dumps_arguments, dumps_arguments_many
from weft.protocol.wire.messages import (
    ReleaseKeys,
    SubmitTasks,
)


def test_submit_and_result(client):
    future = client.submit(inc, 1)
    assert future.result(10) == 2
    assert future.status == "finished"
    assert future.done()
    assert future.type is int
    assert future.exception() is None
    assert future.client is client
    assert future.key.startswith("inc-")
    assert repr(future) == f"<Future: finished, key: {future.key}>"


def test_map_takes_any_iterables_and_the_shortest_ends_it(client):
    futures = client.map(operator.add, iter(range(5)), [10, 20, 30])
    assert client.gather(futures) == [10, 21, 32]
    assert client.map(inc, []) == []


def test_futures_are_arguments_at_any_depth(client):
    one, two = client.submit(inc, 0), client.submit(inc, 1)
    total = client.submit(sum, [one, two])
    assert total.result(10) == 3
    nested = client.submit(lambda d, *, k: d["a"][0] + k, {"a": [two]}, k=one)
    assert nested.result(10) == 3
    assert client.gather(client.map(operator.add, [one, two], [two, two])) == [3, 4]


def test_calls_of_futures_alone_are_encoded_as_by_pickling(client):
    one, two = client.submit(inc, 0), client.submit(inc, 1)
    for row in [(one,), (one, two), (two, one), (one, one), (one, 2), (2, one), (one, [two])]:
        by_pickling = dumps_arguments("f", row, {})
        encoded, found, _ = client._encoder.call(client._encoder.function(max), row, {})
        assert (encoded, found) == by_pickling
    rows = [(one, two), (two, one)]
    assert _encode_futures(rows) == dumps_arguments_many("f", rows)
    assert _encode_futures([*rows, (one, one)]) is None
    assert _encode_futures([*rows, (one, 1)]) is None


def test_a_released_future_alone_is_refused(client):
    future = client.submit(inc, 0)
    future.release()
    with pytest.raises(SerializationError, match="released"):
        client.submit(inc, future)
    with pytest.raises(SerializationError, match="released"):
        client.map(inc, [future])


def test_keyword_constants_are_sent_once(client, scheduler):
    futures = client.map(lambda x, *, big: x + len(big), range(1000), big=bytes(100_000))
    assert client.gather(futures)[:2] == [100_000, 100_001]
    messages = scheduler.heard(SubmitTasks)
    blobs = [blob for m in messages for blob in m.function_blobs if blob is not None]
    assert len(blobs) == 1
    assert max(len(args) for m in messages for args in m.args) < 100


def test_a_future_among_keyword_constants_is_a_dependency(client):
    ten = client.submit(inc, 9)
    assert client.gather(client.map(lambda x, *, y: x * y, range(3), y=ten)) == [0, 10, 20]


def test_equal_pure_calls_run_once_and_share_a_future_state(client, scheduler):
    futures = [client.submit(inc, 1) for _ in range(5)] + client.map(inc, [1, 1])
    assert client.gather(futures) == [2] * 7
    assert len({future.key for future in futures}) == 1
    assert scheduler.n_runs == 1


def test_impure_calls_run_each_time(client, scheduler):
    futures = [client.submit(inc, 1, pure=False), *client.map(inc, [1, 1], pure=False)]
    assert client.gather(futures) == [2, 2, 2]
    assert scheduler.n_runs == 3


def test_a_failed_pure_call_is_tried_again(client, scheduler):
    first = client.submit(fail, "x")
    assert isinstance(first.exception(10), ValueError)
    second = client.submit(fail, "x")
    assert second.key == first.key
    assert isinstance(second.exception(10), ValueError)
    assert scheduler.n_runs == 2


def test_keys_may_be_given_by_the_user(client):
    future = client.submit(inc, 1, key="mine")
    assert future.key == "mine"
    assert client.submit(inc, 1, key="mine").result(10) == 2
    with pytest.raises(ValueError, match="another function"):
        client.submit(inc, 2, key="mine")
    assert [f.key for f in client.map(inc, range(2), key=["a", "b"])] == ["a", "b"]
    assert all(f.key.startswith("pre-") for f in client.map(inc, range(2), key="pre"))
    with pytest.raises(ValueError, match="3 keys were given for 2 calls"):
        client.map(inc, range(2), key=["a", "b", "c"])
    with pytest.raises(TypeError, match="a key is a str"):
        client.submit(inc, 1, key=3)


def test_keys_may_be_tuples(client, scheduler):
    future = client.submit(inc, 1, key=("x", 0))
    assert future.key == ("x", 0)
    assert future.result(10) == 2
    assert repr(future) == "<Future: finished, key: ('x', 0)>"
    assert client.submit(inc, 1, key=("x", 0)).result(10) == 2
    assert submitted(scheduler) == ["('x', 0)"]
    futures = client.map(inc, range(2), key=[("x", ("y", None)), "('x', 0)"])
    assert [f.key for f in futures] == [("x", ("y", None)), "('x', 0)"]
    assert client.gather(futures) == [1, 2]
    assert ("x", 0) in client.futures
    with pytest.raises(ValueError, match=r"key \"\('x', 0\)\" belongs"):
        client.submit(inc, 2, key=("x", 0))
    with pytest.raises(TypeError, match=r"not list: \[1\]; key= is an option of submit"):
        client.submit(inc, 1, key=("x", [1]))
    failed = client.submit(fail, "text", key=("x", 2))
    assert isinstance(failed.exception(10), ValueError)
    assert pickle.loads(pickle.dumps(future)).key == ("x", 0)


def test_error_of_a_task_has_the_key_as_it_was_given(client, scheduler):
    scheduler.is_holding = True
    future = client.submit(inc, 1, key=("x", 0))
    future.cancel()
    error = future.exception(10)
    assert (error.key, error.args[0]) == (("x", 0), ("x", 0))
    assert str(error) == "task ('x', 0) was cancelled"


@pytest.mark.parametrize("n_between", [0, _FIRST_CHUNK])
def test_one_key_for_two_calls_of_a_map_is_refused(client, scheduler, n_between):
    between = range(100, 100 + n_between)
    keys = ["d", *map(str, between), "d"]
    with pytest.raises(ValueError, match=r"key 'd' .* (two different calls|other arguments)"):
        client.map(inc, [1, *between, 2], key=keys)
    # A failed state of that name makes no difference, and the refused map has left nothing.
    assert isinstance(client.submit(fail, "x", key="e").exception(10), ValueError)
    with pytest.raises(ValueError, match=r"key 'e' .* two different calls"):
        client.map(inc, [1, 2], key=["e", "e"])
    assert client.submit(inc, 3, key="d").result(10) == 4


def test_one_key_for_equal_calls_of_a_map_is_one_task(client, scheduler):
    assert client.gather(client.map(inc, [1, 2, 1], key=["d", "e", "d"])) == [2, 3, 2]
    assert scheduler.n_runs == 2


def test_a_key_is_free_as_soon_as_its_future_is_released(client):
    for n in range(50):
        assert client.submit(inc, n, key="again").result(10) == n + 1
        futures = client.map(inc, [n, n + 1], key=["left", "right"])
        assert client.gather(futures) == [n + 1, n + 2]
        for future in futures:
            future.release()


def test_options_reach_the_scheduler(client, scheduler):
    client.submit(
        inc, 1, priority=7, retries=2, workers="w1", allow_other_workers=True, resources={"GPU": 1}
    ).result(10)
    (message,) = scheduler.heard(SubmitTasks)
    assert message.options == [
        {
            "priority": 7,
            "retries": 2,
            "workers": ["w1"],
            "allow_other_workers": True,
            "resources": {"GPU": 1},
        }
    ]


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"fifo_timeout": "1s"}, TypeError, "fifo_timeout= is not supported"),
        ({"priority": 1.5}, ValueError, "priority="),
        ({"priority": 50_000}, ValueError, "priority="),
        ({"retries": -1}, ValueError, "retries="),
        ({"workers": [3]}, TypeError, "workers="),
        ({"workers": []}, ValueError, "workers= is empty"),
        ({"resources": {"GPU": -1}}, ValueError, "resources="),
        ({"allow_other_workers": True}, ValueError, "without workers="),
    ],
)
def test_bad_options_are_refused_by_name(client, options, error, text):
    with pytest.raises(error, match=text):
        client.submit(inc, 1, **options)
    with pytest.raises(error, match=text):
        client.map(inc, [1], **options)


def test_an_unpicklable_argument_is_named_and_nothing_is_submitted(client, scheduler):
    lock = threading.Lock()
    with pytest.raises(SerializationError, match=r"argument args\[1\] of inc"):
        client.submit(inc, 1, lock)
    with pytest.raises(SerializationError, match="lock"):
        client.submit(lambda: lock)
    rows = [*range(_FIRST_CHUNK + 10), lock]
    with pytest.raises(SerializationError, match=rf"args\[0\] of inc \(call {len(rows) - 1}\)"):
        client.map(inc, rows)
    with pytest.raises(TypeError, match="needs a function"):
        client.submit(3)


def test_an_array_may_change_after_it_was_submitted(client, scheduler):
    scheduler.is_holding = True
    array = np.ones(10_000)
    futures = [client.submit(np.sum, array), *client.map(np.sum, [array])]
    array[:] = 0
    scheduler.go_on()
    assert client.gather(futures) == [10_000.0, 10_000.0]


def test_the_last_future_gone_releases_the_key(client, scheduler, wait_until):
    one = client.submit(inc, 1)
    two = client.submit(inc, 1)
    key = one.key
    assert two.result(10) == 2
    del one
    two.release()
    wait_until(lambda: key not in scheduler.wanted)
    assert [k for m in scheduler.heard(ReleaseKeys) for k in m.keys] == [key]
    with pytest.raises(SerializationError, match="was released"):
        client.submit(inc, two)
