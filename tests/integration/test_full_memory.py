"""Results that do not fit into the memory of real workers, beside a client that harms nobody."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import weft
from weft.protocol.errors import MemoryExceeded

pytestmark = pytest.mark.slow

MB = 1_000_000
LARGE = 20 * MB
WAIT_S = 60.0


@pytest.fixture
def cluster(monkeypatch):
    monkeypatch.setenv("WEFT_WORKER_MAX_SPILL", "0")  # what happens when disks are full, too
    with weft.LocalCluster(
        n_workers=2, threads_per_worker=1, memory_limit=400 * MB, processes=True
    ) as cluster:
        yield cluster


def block(_):
    return os.urandom(LARGE)


def note(folder, i):
    Path(folder, f"{i}-{os.urandom(8).hex()}").touch()
    return i


def n_lost(client):
    return sum(event["event"] == "worker-lost" for _, event in client.get_events("scheduler"))


def test_results_of_60_percent_of_the_memory_are_made_once_and_no_worker_is_killed(cluster):
    with weft.Client(cluster) as client:
        futures = client.map(block, range(24), pure=False)
        weft.wait(futures, timeout=WAIT_S)
        assert [future.status for future in futures] == ["finished"] * 24
        assert all(len(future.result()) == LARGE for future in futures)
        assert n_lost(client) == 0


def test_results_beyond_the_memory_fail_the_older_ones_live_and_a_neighbour_notices_nothing(
    cluster, tmp_path, caplog
):
    with weft.Client(cluster) as neighbour, weft.Client(cluster) as greedy:
        small = neighbour.map(note, [tmp_path] * 50, range(50), pure=False)
        weft.wait(small, timeout=WAIT_S)
        futures = greedy.map(block, range(100), pure=False)
        weft.wait(futures, timeout=WAIT_S)
        failed = [future.exception() for future in futures if future.status == "error"]
        done = [future for future in futures if future.status == "finished"]
        assert len(done) >= 20
        assert {type(error) for error in failed} == {MemoryExceeded}
        assert "results of this client take" in str(failed[0])
        assert len(done[0].result()) == LARGE
        assert n_lost(neighbour) <= 2
        assert neighbour.gather(small) == [*range(50)]
        assert len(list(tmp_path.iterdir())) <= 60
        # What was released makes room for the next call.
        del futures, done
        assert greedy.submit(len, greedy.submit(block, 0)).result(WAIT_S) == LARGE
    notices = [r for r in caplog.records if "wait for a worker that can run them" in r.message]
    assert [record.name for record in notices] == ["weft.client"]


def test_scatter_raises_when_the_memory_is_full(cluster):
    with weft.Client(cluster) as client:
        futures = []
        with pytest.raises(MemoryExceeded, match="memory_limit="):
            futures.extend(client.scatter(block(i), timeout=WAIT_S) for i in range(100))
        assert len(futures) >= 20
        assert all(future.status == "finished" for future in futures)
        assert n_lost(client) == 0


def test_data_that_is_read_and_let_go_may_be_larger_than_the_memory(cluster):
    with weft.Client(cluster) as client:
        lengths = client.map(len, client.map(block, range(60), pure=False))
        assert client.gather(lengths, timeout=WAIT_S) == [LARGE] * 60
        assert n_lost(client) == 0
