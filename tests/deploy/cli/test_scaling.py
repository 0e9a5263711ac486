"""`weft scale 0` with real processes: a result that is still needed, and what becomes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import weft
from tests.deploy.daemons import daemon, file_of, run, scheduler

pytestmark = pytest.mark.slow


@pytest.fixture
def client(tmp_path: Path) -> Iterator[weft.Client]:
    """A client of a cluster with the workers w-0 and w-1, of which `tmp_path` is the folder."""
    with (
        scheduler(folder=tmp_path) as started,
        daemon("worker", "--nworkers", "2", "--name", "w", folder=tmp_path) as workers,
        weft.Client(connection_file=file_of(started)) as client,
    ):
        workers.wait_for("registered", 2)
        yield client


def n_held(client: weft.Client) -> list[int]:
    """Return of each worker how many results hold it because no other worker has room."""
    workers = client.scheduler_info()["workers"].values()
    return [w["leaving"]["n_stuck"] if w["is_leaving"] else 0 for w in workers]


def test_the_last_worker_with_a_needed_result_is_kept_until_it_may_be_dropped(
    client: weft.Client, tmp_path: Path, wait_until: Callable[..., object]
) -> None:
    future = client.submit(bytes, 200_000, key="needed")
    weft.wait(future)
    done = run("scale", "0", folder=tmp_path)
    assert (done.returncode, done.stderr) == (1, "")
    first, second = done.stdout.splitlines()
    assert first == "0 workers wanted; 1 has to leave"
    assert " was kept: it has the only copy of 1 result (" in second
    assert "'needed' for one, and no other worker stays: release or gather" in second
    assert "--drop" in second
    wait_until(lambda: n_held(client) == [0], 30, "one worker, which does not leave")
    assert future.done()
    done = run("scale", "0", "--drop", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "0 workers wanted; 1 has to leave\n"
    wait_until(lambda: not n_held(client), 30, "no worker")
    assert not future.done(), "it is computed again when a worker comes"


def test_a_wait_for_zero_workers_ends_when_the_last_needed_result_is_released(
    client: weft.Client, tmp_path: Path, wait_until: Callable[..., object]
) -> None:
    future = client.submit(bytes, 200_000)
    weft.wait(future)
    with daemon("scale", "0", "--wait", folder=tmp_path) as waiting:
        wait_until(lambda: n_held(client) == [1], 30, "only the worker with the result")
        assert future.done()
        assert waiting.process.poll() is None
        del future
        assert waiting.process.wait(30) == 0
        assert (waiting.out, waiting.err) == ("0 workers are there; 2 have to leave\n", "")
    assert n_held(client) == []
