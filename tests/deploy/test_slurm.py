"""The batch scripts of deploy/slurm, on a real Slurm with two nodes on loopback."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import weft
from tests.deploy.daemons import environment, file_of, run, scheduler
from tests.deploy.slurm_kit import NODES, Slurm, slurm
from tests.leaks import wait_until

pytestmark = pytest.mark.slow

SCRIPTS = Path(__file__).resolve().parents[2] / "deploy" / "slurm"
ANALYSIS = """
import os, sys, weft
with weft.Client(timeout=60) as client:
    client.wait_for_workers(2, timeout=60)
    names = [worker["name"] for worker in client.scheduler_info()["workers"].values()]
    nodes = [
        client.submit(os.getenv, "SLURMD_NODENAME", workers=name, pure=False) for name in names
    ]
    print("nodes", *sorted({future.result(timeout=60) for future in nodes}), flush=True)
    print("sum", sum(client.gather(client.map(abs, range(-100, 0)))), flush=True)
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture(scope="module")
def nodes() -> Iterator[Slurm]:
    with slurm() as running:
        yield running


@pytest.fixture
def env(nodes: Slurm, tmp_path: Path) -> dict[str, str]:
    """The environment of a user who submits jobs, with weft in PATH."""
    made = environment(tmp_path / "run")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {**made, "PATH": path, "WEFT_SCHEDULER_HOST": "127.0.0.1"}


def log_of(folder: Path) -> str:
    return "".join(path.read_text() for path in sorted(folder.glob("*.log")))


def wait_for(nodes: Slurm, job: str, state: str, folder: Path) -> None:
    def is_there() -> bool:
        found = set(nodes.state_of(job).split())
        failed = {"FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL"} - {state}
        assert not found & failed, f"{found}\n{log_of(folder)}"
        return found == {state}

    wait_until(is_there, 120, f"job {job} {state}")


@pytest.mark.shares_resources
@pytest.mark.parametrize("code", [0, 3])
def test_a_program_finds_the_cluster_of_its_job_and_the_job_ends_with_it(
    code, nodes, env, tmp_path
):
    (tmp_path / "analysis.py").write_text(ANALYSIS)
    job = nodes.submit(
        *("--output=job.log", str(SCRIPTS / "weft.sbatch")),
        *(sys.executable, "analysis.py", str(code)),
        cwd=tmp_path,
        env=env,
    )
    wait_for(nodes, job, "FAILED" if code else "COMPLETED", tmp_path)
    log = log_of(tmp_path)
    assert f"nodes {' '.join(NODES)}" in log
    assert "sum 5050" in log
    assert not (tmp_path / "run" / ".weft" / f"slurm-{job}.json").exists()
    assert "ERROR" not in log


@pytest.mark.shares_resources
def test_workers_of_a_job_that_is_to_end_finish_their_tasks(nodes, env, tmp_path):
    job = nodes.submit("--output=job.log", str(SCRIPTS / "weft.sbatch"), cwd=tmp_path, env=env)
    path = tmp_path / "run" / ".weft" / f"slurm-{job}.json"
    wait_until(path.exists, 120, "the connection file")
    with weft.Client(connection_file=path) as client:
        client.wait_for_workers(2, timeout=60)
        flags = [tmp_path / name for name in ("a", "b")]

        def work(flag: str) -> str:
            with open(flag, "a") as file:
                file.write("once ")
            time.sleep(3)  # workload
            return os.environ["SLURMD_NODENAME"]

        futures = client.map(work, map(str, flags))
        wait_until(lambda: all(flag.exists() for flag in flags), 60, "running tasks")
        nodes.run("scancel", "--batch", "--signal=USR1", job)
        assert sorted(client.gather(futures)) == list(NODES)
    wait_for(nodes, job, "COMPLETED", tmp_path)
    assert "workers finish their tasks and leave" in log_of(tmp_path)
    assert [flag.read_text() for flag in flags] == ["once "] * 2
    assert not path.exists()


@pytest.mark.shares_resources
def test_an_array_of_jobs_joins_a_scheduler_and_some_of_them_leave(nodes, env, tmp_path):
    with scheduler(folder=tmp_path) as started:
        file = tmp_path / "worker.json"
        token = ["token", "--role", "worker", "--output", str(file)]
        done = run(*token, "--connection-file", str(file_of(started)), folder=tmp_path)
        assert done.returncode == 0, done.stderr
        job = nodes.submit(
            *("--array=1-2", "--output=workers-%a.log"),
            *(str(SCRIPTS / "weft-workers.sbatch"), str(file)),
            cwd=tmp_path,
            env=env,
        )
        with weft.Client(connection_file=file_of(started)) as client:
            client.wait_for_workers(2, timeout=120)
            assert client.gather(client.map(abs, range(-3, 0))) == [3, 2, 1]
            nodes.run("scancel", "--batch", "--signal=USR1", f"{job}_1")
            wait_until(lambda: len(client.scheduler_info()["workers"]) == 1, 60, "one that leaves")
            assert client.submit(abs, -4).result(timeout=30) == 4
            nodes.run("scancel", "--batch", "--signal=USR1", f"{job}_2")
            wait_for(nodes, job, "COMPLETED", tmp_path)
        assert "WARNING" not in log_of(tmp_path)


@pytest.mark.shares_resources
def test_workers_leave_before_the_time_limit_of_their_job(nodes, env, tmp_path):
    with scheduler(folder=tmp_path) as started:
        job = nodes.submit(
            # Without the signal that Slurm sends before the limit, at a time of its own choice.
            *("--time=2", "--signal=B:USR1@0", "--output=workers.log"),
            *(str(SCRIPTS / "weft-workers.sbatch"), str(file_of(started))),
            cwd=tmp_path,
            env=env,
        )
        wait_for(nodes, job, "COMPLETED", tmp_path)
    assert "its lifetime is over" in log_of(tmp_path)


@pytest.mark.shares_resources
def test_a_job_of_workers_without_a_connection_file_fails_with_one_line(nodes, env, tmp_path):
    job = nodes.submit(
        "--output=workers.log", str(SCRIPTS / "weft-workers.sbatch"), cwd=tmp_path, env=env
    )
    wait_for(nodes, job, "FAILED", tmp_path)
    assert log_of(tmp_path) == "weft-workers.sbatch: give the scheduler's connection file\n"
