"""Calls of a `weft.ThreadPool` that meet at any instruction, and any program of calls."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import (
    CancelledError,
    wait,
)

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.graphs.pool.pool_kit import fail, is_idle, n_threads
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


def warm_up(pool, n_tasks=1):
    """Have `pool` start its threads and be idle."""
    for _ in range(n_tasks):
        pool.submit(int).result(LIMIT_S)
        wait_until(lambda: is_idle(pool))


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
