"""A queue of jobs is paused by one user and resumed by another, beyond a kill: real processes."""

from __future__ import annotations

import os

import pytest

import weft
from tests.deploy.cli.test_restarts import real_pid, restarted
from tests.deploy.daemons import daemon, file_of, run, scheduler
from tests.leaks import wait_until

from .test_scheduler_restarts import locked, note

pytestmark = pytest.mark.slow


def note_and_hold(log, name, gate):
    from fcntl import LOCK_EX, flock

    note(log, name)
    with open(gate) as file:
        flock(file, LOCK_EX)


def test_a_queue_is_paused_until_it_is_resumed_also_by_the_next_scheduler(tmp_path):
    log, gate = str(tmp_path / "log"), tmp_path / "gate"
    with (
        scheduler(folder=tmp_path) as started,
        daemon("worker", "--nworkers", "1", "--nthreads", "1", folder=tmp_path) as workers,
    ):
        workers.wait_for("registered", 1)
        at = ("--connection-file", str(file_of(started)))
        with weft.Client(connection_file=file_of(started)) as client, locked(gate):
            options = {"queue": "nightly", "detached": True}
            running = client.submit(note_and_hold, log, "running", str(gate), **options)
            wait_until(lambda: os.path.exists(log), 60, "a job that runs")
            behind = client.submit(note, log, "behind", **options)
            done = run("pause", "nightly", *at, folder=tmp_path)
            assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
            late = client.submit(note, log, "late", **options)
            # The one that runs goes on; the one behind it comes back.
            wait_until(lambda: client.paused_queues() == {"nightly": 2}, 60, "two held jobs")
            assert late.explain().reason.startswith("its queue nightly is paused")
            assert client.submit(abs, -1, queue="other").key
        with weft.Client(connection_file=file_of(started)) as client:
            client.job_result(running.key, timeout=60)
            listed = run("queue", *at, folder=tmp_path).stdout
            assert listed.count("nightly (paused)") == 3
            client.wait_recorded()
        restarted(started, real_pid(started))
        with weft.Client(connection_file=file_of(started)) as client:
            client.wait_for_workers(1, timeout=60)
            wait_until(lambda: client.paused_queues() == {"nightly": 2}, 60, "two held jobs")
            done = run("resume", "nightly", *at, folder=tmp_path)
            assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
            for job in (behind, late):
                client.job_result(job.key, timeout=60)
            assert client.paused_queues() == {}
            done = run("resume", "nightly", *at, folder=tmp_path)
            assert done.returncode == 1
            assert "queue 'nightly' is not paused" in done.stderr
        assert (tmp_path / "log").read_text().split() == ["running", "behind", "late"]
