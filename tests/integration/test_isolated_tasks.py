"""Tasks in child processes of their worker: crashes, ends from outside, bounds, large values."""

from __future__ import annotations

import ctypes
import importlib
import logging
import os
import signal
import threading
import time

import pytest

import weft

from .test_commands import is_alive

pytestmark = [pytest.mark.slow, pytest.mark.shares_resources]


@pytest.fixture(scope="module")
def client():
    with (
        weft.LocalCluster(n_workers=1, threads_per_worker=2, isolate=True) as cluster,
        weft.Client(cluster) as client,
    ):
        yield client


def process(_number=0):
    return os.getpid()


def worker_of(client):
    """Return the process of the only worker."""
    (pid,) = client.run(os.getpid).values()
    return pid


def test_tasks_run_in_children_that_are_kept(client):
    pids = set(client.gather(client.map(process, range(50))))
    assert 1 <= len(pids) <= 2
    assert worker_of(client) not in pids


def test_a_task_has_the_numbers_of_its_own_process(client):
    future = client.submit(lambda n: sum(bytearray(b"1") * n), 100_000_000, pure=False)
    future.result(60)
    used = future.measured()
    assert not used.is_shared
    assert used.peak_rss > 100_000_000
    assert used.cpu_s > 0


@pytest.mark.parametrize(
    ("number", "reason"), [(signal.SIGKILL, "SIGKILL"), (signal.SIGSEGV, "SIGSEGV")]
)
def test_a_signal_that_ends_a_child_fails_that_task_only(client, tmp_path, number, reason):
    kept = client.submit(lambda: [1, 2], pure=False)
    assert kept.result(60) == [1, 2]
    worker = worker_of(client)

    def end(folder):
        (folder / "begun").touch()
        os.kill(os.getpid(), number)

    failed = client.submit(end, tmp_path, pure=False)
    error = failed.exception(60)
    assert isinstance(error, weft.WorkerDied)
    assert error.attempts == 1
    assert reason in error.reason or "out of memory" in error.reason
    assert client.submit(sum, kept).result(60) == 3
    assert worker_of(client) == worker


def fork_another(path):
    """Fork a process that goes on, which has nothing to do with the worker."""
    if not os.fork():
        print("from a forked process")
        path.with_suffix(".asked").write_text(str(weft.get_worker().is_cancelled))
        time.sleep(1000)  # workload


def start_another(path):
    os.system("sleep 1000 &")


@pytest.mark.parametrize("leave_another", [fork_another, start_another])
def test_a_crash_is_seen_although_a_process_of_the_task_goes_on(client, tmp_path, leave_another):
    asked = tmp_path / "path.asked"

    def crash():
        leave_another(tmp_path / "path")
        while leave_another is fork_another and not (asked.exists() and asked.read_text()):
            time.sleep(0.01)  # workload
        os._exit(7)

    failed = client.submit(crash, pure=False)
    assert "exit code 7" in failed.exception(60).reason
    if leave_another is fork_another:
        assert asked.read_text() == "False"


def test_a_task_beside_one_that_crashes_goes_on(client, tmp_path, wait_until):
    def wait_for(path):
        while not path.exists():
            time.sleep(0.01)  # workload
        return os.getpid()

    beside = client.submit(wait_for, tmp_path / "go", pure=False)
    failed = client.submit(os._exit, 7, pure=False)
    assert "exit code 7" in failed.exception(60).reason
    (tmp_path / "go").touch()
    assert beside.result(60)


def test_retries_run_a_crashed_task_again(client, tmp_path):
    def crash_once(path):
        if not path.exists():
            path.touch()
            os._exit(1)
        return "done"

    assert client.submit(crash_once, tmp_path / "once", retries=1).result(60) == "done"


def stay_in_c(path):
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    path.write_text(str(os.getpid()))
    ctypes.PyDLL(None).sleep(1000)  # which keeps the interpreter lock


def test_a_time_limit_ends_code_that_is_no_python(client, tmp_path, wait_until):
    worker = worker_of(client)
    future = client.submit(stay_in_c, tmp_path / "pid", timeout=2)
    assert isinstance(future.exception(60), weft.TaskTimedOut)
    wait_until((tmp_path / "pid").exists)
    wait_until(lambda: not is_alive(int((tmp_path / "pid").read_text())))
    assert worker_of(client) == worker


