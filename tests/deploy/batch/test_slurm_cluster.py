"""`SlurmCluster` on a real Slurm with two nodes."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

import weft
from tests.deploy.daemons import daemon
from tests.deploy.slurm_kit import Slurm, slurm
from tests.leaks import wait_until
from weft.deploy import SlurmCluster
from weft.deploy.batch.errors import BatchSystemError
from weft.deploy.jobs.errors import JobsNotReady

pytestmark = [pytest.mark.slow, pytest.mark.shares_resources]


@pytest.fixture(scope="module")
def nodes() -> Iterator[Slurm]:
    with slurm() as running:
        yield running


@pytest.fixture(autouse=True)
def environment(nodes: Slurm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CONF", nodes.env["SLURM_CONF"])


def slurm_cluster(folder: Path, **options: object) -> SlurmCluster:
    given = {"cores": 1, "memory": "200MiB", "walltime": "10m", "grace": "5s"}
    place = {"host": "127.0.0.1", "shared_temp_directory": folder, "poll_interval": "0.5s"}
    return SlurmCluster(**{**given, **place, **options})


def active(nodes: Slurm) -> str:
    return nodes.run("squeue", "--noheader", "--array", "--states=pending,running", "--format=%i")


def test_an_array_of_jobs_joins_waits_and_ends_whole(nodes, tmp_path, monkeypatch):
    monkeypatch.setattr("weft.deploy.jobs.cluster._SHOW_AFTER_S", 0.0)
    with slurm_cluster(tmp_path) as cluster, weft.Client(cluster) as client:
        cluster.scale(jobs=6)  # there is room for four
        client.wait_for_workers(4, timeout=120)
        with pytest.raises(JobsNotReady, match=r"job \d+_[56] \(\S+\) waits: (Resources|Priority)"):
            client.wait_for_workers(6, timeout=1)
        assert "6 jobs: 4 run, 2 wait (" in repr(cluster)
        names = [worker["name"] for worker in client.scheduler_info()["workers"].values()]
        futures = [client.submit(pow, 2, i, workers=name) for i, name in enumerate(names)]
        weft.wait(futures)
        cluster.scale(1)
        wait_until(lambda: len(client.scheduler_info()["workers"]) == 1, 60, "those that leave")
        assert client.gather(futures) == [1, 2, 4, 8]
        assert all(len(future.attempts()) == 1 for future in futures)
        wait_until(lambda: "1 job: 1 runs>" in repr(cluster), 60, "the ends of the jobs")
        ended = [state for state in cluster.jobs().values() if state.phase == "ended"]
        assert len(ended) == 5
    wait_until(lambda: not active(nodes), 60, "no job")
    assert not [*tmp_path.iterdir()]


def test_jobs_that_fail_are_refused_or_never_start_say_why(nodes, tmp_path, caplog):
    with slurm_cluster(tmp_path, job_script_prologue=["echo no licence", "exit 3"]) as cluster:
        cluster.scale(2)
        with pytest.raises(JobsNotReady) as caught:
            cluster.wait_for_workers(timeout=120)
        assert "has failed: FAILED: exit code 3" in str(caught.value)
        assert "no licence" in str(caught.value)
        assert any("no licence" in text for text in cluster.get_logs().values())
    with slurm_cluster(tmp_path, job_extra_directives=["--nodelist=nosuch"]) as cluster:
        refused = pytest.raises(
            BatchSystemError, match=r"has refused 1 of the jobs .*: sbatch: error"
        )
        with refused:
            cluster.scale(1)
        assert cluster.n_workers == 0
    with slurm_cluster(tmp_path, walltime="3h") as cluster:
        cluster.scale(1)
        hint = "waits: PartitionTimeLimit (walltime= is longer than the partition allows)"
        wait_until(lambda: hint in caplog.text, 60, "the reason")
    with slurm_cluster(tmp_path) as cluster, caplog.at_level(logging.WARNING):
        cluster.scale(1)
        cluster.wait_for_workers(timeout=120)
        nodes.run("scancel", *cluster.jobs())
        wait_until(lambda: "has failed: CANCELLED" in caplog.text, 60, "the end of the job")
        assert cluster.n_workers == 0
    wait_until(lambda: not active(nodes), 60, "no job")


PROGRAM = """
import sys, time
from weft.deploy import SlurmCluster
cluster = SlurmCluster(
    cores=1, walltime="10m", grace="5s", host="127.0.0.1", shared_temp_directory=sys.argv[1]
)
cluster.scale(jobs=6)
cluster.wait_for_workers(1, timeout=120)
print("jobs", *cluster.jobs(), flush=True)
time.sleep(600)  # workload
"""


@pytest.mark.parametrize("number", [2, 9])
def test_no_job_outlives_its_program_however_that_ends(nodes, tmp_path, number):
    conf = {"SLURM_CONF": nodes.env["SLURM_CONF"]}
    with daemon(str(tmp_path / "jobs"), folder=tmp_path, code=PROGRAM, **conf) as program:
        program.wait_for("jobs ")
        assert len(active(nodes).split()) == 6
        program.process.send_signal(number)
        program.process.wait(60)
        wait_until(lambda: not active(nodes), 60, "no job")


def test_a_batch_system_that_is_not_here_is_named(tmp_path, monkeypatch):
    cluster = slurm_cluster(tmp_path)
    monkeypatch.setenv("PATH", "/nowhere")
    with cluster, pytest.raises(BatchSystemError, match="sbatch is not installed here"):
        cluster.scale(1)
