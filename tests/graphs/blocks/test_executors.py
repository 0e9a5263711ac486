"""Graphs in the processes of a user's executor."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import time
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import pytest

import weft
from tests.graphs.blocks.kit import (
    Oops,
    add,
    array,
    boom,
    exit_now,
    get,
    inc,
    pid_of,
    total,
    touch,
    wait_for,
)
from weft.graphs.blocks.executor_host import exit_codes
from weft.protocol.errors import WorkerDied, WrongExecutor

pytestmark = [pytest.mark.slow, pytest.mark.shares_resources]

ROOT = Path(__file__).resolve().parents[3]


def executor_of(kind):
    if kind == "loky":
        loky = pytest.importorskip("loky", reason="pip install loky")
        return loky.ProcessPoolExecutor(max_workers=2)
    return ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(kind))


@pytest.fixture(scope="module", params=["spawn", "fork", "loky"])
def executor(request):
    with warnings_of_fork(), executor_of(request.param) as executor:
        yield executor


@pytest.fixture(autouse=True, scope="module")
def no_tracker_stays():
    """Stop the process that loky starts with its first executor, and never ends."""
    yield
    tracker = sys.modules.get("loky.backend.resource_tracker")
    if tracker is not None:
        gc.collect()  # semaphores: without an interpreter lock some are still there, and call it
        tracker._resource_tracker._stop()


@contextlib.contextmanager
def warnings_of_fork():
    """Python 3.12 and later warn of a fork while there are threads; the executor has its own."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


def test_a_graph_runs_in_the_processes_of_the_executor(executor, tmp_path):
    theirs = executor.submit(pid_of).result()
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    dsk = {"a": (pid_of, (touch, one), (wait_for, two))}
    dsk["b"] = (pid_of, (touch, two), (wait_for, one))
    found = get(dsk, ["a", "b"], executor=executor, num_workers=None)
    assert len({*found}) == 2
    assert theirs in found
    # They are free again.
    assert executor.submit(pid_of).result() in found


def test_values_and_errors_are_as_with_other_workers(executor):
    dsk = {("x", i): (inc, i) for i in range(500)}
    dsk |= {("y", i): (add, ("x", i), ("x", i - 1)) for i in range(1, 500)}
    dsk |= {("a", i): (array, float(i), 1 << 20) for i in range(4)}
    dsk["t"] = (total, *[("a", i) for i in range(4)])
    keys = [("y", i) for i in range(1, 500)]
    *values, sum_of = get(dsk, [*keys, "t"], executor=executor)
    assert values == [2 * i + 1 for i in range(1, 500)]
    assert sum_of == 12.0
    dsk["bad"] = (boom, ("x", 1))
    with pytest.raises(Oops, match="no 2"):
        get(dsk, ["bad", *keys], executor=executor)
    assert get({"a": (lambda: 5,)}, "a", executor=executor) == 5


def test_workers_that_do_not_come_are_not_waited_for(executor, tmp_path):
    busy = executor.submit(wait_for, str(tmp_path / "go"))
    try:
        dsk = {("x", i): (pid_of, i) for i in range(50)}
        assert len({*get(dsk, [*dsk], executor=executor, num_workers=4)}) == 1
    finally:
        (tmp_path / "go").touch()
    busy.result()
    # No call of weft is left in its queue.
    assert executor.submit(inc, 1).result() == 2


DYING = """
import sys
from tests.graphs.blocks.kit import exit_now, get, inc
from tests.graphs.blocks.test_executors import executor_of
from weft.protocol.errors import WorkerDied

if __name__ == "__main__":
    with executor_of(sys.argv[1]) as executor:
        dsk = {("x", i): (inc, i) for i in range(20)} | {"bad": (exit_now, 3)}
        try:
            get(dsk, [*dsk], executor=executor)
        except WorkerDied as exc:
            print(exc.key, exc.reason)
"""


