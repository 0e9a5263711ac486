"""The memory limit of a worker whose tasks run in child processes."""

from __future__ import annotations

import os
import time

import pytest

import weft

from .test_commands import is_alive

pytestmark = [pytest.mark.slow, pytest.mark.shares_resources]

LIMIT = 600_000_000


@pytest.fixture(scope="module")
def client():
    with (
        weft.LocalCluster(
            n_workers=1, threads_per_worker=2, isolate=True, memory_limit=LIMIT, silence_logs=50
        ) as cluster,
        weft.Client(cluster) as client,
    ):
        yield client


def worker_of(client):
    (pid,) = client.run(os.getpid).values()
    return pid


def filled(nbytes):
    return bytearray(b"1") * nbytes


def test_a_task_that_needs_more_than_the_limit_fails_and_its_worker_goes_on(client):
    kept = client.submit(list, "abc", pure=False)
    worker = worker_of(client)

    def fill():
        held = filled(2 * LIMIT)
        while True:
            time.sleep(0.01)  # workload
        return held

    error = client.submit(fill, pure=False).exception(60)
    assert isinstance(error, weft.MemoryExceeded)
    assert "its process takes" in str(error)
    assert kept.result(60) == ["a", "b", "c"]
    assert worker_of(client) == worker


def test_a_worker_whose_children_are_large_takes_no_tasks(client, tmp_path, wait_until):
    def hold(folder):
        held = filled(int(0.85 * LIMIT))
        (folder / "holds").touch()
        while not (folder / "go").exists():
            time.sleep(0.01)  # workload
        return len(held)

    holding = client.submit(hold, tmp_path, pure=False)
    wait_until((tmp_path / "holds").exists)

    def worker():
        (facts,) = client.scheduler_info()["workers"].values()
        return facts

    wait_until(lambda: worker()["is_paused"])
    # Its numbers come with another message, which may be older.
    wait_until(lambda: worker()["metrics"]["rss"] > 0.8 * LIMIT)
    (tmp_path / "go").touch()
    assert holding.result(60) == int(0.85 * LIMIT)
    wait_until(lambda: not worker()["is_paused"])


def test_a_task_that_fits_alone_and_not_beside_another_is_run_again(client, tmp_path):
    def hold(folder):
        (folder / str(os.getpid())).touch()
        held = filled(LIMIT // 2)
        while len(os.listdir(folder)) < 3:
            time.sleep(0.01)  # workload
        return len(held)

    both = [client.submit(hold, tmp_path, pure=False) for _ in range(2)]
    assert client.gather(both) == [LIMIT // 2] * 2


def test_idle_children_make_room(client, tmp_path, wait_until):
    def leak(folder):
        import builtins

        builtins.__dict__["leaked"] = filled(LIMIT // 2)
        while len(os.listdir(folder)) < 1:
            time.sleep(0.01)  # workload
        return os.getpid()

    def rest(folder):
        (folder / "beside").touch()
        return os.getpid()

    large = client.submit(leak, tmp_path, pure=False)
    client.submit(rest, tmp_path, pure=False).result(60)
    before = large.result(60)
    assert is_alive(before)

    def hold():
        held = filled(int(0.4 * LIMIT))
        while is_alive(before):
            time.sleep(0.01)  # workload
        return len(held)

    assert client.submit(hold, pure=False).result(60)
