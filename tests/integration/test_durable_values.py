"""Durable queues, variables, datasets and metadata outlive a scheduler that is killed."""

from __future__ import annotations

import pytest

import weft
from tests.deploy.cli.test_restarts import real_pid, restarted
from tests.deploy.daemons import daemon, file_of, scheduler

pytestmark = pytest.mark.slow


def test_durable_values_outlive_a_killed_scheduler_and_their_client(tmp_path):
    with (
        scheduler(folder=tmp_path) as started,
        daemon("worker", "--nthreads", "1", folder=tmp_path) as worker,
    ):
        worker.wait_for("registered", 1)
        with weft.Client(connection_file=file_of(started)) as client:
            put_all(client)
        restarted(started, real_pid(started))
        with weft.Client(connection_file=file_of(started)) as client:
            client.wait_for_workers(1, timeout=60)
            read_all(client)


def put_all(client):
    queue = weft.Queue("work", client=client, durable=True)
    total = client.submit(sum, [1, 2], detached=True)
    for item in [1, {"total": total}, bytes(100_000)]:
        queue.put(item)
    assert queue.get(timeout=60) == 1
    weft.Queue("plain", client=client).put(1)
    weft.Variable("best", client=client, durable=True).set(0.5)
    client.publish_dataset([total], name="totals", durable=True)
    client.set_metadata(["model", "rate"], 0.1, durable=True)
    client.set_metadata("plain", 1)
    assert total.result(60) == 3


def read_all(client):
    work = weft.Queue("work", client=client)
    assert work.get(timeout=60)["total"].result(60) == 3
    assert work.get(timeout=60) == bytes(100_000)
    assert work.qsize() == 0
    assert weft.Queue("plain", client=client).qsize() == 0
    assert weft.Variable("best", client=client).get(timeout=60) == 0.5
    (total,) = client.get_dataset("totals")
    assert total.result(60) == 3
    assert client.get_metadata([]) == {"model": {"rate": 0.1}}


def test_a_cluster_without_a_journal_says_so():
    with weft.Client(processes=False, n_workers=1, set_as_default=False) as client:
        queue = weft.Queue("work", client=client, durable=True)
        with pytest.raises(weft.ValueNotRecorded, match="LocalCluster with journal="):
            queue.put(1)
        assert queue.qsize() == 0
        with pytest.raises(TypeError, match="durable= is True or False"):
            weft.Variable("best", client=client, durable=1)


def test_a_local_cluster_goes_on_with_the_values_of_the_last_one(tmp_path):
    for expected in ([], [1]):
        with (
            weft.LocalCluster(
                processes=False, n_workers=1, journal=tmp_path / "jobs.sqlite"
            ) as cluster,
            weft.Client(cluster, set_as_default=False) as client,
        ):
            queue = weft.Queue("work", client=client, durable=True)
            assert queue.get(batch=True) == expected
            queue.put(1)