def test_a_cancelled_task_is_interrupted_and_cleans_up(client, tmp_path, wait_until):
    def clean_up(folder):
        try:
            (folder / "begun").touch()
            time.sleep(1000)  # workload
        finally:
            (folder / "clean").write_text(str(os.getpid()))

    future = client.submit(clean_up, tmp_path, pure=False)
    wait_until((tmp_path / "begun").exists)
    future.cancel(running=True)
    wait_until(lambda: (tmp_path / "clean").exists() and (tmp_path / "clean").read_text())
    # Its process is kept.
    wait_until(lambda: is_alive(int((tmp_path / "clean").read_text())))
    assert client.submit(process, pure=False).result(60)


def test_a_cancelled_task_is_interrupted_behind_an_import(client, tmp_path, wait_until):
    def import_for_ever(begun, ended):
        try:
            begun.touch()
            while True:
                # Much of its time is spent in a callback of importlib, which loses exceptions.
                importlib._bootstrap._get_module_lock("absent")  # workload
                sum(range(100))
        finally:
            ended.touch()

    for n in range(40):
        begun, ended = tmp_path / f"begun{n}", tmp_path / f"ended{n}"
        future = client.submit(import_for_ever, begun, ended, pure=False)
        wait_until(begun.exists)
        future.cancel(running=True)
        wait_until(ended.exists)


def test_a_cancelled_task_is_interrupted_behind_a_finalizer(client, tmp_path, wait_until):
    class Value:
        def __del__(self):
            sum(range(100))

    def make_values(begun, ended):
        try:
            begun.touch()
            while True:
                Value()  # workload
        finally:
            ended.touch()

    for n in range(20):
        begun, ended = tmp_path / f"begun{n}", tmp_path / f"ended{n}"
        future = client.submit(make_values, begun, ended, pure=False)
        wait_until(begun.exists)
        future.cancel(running=True)
        wait_until(ended.exists)


def test_a_task_sees_that_it_is_cancelled(client, tmp_path, wait_until):
    def look(folder):
        (folder / "begun").touch()
        while not weft.get_worker().is_cancelled:
            time.sleep(0.01)  # workload
        (folder / "seen").touch()

    future = client.submit(look, tmp_path, pure=False)
    wait_until((tmp_path / "begun").exists)
    future.cancel(running=True)
    wait_until((tmp_path / "seen").exists)


def test_tasks_submit_tasks_and_wait_for_them_without_a_seat(client):
    def recurse(n):
        if not n:
            return 0
        return weft.get_client().submit(recurse, n - 1).result() + 1

    # More of them wait than there are threads.
    assert client.submit(recurse, 5).result(60) == 5


def test_a_coroutine_function_awaits_others(client):
    async def twice():
        return 2 * await weft.get_client().submit(len, "abc")

    assert client.submit(twice).result(60) == 6


def test_a_task_secedes_and_returns(client):
    def secede():
        weft.secede()
        weft.rejoin()
        return weft.get_worker().task_key

    future = client.submit(secede, pure=False)
    assert future.result(60) == future.key


def test_arrays_pass_in_files_that_both_map(client):
    numpy = pytest.importorskip("numpy", reason="numpy is missing: pip install numpy")
    made = client.submit(numpy.arange, 5_000_000)
    changed = client.submit(lambda array: array.__setitem__(0, 7) or int(array[0]), made)
    assert changed.result(60) == 7
    # A task that writes to its input has a copy of its own.
    assert client.submit(lambda array: int(array.sum()), made).result(60) == sum(range(5_000_000))
    assert made.result(60)[-1] == 4_999_999
    argument = numpy.ones(1_000_000)
    assert client.submit(lambda array: float(array.sum()), argument).result(60) == 1e6


def test_the_output_of_a_call_is_kept(client):
    def speak(fails):
        print("printed by a child")
        if fails:
            raise ValueError("after it")

    async def speak_later():
        print("printed by a coroutine")

    done = client.submit(speak, False, output="keep", pure=False)
    assert done.output(60).stdout == "printed by a child\n"
    failed = client.submit(speak, True, output="keep", pure=False)
    assert failed.output(60).stdout == "printed by a child\n"
    later = client.submit(speak_later, output="keep", pure=False)
    assert later.output(60).stdout == "printed by a coroutine\n"


