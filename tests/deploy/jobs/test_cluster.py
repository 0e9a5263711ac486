"""`JobCluster`, by a kind of cluster whose jobs are processes of this machine."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import weft
from tests.deploy.daemons import daemon, gone
from tests.deploy.jobs.own_cluster import OwnProcesses
from tests.leaks import wait_until
from weft.deploy.jobs.errors import JobsNotReady
from weft.deploy.jobs.ledger import Ledger
from weft.protocol.errors import ConfigError

pytestmark = [pytest.mark.slow, pytest.mark.shares_resources]


def own_cluster(folder: Path, *args: Any, **options: Any) -> OwnProcesses:
    defaults = {"shared_temp_directory": folder, "grace": "5s", "poll_interval": "0.1s"}
    return OwnProcesses(*args, **{**defaults, **options})


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnProcesses]:
    folder = tmp_path_factory.mktemp("jobs")
    with own_cluster(folder, cores=2, memory="400MB") as running:
        yield running
        processes = [*running.processes_by_id.values()]
    assert all(process.poll() is not None for process in processes)
    assert not [*folder.iterdir()]


def names_of(client: weft.Client) -> list[str]:
    return sorted(worker["name"] for worker in client.scheduler_info()["workers"].values())


def test_whole_jobs_start_and_end_and_their_results_move(cluster):
    with weft.Client(cluster) as client:
        cluster.scale(3)  # workers, of which each job has two
        cluster.wait_for_workers(timeout=60)
        assert len(names_of(client)) == cluster.n_workers == 4
        assert "2 jobs: 2 run" in repr(cluster) or "wait" in repr(cluster)
        (row, *_) = client.scheduler_info()["workers"].values()
        assert row["nthreads"] == 1
        assert row["memory_limit"] == 200_000_000
        futures = [
            client.submit(pow, 2, i, workers=name, pure=False)
            for i, name in enumerate(names_of(client))
        ]
        weft.wait(futures)
        cluster.scale(jobs=1)
        wait_until(lambda: len(names_of(client)) == 2, 60, "a whole job that has left")
        (left,) = {name.rpartition("-")[0] for name in names_of(client)}
        assert client.gather(futures) == [1, 2, 4, 8]
        assert all(len(future.attempts()) == 1 for future in futures)
        wait_until(lambda: "1 job: 1 runs>" in repr(cluster), 60, "the end of the job")
        logs = cluster.get_logs()
        (job,) = [job for job, state in cluster.jobs().items() if state.phase == "running"]
        assert f"({left}) runs" in logs[job]
        assert "registered at" in logs[job]
        assert "Scheduler" in logs
        client.scale(0, wait=True, timeout=60)
        assert cluster.n_workers == 0


def test_a_job_that_waits_for_room_ends_when_its_results_may_be_dropped(cluster):
    with weft.Client(cluster) as client:
        cluster.scale(1)
        future = client.submit(bytes, 200_000)
        weft.wait(future)
        with pytest.raises(TimeoutError, match="leaving"):
            client.scale(0, wait=True, timeout="10ms")
        assert client.scale(0, drop=True, wait=True, timeout=60)
        assert names_of(client) == []
        assert not future.done()


def test_a_worker_that_joins_while_its_job_is_ended_leaves_with_the_others(cluster, monkeypatch):
    noted, counts = Ledger.note_workers, []

    def note_one(ledger, workers):
        """Leave out, the first time, one that joins right after."""
        counts.append(len(workers))
        noted(ledger, workers if len(counts) > 1 else dict([*workers.items()][:1]))

    with weft.Client(cluster) as client:
        cluster.scale(1)
        cluster.wait_for_workers(2, timeout=60)
        monkeypatch.setattr(Ledger, "note_workers", note_one)
        client.scale(0, wait=True, timeout=60)
        assert counts == [2, 2]
        assert names_of(client) == []


def test_a_cluster_adapts_in_whole_jobs(cluster):
    adaptation = cluster.adapt(
        maximum_jobs=1, interval="0.1s", wait_up="0s", wait_down="0.3s", target_duration="1s"
    )
    with weft.Client(cluster) as client:
        assert client.submit(abs, -1, pure=False).result(timeout=60) == 1
        assert len({size for _, size in adaptation.log} - {0, 2}) == 0
        wait_until(lambda: not names_of(client), 60, "a cluster without work")
    cluster.scale(0)


def test_a_job_that_ends_by_its_time_limit_is_replaced_until_another_number_is_wanted(tmp_path):
    limits = {"walltime": "6s", "grace": "1s"}  # workers leave after 4 s
    with own_cluster(tmp_path, **limits) as cluster, weft.Client(cluster) as client:
        cluster.scale(1)
        wait_until(lambda: len(cluster.processes_by_id) >= 3, 60, "jobs in the place of others")
        assert client.submit(abs, -1).result(timeout=60) == 1
        cluster.scale(0)
        n = len(cluster.processes_by_id)
        wait_until(lambda: "no jobs" in repr(cluster), 60, "the end of all jobs")
        assert len(cluster.processes_by_id) == n


def test_workers_that_cannot_come_end_the_wait_with_the_reason_and_the_log(tmp_path, caplog):
    with own_cluster(tmp_path, worker_extra_args=["--nosuch"]) as cluster:
        cluster.scale(1)
        with pytest.raises(JobsNotReady) as caught:
            cluster.wait_for_workers(timeout=60)
        with weft.Client(cluster) as client, pytest.raises(JobsNotReady):
            client.wait_for_workers(1, timeout=60)
        text = str(caught.value)
        assert "has failed: exit code 2" in text
        assert "--nosuch" in text
    failed = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert "has failed: exit code 2; its log is" in failed[0].getMessage()
    assert "their logs stay in" in failed[-1].getMessage()
    (folder,) = tmp_path.iterdir()
    assert [path.name for path in folder.iterdir()] == [f"{cluster.name}-1.log"]


def test_workers_whose_job_has_failed_before_the_wait_are_waited_for_nevertheless(tmp_path):
    with own_cluster(tmp_path, worker_extra_args=["--nosuch"]) as cluster:
        cluster.scale(1)
        wait_until(lambda: "1 failed" in repr(cluster), 60, "the end of the job")
        with pytest.raises(JobsNotReady, match="0 of 1 workers"):
            cluster.wait_for_workers(timeout=60)
        cluster.adapt(minimum=2, interval="0.1s")
        # Two run at a time, and both may have ended when it looks.
        wait_until(lambda: re.search("[34] failed", repr(cluster)), 60, "the end of trying")
        with pytest.raises(JobsNotReady, match="0 of 2 workers"):
            cluster.wait_for_workers(timeout=60)
        cluster.scale(0)
        cluster.wait_for_workers(timeout=60)


def test_an_adaptation_stops_starting_jobs_that_fail_again_and_again(tmp_path, caplog):
    with own_cluster(tmp_path, worker_extra_args=["--nosuch"]) as cluster:
        cluster.adapt(minimum=1, interval="0.1s")
        given_up = "no more are started until scale() is called"
        wait_until(lambda: given_up in caplog.text, 60, "the end of trying")
        assert len(cluster.processes_by_id) == 3
        cluster.scale(0)


def test_an_asynchronous_cluster_is_awaited(tmp_path):
    async def main() -> int:
        async with own_cluster(tmp_path, asynchronous=True) as cluster:
            await cluster.scale(1)
            async with weft.Client(cluster, asynchronous=True) as client:
                await client.wait_for_workers(1, timeout=60)
                assert cluster.n_workers == 1
                assert len(await cluster.get_logs(scheduler=False)) == 2
                return await client.submit(abs, -3)

    assert asyncio.run(main()) == 3


PROGRAM = """
import sys, weft
from pathlib import Path
from tests.deploy.jobs.own_cluster import OwnProcesses
cluster = OwnProcesses(1, shared_temp_directory=sys.argv[1], grace="1s")
cluster.wait_for_workers(timeout=60)
print("workers", *cluster.processes_by_id, flush=True)
input()
"""


@pytest.mark.parametrize("number", [2, 9])
def test_workers_end_with_the_program_however_it_ends(tmp_path, number):
    with daemon(
        str(tmp_path / "jobs"),
        folder=tmp_path,
        code="import time\n" + PROGRAM.replace("input()", "time.sleep(600)  # workload"),
    ) as program:
        program.wait_for("workers ")
        family = program.family()
        assert len(family) > 3
        program.process.send_signal(number)
        program.process.wait(30)
        wait_until(lambda: gone(family), 30, "the ends of all")
    if number == 2:
        assert not [*(tmp_path / "jobs").iterdir()]


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"cores": 2, "processes": 3}, "processes"),
        ({"walltime": "1m"}, "walltime"),
        ({"walltime": "1:2:3:4"}, "walltime"),
        ({"name": "a b"}, "name"),
        ({"n_workers": -1}, "n_workers"),
        ({"interface": "nosuch0"}, "interface"),
        ({"worker_extra_args": ["a\nb"]}, "worker_extra_args"),
    ],
)
def test_wrong_arguments_are_named(tmp_path, options, name):
    with pytest.raises(ConfigError, match=name):
        own_cluster(tmp_path, **{"grace": "60s", **options})
    assert not [*tmp_path.iterdir()]


def test_one_number_is_given_to_scale(cluster):
    with pytest.raises(ConfigError, match="exactly one"):
        cluster.scale(1, jobs=1)
    with pytest.raises(TypeError, match="has no option 'job'"):
        cluster.scale(job=1)
