"""Options of dask and of the standard library, and the errors for wrong ones."""

from __future__ import annotations

import concurrent.futures
import math
import pickle
import threading
from datetime import timedelta

import pytest

import weft
from weft.client import Client, as_completed, wait
from weft.client.calls.options import DEFAULTS, make_options
from weft.protocol.errors import (
    ClientClosed,
    ConfigError,
    InvalidDuration,
    TaskCancelled,
    UnknownWorker,
    WorkerStartTimeout,
)


def test_the_defaults_of_dask_are_accepted(client):
    future = client.submit(abs, -1, fifo_timeout="100 ms", actor=False)
    futures = client.map(abs, [-2], fifo_timeout=timedelta(seconds=60))
    assert client.gather([future, *futures], "raise", True, False) == [1, 2]
    assert client.gather([future], direct=None, asynchronous=None) == [1]
    graph = {"x": (abs, -3)}
    options = {"fifo_timeout": "60s", "actors": None, "workers": None, "retries": None}
    assert client.get(graph, "x", direct=True, asynchronous=False, **options) == 3
    assert client.get(graph, "x", sync=False).result(20) == 3
    assert future.executor is future.client is client


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda c: c.submit(abs, 1, fifo_timeout="5 s"),
            "fifo_timeout= is not .*'5 s'",
        ),
        (lambda c: c.map(abs, [1], fifo_timeout=1), "fifo_timeout= is not supported"),
        (lambda c: c.gather([], direct=False), "direct= is not supported"),
        (lambda c: c.get({}, [], actors=True), "actors= is not supported"),
    ],
)
def test_unsupported_options_are_refused_by_name(client, call, text):
    with pytest.raises(TypeError, match=text):
        call(client)


async def test_a_blocking_client_can_be_awaited(client):
    future = client.submit(abs, -1)
    assert await client.gather([future], asynchronous=True) == [1]
    await client.cancel([future], asynchronous=True)


async def test_an_asynchronous_client_does_not_block_its_loop(scheduler):
    async with Client(scheduler, asynchronous=True) as client:
        future = client.submit(abs, -1)
        with pytest.raises(RuntimeError, match="would block the event loop"):
            client.gather([future], asynchronous=False)
        assert await client.gather([future]) == [1]


def test_the_error_of_a_cancelled_task_has_the_reason(client, scheduler):
    scheduler.is_holding = True
    one, two, three = client.map(abs, range(3))
    client.cancel(one, reason="budget", msg="nothing left")
    two.cancel(msg="no time")
    three.cancel("bored")
    texts = ["budget: nothing left", "no time", "bored"]
    for future, text in zip((one, two, three), texts, strict=True):
        error = future.exception(20)
        assert isinstance(error, TaskCancelled)
        assert error.reason == text


@pytest.mark.parametrize(
    ("iterable", "text"),
    [
        (5, r"5 is not one: did you mean range\(5\)\?"),
        (None, "map needs iterables, and None is not"),
    ],
)
def test_the_error_of_map_names_the_argument_that_is_no_iterable(client, iterable, text):
    with pytest.raises(TypeError, match=text):
        client.map(pow, [1, 2], iterable)


def test_nthreads_lists_the_requested_workers(client, scheduler):
    scheduler.set_workers(1)
    address = scheduler.data_address
    assert [*client.scheduler_info()["workers"]] == [address]
    assert [*client.scheduler_info(n_workers=1)["workers"]] == [address]
    assert client.scheduler_info(n_workers=0)["workers"] == {}
    assert client.nthreads([address]) == client.nthreads(address) == client.nthreads()
    with pytest.raises(UnknownWorker, match="address or host 'nobody'; connected workers: there"):
        client.nthreads(["nobody"])


def test_client_futures_lists_the_futures_that_are_alive(client, wait_until):
    future = client.submit(abs, -1)
    assert future.result(20) == 1
    assert {key: state.status for key, state in client.futures.items()} == {future.key: "finished"}
    del future
    wait_until(lambda: client.futures == {})


