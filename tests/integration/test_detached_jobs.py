"""Detached jobs outlive their client and the scheduler: real processes, killed at any instant."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import contextmanager

import pytest

import weft
from tests.deploy.cli.test_restarts import real_pid, restarted
from tests.deploy.daemons import daemon, environment, file_of, run, scheduler
from weft.client.insight import jobs
from weft.protocol.errors import QuestionFailed
from weft.scheduler.journal.files import jobs_in

from .test_scheduler_restarts import locked, note

pytestmark = pytest.mark.slow


@contextmanager
def cluster(folder):
    """A scheduler with a journal, and two workers of one thread."""
    with (
        scheduler(folder=folder) as started,
        daemon("worker", "--nworkers", "2", "--nthreads", "1", folder=folder) as workers,
    ):
        workers.wait_for("registered", 2)
        yield started


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    with cluster(tmp_path_factory.mktemp("jobs")) as started:
        yield started


@pytest.fixture
def client(started):
    with weft.Client(connection_file=file_of(started)) as client:
        client.wait_for_workers(2, timeout=60)
        yield client


def gated(gate, value):
    from fcntl import LOCK_EX, flock

    with open(gate) as file:
        flock(file, LOCK_EX)
    return value


def fail(text):
    raise ValueError(text)


def test_a_job_has_a_result_for_any_client(client, started):
    future = client.submit(pow, 2, 10, detached=True)
    assert future.result(60) == 1024
    key = future.key
    del future
    with weft.Client(connection_file=file_of(started)) as other:
        assert other.job_result(key, timeout=60) == 1024
        job = other.job(key)
    assert (job.key, job.name, job.state) == (key, "pow", "done")
    assert job.submitted <= job.ended


def say(text, fails=False):
    print(text)
    print(f"no {text}", file=sys.stderr)
    if fails:
        raise ValueError(text)


def test_output_of_a_job_is_recorded(client, started):
    keys = [client.submit(say, "spam", fails, detached=True, output="keep").key for fails in (0, 1)]
    array = client.submit_array(say, range(2), output="keep")
    keys += [f"{array.key}/1", client.submit(weft.Command("echo hi"), detached=True).key]
    for key in keys:
        with contextlib.suppress(ValueError):
            client.job_result(key, timeout=60)
    with weft.Client(connection_file=file_of(started)) as other:
        for key, text in zip(keys, ("spam", "spam", "1"), strict=False):
            assert other.job_output(key) == weft.CallOutput(f"{text}\n", f"no {text}\n")
        assert other.job_output(keys[3]).stdout == "hi\n"
        other.forget_job(keys[0])
        unkept = other.submit(say, "spam", detached=True)
        unkept.result(60)
        with pytest.raises(KeyError, match="nothing is kept"):
            other.job_output(unkept.key)


def test_a_job_has_a_failure_for_any_client(client):
    key = client.submit(fail, "no data", detached=True).key
    with pytest.raises(ValueError, match="no data"):
        client.job_result(key, timeout=60)


@pytest.mark.parametrize(("function", "argument"), [(abs, -7), (fail, "no data")])
def test_a_job_that_ends_before_it_can_be_recorded_is_not_accepted(
    client, started, function, argument
):
    client.submit(abs, -1, detached=True)
    (path,) = file_of(started).parents[2].rglob("journal.sqlite")
    journal = sqlite3.connect(path, isolation_level=None)
    with contextlib.closing(journal):
        journal.execute("BEGIN IMMEDIATE")
        with pytest.raises(weft.JobNotRecorded, match="database is locked"):
            client.submit(function, argument, key=f"late-{function.__name__}", detached=True)
    with pytest.raises(KeyError, match="no job 'late"):
        client.job(f"late-{function.__name__}")


def test_large_results_and_arguments(client):
    data = os.urandom(3 << 20)
    future = client.submit(bytes.upper, data, detached=True)
    assert client.job_result(future.key, timeout=60) == data.upper()
    assert not client.job(future.key).is_recorded
    client.forget_job(future.key)
    with pytest.raises(KeyError):
        client.job(future.key)


def test_jobs_are_listed_by_state_and_name(client):
    futures = client.map(divmod, range(5), [2] * 5, detached=True)
    assert client.gather(futures) == [divmod(i, 2) for i in range(5)]
    client.wait_recorded()
    found = client.jobs(name="divmod")
    assert {job.key for job in found} == {future.key for future in futures}
    assert {job.state for job in found} <= {"done", "pending"}
    assert client.jobs(name="divmod", limit=2) == found[:2]
    with pytest.raises(ValueError, match="state= is one of"):
        client.jobs(state="finished")
    with pytest.raises(KeyError, match="no job 'nothing'"):
        client.job("nothing")


def test_a_job_is_cancelled_by_another_client(client, started, tmp_path):
    gate = tmp_path / "gate"
    with locked(gate):
        key = client.submit(gated, str(gate), 1, detached=True).key
        with pytest.raises(QuestionFailed, match="has not ended: cancel it first"):
            client.forget_job(key)
        with weft.Client(connection_file=file_of(started)) as other:
            other.cancel_job(key, reason="not needed")
            with pytest.raises(weft.TaskCancelled, match="not needed"):
                other.job_result(key, timeout=60)


def test_a_job_waits_for_a_job_and_no_other_task(client):
    first = client.submit(abs, -1, detached=True)
    second = client.submit(abs, first, detached=True)
    assert second.result(60) == 1
    client.wait_recorded()  # the first has ended, and its result is recorded
    assert client.submit(abs, first, detached=True).result(60) == 1
    plain = client.submit(abs, -3)
    with pytest.raises(weft.JobNotRecorded, match="not detached"):
        client.submit(abs, plain, detached=True)


def read_or_fail(gate, path):
    with open(gated(gate, path)) as file:
        return file.read()


def test_jobs_that_have_failed_run_again_for_any_client(client, started, tmp_path):
    gate, path = tmp_path / "gate", tmp_path / "input"
    with locked(gate):
        first = client.submit(read_or_fail, str(gate), str(path), detached=True)
        second = client.submit(str.upper, first, detached=True, deadline="1 h")
    keys = first.key, second.key
    for key in keys:
        with pytest.raises(FileNotFoundError):
            client.job_result(key, timeout=60)
    client.wait_recorded()
    path.write_text("there now")
    del first, second
    with weft.Client(connection_file=file_of(started)) as other:
        with pytest.raises(KeyError, match="no job 'nothing'"):
            other.retry_job("nothing")
        other.retry_job(keys[1])
        assert other.job_result(keys[1], timeout=60) == "THERE NOW"
        assert other.job_result(keys[0], timeout=60) == "there now"
        with pytest.raises(QuestionFailed, match="is done"):
            other.retry_job(keys[1])


PROGRAM = """
import sys, weft
from tests.integration.test_detached_jobs import gated
client = weft.Client(connection_file=sys.argv[1])
futures = client.map(gated, [sys.argv[2]] * 20, range(20), detached=True)
total = client.submit(sum, futures, detached=True)
print(total.key, flush=True)
sys.stdin.read()
"""


def test_jobs_outlive_a_killed_client_and_a_killed_scheduler(tmp_path):
    with cluster(tmp_path) as started:
        kill_both(started, tmp_path)


def kill_both(started, folder):
    gate = folder / "gate"
    with locked(gate):
        program = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(file_of(started)), str(gate)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(folder),
        )
        with program:
            key = program.stdout.readline().strip()
            program.send_signal(signal.SIGKILL)
        assert key.startswith("sum-")
        restarted(started, real_pid(started))
    with weft.Client(connection_file=file_of(started)) as client:
        assert client.job_result(key, timeout=60) == sum(range(20))


def test_a_job_that_has_ended_does_not_run_again(tmp_path):
    with cluster(tmp_path) as started:
        restart_after_its_end(started, tmp_path / "log")


def test_a_result_of_half_a_megabyte_outlives_its_workers(tmp_path):
    with scheduler(folder=tmp_path) as started:
        with (
            daemon("worker", "--nthreads", "1", folder=tmp_path) as worker,
            weft.Client(connection_file=file_of(started)) as client,
        ):
            worker.wait_for("registered", 1)
            key = client.submit(bytes, 500_000, detached=True).key
            assert client.job_result(key, timeout=60) == bytes(500_000)
            client.wait_recorded()
            assert client.job(key).is_recorded
        restarted(started, real_pid(started))
        with weft.Client(connection_file=file_of(started)) as client:
            assert client.job_result(key, timeout=60) == bytes(500_000)


def restart_after_its_end(started, log):
    with weft.Client(connection_file=file_of(started)) as client:
        key = client.submit(note, str(log), "ran", detached=True).key
        client.job_result(key, timeout=60)
        client.wait_recorded()
    restarted(started, real_pid(started))
    with weft.Client(connection_file=file_of(started)) as client:
        client.wait_for_workers(2, timeout=60)
        assert client.job_result(key, timeout=60) is None
        assert client.job(key).state == "done"
    assert log.read_text() == "ran\n"


def test_a_cluster_without_a_journal_says_so():
    with weft.Client(processes=False, n_workers=1, set_as_default=False) as client:
        with pytest.raises(weft.JobNotRecorded, match="has no journal"):
            client.submit(abs, 1, detached=True)
        with pytest.raises(QuestionFailed, match="has no journal"):
            client.jobs()


def test_a_job_may_end_between_the_questions_of_who_waits_for_it(
    client, started, tmp_path, monkeypatch, wait_until
):
    from fcntl import LOCK_EX, LOCK_UN, flock

    gate = tmp_path / "gate"
    ask_scheduler = jobs.future_of
    with gate.open("w") as file:
        flock(file, LOCK_EX)
        key = client.submit(gated, str(gate), 7, detached=True).key

        def ended_before(engine, key):
            flock(file, LOCK_UN)
            (path,) = file_of(started).parents[2].rglob("journal.sqlite")
            wait_until(lambda: {j["key"]: j["state"] for j in jobs_in(path, 10)}[key] == "done", 60)
            return ask_scheduler(engine, key)

        monkeypatch.setattr(jobs, "future_of", ended_before)
        assert client.job_result(key, timeout=60) == 7


def test_the_explanation_of_a_job_that_has_ended_says_how(client, started, wait_until):
    done = client.submit(pow, 3, 3, detached=True)
    failed = client.submit(fail, "no such file", detached=True)
    keys = [done.key, failed.key]
    assert done.result(60) == 27
    assert isinstance(failed.exception(60), ValueError)
    for key in keys:
        wait_until(lambda key=key: client.job(key).ended is not None)
    done.release(), failed.release()
    wait_until(lambda: not any(key in client.who_has() for key in keys))
    with weft.Client(connection_file=file_of(started)) as other:
        found = other.explain(keys[0])
        assert (found.key, found.state) == (keys[0], "done")
        assert "its end was recorded at " in found.reason
        found = other.explain(keys[1])
        assert found.state == "failed"
        assert found.reason.endswith("; ValueError: no such file")
    shown = run("explain", keys[1], folder=started.folder)
    assert shown.stdout.startswith(f"task {keys[1]} has failed: it is a detached job, and its end ")
    missing = run("explain", "no-such-task", folder=started.folder)
    assert (missing.returncode, missing.stdout) == (1, "")
    assert "the scheduler knows no task 'no-such-task'" in missing.stderr
