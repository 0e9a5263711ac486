"""Tasks that start processes of their own."""

from __future__ import annotations

import multiprocessing
import os

import pytest

from weft import Client

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        "fork" not in multiprocessing.get_all_start_methods(), reason="this system cannot fork"
    ),
]


def pool_of_two():
    with multiprocessing.get_context("fork").Pool(2) as pool:
        return pool.map(abs, [-1, -2])  # leaving the block ends the processes with SIGTERM


def terminated_child():
    child = multiprocessing.get_context("fork").Process(target=multiprocessing.Event().wait)
    child.start()
    child.terminate()
    child.join()
    return child.exitcode


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_worker_outlives_the_processes_that_its_tasks_end():
    with Client(n_workers=1) as client:
        pid = client.submit(os.getpid).result(timeout=30)
        for n in range(3):
            future = client.submit(pool_of_two, key=f"pool-{n}")
            assert future.result(timeout=30) == [1, 2]
            future = client.submit(terminated_child, key=f"child-{n}")
            assert future.result(timeout=30) == -15
        assert client.submit(os.getpid, key="again").result(timeout=30) == pid