@pytest.mark.parametrize("kind", ["spawn", "loky"])
def test_a_process_of_the_executor_that_dies_is_an_error_that_names_the_task(kind):
    # In a process of its own: loky leaves a pipe behind when a process of its has died.
    if kind == "loky":
        pytest.importorskip("loky", reason="pip install loky")
    done = subprocess.run(
        [sys.executable, "-c", DYING, kind],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    # The executor ends its other process when it has lost this one; that is not to blame.
    assert done.stdout == "bad exit code 3\n", done.stderr


def test_an_exit_code_that_another_thread_has_read_is_waited_for():
    process = multiprocessing.get_context("spawn").Process(target=exit_now, args=(3,))
    process.start()
    _, status = os.waitpid(process.pid, 0)
    # The other thread is here: the process is gone, and its code is not noted yet.
    process.join(0)
    assert process.exitcode is None
    assert exit_codes({process.pid: process}, timeout_s=0) == {process.pid: None}

    def note():
        process._popen.returncode = os.waitstatus_to_exitcode(status)

    with ThreadPoolExecutor(1) as other:
        found = other.submit(exit_codes, {process.pid: process})
        note()
        assert found.result() == {process.pid: 3}
    process.close()


def test_a_multiprocessing_pool_that_loses_a_process_is_an_error_too():
    from weft.graphs.drivers.executors import as_executor

    with multiprocessing.get_context("spawn").Pool(2) as pool:
        executor = as_executor(pool)
        assert get({"a": (inc, 1)}, "a", executor=executor) == 2
        with pytest.raises(WorkerDied, match="'bad'"):
            get({"bad": (exit_now, 3)}, "bad", executor=executor)


def test_an_executor_that_is_shut_down_is_the_wrong_one():
    executor = ProcessPoolExecutor(1)
    executor.shutdown()
    with pytest.raises(WrongExecutor, match="after shutdown"):
        get({"a": (inc, 1)}, "a", executor=executor)


class Elsewhere(Executor):
    """Calls are pickled, and see other files than the caller."""

    def __init__(self, monkeypatch):
        self.inner = ThreadPoolExecutor(2)
        monkeypatch.setattr(os.path, "isdir", lambda _: False)

    def submit(self, fn, /, *args, **kwargs):
        call = pickle.dumps((fn, args, kwargs))
        return self.inner.submit(_make, call)


def _make(call):
    fn, args, kwargs = pickle.loads(call)
    return fn(*args, **kwargs)


def test_a_block_that_is_late_where_it_cannot_report_ends_early(monkeypatch):
    executor = Elsewhere(monkeypatch)
    dsk = {("x", i): (late, i) for i in range(12)}
    dsk["sum"] = (sum, [("x", i) for i in range(12)])
    for chunksize in (None, 12):
        assert weft.get(dsk, "sum", executor=executor, chunksize=chunksize) == 66
    executor.inner.shutdown()


def late(x):
    time.sleep(0.02)  # workload
    return x


INTERRUPTED = """
import sys, time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from tests.graphs.blocks.kit import get, inc, wait_for, touch

if __name__ == "__main__":
    folder = sys.argv[1]
    executor = ProcessPoolExecutor(2, mp_context=get_context("spawn"))
    dsk = {i: (wait_for, f"{folder}/go", (touch, f"{folder}/begun{i}")) for i in range(2)}
    try:
        get(dsk, [0, 1], executor=executor)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    open(f"{folder}/go", "x").close()
    print(get({"a": (inc, 1)}, "a", executor=executor), flush=True)
    executor.shutdown()
"""


def test_ctrl_c_ends_a_run_and_leaves_the_executor_usable(tmp_path, wait_until):
    program = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(tmp_path)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None
    with program:
        try:
            wait_until(lambda: len([*tmp_path.glob("begun*")]) == 2, 30)
            program.send_signal(signal.SIGINT)
            assert program.stdout.readline() == "interrupted\n"
            # Not `communicate`, which would lose the data that `readline` has read ahead.
            assert program.stdout.read() == "2\n"
            assert program.stderr is not None
            assert program.stderr.read() == ""
        finally:
            program.kill()


def test_a_process_that_comes_when_the_run_is_over_is_free_at_once():
    """A forked process has the listening socket too, so closing that does not end the wait."""
    context = multiprocessing.get_context("fork")
    with warnings_of_fork(), ProcessPoolExecutor(1, mp_context=context) as pool:
        dsk = {f"x{i}": (inc, i) for i in range(8)}
        for _ in range(3):
            assert get(dsk, list(dsk), executor=pool, num_workers=2) == tuple(range(1, 9))
            assert pool.submit(inc, 1).result(timeout=20) == 2
