"""`weft.ThreadPool`: an executor that can replace the standard one."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import itertools
import os
import signal
import subprocess
import sys
import threading
import traceback
import warnings
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
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.graphs.graph_kit import are_gone
from tests.graphs.stepping_kit import (
    LIMIT_S,
    PATIENCE_S,
    Meeting,
    before_step,
    every_step,
    interrupt,
)
from tests.leaks import wait_until
from weft.graphs.pool import thread_pool as pool_module
from weft.graphs.pool.future import PoolFuture
from weft.graphs.pool.thread_pool import ThreadPool
from weft.protocol.host.machine import n_cores

ROOT = Path(__file__).resolve().parents[3]


def fail(error):
    raise error


@pytest.fixture
def pool():
    with ThreadPool(2) as pool:
        yield pool


@pytest.fixture
def gate(pool):
    """Keep both threads of `pool` busy until the event is set."""
    gate = threading.Event()
    started = threading.Barrier(3)

    def block():
        started.wait(LIMIT_S)
        gate.wait(LIMIT_S)

    for _ in range(2):
        pool.submit(block)
    started.wait(LIMIT_S)
    yield gate
    gate.set()


def n_threads(pool):
    return len(pool._crew.workers)


def is_idle(pool):
    return len(pool._crew.idle) == n_threads(pool) and not pool._crew.tasks


def warm_up(pool, n_tasks=1):
    """Have `pool` start its threads and be idle."""
    for _ in range(n_tasks):
        pool.submit(int).result(LIMIT_S)
        wait_until(lambda: is_idle(pool))


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


# --- The end --------------------------------------------------------------------------------------


def test_shutdown_finishes_submitted_tasks(pool, gate):
    futures = [pool.submit(abs, -1) for _ in range(100)]
    pool.shutdown(wait=False)
    with pytest.raises(RuntimeError, match="after shutdown"):
        pool.submit(int)
    with pytest.raises(RuntimeError, match="after shutdown"):
        pool.map(int, ["1"])
    gate.set()
    pool.shutdown()
    pool.shutdown()
    assert [future.result(0) for future in futures] == [1] * 100
    assert not any(worker.thread.is_alive() for worker in pool._crew.workers)


def test_shutdown_may_cancel_tasks_that_have_not_started(pool, gate):
    futures = [pool.submit(int) for _ in range(100)]
    pool.shutdown(wait=False, cancel_futures=True)
    assert all(future.cancelled() for future in futures)
    gate.set()


def test_a_pool_without_tasks_ends():
    with ThreadPool() as pool:
        assert n_threads(pool) == 0
    with pytest.raises(RuntimeError):
        pool.submit(int)


def test_a_task_may_shut_down_its_pool():
    pool = ThreadPool(2)
    future = pool.submit(pool.shutdown)
    assert future.result(LIMIT_S) is None
    with pytest.raises(RuntimeError):
        pool.submit(int)


def test_ctrl_c_leaves_the_block_at_once():
    gate = threading.Event()
    futures = []

    def use_pool():
        with ThreadPool(1) as pool:
            futures.extend([pool.submit(gate.wait, LIMIT_S), pool.submit(int)])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        use_pool()
    running, waiting = futures
    assert waiting.cancelled()
    assert not running.done()
    gate.set()
    assert running.result(LIMIT_S)


def test_ctrl_c_while_the_block_waits_for_its_tasks():
    gate = threading.Event()

    def press_ctrl_c():
        wait_until(lambda: pool._crew.refusal is not None)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        gate.wait(LIMIT_S)

    with pytest.raises(KeyboardInterrupt), ThreadPool(1) as pool:
        running, waiting = pool.submit(press_ctrl_c), pool.submit(int)
    assert waiting.cancelled()
    gate.set()
    assert running.result(LIMIT_S) is None


@pytest.mark.parametrize("n_tasks", [0, 100])
def test_a_pool_without_references_ends_its_threads(n_tasks):
    pool = ThreadPool(2)
    thread = pool.submit(threading.current_thread).result(LIMIT_S)
    futures = [pool.submit(abs, -1) for _ in range(n_tasks)]
    ref = weakref.ref(pool)
    del pool
    gc.collect()
    assert ref() is None
    assert [future.result(LIMIT_S) for future in futures] == [1] * n_tasks
    wait_until(lambda: not thread.is_alive())


PROGRAM = """
import os, signal, sys, time
from weft.graphs.pool.thread_pool import ThreadPool

