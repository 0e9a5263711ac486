"""`weft.Executor` on a real cluster; CPython's own tests of executors run in tests/conformance."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import itertools
import operator
import os
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path

import pytest

import weft
from weft.protocol.errors import NotSupported, SerializationError

pytestmark = [pytest.mark.slow, pytest.mark.shares_resources]


@pytest.fixture(scope="module")
def client():
    with (
        weft.LocalCluster(n_workers=2, threads_per_worker=1) as cluster,
        weft.Client(cluster, set_as_default=False) as client,
    ):
        client.wait_for_workers(2)
        yield client


@pytest.fixture
def executor(client):
    with client.get_executor() as executor:
        yield executor


class Gate:
    """A file that calls wait for."""

    def __init__(self, folder):
        self.path = str(folder / "gate")

    def open(self):
        Path(self.path).touch()


@pytest.fixture
def gate(tmp_path):
    gate = Gate(tmp_path)
    yield gate
    gate.open()


def pass_through(path, started=None):
    if started is not None:
        Path(started).touch()
    while not os.path.exists(path):
        time.sleep(0.005)  # workload
    return os.getpid()


def test_futures_of_an_executor_are_those_of_the_standard_library(executor):
    future = executor.submit(pow, 2, exp=8)
    assert isinstance(executor, concurrent.futures.Executor)
    assert isinstance(future, concurrent.futures.Future)
    assert future.result(20) == 256
    failed = executor.submit(operator.truediv, 1, 0)
    done, not_done = concurrent.futures.wait([future, failed], 20)
    assert (done, not_done) == ({future, failed}, set())
    assert isinstance(failed.exception(), ZeroDivisionError)
    assert {*concurrent.futures.as_completed([future, failed], 20)} == done


def test_a_done_callback_may_submit_and_wait(executor):
    results = []
    ready = threading.Event()

    def again(future):
        results.append(future.result())
        executor.submit(abs, -2).add_done_callback(lambda f: (results.append(f), ready.set()))

    executor.submit(abs, -1).add_done_callback(again)
    assert ready.wait(20)
    assert [results[0], results[1].result()] == [1, 2]


SET_UP = []


def set_up(*values):
    SET_UP.append(values)


def what_was_set_up(x=None):
    return SET_UP, x


async def await_what_was_set_up():
    return SET_UP


def test_an_initializer_is_called_once_before_the_calls_that_it_shares_global_variables_with(
    client,
):
    # By value: workers do not find this module, so each function has variables of its own.
    with client.get_executor(initializer=set_up, initargs=(1, "a")) as executor:
        once = [(1, "a")]
        futures = [executor.submit(what_was_set_up, x) for x in range(10)]
        assert [future.result() for future in futures] == [(once, x) for x in range(10)]
        for chunksize in (1, 3):
            found = executor.map(what_was_set_up, range(10), chunksize=chunksize)
            assert [*found] == [(once, x) for x in range(10)]
        assert executor.submit(await_what_was_set_up).result() == once


def test_an_initializer_that_is_found_by_its_name_is_called_once_for_all_functions(client):
    one = {"workers": next(iter(client.nthreads()))}
    with client.get_executor(
        initializer=sys.setrecursionlimit, initargs=(1234,), **one
    ) as executor:
        found = [executor.submit(sys.getrecursionlimit), executor.submit(operator.abs, -1)]
        assert [future.result(60) for future in found] == [1234, 1]
        client.run(sys.setrecursionlimit, 2345)
        assert [*executor.map(call, [sys.getrecursionlimit] * 9)] == [2345] * 9
    client.run(sys.setrecursionlimit, 1000)


def call(function):
    return function()


def fail_to_set_up():
    raise ValueError("no such database")


def test_an_initializer_that_fails_breaks_the_executor(client, caplog):
    with client.get_executor(initializer=fail_to_set_up) as executor:
        future = executor.submit(abs, -1)
        with pytest.raises(concurrent.futures.BrokenExecutor, match=r"fail_to_set_up.*no such"):
            future.result(60)
        with pytest.raises(concurrent.futures.BrokenExecutor, match="make a new one"):
            executor.submit(abs, -1)
        assert "ValueError: no such database" in caplog.text
    with client.get_executor(initializer=fail_to_set_up) as executor:
        with pytest.raises(weft.InitializerFailed):
            [*executor.map(abs, range(3))]
        with pytest.raises(concurrent.futures.BrokenExecutor):
            executor.map(abs, range(3))


def test_futures_of_the_client_are_inputs(client, executor):
    assert executor.submit(operator.add, client.submit(abs, -3), 1).result(20) == 4
    assert list(executor.map(abs, client.map(abs, [-1, -2]))) == [1, 2]


async def test_asyncio_runs_calls_in_it_and_awaits_its_futures(executor):
    loop = asyncio.get_running_loop()
    assert await loop.run_in_executor(executor, pow, 2, 8) == 256
    futures = [asyncio.wrap_future(executor.submit(abs, -i)) for i in range(100)]
    assert await asyncio.gather(*futures) == [*range(100)]


def use_executor_in_task(n):
    with weft.Client.current().get_executor() as executor:
        queued = [executor.submit(time.sleep, 0.05) for _ in range(20)]  # workload
        n_cancelled = [future.cancel() for future in reversed(queued)].count(True)
        total = sum(executor.map(abs, range(n))) + executor.submit(abs, -n).result()
    return total, n_cancelled


def submit_in_callbacks(n):
    found = []
    with weft.get_client().get_executor() as executor:
        is_done = threading.Event()

        def again(future):
            found.append(future.result())
            if len(found) < n:
                executor.submit(abs, -len(found)).add_done_callback(again)
            else:
                is_done.set()

        executor.submit(abs, 0).add_done_callback(again)
        weft.secede()
        is_done.wait(60)
        weft.rejoin()
    return found


def test_a_done_callback_in_a_task_submits_on_its_behalf(client):
    futures = client.map(submit_in_callbacks, [5, 6, 7], pure=False)
    assert client.gather(futures, timeout=60) == [[*range(5)], [*range(6)], [*range(7)]]


def test_a_task_may_use_an_executor_of_its_cluster(client):
    futures = client.map(use_executor_in_task, [3, 4, 5, 6], pure=False)
    found = client.gather(futures, timeout=60)
    assert [total for total, _ in found] == [6, 10, 15, 21]
    assert all(n_cancelled for _, n_cancelled in found)


def wait_as_libraries_do(n, how):
    """Wait for calls that only this worker may run, which has one thread."""
    executor = weft.get_client().get_executor(workers=weft.get_worker().name)
    futures = [executor.submit(abs, -i) for i in range(n)]
    if how == "wait":
        assert not concurrent.futures.wait(futures).not_done
    return sum(future.result() for future in concurrent.futures.as_completed(futures))


@pytest.mark.parametrize("how", ["wait", "as_completed"])
def test_functions_of_the_standard_library_wait_in_a_task_without_its_thread(client, how):
    assert client.submit(wait_as_libraries_do, 10, how).result(30) == 45


def test_map_yields_in_order_whatever_the_sizes(executor):
    expected = [i * 10 for i in range(20)]
    for options in (
        {},
        {"chunksize": 3},
        {"buffersize": 1},
        {"buffersize": 7},
        {"chunksize": 4, "buffersize": 2},
        {"timeout": "1 min"},
    ):
        results = executor.map(operator.mul, range(20), itertools.repeat(10), **options)
        assert list(results) == expected
    assert list(executor.map(abs, [])) == []
    assert list(executor.map(abs)) == []


def test_map_raises_where_the_row_is(executor):
    results = executor.map(operator.floordiv, [4, 4, 4], [2, 0, 1])
    assert next(results) == 2
    with pytest.raises(ZeroDivisionError):
        next(results)
    assert list(results) == []


def test_map_with_a_buffer_reads_no_more_than_fits(executor):
    numbers = itertools.count()
    results = executor.map(str, numbers, buffersize=4)
    assert next(numbers) == 4
    assert [next(results), next(results)] == ["0", "1"]
    # The row that was read above is missing; never more than four were waiting.
    assert next(numbers) <= 4 + 1 + 2
    results.close()


def test_map_times_out(executor, gate):
    results = executor.map(pass_through, [gate.path], timeout=0)
    with pytest.raises(concurrent.futures.TimeoutError, match=r"not there within 0 s"):
        next(results)


def test_map_keeps_no_result_that_was_read(executor):
    for thing in executor.map(weft.LocalCluster.__class__, ["Thing"] * 3, [()] * 3, [{}] * 3):
        reference = weakref.ref(thing)
        del thing
        gc.collect()
        assert reference() is None


def test_the_calls_of_a_map_that_is_not_read_are_run(client, tmp_path):
    with client.get_executor() as executor:
        executor.map(Path.touch, [tmp_path / str(i) for i in range(20)])
    assert len(list(tmp_path.iterdir())) == 20


def test_a_call_that_has_begun_is_not_cancelled_and_one_that_has_not_never_runs(
    executor, gate, tmp_path, wait_until
):
    started = tmp_path / "started"
    running = [executor.submit(pass_through, gate.path, str(started)) for _ in range(2)]
    wait_until(started.exists)
    wait_until(lambda: all(future.running() for future in running))
    queued = [executor.submit(Path.touch, tmp_path / f"ran{i}") for i in range(20)]
    assert all(future.cancel() for future in queued)
    assert not any(future.cancel() for future in running)
    assert all(future.running() for future in running)
    assert concurrent.futures.wait(queued, 20).not_done == set()
    gate.open()
    assert all(future.result(20) for future in running)
    assert [running[0].cancel(), running[0].cancelled(), running[0].running()] == [False] * 3
    assert list(tmp_path.glob("ran*")) == []
    with pytest.raises(concurrent.futures.CancelledError):
        queued[0].result()


def test_shutdown_cancels_what_has_not_begun_and_waits_for_the_rest(
    client, gate, tmp_path, wait_until
):
    started = tmp_path / "started"
    executor = client.get_executor()
    running = [executor.submit(pass_through, gate.path, str(started)) for _ in range(2)]
    wait_until(started.exists)
    rows = executor.map(pass_through, [gate.path] * 10)
    queued = [executor.submit(abs, -i) for i in range(50)]
    opener = threading.Timer(0.5, gate.open)
    opener.start()
    executor.shutdown(cancel_futures=True)
    opener.join()
    assert all(future.done() for future in [*running, *queued])
    assert all(future.cancelled() for future in queued)
    assert any(not future.cancelled() for future in running)
    with pytest.raises(concurrent.futures.CancelledError):
        list(rows)
    with pytest.raises(RuntimeError, match="cannot schedule new futures after shutdown"):
        executor.submit(abs, -1)
    with pytest.raises(RuntimeError, match="cannot schedule new futures after shutdown"):
        executor.map(abs, [-1])
    assert client.submit(abs, -1).result(20) == 1  # the client stays open


def test_a_dropped_executor_runs_what_it_was_given(client):
    executor = client.get_executor()
    future = executor.submit(abs, -1)
    reference = weakref.ref(executor)
    del executor
    gc.collect()
    assert reference() is None
    assert future.result(20) == 1


def test_the_number_of_workers_is_that_of_the_cluster(executor):
    assert executor._max_workers == 2


@pytest.mark.parametrize(
    ("keyword", "hint"),
    [
        ("retires", r"; did you mean the option retries= of weft\.Executor, which"),
        ("worker", r"; did you mean the option workers= of weft\.Executor, which"),
        ("pure", "'pure'$"),
    ],
)
def test_an_option_in_a_call_is_refused_with_the_place_where_it_belongs(client, keyword, hint):
    with client.get_executor() as executor, pytest.raises(TypeError, match=hint):
        executor.submit(abs, -1, **{keyword: 1})
    with client.get_executor() as executor, pytest.raises(TypeError, match=hint):
        executor.submit(lambda x: x, 1, **{keyword: 1})


def test_options_are_those_of_submit(client):
    with client.get_executor(retries=1, priority=3, resources={"GPU": 1}) as executor:
        future = executor.submit(abs, -1)
        assert not future.running()  # no worker has that
        assert future.cancel()


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda c: weft.Executor(0), ValueError, "max_workers must be greater than 0"),
        (lambda c: weft.Executor("2"), TypeError, "whole number, not '2'$"),
        (lambda c: weft.Executor(c), TypeError, r"whole number, .*; did you mean client=\?"),
        (lambda c: weft.Executor("tcp://here:8786"), TypeError, r"did you mean client=\?"),
        (lambda c: weft.Executor(2, client=c), ValueError, "leave one of the two out"),
        (lambda c: weft.Executor(initializer=5), TypeError, "initializer must be a callable"),
        (lambda c: weft.Executor(mp_context=5), TypeError, "mp_context= is not an option"),
        (lambda c: c.get_executor(retry=1), TypeError, "unexpected keyword argument 'retry'"),
        (lambda c: c.get_executor(pure=True), NotSupported, "never pure"),
        (lambda c: c.get_executor(priority=10_000), ValueError, "priority="),
        (lambda c: c.get_executor().submit(1), TypeError, "needs a function"),
        (lambda c: c.get_executor().map(abs, 3), TypeError, "did you mean range"),
        (lambda c: c.get_executor().map(abs, [1], chunksize=0), ValueError, "chunksize must be"),
        (lambda c: c.get_executor().map(abs, [1], buffersize=0), ValueError, "buffersize must be"),
        (lambda c: c.get_executor().map(abs, [1], buffersize=1.5), TypeError, "an integer or None"),
        (
            lambda c: c.get_executor().submit(abs, threading.Lock()),
            SerializationError,
            r"args\[0\] of abs cannot be pickled",
        ),
    ],
)
def test_wrong_arguments_are_refused_with_advice(client, make, error, text):
    with pytest.raises(error, match=text):
        make(client)


def test_an_executor_is_not_pickled(executor):
    with pytest.raises(TypeError, match="belongs to this process"):
        executor.__reduce__()


async def test_an_asynchronous_client_has_no_executor(client):
    async with weft.Client(client.cluster, asynchronous=True, set_as_default=False) as other:
        with pytest.raises(NotSupported, match=r"await client\.submit"):
            other.get_executor()


def test_a_client_that_is_closed_fails_pending_calls(client, gate):
    with weft.Client(client.cluster, set_as_default=False) as other:
        executor = other.get_executor()
        future = executor.submit(pass_through, gate.path)
    assert future.exception(20) is not None or future.cancelled()
    executor.shutdown()


SCRIPT = """
import sys, time, weft

def say(text):
    time.sleep(0.2)  # workload
    print(text, flush=True)

if __name__ == "__main__":
    executor = weft.Executor(1)
    executor.submit(say, "one")
    executor.map(say, ["two"])
    {end}
"""


@pytest.mark.parametrize("end", ["", "executor.shutdown(wait=False)", "del executor"])
def test_the_program_ends_when_all_calls_are_done(end, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(end=end))
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("one\ntwo\n", "", 0)
