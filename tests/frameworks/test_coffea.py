"""coffea's own executors on a cluster: a processor that counts, bad chunks, killed workers."""

from __future__ import annotations

import os
import signal
import warnings

import pytest

import weft
from tests.frameworks.hosts import required

pytestmark = [
    pytest.mark.slow,
    pytest.mark.shares_resources,
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture(params=["dask", "futures"])
def executor(request, client):
    required("coffea", "compat-test")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from coffea.processor import DaskExecutor, FuturesExecutor
    if request.param == "dask":
        yield DaskExecutor(client=client, status=False, retries=0)
    else:
        with client.get_executor() as pool:
            yield FuturesExecutor(pool=pool, status=False, retries=0)


def count(n):
    return {"n": n, "chunks": 1}


def divide(n):
    return {"n": 1 / n}


def fragile(item):
    n, path = item
    if not os.path.exists(path):
        open(path, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return {"n": n}


def test_chunks_are_processed_and_merged(executor):
    total, _ = executor([1, 2, 3, 4, 5], count, None)
    assert total == {"n": 15, "chunks": 5}


def test_a_chunk_that_fails_raises_its_error(executor):
    try:
        _, error = executor([1, 0], divide, None)
    except ZeroDivisionError as raised:
        error = raised
    assert isinstance(error, ZeroDivisionError)


def test_a_chunk_whose_worker_is_killed_is_processed_again(executor, tmp_path):
    path = str(tmp_path / "once")
    total, _ = executor([(1, path), (2, path)], fragile, None)
    assert total == {"n": 3}
    assert weft.Client.current().submit(abs, -1).result() == 1
