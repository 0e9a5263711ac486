"""Isolated tasks leave nothing behind when their worker ends, whatever they do."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import subprocess
import time

import psutil
import pytest

import weft
from tests.deploy.daemons import daemon, file_of, gone, scheduler

pytestmark = [pytest.mark.slow, pytest.mark.shares_resources]


def write(path, *pids):
    beside = path.with_suffix(".part")
    beside.write_text(" ".join(map(str, pids)))
    beside.rename(path)


def processes(path, wait_until):
    """Return the processes that a task has named."""
    wait_until(path.exists, 60)
    return [psutil.Process(int(word)) for word in path.read_text().split()]


def stop_itself(path):
    write(path, os.getpid())
    os.kill(os.getpid(), signal.SIGSTOP)


def sleep_on(path):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    path.touch()
    time.sleep(1000)  # workload


def end_hard(path):
    """Ignore all signals, with a program and a process of `multiprocessing` that do so as well."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    program = subprocess.Popen(["sleep", "1000"])
    begun = path.with_suffix(".begun")
    other = multiprocessing.get_context("fork").Process(target=sleep_on, args=(begun,))
    other.start()
    while not begun.exists():
        time.sleep(0.01)  # workload
    write(path, os.getpid(), program.pid, other.pid)
    time.sleep(1000)  # workload


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_that_is_ended_leaves_no_process(short_folder, wait_until, number):
    options = ["--isolate", "--nthreads", "2"]
    with (
        scheduler(folder=short_folder) as started,
        daemon("worker", *options, folder=short_folder) as worker,
        weft.Client(connection_file=file_of(started)) as client,
    ):
        running = [
            client.submit(task, short_folder / task.__name__, pure=False)
            for task in (stop_itself, end_hard)
        ]
        found = [
            process
            for task in (stop_itself, end_hard)
            for process in processes(short_folder / task.__name__, wait_until)
        ]
        assert len(found) == 4
        family = worker.family()
        worker.process.send_signal(number)
        worker.process.wait(60)
        wait_until(lambda: gone([*family, *found]))
        client.cancel(running)


@pytest.fixture
def client():
    with (
        weft.LocalCluster(n_workers=1, threads_per_worker=1, isolate=True) as cluster,
        weft.Client(cluster) as client,
    ):
        yield client


@pytest.mark.parametrize("task", [stop_itself, end_hard])
def test_a_task_that_cannot_be_interrupted_is_killed_when_it_is_cancelled(
    client, tmp_path, wait_until, task
):
    future = client.submit(task, tmp_path / "pids", pure=False)
    found = processes(tmp_path / "pids", wait_until)
    future.cancel(running=True)
    wait_until(lambda: gone(found))
    assert client.submit(abs, -1, pure=False).result(60) == 1


def test_a_program_that_a_task_leaves_behind_ends_with_its_child(tmp_path, wait_until, monkeypatch):
    monkeypatch.setenv("WEFT_WORKER_MAX_TASKS", "1")

    def leave(path):
        program = subprocess.Popen(["sleep", "1000"])
        write(path, os.getpid(), program.pid)

    with (
        weft.LocalCluster(n_workers=1, threads_per_worker=1, isolate=True) as cluster,
        weft.Client(cluster) as client,
    ):
        client.submit(leave, tmp_path / "pids", pure=False).result(60)
        pids = [int(word) for word in (tmp_path / "pids").read_text().split()]
        wait_until(lambda: not any(map(psutil.pid_exists, pids)))


def test_a_finalizer_that_does_not_end_costs_its_child_only(client):
    class Left:
        def __init__(self):
            self.itself = self

        def __del__(self):
            time.sleep(1000)  # workload

    def leave():
        gc.collect(0)  # so that the next collection is that behind the call
        Left()
        return os.getpid()

    before = client.submit(leave, pure=False).result(60)
    assert client.submit(os.getpid, pure=False).result(60) != before


def test_a_child_that_is_killed_while_it_is_idle_is_no_task_s_fault(client, wait_until):
    before = client.submit(os.getpid, pure=False).result(60)
    process = psutil.Process(before)
    process.kill()
    wait_until(lambda: gone([process]))
    after = client.submit(os.getpid, pure=False).result(60)
    assert after != before


def test_a_child_that_is_stopped_while_it_is_idle_is_replaced(client, wait_until):
    before = client.submit(os.getpid, pure=False).result(60)
    process = psutil.Process(before)
    process.suspend()
    wait_until(lambda: process.status() == psutil.STATUS_STOPPED)
    future = client.submit(os.getpid, pure=False, timeout=1, retries=1)
    assert future.result(60) != before
