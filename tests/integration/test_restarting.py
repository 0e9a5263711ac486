"""`Client.restart` and `restart_workers`, with real workers."""

from __future__ import annotations

import asyncio
import os
import time

import pytest

import weft
from weft.scheduler.core.interruption.interrupting import RESTARTED

pytestmark = [pytest.mark.slow, pytest.mark.shares_resources]


def pid():
    return os.getpid()


def wait_until_exists(path):
    while not os.path.exists(path):
        time.sleep(0.01)  # workload
    return os.getpid()


def large(n):
    return bytes(n)


def processes(client):
    return {worker["name"]: worker["id"] for worker in client.scheduler_info()["workers"].values()}


def test_a_named_worker_is_replaced_and_the_others_go_on(client):
    before = processes(client)
    first, second = sorted(before)
    assert list(client.restart_workers(first, timeout=60).values()) == ["OK"]
    after = processes(client)
    assert after[first] != before[first]
    assert after[second] == before[second]


def test_the_client_shows_all_workers_when_they_are_back_and_no_warning_is_logged(client):
    assert set(client.restart_workers(timeout=60).values()) == {"OK"}
    assert repr(client).endswith(" workers=2 threads=2>")
    assert [line for _, line in client.get_scheduler_logs() if RESTARTED in line] == []


def test_running_tasks_are_placed_again_at_no_cost_of_retries(client, tmp_path):
    path = tmp_path / "end"
    futures = client.map(wait_until_exists, [str(path)] * 4, pure=False)
    for _ in range(5):  # more often than workers may die under a task
        assert set(client.restart_workers(timeout=60).values()) == {"OK"}
    path.touch()
    assert len(client.gather(futures)) == 4


def test_a_restart_cancels_what_is_not_here(cluster, client, tmp_path):
    here = client.submit(abs, -1)
    assert here.result(60) == 1
    there = client.submit(large, 1_000_000)
    weft.wait(there, 60)
    running = client.submit(wait_until_exists, str(tmp_path / "never"))
    with weft.Client(cluster, set_as_default=False) as other:
        theirs = other.submit(large, 2_000_000)
        weft.wait(theirs, 60)
        before = processes(client)
        assert client.restart(timeout=60) is client
        assert not set(before.values()) & set(processes(client).values())
        assert (here.result(), there.status, running.status) == (1, "cancelled", "cancelled")
        with pytest.raises(weft.TaskCancelled, match=r"client.restart\(\) was called"):
            there.result(60)
        assert len(theirs.result(60)) == 2_000_000
    assert client.submit(large, 1_000_000).result(60) == bytes(1_000_000)


def test_an_asynchronous_client_awaits_it(cluster):
    async def run():
        async with weft.Client(cluster, asynchronous=True) as client:
            assert await client.restart(timeout=60) is client
            assert set((await client.restart_workers(timeout=60)).values()) == {"OK"}

    asyncio.run(run())


def test_bad_input_restarts_nothing(client):
    before = processes(client)
    with pytest.raises(weft.UnknownWorker, match="no connected worker"):
        client.restart_workers("nobody")
    with pytest.raises(TypeError):
        client.restart_workers(7)
    with pytest.raises(weft.InvalidDuration):
        client.restart(timeout=-1)
    assert processes(client) == before


def test_threads_of_the_program_are_not_restarted():
    with weft.Client(processes=False, n_workers=1) as client:
        future = client.submit(pid)
        future.result(60)
        with pytest.raises(weft.NotSupported, match="Nothing was restarted"):
            client.restart()
        with pytest.raises(weft.NotSupported, match="processes=False"):
            client.restart_workers()
        assert future.status == "finished"