def press_ctrl_c():
    # When the main thread sleeps: a signal that comes just before that does not wake it.
    while sys.platform == "linux" and " S " not in open("/proc/self/stat").read():
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(600)

def reach():
    time.sleep(0.2)
    os.write(1, b"reached")

"""
ENDS = {
    "a last line": "ThreadPool(2).submit(reach)",
    "a last block": """
with ThreadPool(2) as pool:
    pool.submit(reach)
""",
    "Ctrl-C": """
pool = ThreadPool(2)
pool.submit(time.sleep, 600)
signal.raise_signal(signal.SIGINT)
""",
    "in the block": """
with ThreadPool(2) as pool:
    pool.submit(time.sleep, 600)
    signal.raise_signal(signal.SIGINT)
print("reached")
""",
    "waiting for a result": """
with ThreadPool(2) as pool:
    pool.submit(press_ctrl_c).result()
print("reached")
""",
    "waiting for the block's end": """
with ThreadPool(2) as pool:
    pool.submit(press_ctrl_c)
print("reached")
""",
}


@pytest.mark.slow
@pytest.mark.parametrize("end", ENDS)
def test_the_end_of_the_program_waits_for_tasks_but_not_after_ctrl_c(end):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM + ENDS[end]],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if end in {"a last line", "a last block"}:
        assert (done.returncode, done.stderr, done.stdout) == (0, "", "reached")
    else:
        assert done.returncode == -signal.SIGINT
        assert "KeyboardInterrupt" in done.stderr
        assert "reached" not in done.stdout


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


# --- Forks ----------------------------------------------------------------------------------------


def in_a_fork(check):
    """Call `check` in a fork of this process; return 0 if it went well."""
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # threads, because they are the subject of the test
        pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    code = 1
    try:
        signal.alarm(30)
        check()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_the_child_of_a_fork_has_threads_of_its_own(pool, gate):
    waiting = [pool.submit(abs, -i) for i in range(100)]
    watched = waiting[50]
    called = []
    watched.add_done_callback(called.append)
    cancelled = waiting[60]
    cancelled.cancel()
    running = [worker.future for worker in pool._crew.workers]

    def check():
        barrier = threading.Barrier(2)
        both = [pool.submit(barrier.wait, 10) for _ in range(2)]
        assert sorted(future.result(10) for future in both) == [0, 1]
        for future in [*running, *waiting]:
            if future is cancelled:
                assert future.cancelled()
                continue
            with pytest.raises(BrokenThreadPool, match="forked"):
                future.result(10)
        assert called == []
        pool.shutdown()

    assert in_a_fork(check) == 0
    gate.set()
    assert [f.result(LIMIT_S) for f in waiting if f is not cancelled] == [
        i for i in range(100) if i != 60
    ]
    assert called == [watched]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_child_forked_by_a_worker_thread_has_threads_of_its_own(pool):
    def check():
        assert pool.submit(abs, -1).result(10) == 1

    assert pool.submit(in_a_fork, check).result(LIMIT_S) == 0
    pool.shutdown()

    def check_that_it_is_shut():
        with pytest.raises(RuntimeError, match="after shutdown"):
            pool.submit(abs, -1)

    assert in_a_fork(check_that_it_is_shut) == 0


# --- Races ----------------------------------------------------------------------------------------


DEEDS = ["submit", "shutdown", "submit and shutdown"]


def deed(name, pool, futures):
    def do():
        if "submit" in name:
            try:
                futures.append(pool.submit(abs, -1))
            except RuntimeError:
                assert pool._crew.refusal
        if "shutdown" in name:
            pool.shutdown(wait=False)

    return do


MEETINGS = [("submit", name, 1) for name in DEEDS] + [("shutdown", "submit", 1)]
MEETINGS += [("submit", "submit", 0), ("submit", "shutdown", 0)]


@pytest.mark.slow
@pytest.mark.parametrize(("first", "second", "n_warm"), MEETINGS)
def test_submit_meets_others_at_any_instruction(first, second, n_warm):
    """Accepted calls are run; there are not too many threads; they all end."""

    def try_step(step):
        futures = []
        pool = ThreadPool(1)
        warm_up(pool, n_warm)
        meeting = Meeting(
            step, pool_module, deed(first, pool, futures), deed(second, pool, futures)
        )
        meeting.end()
        assert [future.result(LIMIT_S) for future in futures] == [1] * len(futures)
        assert n_threads(pool) <= 1
        assert not pool._crew.tasks
        pool.shutdown()
        assert not any(worker.thread.is_alive() for worker in pool._crew.workers)
        return meeting.was_reached

    every_step(try_step, 10)


@pytest.mark.slow
def test_a_submit_that_comes_when_the_last_worker_leaves_is_refused_or_run():
    def try_step(step):
        pool = ThreadPool(1)
        gate = threading.Event()
        pool.submit(gate.wait, LIMIT_S)
        futures = []
        submit = deed("submit", pool, futures)

        def let_the_worker_leave_and_submit():
            gate.set()
            pool._crew.workers[0].thread.join(10 * PATIENCE_S)
            submit()

        shutdown = deed("shutdown", pool, [])
        meeting = Meeting(
            step, pool_module, shutdown, let_the_worker_leave_and_submit, 40 * PATIENCE_S
        )
        meeting.end()
        pool.shutdown()
        assert [future.result(0) for future in futures] in ([], [1])
        return meeting.was_reached

    every_step(try_step, 10)


@pytest.mark.slow
@pytest.mark.parametrize("name", DEEDS)
def test_a_worker_that_runs_out_of_work_meets_others_at_any_instruction(name):
    def try_step(step):
        futures = []
        pool = ThreadPool(1, thread_name_prefix="worker")
        other = threading.Thread(target=deed(name, pool, futures))
        has_begun = threading.Lock()

        def meet():
            if has_begun.acquire(blocking=False):
                other.start()
                other.join(LIMIT_S)

        with before_step(step, pool_module, meet, thread_name="worker_0"):
            pool.submit(abs, -1).result(LIMIT_S)
            wait_until(lambda: is_idle(pool) or other.ident)
            threading.Event().wait(PATIENCE_S)  # it may be idle by name only
        was_reached = not has_begun.acquire(blocking=False)
        if not was_reached:
            other.start()
        wait_until(lambda: other.ident)
        other.join(LIMIT_S)
        assert not other.is_alive()
        assert [future.result(LIMIT_S) for future in futures] == [1] * ("submit" in name)
        pool.shutdown()
        assert not pool._crew.workers[0].thread.is_alive()
        return was_reached

    every_step(try_step, 20)


@pytest.mark.slow
@pytest.mark.parametrize("n_warm", [0, 1])
def test_an_interrupted_submit_loses_no_thread(n_warm):
    def try_step(step):
        with ThreadPool(1) as pool:
            warm_up(pool, n_warm)
            was_reached = interrupt(step, pool_module, lambda: pool.submit(int))
            assert pool.submit(abs, -1).result(LIMIT_S) == 1
            assert pool.submit(abs, -2).result(LIMIT_S) == 2
            assert n_threads(pool) == 1
        return was_reached

    every_step(try_step, 3)


def test_a_ctrl_c_cannot_fall_into_the_finalizer_of_a_weak_reference():
    """An exception in a finalizer is only printed: Ctrl-C and the removal would both be lost."""
    objects = [threading.Event()]
    alive = pool_module._Alive()
    alive.add(objects[0])
    assert not interrupt(1, pool_module, objects.clear)
    assert not alive._refs


def test_a_call_to_all_leaves_each_idle_worker_idle_once():
    with ThreadPool(2) as pool:
        barrier = threading.Barrier(2)
        for _ in range(3):
            wait([pool.submit(barrier.wait, LIMIT_S) for _ in range(2)])
            wait_until(lambda: is_idle(pool))
            pool._crew.call_all()
            wait_until(lambda: all(worker.bell.locked() for worker in pool._crew.workers))
            wait_until(lambda: is_idle(pool))
        assert len({*pool._crew.idle}) == 2


@pytest.fixture
def frantic():
    """Have the interpreter switch threads as often as it can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.slow
