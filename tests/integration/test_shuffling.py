"""Shuffles and rechunks on real workers: what they return, and what the death of one costs."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import weft
from weft.protocol.wire.messages import INDEX_FUNCTION

pytestmark = pytest.mark.slow

N = 24
ROWS = 200
META = pd.DataFrame({"k": np.zeros(0, "i8"), "x": np.zeros(0), "s": pd.array([], dtype="str")})


def frame_of(i):
    rng = np.random.default_rng(i)
    keys = rng.integers(0, 1000, ROWS)
    texts = pd.array([f"v{key % 7}" for key in keys], dtype="str")
    return pd.DataFrame({"k": keys, "x": rng.random(ROWS), "s": texts})


def noted(folder, i):
    """Return the frame of a number, and note the call."""
    with (Path(folder) / f"made-{i}").open("a") as file:
        file.write("x")
    return frame_of(i)


def n_calls(folder):
    return {path.name: len(path.read_text()) for path in Path(folder).glob("made-*")}


def frames(folder):
    return dd.from_map(noted, [str(folder)] * N, range(N), meta=META, enforce_metadata=False)


def expected():
    return pd.concat([frame_of(i) for i in range(N)])


def assert_same_rows(found, columns):
    """Compare with all rows that were made, in any order."""
    found = found.sort_values(columns).reset_index(drop=True)[["k", "x", "s"]]
    found = found.astype({"s": "str"})  # dask makes texts another kind of texts
    wanted = expected().sort_values(columns).reset_index(drop=True)
    pd.testing.assert_frame_equal(found, wanted)


def then_wait(folder, part):
    """Note that a partition was read, and wait with its thread until the test lets it go on."""
    (Path(folder) / f"read-{len(part)}-{os.getpid()}").touch()
    with (Path(folder) / "gate").open():
        return part


@pytest.fixture
def gate(tmp_path):
    """Return what opens the gate of `then_wait` for the rest of a test: opening a pipe waits."""
    os.mkfifo(tmp_path / "gate")
    opened = []
    yield lambda: opened.append(os.open(tmp_path / "gate", os.O_RDWR))
    for descriptor in opened:
        os.close(descriptor)


def n_split(client):
    """Return how many partitions that are split each worker holds."""
    held = client.has_what()
    return {name: sum("shuffle-split" in str(key) for key in keys) for name, keys in held.items()}


@pytest.fixture
def client():
    with weft.Client(n_workers=2, threads_per_worker=1) as client:
        client.wait_for_workers(2, timeout=60)
        yield client


def test_every_row_is_in_its_partition(client, tmp_path):
    shuffled = frames(tmp_path).shuffle("k")
    parts = dask.compute(*shuffled.to_delayed())
    assert_same_rows(pd.concat(parts), ["k", "x"])
    keys = [set(part.k) for part in parts]
    assert sum(map(len, keys)) == len(set().union(*keys))


def other():
    return dd.from_pandas(pd.DataFrame({"k": range(1000), "y": range(1000)}), npartitions=5)


WORK = {
    "set_index": lambda frame: frame.set_index("x"),
    # Without a step behind it, dask would make one partition of all and sort that.
    "sort_values": lambda frame: frame.sort_values("x").map_partitions(lambda part: part),
    "merge": lambda frame: frame.merge(other(), on="k"),
    "apply": lambda frame: frame.groupby("k").apply(lambda g: g.x.sum(), meta=("x", "f8")),
    "drop_duplicates": lambda frame: frame[["k", "s"]].drop_duplicates(split_out=6),
}


@pytest.fixture
def n_indexes(client, monkeypatch):
    """Return what counts the indexes of parts that the client has submitted."""
    found = []
    post = client._engine.post

    def note(operation):
        functions = getattr(operation, "functions", None) or [getattr(operation, "function", None)]
        found.extend(one for one in functions if getattr(one, "id", None) == INDEX_FUNCTION)
        post(operation)

    monkeypatch.setattr(client._engine, "post_submission", note)
    return lambda: len(found)


@pytest.mark.parametrize("name", WORK)
def test_results_are_those_of_dasks_own_tasks_in_this_process(client, tmp_path, name, n_indexes):
    work = WORK[name](frames(tmp_path))
    with dask.config.set({"dataframe.shuffle.method": "tasks"}):
        wanted = work.compute(scheduler="sync")
    assert not n_indexes()
    found = work.compute()
    pd.testing.assert_frame_equal(pd.DataFrame(found), pd.DataFrame(wanted))
    assert n_indexes()


def test_a_worker_that_is_killed_while_parts_are_read_costs_its_part(
    client, tmp_path, wait_until, gate
):
    shuffled = frames(tmp_path).shuffle("k")
    read = shuffled.map_partitions(lambda part: then_wait(tmp_path, part), meta=META)
    future = client.compute(read)
    wait_until(lambda: len(list(tmp_path.glob("read-*"))) == 2, 60)
    held = n_split(client)
    assert sum(held.values()) == N
    victim = int(next(tmp_path.glob("read-*")).name.rsplit("-", 1)[1])
    workers = client.scheduler_info()["workers"]
    (address,) = [address for address, worker in workers.items() if worker["pid"] == victim]
    os.kill(victim, signal.SIGKILL)
    wait_until(lambda: address not in client.scheduler_info()["workers"], 60)
    gate()
    assert_same_rows(future.result(timeout=120), ["k", "x"])
    calls = n_calls(tmp_path)
    assert len(calls) == N
    assert sum(calls.values()) == N + held[address]


def test_a_worker_that_leaves_in_the_middle_costs_nothing(client, tmp_path, wait_until, gate):
    shuffled = frames(tmp_path).shuffle("k")
    read = shuffled.map_partitions(lambda part: then_wait(tmp_path, part), meta=META)
    future = client.compute(read)
    wait_until(lambda: len(list(tmp_path.glob("read-*"))) == 2, 60)
    assert sum(n_split(client).values()) == N
    gate()
    client.retire_workers(n=1)
    assert_same_rows(future.result(timeout=120), ["k", "x"])
    assert sum(n_calls(tmp_path).values()) == N


def test_persisted_partitions_are_read_again(client, tmp_path):
    kept = frames(tmp_path).shuffle("k").persist()
    assert_same_rows(kept.compute(), ["k", "x"])
    assert kept.x.sum().compute() == pytest.approx(expected().x.sum())
    assert sum(n_calls(tmp_path).values()) == N


@pytest.mark.parametrize(
    ("shape", "old", "new"),
    [
        ((40, 40), (2, 40), (40, 2)),
        ((12, 12, 12), (3, 12, 12), (12, 3, 4)),
        ((24, 24), (5, 7), (8, 3)),
    ],
)
def test_rechunked_arrays_are_what_they_were(client, shape, old, new):
    array = np.arange(np.prod(shape)).reshape(shape)
    made = da.from_array(array, chunks=old) + 1
    rechunked = made.rechunk(new) * 2
    np.testing.assert_array_equal(rechunked.compute(), (array + 1) * 2)


def test_without_processes_it_is_the_same(tmp_path):
    with weft.Client(n_workers=2, threads_per_worker=2, processes=False):
        assert_same_rows(frames(tmp_path).shuffle("k").compute(), ["k", "x"])
