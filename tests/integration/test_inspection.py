"""Questions to worker processes that log, hang and die."""

from __future__ import annotations

import logging
import os
import signal

import psutil
import pytest

import weft
from tests.leaks import wait_until
from weft.client.insight import inspecting

pytestmark = pytest.mark.slow


@pytest.fixture
def client():
    options = {"n_workers": 2, "threads_per_worker": 1, "silence_logs": logging.INFO}
    with weft.Client(**options) as client:
        yield client


def pids_of(client: weft.Client) -> dict[str, int]:
    return client.run(os.getpid)


def log(level, text):
    logging.getLogger("mine").log(level, text)


def test_logs_have_what_tasks_and_weft_log(client):
    client.gather(client.map(log, [logging.INFO, logging.WARNING, logging.DEBUG], ["a", "b", "c"]))
    logs = client.get_worker_logs()
    lines = [line for of in logs.values() for line in of]
    assert {(level, text.split(" - ")[-1]) for level, text in lines if "- mine -" in text} == {
        ("INFO", "a"),
        ("WARNING", "b"),
    }
    assert any("registered at" in text for _, text in lines)
    (last,) = client.get_scheduler_logs(1)
    assert client.get_scheduler_logs()[-1] == last
    assert any("joined from" in text for _, text in client.get_scheduler_logs())


def test_the_log_of_the_supervisor_has_the_death_of_a_worker(client):
    (address, *_) = pids_of(client)
    with pytest.raises(weft.NoAnswer):
        client.run(os._exit, 3, workers=address)

    def is_logged() -> bool:
        logs = client.get_worker_logs(nanny=True).values()
        return any("ended after" in text for of in logs for _, text in of)

    wait_until(is_logged, timeout_s=30)


def die_on(victim):
    if os.getpid() == victim:
        os.kill(victim, signal.SIGKILL)
    return os.getpid()


def test_a_worker_that_dies_during_run_is_an_error_and_the_others_answer(client):
    pids = pids_of(client)
    (victim, survivor) = pids
    answers = client.run(die_on, pids[victim], on_error="return")
    assert isinstance(answers[victim], weft.NoAnswer)
    assert "whether the function has run there is not known" in str(answers[victim])
    assert answers[survivor] == pids[survivor]
    wait_until(lambda: len(client.nthreads()) == 2, timeout_s=30)


def test_a_worker_that_hangs_has_an_error_and_the_others_answer(client, monkeypatch):
    monkeypatch.setattr(inspecting, "TIMEOUT_S", 1.0)
    pids = pids_of(client)
    hanging, answering = pids
    future = client.submit(abs, -1, workers=[answering])
    assert future.result() == 1
    process = psutil.Process(pids[hanging])
    process.suspend()
    try:
        held = client.has_what()
        assert isinstance(held[hanging], weft.NoAnswer)
        assert "it did not answer 'held' within 1 s" in str(held[hanging])
        assert held[answering] == (future.key,)
        logs = client.get_worker_logs()
        assert isinstance(logs[hanging], weft.NoAnswer)
        assert logs[answering]
        assert isinstance(client.get_versions()["workers"][hanging], weft.NoAnswer)
        with pytest.raises(weft.NoAnswer):
            client.who_has()
        with pytest.raises(weft.NoAnswer):
            client.nbytes()
        assert client.who_has([future]) == {future.key: (answering,)}
    finally:
        process.resume()
    wait_until(lambda: not isinstance(client.has_what()[hanging], weft.NoAnswer), timeout_s=30)


def test_a_large_result_of_run_is_refused_and_the_connection_stays(client):
    answers = client.run(bytes, 65 << 20, on_error="return")
    assert {type(answer) for answer in answers.values()} == {weft.NoAnswer}
    assert "submit a task" in str(next(iter(answers.values())))
    with pytest.raises(weft.QuestionFailed, match="limit of 64 MiB"):
        client.run(len, bytes(65 << 20))
    assert list(client.run(len, bytes(1 << 20)).values()) == [1 << 20] * 2
    assert [len(result) for result in client.run(bytes, 1 << 20).values()] == [1 << 20] * 2


def test_many_kept_results_come_in_pages(client):
    futures = client.map(abs, range(10_000))
    client.gather(futures)
    assert client.who_has().keys() == {future.key for future in futures}
    assert len(client.who_has(futures)) == 10_000
    assert client.nbytes(summary=False).keys() == client.who_has().keys()