@pytest.mark.usefixtures("frantic")
@pytest.mark.parametrize("n_workers", [1, 3])
def test_many_threads_submit_to_one_pool(n_workers):
    """Each thread cancels, waits, adds callbacks and gathers, while the pool is shut down."""
    pool = ThreadPool(n_workers)
    counts = [0] * 6
    called = []
    problems = []

    def work(me):
        accepted = []
        for i in range(300):
            try:
                future = pool.submit(lambda i=i: called.append((me, i)) or (me, i))
            except RuntimeError:
                break
            accepted.append(future)
            if i % 7 == me:
                future.cancel()
            elif i % 11 == me:
                future.add_done_callback(lambda f: None)
            elif i % 31 == me and future.result(LIMIT_S) != (me, i):
                problems.append((me, i))
            elif i % 101 == me:
                wait(accepted[-10:], LIMIT_S)
            elif i == 290 and me == 5:
                pool.shutdown(wait=False)
        for i, future in enumerate(accepted):
            try:
                counts[me] += future.result(LIMIT_S) == (me, i)
            except CancelledError:
                if (me, i) in called:
                    problems.append((me, i, "was cancelled and run"))

    threads = [threading.Thread(target=work, args=(me,)) for me in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
        assert not thread.is_alive()
    pool.shutdown()
    assert not problems
    assert len(called) == len({*called}) == sum(counts)


STEP = st.sampled_from(
    ["submit", "fail", "kwargs", "cancel", "callback", "wait", "result", "map", "idle"]
)


@pytest.mark.slow
@settings(max_examples=30)
@given(st.integers(1, 3), st.lists(STEP, max_size=40), st.sampled_from(["wait", "cancel", "drop"]))
def test_any_program_gets_what_it_would_from_calls(n_workers, steps, end):
    """Each step concerns the latest future; each future has its expected outcome."""
    pool = ThreadPool(n_workers)
    expected = {}
    called = []
    for i, step in enumerate(steps):
        if step in {"submit", "fail", "kwargs"} or not expected:
            if step == "fail":
                expected[pool.submit(fail, LookupError(i))] = LookupError
            elif step == "kwargs":
                expected[pool.submit(int, str(i), base=16)] = int(str(i), 16)
            else:
                expected[pool.submit(abs, -i)] = i
            continue
        future = [*expected][-1]
        if step == "cancel":
            if future.cancel():
                expected[future] = CancelledError
        elif step == "callback":
            future.add_done_callback(called.append)
            called.append(future)  # each is there twice in the end
        elif step == "wait":
            assert wait(expected, LIMIT_S).done == {*expected}
        elif step == "result":
            future.exception(LIMIT_S) if not future.cancelled() else None
        elif step == "map":
            assert [*pool.map(abs, range(-i, 0), buffersize=2)] == [*range(i, 0, -1)]
        else:
            wait_until(lambda: is_idle(pool))
    if end == "drop":
        del pool
    else:
        pool.shutdown(cancel_futures=end == "cancel")
    for future, value in expected.items():
        assert isinstance(future, PoolFuture)
        if end == "cancel" and future.cancelled():
            continue
        if isinstance(value, type):
            with pytest.raises(value):
                future.result(LIMIT_S)
        else:
            assert future.result(LIMIT_S) == value
