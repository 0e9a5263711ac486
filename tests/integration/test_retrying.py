"""Tasks that are run again, with real workers: `retry`, `Retries`, `Reschedule`."""

from __future__ import annotations

import asyncio
import os

import pytest

import weft

pytestmark = pytest.mark.slow


def read(path):
    with open(path) as file:
        return file.read()


def length(text):
    return len(text)


def elsewhere(path):
    """Ask for another worker, once; return the names of both."""
    name = weft.get_worker().name
    if not os.path.exists(path):
        with open(path, "w") as file:
            file.write(name)
        raise weft.Reschedule("this one was seen before")
    return read(path), name


def test_a_failed_future_is_pending_again_and_so_are_its_inputs(client, tmp_path):
    path = tmp_path / "data"
    text = client.submit(read, str(path))
    n = client.submit(length, text)
    with pytest.raises(FileNotFoundError):
        n.result(60)
    path.write_text("three")
    n.retry()
    assert n.result(60) == 5
    assert text.result(60) == "three"
    n.retry()  # it has not failed
    assert n.status == "finished"


def test_many_are_retried_at_once(client, tmp_path):
    paths = [str(tmp_path / str(i)) for i in range(10)]
    futures = client.map(read, paths)
    weft.wait(futures, 60)
    for path in paths:
        with open(path, "w") as file:
            file.write(path)
    client.retry({"all": [futures]})
    assert client.gather(futures) == paths


def test_a_task_with_pauses_is_run_again(client, tmp_path):
    path = tmp_path / "later"
    future = client.submit(read, str(path), retries=weft.Retries(1000, "1 ms", 2, "50 ms"))
    (tmp_path / "new").write_text("here")
    (tmp_path / "new").rename(path)
    assert future.result(60) == "here"


def test_a_task_runs_on_another_worker_if_it_asks_for_one(client, tmp_path):
    future = client.submit(elsewhere, str(tmp_path / "first"))
    first, second = future.result(60)
    assert first != second
    ends = future.attempts()
    assert ends[0] == (first, "asked for another worker: this one was seen before")


def test_futures_that_cannot_be_retried_are_refused(cluster, client):
    cancelled = client.submit(read, "/nowhere/1")
    cancelled.cancel()
    if cancelled.status == "cancelled":
        with pytest.raises(ValueError, match="it was cancelled; submit its call again"):
            cancelled.retry()
    released = client.submit(read, "/nowhere/2")
    released.exception(60)
    released.release()
    with pytest.raises(ValueError, match="was released; submit its call again"):
        client.retry([released])
    with pytest.raises(ValueError, match="was released"):
        released.retry()
    with pytest.raises(TypeError, match="retry takes futures"):
        client.retry(7)
    with weft.Client(cluster, set_as_default=False) as other:
        theirs = other.submit(read, "/nowhere/3")
        theirs.exception(60)
        with pytest.raises(weft.ForeignFuture, match="belongs to another client"):
            client.retry(theirs)
    with pytest.raises(weft.ClientClosed):
        other.retry([])


def test_an_asynchronous_client_awaits_it(cluster, tmp_path):
    path = tmp_path / "data"

    async def run():
        async with weft.Client(cluster, asynchronous=True) as client:
            future = client.submit(read, str(path))
            assert isinstance(await future.exception(), FileNotFoundError)
            path.write_text("one")
            await client.retry([future])
            assert await future == "one"
            path.unlink()
            other = client.submit(read, str(path), pure=False)
            assert isinstance(await other.exception(), FileNotFoundError)
            await other.retry()
            assert isinstance(await other.exception(), FileNotFoundError)

    asyncio.run(run())


def test_a_task_of_threads_of_this_process_may_ask_for_another_worker(tmp_path):
    with weft.Client(processes=False, n_workers=2, threads_per_worker=1) as client:
        first, second = client.submit(elsewhere, str(tmp_path / "first")).result(60)
        assert first != second
