"""Data larger than the memory of real workers: it is written to disk, read again, and never lost.

The limits are small, so that little is written. A worker process takes some 40 MB by itself.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import threading
from pathlib import Path

import numpy as np
import pytest

import weft

pytestmark = pytest.mark.slow

MB = 1_000_000
LIMIT = 280 * MB
LARGE = 8 * MB
N = 64
WAIT_S = 300.0


@pytest.fixture
def cluster(tmp_path):
    with weft.LocalCluster(
        n_workers=2, threads_per_worker=1, memory_limit=LIMIT, local_directory=tmp_path / "files"
    ) as cluster:
        yield cluster
    assert list((tmp_path / "files").iterdir()) == []


def block(i):
    return np.full(LARGE // 8, float(i))


def first(array):
    return float(array[0])


def n_lost(client):
    return sum(event["event"] == "worker-lost" for _, event in client.get_events("scheduler"))


def spilled(cluster):
    files = Path(cluster._files).glob("*.spill/*")
    return sum(path.stat().st_size for path in files if path.exists())


def made(client):
    """Make more than all workers may have in memory, half of it at each."""
    ends = list(client.nthreads())
    futures = [
        client.submit(block, i, pure=False, workers=ends[i % 2], allow_other_workers=True)
        for i in range(N)
    ]
    weft.wait(futures, timeout=WAIT_S)
    assert [future.status for future in futures] == ["finished"] * N
    return futures


def test_results_of_more_than_the_memory_are_kept_and_no_worker_is_killed(client, cluster):
    futures = made(client)
    assert spilled(cluster) > 0
    assert client.gather(client.map(first, futures), timeout=WAIT_S) == list(map(float, range(N)))
    # In any order, by readers on workers and by the client itself.
    for i in (3, 17, 0, 11, 3):
        assert futures[i].result(WAIT_S)[-1] == i
    assert n_lost(client) == 0
    del futures


def test_a_map_reduce_with_intermediates_of_several_times_the_memory_ends(client):
    n = 2 * N
    maps = [client.map(block, range(k, k + 4), pure=False) for k in range(0, n, 4)]
    sums = [client.submit(lambda parts: sum(map(first, parts)), part, pure=False) for part in maps]
    assert client.submit(sum, sums).result(WAIT_S) == sum(range(n))
    assert n_lost(client) == 0


def test_values_whose_files_are_lost_are_computed_again_and_one_line_names_each_file(
    client, cluster
):
    futures = made(client)
    sizes = {path: path.stat().st_size for path in Path(cluster._files).glob("*.spill/*")}
    # Others are being written, and the next bytes may put right what was harmed.
    harmed = [path for path, nbytes in sizes.items() if nbytes == max(sizes.values())]
    for i, path in enumerate(harmed):
        if i % 3 == 0:
            path.unlink()
        elif i % 3 == 1:
            os.truncate(path, 1000)
        else:
            with open(path, "r+b") as file:
                file.seek(5000)
                file.write(b"wrong")
    assert len(harmed) >= 3
    sums = client.map(first, futures[: N // 2])
    assert client.gather(sums, timeout=WAIT_S) == list(map(float, range(N // 2)))
    for i in range(N // 2, N):
        assert futures[i].result(WAIT_S)[-1] == i
    assert n_lost(client) == 0
    logs = client.get_worker_logs().values()
    warnings = [line for log in logs for level, line in log if level == "WARNING"]
    named = [re.search(r"the result in (\S+) is lost: ", line).group(1) for line in warnings]
    assert sorted(named) == sorted(map(str, harmed))


def test_the_files_of_a_killed_worker_are_removed_and_its_results_computed_again(
    client, cluster, wait_until
):
    futures = made(client)
    folders = {path for path in Path(cluster._files).glob("*.spill") if any(path.iterdir())}
    assert len(folders) == 2
    os.kill(client.submit(os.getpid, pure=False).result(WAIT_S), signal.SIGKILL)
    wait_until(lambda: not all(path.exists() for path in folders), timeout_s=WAIT_S)
    assert client.gather(client.map(first, futures), timeout=WAIT_S) == list(map(float, range(N)))


class Gated:
    """An array whose pickling, here the writing to disk, lasts until a FIFO is opened to write."""

    def __init__(self, path, data):
        self.path = path
        self.data = data

    def __sizeof__(self):
        return self.data.nbytes

    def __reduce__(self):
        os.close(os.open(self.path, os.O_RDONLY))
        return Gated, (self.path, self.data)


def gated(path):
    return Gated(path, np.ones(LARGE // 8))


class SlowDisk:
    """What `Gated` waits for."""

    def __init__(self, path):
        self.path = str(path)
        self._fd = -1
        os.mkfifo(path)

    def go_on(self):
        if self._fd < 0:
            self._fd = os.open(self.path, os.O_RDWR)

    def close(self):
        self.go_on()  # a worker that still waits could not end
        os.close(self._fd)


@pytest.fixture
def slow_disk(cluster, tmp_path):
    with contextlib.closing(SlowDisk(tmp_path / "fifo")) as slow_disk:
        yield slow_disk


def test_while_a_disk_is_slow_its_worker_says_so_others_go_on_and_nothing_is_lost(
    client, cluster, slow_disk, wait_until
):
    slow, other = client.nthreads()
    gates = [client.submit(gated, slow_disk.path, pure=False, workers=[slow]) for _ in range(2)]
    weft.wait(gates, timeout=WAIT_S)
    futures = [client.submit(block, i, pure=False, workers=[slow]) for i in range(N // 2)]
    wait_until(lambda: "being written to disk" in str(futures[-1].explain()), timeout_s=WAIT_S)
    assert spilled(cluster) == 0
    assert client.submit(os.getpid, pure=False, workers=[other]).result(WAIT_S)
    assert futures[0].result(WAIT_S)[-1] == 0.0, "it is served from memory"
    slow_disk.go_on()
    firsts = client.map(first, futures, workers=[slow])
    assert client.gather(firsts, timeout=WAIT_S) == list(map(float, range(N // 2)))
    assert spilled(cluster) > 0
    assert [gate.result(WAIT_S).data[-1] for gate in gates] == [1.0, 1.0]
    assert n_lost(client) == 0


def test_a_value_that_cannot_be_pickled_stays_and_the_rest_makes_room(client, cluster):
    stays = client.submit(lambda: (np.ones(LARGE // 8), threading.Lock()))
    weft.wait([stays], timeout=WAIT_S)
    futures = made(client)
    assert client.submit(lambda pair: first(pair[0]), stays).result(WAIT_S) == 1.0
    assert spilled(cluster) > 0
    assert n_lost(client) == 0
    del futures
