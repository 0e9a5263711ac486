"""A worker that leaves: it starts no more tasks, and gives back its unstarted ones."""

from __future__ import annotations

import pytest

from tests.worker.builders import SLOW, Hands, assign, drop, give_back, locate
from weft.protocol.wire.messages import AttemptsFinished, AttemptsReturned, WorkerLeaving
from weft.worker.core.events import Leave, SchedulerLost


def test_a_worker_that_leaves_finishes_its_running_tasks_and_starts_nothing():
    worker = Hands(2)
    worker.receive(assign("1 a", "2 b", "3 c", "4 d <- a"))
    first = worker.start(0)
    assert first is not None
    assert worker.handle(Leave("SIGTERM")) == [WorkerLeaving(reason="SIGTERM")]
    # Tasks that were on their way are not started either.
    assert worker.receive(assign("5 e")) == []
    (sent,) = worker.report(0)
    assert isinstance(sent, AttemptsFinished)
    assert sent.attempts == [first.attempt]
    (returned,) = worker.receive(give_back(5))
    assert isinstance(returned, AttemptsReturned)
    assert sorted([*sent.attempts, *returned.attempts]) == [1, 2, 3, 4, 5]
    assert not any(slot.n_executing for slot in worker.state.slots)
    assert worker.has_ended


@pytest.mark.parametrize("end", ["finished", "failed", "cancelled", "lost"])
def test_a_worker_that_leaves_ends_with_its_last_running_task_or_its_session(end):
    worker = Hands(2)
    worker.receive(assign("1 a", "2 b", function=SLOW))
    worker.start(0)
    worker.start(1)
    worker.handle(Leave("SIGTERM"))
    assert not worker.has_ended
    if end == "lost":
        worker.handle(SchedulerLost())
        assert worker.has_ended
    if end == "cancelled":
        worker.receive(drop(1, 2))
    worker.report(0, failed=["a", "b"] if end == "failed" else [])
    assert worker.has_ended == (end == "lost")
    worker.report(1)
    assert worker.has_ended


def test_an_idle_worker_leaves_at_once():
    worker = Hands()
    assert worker.handle(Leave("SIGTERM")) == [WorkerLeaving(reason="SIGTERM")]
    assert worker.has_ended


def test_a_worker_leaves_once():
    worker = Hands()
    assert len(worker.handle(Leave("SIGTERM"))) == 1
    assert worker.handle(Leave("SIGTERM")) == []


def test_a_worker_that_leaves_serves_results_and_starts_nothing_that_becomes_ready():
    worker = Hands()
    worker.receive(assign("2 b <- a", located=[("a", 1, 10, ["tcp://a"])]))
    worker.handle(Leave("SIGTERM"))
    worker.receive(locate(("a", 1, 10, ["tcp://a"])))
    assert worker.receive(give_back(1)) == [AttemptsReturned(attempts=[2])]
    worker.handle(SchedulerLost())
    assert worker.state.is_leaving
