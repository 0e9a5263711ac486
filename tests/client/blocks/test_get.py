"""Graphs that travel in blocks: the `get` functions with a client and `chunksize=`."""

from __future__ import annotations

import asyncio

import pytest

import weft
from tests.graphs.blocks.kit import add, array, boom, inc

pytestmark = [pytest.mark.slow, pytest.mark.shares_resources]


@pytest.fixture(scope="module")
def client():
    with weft.Client(n_workers=2, threads_per_worker=1, set_as_default=False) as client:
        client.wait_for_workers(2)
        client.get_task_stream()  # from now on they are recorded
        yield client


def tree(n_leaves: int) -> dict:
    """Return a graph that sums 1 to n; n is a power of two."""
    dsk = {("t", 0, i): (inc, i) for i in range(n_leaves)}
    level = 0
    while n_leaves > 1:
        n_leaves //= 2
        level += 1
        for i in range(n_leaves):
            dsk["t", level, i] = (add, ("t", level - 1, 2 * i), ("t", level - 1, 2 * i + 1))
    return {**dsk, "sum": ("t", level, 0)}


@pytest.mark.parametrize("get", [weft.get, weft.threaded.get, weft.multiprocessing.get])
@pytest.mark.parametrize("chunksize", ["auto", 100, -1])
def test_a_graph_runs_on_the_cluster_in_few_tasks(client, get, chunksize):
    n_before = len(client.get_task_stream())
    assert get(tree(1024), "sum", pool=client, chunksize=chunksize) == 1024 * 1025 // 2
    assert 0 < len(client.get_task_stream()) - n_before < 200


def test_without_a_chunksize_each_task_is_one_of_the_cluster(client):
    n_before = len(client.get_task_stream())
    assert weft.multiprocessing.get(tree(64), "sum", pool=client) == 64 * 65 // 2
    assert len(client.get_task_stream()) - n_before == 127


def test_large_outputs_need_no_tasks_of_their_own(client):
    dsk = {("a", i): (array, float(i), 1 << 21) for i in range(8)}
    for _ in range(2):  # then it is known that the function returns large values
        n_before = len(client.get_task_stream())
        found = weft.get(dsk, [*dsk], pool=client, chunksize=2)
        assert [one[0] for one in found] == [*range(8)]
    assert len(client.get_task_stream()) - n_before == 4  # blocks of two


def test_options_of_the_engines_hold_in_blocks(client):
    begun, cache = [], {}
    callback = (None, None, lambda key, *_: begun.append(key), None, None)
    options = {"callbacks": [callback], "cache": cache, "num_workers": 1}
    assert weft.get({"x": (inc, 1), "y": (inc, "x")}, "y", pool=client, chunksize=1, **options) == 3
    assert begun == ["x", "y"]
    assert cache == {"y": 3}


def test_a_call_that_fails_in_a_block_is_repeated_here_on_request(client):
    with pytest.raises(Exception, match="no 1") as failed:
        weft.get(
            {"x": (boom, 1)}, "x", pool=client, chunksize="auto", rerun_exceptions_locally=True
        )
    assert any(frame.name == "boom" for frame in failed.traceback)


def test_a_wrong_chunksize_and_an_initializer_are_refused(client):
    for wrong in ("large", 0, 1.5):
        with pytest.raises(weft.ConfigError, match="chunksize"):
            weft.get({"x": 1}, "x", pool=client, chunksize=wrong)
    with pytest.raises(weft.ConfigError, match=r"initializer.*weft\.Client"):
        weft.get({"x": 1}, "x", pool=client, chunksize="auto", initializer=print)


def test_other_options_say_what_they_need(client):
    with pytest.raises(weft.ConfigError, match="chunksize='auto'"):
        weft.get({"x": 1}, "x", pool=client, num_workers=1)


def test_an_asynchronous_client_is_refused(client):
    async def attempt():
        async with weft.Client(client.cluster, asynchronous=True, set_as_default=False) as other:
            weft.get({"x": (inc, 1)}, "x", pool=other, chunksize="auto")

    with pytest.raises(weft.WeftError, match="this client is asynchronous"):
        asyncio.run(attempt())
