"""The end of a `weft.ThreadPool`, of its program, and of the parent of its process."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import traceback
import warnings
import weakref
from concurrent.futures.thread import BrokenThreadPool
from pathlib import Path

import pytest

from tests.graphs.pool.pool_kit import n_threads
from tests.graphs.stepping_kit import (
    LIMIT_S,
)
from tests.leaks import wait_until
from weft.graphs.pool.thread_pool import ThreadPool

ROOT = Path(__file__).resolve().parents[3]


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
