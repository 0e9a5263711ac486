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


#: A script. Its functions and classes have no name in a worker.
SCRIPT = """
import multiprocessing, concurrent.futures

class Point:
    def __init__(self, x):
        self.x = x

def change(x):
    return Point(FACTOR * x.x if isinstance(x, Point) else FACTOR * x)

def by_pool(method):
    with multiprocessing.get_context(method).Pool(2) as pool:
        made = pool.map(change, [1, Point(2)])
    return [type(point) is Point for point in made], [point.x for point in made]

def by_executor(method):
    context = multiprocessing.get_context(method)
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as executor:
        return [point.x for point in executor.map(change, [1, Point(2)])]

def by_spawn():
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.map(lambda x: x + FACTOR, [1, 2])
"""


def script(factor):
    space = {"__name__": "__main__", "FACTOR": factor}
    exec(SCRIPT, space)
    return space


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_pools_in_tasks_run_functions_of_the_script():
    with Client(n_workers=1) as client:
        ours = script(10)
        assert client.submit(ours["by_pool"], "fork").result(60) == ([True, True], [10, 20])
        assert client.submit(ours["by_executor"], "fork").result(60) == [10, 20]
        assert client.submit(ours["by_spawn"]).result(60) == [11, 12]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_functions_of_two_scripts_with_one_name_stay_apart():
    with Client(n_workers=1) as client:
        first, second = script(10), script(100)
        for space, factor in ((first, 10), (second, 100), (first, 10)):
            future = client.submit(space["by_pool"], "fork", pure=False)
            assert future.result(60) == ([True, True], [factor, 2 * factor])