def test_a_scratch_directory_ends_with_its_attempt_also_by_a_crash(client, tmp_path):
    def work(path):
        folder = weft.get_scratch_directory()
        (folder / "data").write_text("x")
        assert weft.get_scratch_directory() == folder
        if path is not None:
            path.write_text(str(folder))
            os._exit(7)
        return str(folder)

    assert not os.path.exists(client.submit(work, None, pure=False).result(60))
    assert client.submit(work, tmp_path / "name", pure=False).exception(60)
    assert not os.path.exists((tmp_path / "name").read_text())


def test_errors_and_results_that_cannot_be_pickled_are_reported(client):
    with pytest.raises(ZeroDivisionError) as caught:
        client.submit(lambda: 1 / 0).result(60)
    assert any("weft: task" in note for note in caught.value.__notes__)
    with pytest.raises(weft.UnpicklableResult):
        client.submit(threading.Lock).result(60)


def test_prints_and_records_of_logging_reach_the_client(capsys, caplog, wait_until):
    def speak():
        print("printed by a child")
        logging.getLogger("user").warning("logged by a child")

    shown = []

    def are_shown():
        shown.extend(capsys.readouterr())
        text = "".join(shown)
        return ") printed by a child" in text and "logged by a child" in text + caplog.text

    with (
        weft.LocalCluster(n_workers=1, threads_per_worker=1, isolate=True) as cluster,
        weft.Client(cluster, forward_output=True) as client,
    ):
        client.submit(speak).result(60)
        wait_until(are_shown)


def test_actors_live_in_the_worker_itself(client):
    class Counter:
        def pid(self):
            return os.getpid()

    actor = client.submit(Counter, actor=True).result(60)
    assert actor.pid().result(60) == worker_of(client)


def test_a_child_is_replaced_after_its_last_task(monkeypatch):
    monkeypatch.setenv("WEFT_WORKER_MAX_TASKS", "2")
    with (
        weft.LocalCluster(n_workers=1, threads_per_worker=1, isolate=True) as cluster,
        weft.Client(cluster) as client,
    ):
        pids = [client.submit(process, i).result(60) for i in range(6)]
    assert pids[0::2] == pids[1::2]
    assert len(set(pids)) == 3


def test_a_child_whose_memory_has_grown_is_replaced(monkeypatch):
    monkeypatch.setenv("WEFT_WORKER_MAX_DRIFT", "100MB")

    def leak(nbytes):
        import builtins

        builtins.__dict__.setdefault("leaked", []).append(b"x" * nbytes)
        return os.getpid()

    with (
        weft.LocalCluster(n_workers=1, threads_per_worker=1, isolate=True) as cluster,
        weft.Client(cluster) as client,
    ):
        sizes = [1, 1_000, 200_000_000, 1]
        pids = [client.submit(leak, size, pure=False).result(60) for size in sizes]
    assert pids[0] == pids[1] == pids[2] != pids[3]


def test_nothing_is_left_of_a_worker_that_is_killed(tmp_path, wait_until):
    def start_another(path):
        import subprocess

        other = subprocess.Popen(["sleep", "1000"])
        path.write_text(f"{os.getpid()} {other.pid}")
        time.sleep(1000)  # workload

    with (
        weft.LocalCluster(n_workers=1, threads_per_worker=1, isolate=True) as cluster,
        weft.Client(cluster) as client,
    ):
        running = client.submit(start_another, tmp_path / "pids")
        wait_until(lambda: (tmp_path / "pids").exists() and (tmp_path / "pids").read_text())
        before = [int(word) for word in (tmp_path / "pids").read_text().split()]
        os.kill(worker_of(client), signal.SIGKILL)
        wait_until(lambda: not any(map(is_alive, before)))
        running.cancel()


def test_threads_of_a_program_cannot_isolate():
    with pytest.raises(weft.ConfigError, match="isolate"):
        weft.LocalCluster(processes=False, isolate=True)
