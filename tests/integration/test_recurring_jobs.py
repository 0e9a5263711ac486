"""Recurring jobs in real processes: schedulers that are killed, and times that were missed."""

from __future__ import annotations

import re
import signal
import sqlite3
from datetime import datetime, timezone
from itertools import islice

import msgpack
import pytest

import weft
from tests.deploy.cli.test_restarts import real_pid, restarted
from tests.deploy.daemons import daemon, file_of, scheduler
from tests.leaks import wait_until

from .test_detached_jobs import cluster
from .test_scheduler_restarts import note

pytestmark = pytest.mark.slow

EACH_SECOND = "* * * * * *"
YEARLY = "0 0 1 1 *"
N_YEARS = 4


def lines_of(path):
    return path.read_text().splitlines() if path.exists() else []


def test_a_schedule_goes_on_behind_a_killed_scheduler(tmp_path):
    log = tmp_path / "log"
    with cluster(tmp_path) as started:
        with weft.Client(connection_file=file_of(started)) as client:
            key = client.submit(note, str(log), "ran", cron=EACH_SECOND, detached=True).key
            wait_until(lambda: lines_of(log), 60, "a run")
        restarted(started, real_pid(started))
        n = len(lines_of(log))
        wait_until(lambda: len(lines_of(log)) >= n + 3, 60, "runs of the next scheduler")
        with weft.Client(connection_file=file_of(started)) as client:
            client.cancel_job(key)
            assert client.jobs(recurring=True) == []
            runs = client.jobs(name=re.compile(f"{re.escape(key)}@"))
    assert len(lines_of(log)) <= len(runs)  # each time once; the last one may have been cancelled
    assert {one.state for one in runs} <= {"done", "cancelled"}


@pytest.mark.parametrize("detached", [True, False])
def test_a_loop_over_runs_goes_on_behind_a_killed_scheduler(tmp_path, detached):
    with cluster(tmp_path) as started, weft.Client(connection_file=file_of(started)) as client:
        client.wait_for_workers(2, timeout=60)
        job = client.submit(abs, -1, cron=EACH_SECOND, detached=detached)
        runs = job.runs()
        seen = [next(runs).key]
        restarted(started, real_pid(started))
        later = [*islice(runs, 3)]
        assert later[-1].result(60) == 1
        seen += [one.key for one in later]
        assert seen == sorted({*seen})
        job.cancel()


def set_back(journal, key):
    """Have a journal say that no scheduler was there for some years."""
    database = sqlite3.connect(journal)
    with database:
        [(packed,)] = database.execute("SELECT options FROM jobs WHERE key = ?", (key,)).fetchall()
        options = msgpack.unpackb(packed)
        options["cron"]["since_ms"] -= N_YEARS * 365 * 86_400_000
        values = msgpack.packb(options), key
        database.execute("UPDATE jobs SET options = ? WHERE key = ?", values)
    database.close()


def years_made(client, key):
    """Return the years of the runs of a job, and check that these end well."""
    runs = sorted(one.key for one in client.jobs(name=re.compile(f"{re.escape(key)}@")))
    for one in runs:
        assert client.job_result(one, timeout=60) == 1
    return [int(one.rpartition("@")[2][:4]) for one in runs]


def years_expected(missed):
    this_year = datetime.now(timezone.utc).year
    years = range(this_year - N_YEARS + 1, this_year + 1)
    return {"all": [*years], "one": [this_year], "none": []}[missed]


@pytest.mark.parametrize("missed", ["one", "all", "none"])
def test_missed_runs_are_made_by_the_next_scheduler(tmp_path, missed):
    state = ("--state-dir", str(tmp_path / "state"))
    with (
        scheduler(*state, folder=tmp_path) as started,
        weft.Client(connection_file=file_of(started)) as client,
    ):
        key = client.submit(abs, -1, cron=YEARLY, missed=missed, detached=True).key
    set_back(tmp_path / "state" / "journal.sqlite", key)
    with (
        scheduler(*state, folder=tmp_path) as started,
        daemon("worker", "--nthreads", "1", folder=tmp_path),
        weft.Client(connection_file=file_of(started)) as client,
    ):
        assert [one.key for one in client.jobs(recurring=True)] == [key]
        wait_until(lambda: years_made(client, key) == years_expected(missed), 60, "the missed runs")
        client.cancel_job(key)


@pytest.mark.parametrize("processes", [True, False])
def test_missed_runs_are_made_by_the_next_local_cluster(tmp_path, processes):
    journal = tmp_path / "jobs.sqlite"
    options = {"n_workers": 1, "threads_per_worker": 1, "processes": processes}
    with (
        weft.LocalCluster(**options, journal=journal) as local,
        weft.Client(local, set_as_default=False) as client,
    ):
        key = client.submit(abs, -1, cron=YEARLY, missed="all", detached=True).key
    set_back(journal, key)
    with (
        weft.LocalCluster(**options, journal=journal) as local,
        weft.Client(local, set_as_default=False) as client,
    ):
        wait_until(lambda: years_made(client, key) == years_expected("all"), 60, "all runs")
        client.cancel_job(key)


PROGRAM = """
import sys, weft
with weft.Client(connection_file=sys.argv[1]) as client:
    job = client.submit(abs, -1, cron="@yearly")
    print(job.key, flush=True)
    for run in job.runs():
        print(run)
"""


def test_ctrl_c_ends_a_loop_over_runs_and_the_job(tmp_path):
    with (
        scheduler(folder=tmp_path) as started,
        daemon(str(file_of(started)), folder=tmp_path, code=PROGRAM) as program,
    ):
        program.wait_for("abs-")
        assert program.stop(signal.SIGINT) != 0
        assert "KeyboardInterrupt" in program.err
        with (
            weft.Client(connection_file=file_of(started)) as client,
            pytest.raises(weft.QuestionFailed, match="knows no task"),
        ):
            client.explain(program.out.strip())
