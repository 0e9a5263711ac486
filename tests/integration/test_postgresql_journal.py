"""Schedulers that share a journal in PostgreSQL: real processes, each in folders of its own."""

from __future__ import annotations

import re
import signal
from contextlib import closing, contextmanager

import pytest

import weft
from tests.deploy.daemons import daemon, file_of, run, scheduler
from tests.postgresql import PostgresqlServer
from weft.protocol.errors import CommError
from weft.protocol.host.exits import EXIT_NO_SCHEDULER, EXIT_TAKEN_OVER

from .test_detached_jobs import gated
from .test_scheduler_restarts import locked

pytestmark = pytest.mark.slow


@pytest.fixture
def url(postgresql):
    return postgresql.url()


@contextmanager
def machine(folder, url, *options):
    """A scheduler and a worker that know no other machine."""
    folder.mkdir()
    with (
        scheduler("--journal", url, *options, folder=folder) as started,
        daemon("worker", "--nworkers", "1", "--nthreads", "1", folder=folder) as worker,
    ):
        worker.wait_for("registered", 1)
        yield started


def test_jobs_of_a_scheduler_that_was_killed_run_on_another_machine(tmp_path, url):
    gate = tmp_path / "gate"
    with (
        machine(tmp_path / "one", url, "--no-restart") as one,
        locked(gate),
        weft.Client(connection_file=file_of(one)) as client,
    ):
        done = client.submit(pow, 2, 10, detached=True)
        assert done.result(60) == 1024
        client.wait_recorded()
        waits = client.submit(gated, str(gate), 7, detached=True)
        total = client.submit(sum, [done, waits], detached=True)
        keys = done.key, waits.key, total.key
        one.process.kill()
        one.process.wait(30)
    with machine(tmp_path / "two", url) as two, weft.Client(connection_file=file_of(two)) as client:
        assert [client.job_result(key, timeout=60) for key in keys] == [1024, 7, 1031]
        assert {job.key for job in client.jobs()} == {*keys}


def test_a_scheduler_that_is_started_later_takes_over(tmp_path, url):
    with machine(tmp_path / "one", url) as one:
        # Its client has nobody to come back to.
        with weft.Client(connection_file=file_of(one), reconnect_timeout=1) as client:
            first = client.submit(abs, -1, detached=True)
            assert first.result(60) == 1
            client.wait_recorded()
            with machine(tmp_path / "two", url) as two:
                with pytest.raises(CommError):
                    client.submit(abs, -2, detached=True).result(60)
                assert one.process.wait(30) == EXIT_TAKEN_OVER
                with weft.Client(connection_file=file_of(two), set_as_default=False) as other:
                    assert other.job_result(first.key, timeout=60) == 1
                    assert other.submit(abs, -3, detached=True).result(60) == 3
                    assert len(other.jobs()) == 2
        (line,) = re.findall(r"the scheduler ends: .*", one.err)
        assert re.search(r"process \d+ on .* has taken over the journal postgresql://weft@", line)


def test_a_server_that_is_killed_under_load_loses_no_job(tmp_path):
    with (
        closing(PostgresqlServer()) as server,
        machine(tmp_path / "one", server.url()) as one,
        weft.Client(connection_file=file_of(one)) as client,
    ):
        for start in range(0, 1500, 500):
            numbers = range(start, start + 500)
            futures = client.map(divmod, numbers, [7] * 500, detached=True)
            server.stop(signal.SIGKILL)
            server.start()
            assert client.gather(futures) == [divmod(number, 7) for number in numbers]
        client.wait_recorded()
        assert [job.state for job in client.jobs(limit=5000)] == ["done"] * 1500


def test_a_server_that_is_away_is_one_line_without_the_password(tmp_path):
    url = "postgresql://ann:s3cret@127.0.0.1:1/jobs"
    done = run("scheduler", "--port=0", "--no-dashboard", "--journal", url, folder=tmp_path)
    assert done.returncode == EXIT_NO_SCHEDULER
    assert done.stderr.count("\n") == 1, done.stderr
    assert "postgresql://ann:***@127.0.0.1:1/jobs cannot be reached" in done.stderr
    assert "PGPASSWORD" in done.stderr
    shown = run("config", "scheduler", folder=tmp_path, WEFT_SCHEDULER_JOURNAL=url)
    assert "ann:***@" in shown.stdout
    assert "s3cret" not in done.stdout + done.stderr + shown.stdout + shown.stderr


def test_commands_about_a_journal_list_jobs_or_say_what_to_use(tmp_path, url):
    with weft.LocalCluster(1, 1, journal=url) as cluster, weft.Client(cluster) as client:
        assert client.submit(pow, 2, 5, detached=True).result(60) == 32
        client.wait_recorded()
    listed = run("journal", "list", url, folder=tmp_path)
    assert "pow" in listed.stdout, listed.stderr
    for action, words in (("backup", "pg_dump"), ("restore", "pg_restore"), ("compact", "VACUUM")):
        done = run("journal", action, url, *["copy"][: action != "compact"], folder=tmp_path)
        assert done.returncode == 2
        assert words in done.stderr
    missing = run("journal", "list", url + "_other", folder=tmp_path)
    assert (missing.returncode, missing.stdout) == (2, "")
    assert "there is no journal" in missing.stderr


@pytest.mark.parametrize("processes", [True, False])
def test_the_next_local_cluster_goes_on(url, processes):
    with (
        weft.LocalCluster(1, 1, journal=url, processes=processes) as cluster,
        weft.Client(cluster) as client,
    ):
        key = client.submit(abs, -4, detached=True, start_after="1 h").key
        done = client.submit(abs, -5, detached=True)
        assert done.result(60) == 5
        client.wait_recorded()
    with (
        weft.LocalCluster(1, 1, journal=url, processes=processes) as cluster,
        weft.Client(cluster) as client,
    ):
        assert client.job(key).state == "pending"
        assert client.job_result(done.key, timeout=60) == 5
        client.cancel_job(key)
