"""Arrays in real processes: schedulers that are killed, results, failures, conditions."""

from __future__ import annotations

import time
from collections import Counter
from functools import partial

import pytest

import weft
from tests.deploy.cli.test_restarts import real_pid, restarted
from tests.deploy.daemons import daemon, file_of, scheduler

from .test_detached_jobs import cluster, gated
from .test_scheduler_restarts import locked, note

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    with (
        weft.LocalCluster(2, 1, journal=tmp_path_factory.mktemp("arrays") / "jobs.sqlite") as local,
        weft.Client(local, set_as_default=False) as client,
    ):
        yield client


def odd_or_fail(number):
    if number % 2 == 0:
        raise ValueError(f"{number} is even")
    return number


def test_an_array_has_the_results_of_its_rows(client):
    array = client.submit_array(str, range(3, 20_000, 3))
    assert array.result(60) is None
    assert client.job(array.key).rows == {
        "pending": 0, "done": 6666, "failed": 0, "cancelled": 0, "lost": 0
    }  # fmt: skip
    assert client.job_result(f"{array.key}/9999") == "9999"
    row = client.job(f"{array.key}/9")
    assert (row.state, row.array, row.is_recorded) == ("done", array.key, True)
    with pytest.raises(KeyError):
        client.job(f"{array.key}/10")


def test_an_array_names_the_rows_that_have_failed(client):
    array = client.submit_array(odd_or_fail, range(5, -1, -1))
    with pytest.raises(weft.RowsFailed, match=r"3 of 6 rows of array .* 0, 2, 4") as caught:
        array.result(60)
    assert (caught.value.n_failed, caught.value.n_rows) == (3, 6)
    with pytest.raises(ValueError, match="2 is even"):
        client.job_result(f"{array.key}/2")
    assert client.job_result(f"{array.key}/5") == 5


def test_a_result_that_is_too_large_to_be_recorded_is_lost(client):
    array = client.submit_array(bytes, range(2_000_000, 2_000_001))
    array.result(60)
    with pytest.raises(weft.DataLost, match="at most 1 MiB"):
        client.job_result(f"{array.key}/2000000")


def test_rows_that_have_no_value_have_none(client):
    array = client.submit_array(partial(print, end=""), range(2))
    array.result(60)
    assert client.job_result(f"{array.key}/1") is None


def test_a_row_is_waited_for_and_cancelled(client, tmp_path):
    gate = tmp_path / "gate"
    with locked(gate):
        array = client.submit_array(partial(gated, str(gate)), range(100))
        with pytest.raises(TimeoutError):
            client.job_result(f"{array.key}/0", timeout=0.01)
        client.cancel_job(f"{array.key}/99", reason="not needed")
        with pytest.raises(weft.TaskCancelled, match="not needed"):
            client.job_result(f"{array.key}/99", timeout=60)
    assert client.job_result(f"{array.key}/50", timeout=60) == 50
    with pytest.raises(weft.RowsFailed, match="1 of 100 rows") as caught:
        array.result(60)
    key = array.key
    del array, caught  # a future that has failed stays so
    client.retry_job(f"{key}/99")
    assert client.job_result(key, timeout=60) is None


def test_bad_ranges_are_errors_at_once(client):
    for wrong, error, text in [
        (range(0), ValueError, "has no numbers"),
        (range(-1, 3), ValueError, "numbers below 0"),
        ([1, 2], TypeError, "needs a range, not list"),
        (range(10**8), ValueError, "at most 10000000 rows"),
    ]:
        with pytest.raises(error, match=text):
            client.submit_array(abs, wrong)
    with pytest.raises(TypeError, match="needs a function"):
        client.submit_array(3, range(3))


def test_a_cluster_without_a_journal_refuses_an_array():
    with (
        weft.Client(processes=False, n_workers=1, set_as_default=False) as client,
        pytest.raises(weft.JobNotRecorded, match="has no journal"),
    ):
        client.submit_array(abs, range(3))


# -- killed schedulers -----------------------------------------------------------------------------
def noted_and_gated(log, gate, number):
    note(log, number)
    # Short calls would be reported with the one that is held up behind them.
    time.sleep(0.02)  # workload
    return gated(gate, number) if number >= 50 else number


def test_no_row_runs_twice_while_its_worker_lives(tmp_path):
    log, gate = tmp_path / "log", tmp_path / "gate"
    with cluster(tmp_path) as started:
        with locked(gate):
            with weft.Client(connection_file=file_of(started)) as client:
                function = partial(noted_and_gated, str(log), str(gate))
                key = client.submit_array(function, range(200)).key
                assert client.job_result(f"{key}/49", timeout=60) == 49
            restarted(started, real_pid(started))
        with weft.Client(connection_file=file_of(started)) as client:
            client.job_result(key, timeout=60)
            assert client.job_result(f"{key}/20", timeout=60) == 20
            assert client.job(key).rows["done"] == 200
    counts = Counter(log.read_text().split())
    assert counts == Counter(map(str, range(200)))


def test_rows_whose_end_is_recorded_do_not_run_again_at_other_workers(tmp_path):
    log, gate = tmp_path / "log", tmp_path / "gate"
    function = partial(noted_and_gated, str(log), str(gate))
    with scheduler(folder=tmp_path) as started:
        with (
            locked(gate),
            daemon("worker", "--nthreads", "1", folder=tmp_path) as worker,
            weft.Client(connection_file=file_of(started)) as client,
        ):
            worker.wait_for("registered", 1)
            key = client.submit_array(function, range(60)).key
            for number in range(50):
                client.job_result(f"{key}/{number}", timeout=60)
            for process in worker.family():
                process.kill()
            worker.process.wait(30)
        restarted(started, real_pid(started))
        with (
            daemon("worker", "--nthreads", "1", folder=tmp_path),
            weft.Client(connection_file=file_of(started)) as client,
        ):
            client.job_result(key, timeout=120)
    counts = Counter(map(int, log.read_text().split()))
    assert [counts[number] for number in range(50)] == [1] * 50
    assert [counts[number] >= 1 for number in range(50, 60)] == [True] * 10


def test_no_row_begins_while_its_queue_is_paused(tmp_path, wait_until):
    with (
        weft.LocalCluster(1, 2, journal=tmp_path / "jobs.sqlite") as cluster,
        weft.Client(cluster) as client,
    ):
        client.pause_queue("nightly")
        array = client.submit_array(abs, range(20), queue="nightly")
        wait_until(lambda: client.paused_queues()["nightly"] > 0)
        assert client.job(array.key).rows["pending"] == 20
        client.resume_queue("nightly")
        assert array.result(60) is None
        assert client.job_result(f"{array.key}/7") == 7
