"""Versions of this program and of a cluster elsewhere."""

from __future__ import annotations

import logging

import pytest

from tests.deploy.daemons import ROOT, Daemon
from weft.client import Client
from weft.client.insight import comparing

HERE = {"weft": "1.0", "numpy": "2.1.3", "pandas": "2.2.0", "cloudpickle": "3.1", "dask": None}


def found(*workers, imported=("numpy", "pandas")):
    names = {f"w{i}": {**HERE, **worker} for i, worker in enumerate(workers)}
    return comparing.differences(HERE, names, imported)


def test_equal_versions_and_those_that_differ_little_are_no_difference():
    assert found({}, {"numpy": "2.1.0"}, {"tornado": "9"}, {"dask": "2026.1"}) == {}


def test_versions_that_differ_are_counted():
    assert found({"numpy": "1.26.4"}, {"numpy": "1.26.4"}, {"numpy": None}, {"weft": "1.1"}) == {
        "weft": ("1.0", {"1.1": 1}),
        "numpy": ("2.1.3", {"1.26.4": 2, "none": 1}),
    }


def test_a_package_that_workers_lack_matters_if_the_program_uses_it():
    assert found({"pandas": None}, imported=()) == {}
    assert found({"pandas": None}) == {"pandas": ("2.2.0", {"none": 1})}
    assert found({"cloudpickle": 7}, imported=()) == {"cloudpickle": ("3.1", {"none": 1})}


def test_the_table_has_all_differences_and_what_to_do():
    different = found({"numpy": "1.26.4"}, {"weft": "1.1"})
    text = comparing.table_of(different, "tls://host:8786", 2, 30)
    assert "  package  here   there" in text
    assert "  numpy    2.1.3  1.26.4 (1 of 2 workers)" in text
    assert "scheduler" not in text
    assert "2 of 30 workers were asked" in text
    assert "Install the same versions" in text


def test_another_commit_of_weft_at_the_scheduler_is_a_row_of_its_own():
    text = comparing.table_of({}, "tls://host:8786", 2, 2, ("1.0+g0123", "1.0+g4567"))
    assert text.splitlines()[1:3] == [
        "  package  here       there",
        "  weft     1.0+g0123  1.0+g4567 (the scheduler)",
    ]


@pytest.mark.slow
def test_a_client_of_another_cluster_warns_once_before_its_first_call(tmp_path, caplog):
    metadata = tmp_path / "other" / "cloudpickle-2.0.1.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: cloudpickle\nVersion: 2.0.1\n")
    file = str(tmp_path / "cluster.json")
    scheduler = Daemon("scheduler", "--port", "0", "--connection-file", file, folder=tmp_path)
    worker = None
    try:
        scheduler.wait_for("cluster.json")
        options = ("--nworkers", "2", "--nthreads", "1", "--connection-file", file)
        path = f"{ROOT}:{metadata.parent}"
        worker = Daemon("worker", *options, folder=tmp_path, PYTHONPATH=path)
        with Client(connection_file=file, name="early") as client:
            client.wait_for_workers(2, timeout=60)  # it may have come before them
        comparing._compared.clear()
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            with Client(connection_file=file) as client:
                assert client._comparison is not None
                assert client._run(_ended(client._comparison)) is None
            with Client(connection_file=file):
                pass
        (record,) = [r for r in caplog.records if "different versions" in r.getMessage()]
        assert "cloudpickle" in record.getMessage()
        assert "2.0.1 (2 of 2 workers)" in record.getMessage()
        assert "numpy" not in record.getMessage()
    finally:
        for daemon in filter(None, (worker, scheduler)):
            daemon.stop()


async def _ended(comparison):
    await comparison.task


@pytest.mark.slow
def test_a_local_cluster_is_not_asked():
    for options in ({}, {"protocol": "tcp"}):
        with Client(n_workers=1, threads_per_worker=1, **options) as client:
            assert client._comparison is None
