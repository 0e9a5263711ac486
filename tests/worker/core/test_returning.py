"""A worker that leaves: it starts no more tasks, and gives back its unstarted ones."""

from __future__ import annotations

import pytest

from tests.worker.builders import SLOW, Hands, assign, drop, give_back, locate
from weft.protocol.wire.messages import (
    AskToLeave,
    AttemptsFinished,
    AttemptsReturned,
    MayLeave,
    Unsupported,
    WorkerLeaving,
)
from weft.worker.core.events import Leave, SchedulerLost

LEAVING = [WorkerLeaving(reason="SIGTERM"), AskToLeave(request=1)]


def test_a_worker_that_leaves_finishes_its_running_tasks_and_starts_nothing():
    worker = Hands(2)
    worker.receive(assign("1 a", "2 b", "3 c", "4 d <- a"))
    first = worker.start(0)
    assert first is not None
    assert worker.handle(Leave("SIGTERM")) == LEAVING
    # Tasks that were on their way are not started either.
    assert worker.receive(assign("5 e")) == []
    (sent,) = worker.report(0)
    assert isinstance(sent, AttemptsFinished)
    assert sent.attempts == [first.attempt]
    (returned,) = worker.receive(give_back(5))
    assert isinstance(returned, AttemptsReturned)
    assert sorted([*sent.attempts, *returned.attempts]) == [1, 2, 3, 4, 5]
    assert not any(slot.n_executing for slot in worker.state.slots)
    assert not worker.has_ended
    worker.receive(MayLeave(request=1))
    assert worker.has_ended


@pytest.mark.parametrize("end", ["finished", "failed", "cancelled", "lost"])
def test_a_worker_that_leaves_ends_with_its_last_running_task_or_its_session(end):
    worker = Hands(2)
    worker.receive(assign("1 a", "2 b", function=SLOW))
    worker.start(0)
    worker.start(1)
    worker.handle(Leave("SIGTERM"))
    worker.receive(MayLeave(request=1))
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


@pytest.mark.parametrize(
    "answer", [MayLeave(request=1), Unsupported(unknown_code=87, request=1)], ids=["now", "earlier"]
)
def test_an_idle_worker_leaves_when_the_scheduler_lets_it_go_or_does_not_know_the_request(
    worker, answer
):
    assert worker.handle(Leave("SIGTERM")) == LEAVING
    assert not worker.has_ended
    assert worker.receive(answer) == []
    assert worker.has_ended


def test_a_worker_that_does_not_leave_is_not_let_go(worker):
    worker.receive(MayLeave(request=1))
    worker.handle(Leave("SIGTERM"))
    assert not worker.has_ended


def test_a_worker_that_may_not_go_yet_ends_with_its_session(worker):
    worker.handle(Leave("SIGTERM"))
    worker.handle(SchedulerLost())
    assert worker.has_ended


def test_a_worker_leaves_once_and_a_later_deadline_is_reported(worker):
    assert worker.handle(Leave("SIGTERM")) == LEAVING
    assert worker.handle(Leave("SIGTERM")) == []
    worker.handle(Leave("SIGTERM", 5.0))
    assert worker.state.leaves_by == worker.state.now + 5.0
    assert worker.handle(Leave("SIGTERM", 50.0)) == []


def test_a_worker_that_leaves_serves_results_and_starts_nothing_that_becomes_ready(worker):
    worker.receive(assign("2 b <- a", located=[("a", 1, 10, ["tcp://a"])]))
    worker.handle(Leave("SIGTERM"))
    worker.receive(locate(("a", 1, 10, ["tcp://a"])))
    assert worker.receive(give_back(1)) == [AttemptsReturned(attempts=[2])]
    worker.handle(SchedulerLost())
    assert worker.state.is_leaving
