"""`SGECluster` on a real Grid Engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import weft
from tests.deploy.grid_engine_kit import GridEngine, grid_engine
from tests.leaks import wait_until
from weft.deploy import SGECluster
from weft.deploy.batch.errors import BatchSystemError
from weft.deploy.jobs.errors import JobsNotReady

pytestmark = [pytest.mark.slow, pytest.mark.shares_resources]


@pytest.fixture(scope="module")
def engine() -> Iterator[GridEngine]:
    with grid_engine() as running:
        yield running


@pytest.fixture(autouse=True)
def environment(engine: GridEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in engine.env.items():
        if name.startswith("SGE_"):
            monkeypatch.setenv(name, value)


def sge_cluster(folder: Path, **options: object) -> SGECluster:
    given = {"cores": 1, "walltime": "10m", "grace": "5s", "poll_interval": "0.5s"}
    place = {"host": "127.0.0.1", "shared_temp_directory": folder}
    return SGECluster(**{**given, **place, **options})


def test_an_array_of_jobs_joins_and_whole_jobs_leave(engine, tmp_path):
    with sge_cluster(tmp_path, cores=2) as cluster, weft.Client(cluster) as client:
        cluster.scale(jobs=2)
        client.wait_for_workers(4, timeout=120)
        assert client.gather(client.map(abs, range(-3, 0))) == [3, 2, 1]
        cluster.scale(jobs=3)  # there is room for two
        cluster.scale(jobs=1)
        wait_until(lambda: len(client.scheduler_info()["workers"]) == 2, 60, "one that leaves")
        wait_until(lambda: "1 job: 1 runs>" in repr(cluster), 60, "the end of the others")
        states = sorted((state.phase, state.failed) for state in cluster.jobs().values())
        assert ("running", False) in states
    wait_until(lambda: not engine.run("qstat"), 60, "no job")


def test_a_job_that_fails_and_one_that_is_refused_say_why(engine, tmp_path):
    with sge_cluster(tmp_path, job_script_prologue=["echo no licence", "exit 3"]) as cluster:
        cluster.scale(2)
        with pytest.raises(JobsNotReady) as caught:
            cluster.wait_for_workers(timeout=120)
        assert "has failed: exit code 3" in str(caught.value)
        assert "no licence" in str(caught.value)
    with (
        sge_cluster(tmp_path, queue="nosuch.q") as cluster,
        pytest.raises(BatchSystemError, match="requests unknown queue"),
    ):
        cluster.scale(1)
