"""Scattered data on real clusters: sent directly, read by calls, and gone with its last copy."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest

import weft
from tests.deploy.cli.test_restarts import real_pid, restarted
from weft.deploy.local.cluster import LocalCluster
from weft.protocol.errors import DataLost

from .test_scheduler_restarts import running
from .test_shared_arguments import metrics_of

pytestmark = pytest.mark.slow

NBYTES = 16_000_000


def total(x):
    return float(x.sum()), id(x), os.getpid()


def scatter_here(n):
    client = weft.get_client()
    data = client.scatter(list(range(n)))
    return sum(client.gather(client.map(abs, data)))


def wait_for(event):
    event.wait()


@pytest.mark.parametrize("options", [{}, {"protocol": "tcp"}, {"processes": False}])
def test_data_goes_to_a_worker_once_and_its_calls_share_it(options):
    # With one thread, because two may unpickle the value at the same time.
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, **options) as cluster,
        weft.Client(cluster) as client,
    ):
        x = np.arange(NBYTES // 8, dtype=float)
        future = client.scatter(x)
        expected = float(x.sum())
        x[:] = 0  # it is another object now
        results = client.gather([client.submit(total, future, pure=False) for _ in range(3)])
        assert len({*results}) == 1
        assert results[0][0] == expected
        assert future.result()[-1] == NBYTES // 8 - 1
        if "processes" not in options:
            sent = metrics_of(cluster)["bytes_total"]["out"]
            assert sum(sent.values()) < NBYTES / 10  # it did not pass the scheduler


def test_data_of_a_worker_that_dies_is_lost_and_can_be_scattered_again():
    with LocalCluster(n_workers=1) as cluster, weft.Client(cluster) as client:
        future = client.scatter([1, 2, 3], hash=False)[0]
        call = client.submit(abs, future)
        assert call.result(60) == 1
        pid = client.submit(os.getpid, pure=False).result(60)
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(DataLost, match="it was scattered"):
            client.submit(total, future).result(60)
        with pytest.raises(DataLost, match=str(future.key)):
            future.result(60)
        assert client.scatter(7, timeout=60).result(60) == 7


def test_data_is_placed_while_all_threads_are_busy_and_from_tasks():
    with (
        LocalCluster(n_workers=2, threads_per_worker=1) as cluster,
        weft.Client(cluster) as client,
    ):
        assert client.submit(scatter_here, 20).result(60) == 190
        event = weft.Event("go on")
        held = client.map(wait_for, [event] * 2, pure=False)
        assert client.gather(client.scatter(list(range(4)))) == [0, 1, 2, 3]
        event.set()
        client.gather(held)


def test_data_outlives_the_scheduler(tmp_path):
    with running(tmp_path) as (started, client):
        data = client.scatter([1, 2, 3])
        restarted(started, real_pid(started))
        assert client.submit(sum, data).result(60) == 6
        assert client.gather(data) == [1, 2, 3]


@pytest.mark.parametrize("options", [{}, {"processes": False}])
def test_copies_are_made_and_restored(options, wait_until):
    with LocalCluster(n_workers=3, **options) as cluster, weft.Client(cluster) as client:
        client.wait_for_workers(3)
        everywhere = client.scatter(np.arange(NBYTES // 80), broadcast=True)
        twice = client.map(bytes, [100_000] * 5)
        assert set(client.replicate(twice, 2).values()) == {2}
        assert len(client.who_has(everywhere)[everywhere.key]) == 3
        if options:
            return
        pid = client.run(os.getpid)[client.who_has(twice[:1])[twice[0].key][0]]
        os.kill(pid, signal.SIGKILL)
        assert client.submit(total, everywhere).result(60)[0] > 0
        wait_until(lambda: {len(places) for places in client.who_has(twice).values()} == {2}, 60)
        client.wait_for_workers(3, timeout=60)
        wait_until(lambda: len(client.who_has(everywhere)[everywhere.key]) == 3, 60)


def test_data_moves_to_an_empty_worker():
    with LocalCluster(n_workers=2) as cluster, weft.Client(cluster) as client:
        client.wait_for_workers(2)
        (first, _) = client.has_what()
        futures = client.scatter([bytes([i]) * 100_000 for i in range(10)], workers=first)
        client.rebalance()
        assert sorted(map(len, client.has_what().values())) == [5, 5]
        assert [value[0] for value in client.gather(futures)] == list(range(10))


def copy_here():
    client = weft.get_client()
    data = client.scatter([1, 2], broadcast=2)
    return client.replicate(client.map(abs, data), 2)


def test_tasks_order_copies_too():
    with LocalCluster(n_workers=2) as cluster, weft.Client(cluster) as client:
        client.wait_for_workers(2)
        assert set(client.submit(copy_here).result(60).values()) == {2}
