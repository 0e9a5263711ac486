"""Running tasks that are interrupted, with real workers."""

from __future__ import annotations

import asyncio
import os
import time

import pytest

import weft

pytestmark = [pytest.mark.slow, pytest.mark.shares_resources]


@pytest.fixture(scope="module")
def cluster():
    with weft.LocalCluster(n_workers=1, threads_per_worker=1) as started:
        with weft.Client(started) as client:
            client.wait_for_workers(1, timeout=60)
        yield started


def note(path, text):
    with open(path, "a") as file:
        file.write(text)


def read(path):
    return path.read_text() if path.exists() else ""


def spin(path):
    """Compute until an exception comes."""
    note(path, "runs ")
    try:
        while True:
            sum(range(100))
    except weft.TaskInterrupted:
        note(path, "interrupted")
        raise


def look_at_the_flag(path):
    note(path, "runs ")
    while not weft.get_worker().is_cancelled:
        time.sleep(0.01)  # workload
    note(path, "ended")


def swallow(path):
    note(path, "runs ")
    while True:
        try:
            while True:
                sum(range(100))
        except BaseException:
            note(path, "swallowed ")


async def await_nothing(path):
    note(path, "runs ")
    try:
        await asyncio.sleep(600)  # workload
    finally:
        note(path, "cleaned up")


def wait_until_exists(path):
    while not os.path.exists(path):
        time.sleep(0.01)  # workload


def wait_for(path, end):
    client = weft.get_client()
    note(path, "runs ")
    try:
        client.submit(wait_until_exists, end).result()
    finally:
        note(path, "woken")


def pid():
    return os.getpid()


def inc(x):
    return x + 1


@pytest.mark.parametrize(
    ("function", "end"),
    [(spin, "interrupted"), (look_at_the_flag, "ended"), (await_nothing, "cleaned up")],
)
def test_a_running_task_ends_and_its_thread_is_free(client, tmp_path, wait_until, function, end):
    path = tmp_path / "notes"
    process = client.submit(pid, pure=False).result(60)
    future = client.submit(function, str(path))
    wait_until(lambda: read(path) == "runs ")
    future.cancel(running=True, reason="too late")
    with pytest.raises(weft.TaskCancelled, match="too late"):
        future.result(60)
    assert client.submit(inc, 1, pure=False).result(60) == 2
    assert read(path) == f"runs {end}"
    # The process is the same one: nothing else was lost.
    assert client.submit(pid, pure=False).result(60) == process


def test_tasks_behind_an_interrupted_one_run_once(client, tmp_path, wait_until):
    for i in range(10):
        path = tmp_path / str(i)
        future = client.submit(spin, str(path), pure=False)
        behind = client.map(inc, range(50), pure=False)
        wait_until(lambda path=path: read(path) == "runs ")
        client.cancel([future], running=True)
        assert client.gather(behind) == list(range(1, 51))


def test_another_client_keeps_a_task_that_it_wants(cluster, client, tmp_path, wait_until):
    path = tmp_path / "notes"
    with weft.Client(cluster, set_as_default=False) as other:
        future = client.submit(look_at_the_flag, str(path))
        theirs = other.submit(look_at_the_flag, str(path))
        wait_until(lambda: read(path) == "runs ")
        client.cancel(future, running=True)
        client.submit(inc, 1)
        assert theirs.status == "pending"
        assert read(path) == "runs "
        theirs.cancel(running=True)
        wait_until(lambda: read(path) == "runs ended")


def test_a_task_that_does_not_end_costs_its_process_and_no_other_task(client, tmp_path, wait_until):
    path = tmp_path / "notes"
    process = client.submit(pid, pure=False).result(60)
    kept = client.submit(inc, 41)
    assert kept.result(60) == 42
    future = client.submit(swallow, str(path))
    wait_until(lambda: read(path) == "runs ")
    behind = client.map(inc, range(20), pure=False)
    future.cancel(running=True)
    assert client.gather(behind) == list(range(1, 21))
    assert read(path).startswith("runs swallowed")
    assert client.submit(pid, pure=False).result(60) != process
    assert behind[0].attempts()[-1][1] == "finished"
    assert client.submit(inc, kept).result(60) == 43


def test_a_task_that_waits_for_another_one_is_woken(client, tmp_path, wait_until):
    path, end = tmp_path / "notes", tmp_path / "end"
    future = client.submit(wait_for, str(path), str(end))
    wait_until(lambda: read(path) == "runs ")
    future.cancel(running=True)
    # The task that it waits for has the only thread, and goes on.
    wait_until(lambda: read(path) == "runs woken")
    end.touch()
    assert client.submit(inc, 1, pure=False).result(60) == 2


def test_a_process_of_the_program_is_not_ended(tmp_path, wait_until):
    path = tmp_path / "notes"
    with weft.Client(processes=False, n_workers=1, threads_per_worker=1) as client:
        future = client.submit(spin, str(path))
        wait_until(lambda: read(path) == "runs ")
        future.cancel(running=True)
        wait_until(lambda: read(path) == "runs interrupted")
        assert client.submit(inc, 1).result(60) == 2


def test_the_option_is_a_bool(client):
    future = client.submit(inc, 1)
    with pytest.raises(TypeError, match="running= is True"):
        future.cancel(running="yes")
    with pytest.raises(TypeError, match="running= is True"):
        client.cancel([future], running=1)
