"""What a client keeps beyond its limit goes into files, and comes back as it was."""

from __future__ import annotations

import gc
import os
import sys
import tempfile

import psutil
import pytest

from weft import Client
from weft.client.core.events import SpillRecipes
from weft.client.core.tasks import FunctionRecord, FutureState, TaskColumns
from weft.client.core.tasks import TaskRecord as Record
from weft.client.shell import spilling
from weft.protocol.values.host_blobs import SHARED_NBYTES, read_reference, share
from weft.protocol.wire.options import NO_OPTIONS
from weft.protocol.wire.payload import Payload

F = FunctionRecord(b"f" * 16, b"<f>", "f")
PAYLOAD = Payload(b"pickle", [bytearray(b"abc"), memoryview(b"12345678").cast("I")])


def record(args):
    return Record(FutureState("a"), F, args, [], NO_OPTIONS)


def columns(*args):
    states = [FutureState(f"k{i}") for i in range(len(args))]
    return TaskColumns(states, F, args, [], NO_OPTIONS)


def test_blobs_come_back_as_they_were():
    records = [
        record(b"x" * 5000),
        columns(b"", b"1", b"22" * 40),
        record(PAYLOAD),
        columns(b"333", PAYLOAD, b""),
    ]
    done = spilling.write(SpillRecipes(records))
    assert done.reason == ""
    large, rows, payload, mixed = done.args
    assert large == Payload(b"x" * 5000, [])
    assert [*rows] == [b"", b"1", b"22" * 40]
    assert payload == PAYLOAD
    assert [*mixed] == [Payload(b"333", []), PAYLOAD, Payload(b"", [])]


def test_the_file_has_no_name_and_goes_with_its_last_blob(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    n_before = psutil.Process().num_fds()
    done = spilling.write(SpillRecipes([record(b"x" * 5000), columns(b"1")]))
    assert os.listdir(tmp_path) == []
    kept = done.args[1]
    del done
    assert [*kept] == [b"1"]
    assert psutil.Process().num_fds() > n_before
    del kept
    gc.collect()
    assert psutil.Process().num_fds() == n_before


def test_recipes_that_cannot_be_written_are_reported(monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere/at/all")
    done = spilling.write(SpillRecipes([record(b"x")]))
    assert done.args is None
    assert "/nowhere/at/all" in done.reason


def make(data):
    return data * 2


@pytest.mark.parametrize("is_map", [True, False])
def test_a_client_beyond_its_limit_submits_again_from_files(scheduler, wait_until, is_map):
    """The results stay with the worker, so the client keeps the calls."""
    scheduler.inline_limit = 0
    with Client(scheduler, recovery_memory=100_000) as client:
        data = [bytes([i]) * 20_000 for i in range(20)]
        if is_map:
            futures = client.map(make, data)
        else:
            futures = [client.submit(make, part) for part in data]
        recipes = client._engine.core.recipes
        wait_until(lambda: all(future.done() for future in futures))
        wait_until(lambda: recipes.nbytes <= 100_000 and not recipes.spilling)
        assert not recipes.n_dropped
        scheduler.forget()
        scheduler.drop_connection()
        assert client.gather(futures) == [part * 2 for part in data]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has such files")
def test_values_that_workers_of_the_host_can_map_can_be_mapped_from_the_disk():
    blob = share(Payload(b"pickle", [bytes(SHARED_NBYTES), bytearray(b"abc")]))
    done = spilling.write(SpillRecipes([record(blob), record(PAYLOAD)]))
    assert done.reason == ""
    moved, other = done.args
    assert (moved, other) == (blob, PAYLOAD)
    assert not moved.reference.name.mark.startswith("/memfd:")
    assert read_reference(moved.reference.packed(), is_kept=False) == blob
