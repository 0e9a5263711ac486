"""`Client.retire_workers`, with real workers: in this process, and in processes of their own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import weft
from weft.protocol.errors import NotSupported, UnknownWorker

pytestmark = pytest.mark.slow


@pytest.fixture
def client() -> Iterator[weft.Client]:
    while Gate.started.acquire(blocking=False):
        pass  # tasks that no earlier test has waited for
    with weft.Client(processes=False, n_workers=3, threads_per_worker=1, name="me") as client:
        yield client


class Gate:
    """Tasks that begin and then wait, as long as a test wants; shared with them in this process."""

    started = threading.Semaphore(0)
    opened = threading.Event()


def wait_at_gate(i: int) -> int:
    Gate.started.release()
    Gate.opened.wait(60)
    return i


def large(i: int) -> bytes:
    return bytes([i]) * 200_000


def names(client: weft.Client) -> list[str]:
    return sorted(w["name"] for w in client.scheduler_info()["workers"].values())


def test_named_workers_leave(client):
    gone, *left = names(client)
    ends = client.retire_workers(workers=gone)
    (row,) = ends.values()
    assert (row["name"], row["end"], row["n_recomputed"]) == (gone, "left", 0)
    assert names(client) == left
    assert client.gather(client.map(str, range(5))) == list("01234")


def test_a_busy_worker_finishes_its_task_and_an_idle_one_goes_first(client):
    Gate.opened.clear()
    future = client.submit(wait_at_gate, 3)
    assert Gate.started.acquire(timeout=30)
    ((busy, _),) = [(a, keys) for a, keys in client.processing().items() if keys]
    ends = client.retire_workers(n=2)
    assert len(ends) == 2
    assert busy not in ends
    with pytest.raises(TimeoutError, match="their tasks still run"):
        client.retire_workers(workers=busy, timeout=0.05)
    assert list(client.scheduler_info()["workers"]) == [busy]
    Gate.opened.set()
    assert future.result(timeout=30) == 3
    client.retire_workers(keep=0)
    assert names(client) == []


def counted(name: str, n: int) -> bytes:
    """Note one call, say that it has begun, and return n bytes when the gate is open."""
    CALLS[name] = CALLS.get(name, 0) + 1
    Gate.started.release()
    Gate.opened.wait(60)
    return b"a" * n


CALLS: dict[str, int] = {}


def test_the_only_copies_of_results_are_moved_and_nothing_runs_again(client):
    CALLS.clear()
    Gate.opened.set()
    futures = client.map(counted, [f"held-{i}" for i in range(6)], n=200_000)
    weft.wait(futures)
    (scattered,) = client.scatter([b"b" * 1000])
    for _ in range(2):
        ((one, *_),) = [client.who_has([scattered])[scattered.key]]
        n_held = len(client.has_what()[one])
        (end,) = client.retire_workers(workers=one).values()
        assert (end["end"], end["n_recomputed"]) == ("left", 0)
        assert end["n_moved"] == n_held
    assert client.gather(futures) == [b"a" * 200_000] * 6
    assert scattered.result() == b"b" * 1000
    assert set(CALLS.values()) == {1}
    assert [tuple(a)[1] for f in futures for a in f.attempts()] == ["finished"] * 6


def test_results_that_arrive_while_two_workers_leave_are_moved(client):
    CALLS.clear()
    Gate.opened.clear()
    futures = client.map(counted, [f"runs-{i}" for i in range(3)], n=200_000)
    for _ in futures:
        assert Gate.started.acquire(timeout=30)
    with pytest.raises(TimeoutError):
        client.retire_workers(n=2, timeout=0.01)
    Gate.opened.set()
    assert client.gather(futures) == [b"a" * 200_000] * 3
    assert set(CALLS.values()) == {1}
    assert client.retire_workers(keep=1) == {}, "two leave already, or have left"


def test_the_last_worker_with_needed_results_is_kept_unless_they_may_be_dropped(client):
    CALLS.clear()
    Gate.opened.set()
    futures = client.map(counted, [f"last-{i}" for i in range(6)], n=200_000)
    weft.wait(futures)
    ends = client.retire_workers(keep=0)
    assert sorted(end["end"] for end in ends.values()) == ["kept", "left", "left"]
    (reason,) = {end["reason"] for end in ends.values() if end["end"] == "kept"}
    assert "and no other worker stays: release or gather them" in reason
    assert "drop=True" in reason
    assert set(CALLS.values()) == {1}
    (end,) = client.retire_workers(keep=0, drop=True).values()
    assert (end["end"], end["n_recomputed"]) == ("left", 6)
    assert names(client) == []


def test_a_large_argument_is_put_again(client):
    table = bytes(range(256)) * 8192
    futures = [client.submit(len, table), client.submit(hash, table)]
    client.gather(futures)
    for address, keys in client.has_what().items():
        if any(str(key).startswith("data-") for key in keys):
            client.retire_workers(workers=address)
    assert client.submit(max, table).result(timeout=30) == 255


def test_an_asynchronous_client_awaits_it():
    async def main() -> list[str]:
        options = {"processes": False, "n_workers": 2, "threads_per_worker": 1}
        async with weft.Client(asynchronous=True, **options) as client:
            ends = await client.retire_workers(n=1)
            return [end["end"] for end in ends.values()]

    assert asyncio.run(main()) == ["left"]


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({}, ValueError, "workers= names them"),
        ({"n": 1, "keep": 1}, ValueError, "give one of them"),
        ({"n": -1}, ValueError, "n= is a number of workers"),
        ({"keep": 1.5}, ValueError, "keep= is a number of workers"),
        ({"workers": 3}, TypeError, "workers= is the address"),
        ({"workers": "nobody"}, UnknownWorker, "'nobody'"),
        ({"n": 1, "close_workers": False}, NotSupported, "a worker that is retired ends"),
        ({"n": 1, "memory_ratio": 2}, TypeError, "those without only copies go first"),
        ({"n": 1, "nn": 2}, TypeError, "no option 'nn'"),
    ],
)
def test_wrong_arguments_are_errors_and_no_worker_leaves(client, arguments, error, text):
    with pytest.raises(error, match=text):
        client.retire_workers(**arguments)
    assert len(names(client)) == 3


def test_processes_finish_their_tasks_and_are_not_replaced(tmp_path: Path, wait_until):
    def run(i: int, path: str) -> int:
        import os
        import time

        Path(path, f"started-{i}").touch()
        while not os.path.exists(f"{path}/go"):
            time.sleep(0.01)  # workload
        return i

    with weft.Client(n_workers=2, threads_per_worker=1) as client:
        client.wait_for_workers(2)
        futures = client.map(run, range(2), path=str(tmp_path))
        wait_until(lambda: len(list(tmp_path.iterdir())) == 2)
        with pytest.raises(TimeoutError):
            client.retire_workers(keep=0, timeout=0.1)
        (tmp_path / "go").touch()
        assert client.gather(futures) == [0, 1]
        assert client.retire_workers(keep=0, timeout=60) == {}, "both leave already, or have left"
        wait_until(lambda: not names(client))
