"""Conditions and times of tasks, with real workers, and a scheduler that is killed meanwhile."""

from __future__ import annotations

import time

import pytest

import weft
from tests.deploy.cli.test_restarts import real_pid, restarted

from .test_scheduler_restarts import locked, note, running

pytestmark = pytest.mark.slow


def fail(text):
    raise ValueError(text)


def for_ever():
    """Run until it is interrupted between two bytecodes."""
    while True:
        time.sleep(0.001)  # workload


def gated(gate, value):
    from fcntl import LOCK_EX, flock

    with open(gate) as file:
        flock(file, LOCK_EX)
    return value


def test_a_clean_up_runs_after_a_failure_and_its_counterpart_is_cancelled(client):
    job = client.submit(fail, "no data")
    clean_up = client.submit(str, "cleaned", after={"failed": job})
    publish = client.submit(str, "published", after={"done": job})
    assert clean_up.result(60) == "cleaned"
    with pytest.raises(weft.TaskCancelled, match=r"when fail-\w+ is done, and that has f"):
        publish.result(60)
    assert publish.cancelled()


def test_values_and_conditions_are_combined(client, tmp_path):
    gate = tmp_path / "gate"
    with locked(gate):
        first = client.submit(gated, str(gate), 1)
        both = client.submit(pow, client.submit(abs, -2), 3, after={"ended": first})
        assert "it waits for" in str(both.explain())
        with pytest.raises(TimeoutError):
            both.result(0.2)
    assert both.result(60) == 8


def test_a_condition_outlives_the_future_that_it_names(client, tmp_path):
    gate = tmp_path / "gate"
    with locked(gate):
        first = client.submit(gated, str(gate), 1)
        second = client.submit(abs, -5, after={"done": first})
        del first
    assert second.result(60) == 5


def test_a_cancelled_task_lets_those_run_that_wait_for_that(client):
    first = client.submit(abs, -7, start_after="1 h")
    second = client.submit(str, "instead", after={"cancelled": first})
    first.cancel()
    assert second.result(60) == "instead"


def test_a_start_is_waited_for(client):
    asked = time.time()
    future = client.submit(time.time, start_after="300 ms", pure=False)
    assert future.result(60) >= asked + 0.299


def test_a_ttl_and_a_deadline_cancel(client):
    late = client.submit(abs, 1, start_after="1 h", ttl="100 ms")
    with pytest.raises(weft.TaskCancelled, match="not begun within its ttl="):
        late.result(60)
    long = client.submit(for_ever, deadline="300 ms")
    with pytest.raises(weft.TaskCancelled, match="not ended by its deadline="):
        long.result(60)


def test_a_call_that_no_worker_can_run_fails_with_the_reason(client):
    future = client.submit(abs, -5, resources={"GPU": 1}, no_worker_timeout="100 ms")
    with pytest.raises(weft.NoWorker, match=r"for 0.1 s: no worker offers GPU: 1"):
        future.result(30)


def test_a_map_runs_after_another(client):
    first = client.map(abs, range(20))
    second = client.map(str, range(20), after={"done": first})
    assert client.gather(second) == [str(i) for i in range(20)]


def test_conditions_hold_across_a_restart_of_the_scheduler(tmp_path):
    gate, log = tmp_path / "gate", tmp_path / "log"
    gate.touch()
    with running(tmp_path) as (started, client):
        done = client.submit(note, str(log), "first")
        done.result(60)
        with locked(gate):
            under_way = client.submit(gated, str(gate), 1)
            after_both = client.submit(note, str(log), "last", after={"done": [done, under_way]})
            never = client.submit(note, str(log), "never", after={"failed": under_way})
            restarted(started, real_pid(started))
            with pytest.raises(TimeoutError):
                after_both.result(0.5)
        after_both.result(60)
        assert under_way.result(60) == 1
        with pytest.raises(weft.TaskCancelled):
            never.result(60)
    assert log.read_text().split() == ["first", "last"]
