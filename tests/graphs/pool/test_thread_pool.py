"""`weft.ThreadPool`: an executor that can replace the standard one."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import itertools
import sys
import threading
import traceback
import weakref
from concurrent.futures import (
    CancelledError,
    Executor,
    ThreadPoolExecutor,
    TimeoutError,
    as_completed,
    wait,
)
from concurrent.futures.thread import BrokenThreadPool

import pytest

from tests.graphs.graph_kit import are_gone
from tests.graphs.pool.pool_kit import fail, is_idle, n_threads
from tests.graphs.stepping_kit import (
    LIMIT_S,
)
from tests.leaks import wait_until
from weft.graphs.pool.thread_pool import ThreadPool
from weft.protocol.host.machine import n_cores

# --- Submitting -----------------------------------------------------------------------------------


def test_submit_calls_the_function_in_another_thread(pool):
    assert isinstance(pool, Executor)
    future = pool.submit(lambda *args, **kwargs: (args, kwargs, threading.get_ident()), 1, x=2)
    args, kwargs, ident = future.result(LIMIT_S)
    assert (args, kwargs) == ((1,), {"x": 2})
    assert ident != threading.get_ident()
    # Names that submit has itself.
    assert pool.submit(dict, fn=1, self=2).result(LIMIT_S) == {"fn": 1, "self": 2}


@pytest.mark.parametrize("n_tasks", [1, 10, 5_000])
def test_each_task_is_run_once(n_tasks):
    called = []
    with ThreadPool() as pool:
        futures = [pool.submit(called.append, i) for i in range(n_tasks)]
        assert [future.result(LIMIT_S) for future in futures] == [None] * n_tasks
    assert sorted(called) == [*range(n_tasks)]
    called.clear()
    with ThreadPool() as pool:
        for i in range(n_tasks):
            pool.submit(called.append, i)
    assert sorted(called) == [*range(n_tasks)]


def test_one_thread_runs_tasks_in_the_order_of_submission():
    called = []
    with ThreadPool(1) as pool:
        for i in range(1000):
            pool.submit(called.append, i)
    assert called == [*range(1000)]


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(1), KeyboardInterrupt()])
def test_a_task_that_raises_leaves_the_thread_alive(error):
    with ThreadPool(1) as pool:
        future = pool.submit(fail, error)
        assert future.exception(LIMIT_S) is error
        frames = traceback.extract_tb(error.__traceback__)
        assert [frame.name for frame in frames] == ["fail"]
        assert pool.submit(abs, -1).result(LIMIT_S) == 1
        assert n_threads(pool) == 1


def test_a_callback_that_raises_system_exit_leaves_the_thread_alive(caplog):
    with ThreadPool(1) as pool:
        gate = threading.Event()
        future = pool.submit(gate.wait, LIMIT_S)
        future.add_done_callback(lambda f: sys.exit(1))
        gate.set()
        assert pool.submit(abs, -1).result(LIMIT_S) == 1
    assert future.result() is True
    assert "Exception in worker" in caplog.text


def test_max_workers_limits_the_threads_and_is_checked():
    assert ThreadPool()._max_workers == n_cores() >= 1
    assert ThreadPool(3)._max_workers == 3
    for n in (0, -1):
        with pytest.raises(ValueError, match="max_workers"):
            ThreadPool(n)
    with pytest.raises(TypeError, match="initializer"):
        ThreadPool(initializer=3)


def test_tasks_run_in_the_context_of_their_thread(pool):
    variable = contextvars.ContextVar("variable", default="default")
    variable.set("of the submitting thread")
    assert pool.submit(variable.get).result(LIMIT_S) == "default"


def test_repr(pool, gate):
    pool.submit(int)
    assert "2 of 2 threads started, 1 tasks in the queue" in repr(pool)
    assert "open" in repr(pool)
    pool.shutdown(wait=False)
    assert "closed" in repr(pool)


# --- Threads --------------------------------------------------------------------------------------


def test_threads_are_started_when_needed_and_used_again():
    with ThreadPool(4, thread_name_prefix="mine") as pool:
        assert n_threads(pool) == 0
        for _ in range(10):
            thread = pool.submit(threading.current_thread).result(LIMIT_S)
            wait_until(lambda: is_idle(pool))
        assert n_threads(pool) == 1
        assert thread.daemon
        assert thread.name == "mine_0"
        barrier = threading.Barrier(4)
        wait([pool.submit(barrier.wait, LIMIT_S) for _ in range(4)])
        assert not barrier.broken
        assert n_threads(pool) == 4
    assert not thread.is_alive()
    with ThreadPool(1) as unnamed:
        assert (
            unnamed.submit(threading.current_thread).result(LIMIT_S).name.startswith("ThreadPool-")
        )


def test_a_long_task_does_not_hold_back_others():
    """As many tasks as threads run at a time, however the threads came to be idle or busy."""
    n = 4
    with ThreadPool(n) as pool:
        for n_warm in (0, 1, 0, n, 0):
            wait([pool.submit(int) for _ in range(n_warm)])
            barrier = threading.Barrier(n)
            futures = [pool.submit(barrier.wait, LIMIT_S) for _ in range(n)]
            assert sorted(future.result(LIMIT_S) for future in futures) == [*range(n)]


def test_tasks_may_submit_tasks(pool):
    def count(n):
        return pool.submit(count, n - 1) if n else "done"

    future = pool.submit(count, 100)
    while future != "done":
        future = future.result(LIMIT_S)


class Thing:
    """Something that can be watched."""


def test_an_idle_thread_keeps_nothing_alive():
    with ThreadPool(1) as pool:
        thing = Thing()
        refs = [weakref.ref(thing)]
        future = pool.submit(lambda thing: Thing(), thing)
        refs += [weakref.ref(future.result(LIMIT_S)), weakref.ref(future)]
        del thing, future
        wait_until(lambda: are_gone(*refs))
        # Nor does a thread that is busy with the next task.
        gate = threading.Event()
        ref = weakref.ref(pool.submit(Thing))
        pool.submit(gate.wait, LIMIT_S)
        wait_until(lambda: are_gone(ref))
        gate.set()


def test_a_pool_that_has_ended_is_in_no_cycle():
    gc.disable()
    try:
        with ThreadPool(2) as pool:
            barrier = threading.Barrier(2)
            wait([pool.submit(barrier.wait, LIMIT_S) for _ in range(2)])
            refs = [weakref.ref(pool), *map(weakref.ref, pool._threads)]
        del pool, barrier
        wait_until(lambda: [ref() for ref in refs] == [None] * 3)
    finally:
        gc.enable()


def test_a_pool_goes_on_when_no_more_threads_can_be_started(monkeypatch):
    """A test cannot reach the limit of the system; this is the error of start() there."""
    with ThreadPool(2) as pool:
        with monkeypatch.context() as context:
            context.setattr(
                threading.Thread, "start", lambda self: fail(RuntimeError("can't start"))
            )
            with pytest.raises(RuntimeError, match="can't start"):
                pool.submit(int)
            assert not pool._crew.tasks
        gate = threading.Event()
        pool.submit(gate.wait, LIMIT_S)
        with monkeypatch.context() as context:
            context.setattr(
                threading.Thread, "start", lambda self: fail(RuntimeError("can't start"))
            )
            future = pool.submit(int)
        gate.set()
        assert future.result(LIMIT_S) == 0
        barrier = threading.Barrier(2)
        assert len({f.result(LIMIT_S) for f in [pool.submit(barrier.wait) for _ in "12"]}) == 2


# --- The initializer ------------------------------------------------------------------------------


def test_the_initializer_is_called_in_each_thread():
    threads = []
    barrier = threading.Barrier(3)
    with ThreadPool(
        3, initializer=lambda x: threads.append((x, threading.get_ident())), initargs=(1,)
    ) as pool:
        wait([pool.submit(barrier.wait, LIMIT_S) for _ in range(3)])
    assert len({*threads}) == 3
    assert {x for x, _ in threads} == {1}


def test_an_initializer_that_fails_breaks_the_pool(caplog):
    gate = threading.Event()

    def fail_later():
        gate.wait(LIMIT_S)
        raise ValueError("in the initializer")

    with ThreadPool(2, initializer=fail_later) as pool:
        futures = [pool.submit(int) for _ in range(10)]
        cancelled = futures[5]
        assert cancelled.cancel()
        gate.set()
        for future in futures:
            with pytest.raises(CancelledError if future is cancelled else BrokenThreadPool):
                future.result(LIMIT_S)
        with pytest.raises(BrokenThreadPool, match="initializer"):
            pool.submit(int)
        pool.shutdown()
        with pytest.raises(BrokenThreadPool, match="initializer"):
            pool.submit(int)
    assert "Exception in initializer" in caplog.text
    assert "in the initializer" in caplog.text


# --- map ------------------------------------------------------------------------------------------


def test_map_yields_results_in_order(pool):
    assert [*pool.map(divmod, [7, 8, 9, 10], [2, 3, 4], chunksize=2)] == [(3, 1), (2, 2), (2, 1)]
    assert [*pool.map(abs, [])] == []
    assert [*pool.map(abs, range(1000), timeout=LIMIT_S)] == [*range(1000)]


def test_map_begins_at_once_and_reads_its_iterables(pool):
    called = threading.Event()
    read = []
    results = pool.map(lambda n: called.set(), (read.append(n) for n in range(10)))
    assert called.wait(LIMIT_S)
    assert len(read) == 10
    assert [*results] == [None] * 10


def test_map_with_a_buffer_reads_as_results_are_taken(pool):
    read = itertools.count()
    results = pool.map(abs, read, buffersize=5)
    assert next(read) == 5
    assert [next(results) for _ in range(20)] == [*range(5), *range(6, 21)]
    assert next(read) == 26
    results.close()
    assert [*pool.map(abs, range(3), buffersize=100)] == [0, 1, 2]
    with pytest.raises(ValueError, match="buffersize"):
        pool.map(abs, [], buffersize=0)


@pytest.mark.parametrize("end", ["error", "timeout", "close"])
def test_map_cancels_calls_whose_results_are_not_wanted(end):
    gate = threading.Event()
    called = []
    first = int if end == "close" else gate.wait if end == "timeout" else abs
    with ThreadPool(1) as pool:
        calls = [first, *[lambda: gate.wait(LIMIT_S)] * 2, *[lambda: called.append(1)] * 100]
        results = pool.map(lambda call: call(), calls, timeout=0.01 if end == "timeout" else None)
        if end == "close":
            assert next(results) == 0
            results.close()
        else:
            with pytest.raises(TimeoutError if end == "timeout" else TypeError):
                next(results)
        # Taken one by one: the worker may be taking some, too.
        assert all(future.cancelled() for future in [*pool._crew.drain()][1:])
        gate.set()
    assert called == []
    assert [*results] == []


def test_map_drops_results_that_were_taken(pool):
    class Result:
        pass

    results = pool.map(lambda _: Result(), range(3))
    ref = weakref.ref(next(results))
    wait_until(lambda: are_gone(ref))
    assert len([*results]) == 2


def test_map_with_an_iterable_that_fails_cancels_its_calls(pool, gate):
    def numbers():
        yield 1
        yield 2
        raise ValueError("no more numbers")

    with pytest.raises(ValueError, match="no more"):
        pool.map(abs, numbers())
    assert [future.cancelled() for future in pool._crew.tasks] == [True, True]


# --- With the rest of the library -----------------------------------------------------------------


def test_wait_and_as_completed_with_other_executors(pool):
    with ThreadPoolExecutor(2) as other:
        futures = [executor.submit(abs, -i) for i in range(200) for executor in (pool, other)]
        assert {future.result() for future in as_completed(futures, LIMIT_S)} == {*range(200)}
        assert wait(futures) == ({*futures}, set())
        futures = [executor.submit(abs, -i) for i in range(200) for executor in (pool, other)]
        assert wait(futures, LIMIT_S) == ({*futures}, set())


async def test_asyncio_runs_calls_in_the_pool(pool):
    loop = asyncio.get_running_loop()
    calls = [loop.run_in_executor(pool, abs, -i) for i in range(100)]
    assert await asyncio.gather(*calls) == [*range(100)]
    with pytest.raises(ValueError, match="x"):
        await loop.run_in_executor(pool, fail, ValueError("x"))
