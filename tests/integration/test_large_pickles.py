"""Results that fit into a worker's memory, and whose pickles do not fit beside them."""

from __future__ import annotations

import gc
import os

import numpy as np
import pytest

import weft

pytestmark = [pytest.mark.slow, pytest.mark.shares_resources]


@pytest.fixture(scope="module")
def client():
    with weft.Client(n_workers=1, threads_per_worker=1, memory_limit="200MB") as client:
        yield client


def rows():
    return [os.urandom(1000) for _ in range(110_000)]


def zeros():
    return bytes(300_000_000)  # pages that are not touched before the pickle is made


def array():
    return np.ones(25_000_000)


class LooksSmall:
    """An object whose pickle is much larger than its size."""

    def __sizeof__(self):
        return 200_000

    def __reduce__(self):
        return bytes, (b"x" * 300_000_000,)


@pytest.mark.parametrize("task", [rows, zeros])
def test_a_pickle_that_does_not_fit_is_an_error_with_the_sizes(client, task):
    pid = client.submit(os.getpid, pure=False).result(60)
    with pytest.raises(weft.UnpicklableResult, match=r"200000000 in all; return it in parts"):
        client.submit(task).result(60)
    assert client.submit(os.getpid, pure=False).result(60) == pid


def test_an_array_of_that_size_is_served():
    # A worker of its own, because memory that earlier tasks left to the allocator would count.
    with weft.Client(n_workers=1, threads_per_worker=1, memory_limit="400MB") as client:
        assert client.submit(array).result(60).nbytes == 200_000_000


def test_a_result_that_kills_each_worker_that_serves_it_is_given_up(client, wait_until):
    gc.collect()  # the errors of other tests hold their futures, and so large results
    wait_until(lambda: not any(client.scheduler_info()["tasks"].values()))
    with pytest.raises(weft.WorkerDied, match=r"4 times.*memory limit.*was pickled or sent"):
        client.submit(LooksSmall).result(60)
    assert client.submit(abs, -1).result(60) == 1


def test_results_of_common_size_are_served_though_all_at_once_do_not_fit(client):
    futures = client.map(lambda i: os.urandom(1 << 20), range(60))
    assert {len(result) for result in client.gather(futures, timeout=100)} == {1 << 20}