def test_the_current_client_may_be_limited_to_as_current(client):
    assert Client.current() is weft.default_client() is client
    assert weft.default_client(client) is client
    with pytest.raises(ClientClosed, match="as_current"):
        Client.current(allow_global=False)
    with client.as_current():
        assert Client.current(allow_global=False) is client


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"resources": "GPU=1"}, TypeError, "resources= maps names to amounts.*'GPU=1'"),
        ({"resources": {"GPU": "1"}}, ValueError, "resources= maps names"),
        ({"workers": 5}, TypeError, "workers= are names, hosts or addresses, not 5"),
        ({"workers": [5]}, TypeError, "workers= are names, hosts or addresses"),
        ({"workers": 0}, TypeError, r"not 0; workers have no numbers, and \[\*client.nthreads"),
        ({"workers": 0.5}, TypeError, "workers= is an option of submit and map"),
        ({"workers": b"w"}, TypeError, "workers= are names"),
        ({"workers": ()}, ValueError, "workers= is empty"),
        ({"meta": {1, 2}}, ValueError, "meta=.1, 2.: texts, numbers, .* not set"),
    ],
)
def test_wrong_options_of_a_task_are_refused(options, error, text):
    with pytest.raises(error, match=text):
        make_options({**DEFAULTS, **options})


def test_workers_may_come_as_an_iterator():
    assert make_options({"workers": iter(["a", "b"])}).workers == ["a", "b"]


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"timeout": "soon"}, InvalidDuration, "timeout: 'soon' is not a time"),
        ({"timeout": True}, InvalidDuration, "timeout: True is not a time"),
        ({"timeout": -1}, InvalidDuration, "timeout: -1 is less than 0"),
        ({"reconnect_timeout": "5x"}, InvalidDuration, "reconnect_timeout: '5x' is not a time"),
        ({"security": True}, TypeError, "security= is a weft Security"),
    ],
)
def test_wrong_options_of_a_client_are_refused(options, error, text):
    with pytest.raises(error, match=text):
        Client("tcp://127.0.0.1:1", **options)


@pytest.mark.parametrize("batch_size", [0, -1, 1.5, "2"])
def test_a_wrong_batch_size_is_refused(client, batch_size):
    with pytest.raises((TypeError, ValueError), match="batch_size= is a whole number"):
        client.map(abs, [1], batch_size=batch_size)


@pytest.mark.parametrize("timeout", ["1 ms", timedelta(milliseconds=1), 0.001, 0])
def test_a_time_to_wait_is_read_alike_everywhere(client, scheduler, timeout):
    scheduler.is_holding = True
    future = client.submit(abs, -1)
    calls = (
        future.result,
        future.exception,
        future.traceback,
        lambda timeout: client.gather([future], timeout=timeout),
        lambda timeout: wait([future], timeout),
        lambda timeout: next(as_completed([future], timeout=timeout)),
        lambda timeout: client.wait_for_workers(5, timeout),
    )
    for call in calls:
        with pytest.raises((TimeoutError, WorkerStartTimeout), match=r"0\.001 s|0 s"):
            call(timeout)
        for wrong in ("1x", "-1", -1, math.nan, True, [], timedelta(-1)):
            with pytest.raises(InvalidDuration, match=r"timeout: .* is (not a time|less than 0)"):
                call(wrong)


def test_close_takes_a_time_with_a_unit(client):
    with pytest.raises(InvalidDuration, match="timeout: 'soon'"):
        client.close("soon")
    assert client.status == "running"
    client.close("30 s")
    assert client.status == "closed"


def test_a_cluster_takes_times_with_units():
    with weft.LocalCluster(n_workers=0, processes=False) as cluster:
        with pytest.raises(WorkerStartTimeout):
            cluster.wait_for_workers(1, "10 ms")
        for call in (cluster.close, lambda timeout: cluster.wait_for_workers(1, timeout)):
            with pytest.raises(InvalidDuration, match="timeout: 'soon'"):
                call("soon")
        cluster.close(timedelta(seconds=5))


def test_a_pool_takes_times_with_units_and_the_numbers_of_the_standard_library():
    is_over = threading.Event()
    with weft.ThreadPool(1) as pool:
        try:
            future = pool.submit(is_over.wait)
            for timeout in ("1 ms", timedelta(milliseconds=1), 0, -1):
                for call in (future.result, future.exception):
                    with pytest.raises(concurrent.futures.TimeoutError):
                        call(timeout)
                with pytest.raises(concurrent.futures.TimeoutError):
                    next(pool.map(is_over.wait, [None], timeout=timeout))
            with pytest.raises(InvalidDuration, match="timeout: '1x'"):
                future.result("1x")
        finally:
            is_over.set()


def test_the_error_where_there_is_no_client_gives_advice(client):
    with pytest.raises(TypeError, match=r"gets one with weft\.get_client"):
        pickle.dumps(client)
    client.close()
    with pytest.raises(ClientClosed, match="no current client in this process"):
        Client.current()


def test_a_cluster_takes_no_security_but_weft_s_own():
    with pytest.raises(ConfigError, match=r"security: a weft Security, or None.*not 'tls'"):
        weft.LocalCluster(n_workers=1, security="tls")
