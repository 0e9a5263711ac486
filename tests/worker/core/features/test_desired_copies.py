"""Copies that the scheduler wants at a worker, although no task there reads them."""

from __future__ import annotations

import pytest

from tests.worker.builders import Hands, assign, drop, locate, promised
from weft.protocol.wire.messages import (
    AttemptsFinished,
    HoldCopies,
    KeysMissing,
    ReplicasAdded,
)
from weft.worker.core.events import SessionOpened, WorkerEnding
from weft.worker.core.features.desired_copies import DesiredCopies


def hold(*rows):
    return HoldCopies(
        keys=[row[0] for row in rows],
        attempts=[row[1] for row in rows],
        nbytes=[row[2] for row in rows],
        holders=[row[3] for row in rows],
    )


X = ("x", 1, 100, ["tcp://a"])


@pytest.fixture
def worker():
    worker = Hands()
    worker.handle(SessionOpened(is_first=True))
    return worker


def test_a_desired_copy_is_fetched_kept_and_reported(worker):
    worker.receive(hold(X))
    assert worker.asked("tcp://a") == ["x"]
    assert worker.answer("tcp://a") == [ReplicasAdded(attempts=[1], keys=["x"])]
    assert worker.state.record(DesiredCopies) == {}
    assert worker.state.by_key["x"].pins == 0
    worker.receive(drop(1))
    assert worker.store == set()


def test_a_copy_that_is_here_is_reported_again(worker):
    worker.receive(hold(X))
    worker.answer("tcp://a")
    assert worker.receive(hold(X)) == [ReplicasAdded(attempts=[1], keys=["x"])]


def test_an_order_that_comes_again_while_its_copy_is_on_its_way_is_one(worker):
    worker.receive(hold(X))
    worker.receive(hold(X))
    assert worker.asked("tcp://a") == ["x"]
    worker.answer("tcp://a")
    assert worker.state.by_key["x"].pins == 0
    worker.receive(drop(1))
    assert worker.store == set()


def test_a_copy_that_was_made_anew_is_no_longer_asked_for_where_the_first_one_was(worker):
    worker.receive(hold(("first", 9, 100, ["tcp://a"])))
    worker.receive(hold(X))
    assert worker.asked("tcp://a") == ["first"]  # and "x" waits
    worker.receive(locate(("x", 3, 100, ["tcp://b"])))
    assert worker.asked("tcp://b") == ["x"]
    assert worker.answer("tcp://b") == [ReplicasAdded(attempts=[3], keys=["x"])]
    worker.answer("tcp://a")
    assert worker.state.by_key["x"].attempt == 3


def test_a_copy_that_no_holder_gives_is_forgotten_and_reported(worker):
    worker.receive(hold(("x", 1, 100, ["tcp://a", "tcp://b"])))
    worker.fail("tcp://a")
    (missing,) = worker.answer("tcp://b", missing=["x"])
    assert missing == KeysMissing(keys=["x"], holder="tcp://b", unreachable=False, attempts=[1])
    assert worker.state.by_key == {}


def test_a_copy_that_is_dropped_on_its_way_is_not_kept(worker):
    worker.receive(hold(X))
    worker.receive(drop(1))
    assert worker.state.by_key == {}
    assert worker.answer("tcp://a") == []
    assert worker.store == set()


def test_a_desired_copy_that_a_task_reads_as_well_is_fetched_once(worker):
    worker.receive(assign("2 y <- x", located=[X]))
    worker.receive(hold(X))
    assert worker.state.by_key["x"].pins == 2
    worker.answer("tcp://a")
    assert worker.run_all() == ["y"]
    worker.receive(hold(X), drop(2))
    assert worker.state.by_key["x"].pins == 0


def test_a_task_that_reads_a_desired_copy_waits_for_it(worker):
    worker.receive(hold(X))
    worker.receive(assign("2 y <- x"))
    worker.answer("tcp://a")
    assert worker.run_all() == ["y"]


def test_a_drop_leaves_what_a_task_waits_for(worker):
    worker.receive(assign("2 y <- x", located=[X]))
    worker.receive(hold(X))
    worker.receive(drop(1))
    assert worker.state.record(DesiredCopies) == {}
    assert worker.state.by_key["x"].state == "missing"
    worker.receive(locate(("x", 3, 100, ["tcp://b"])))
    worker.answer("tcp://b")
    assert worker.run_all() == ["y"]


def test_a_copy_that_is_promised_to_a_task_as_another_attempt_is_desired_no_more(worker):
    worker.receive(hold(("first", 9, 100, ["tcp://a"])))
    worker.receive(hold(X))
    assert worker.asked("tcp://a") == ["first"]  # and "x" waits
    worker.receive(promised("12 y <- x", key="x", attempt=11, holder="tcp://b"))
    assert worker.state.by_key["x"].pins == 1
    worker.keep("x")
    assert worker.run_all() == ["y"]
    assert 11 not in worker.store
    worker.answer("tcp://a")
    assert worker.state.record(DesiredCopies) == {}


def test_a_key_that_is_assigned_here_is_desired_no_more(worker):
    worker.receive(hold(X))
    worker.receive(assign("2 x"))
    assert worker.state.record(DesiredCopies) == {}
    assert worker.run_all() == ["x"]
    assert any(isinstance(message, AttemptsFinished) for message in worker.messages)


def test_a_dropped_value_that_is_in_use_is_kept_again(worker):
    worker.receive(hold(X))
    worker.answer("tcp://a")
    worker.receive(assign("2 y <- x", "3 z <- y"))
    worker.receive(drop(1))
    assert worker.state.released
    assert worker.receive(hold(X)) == [ReplicasAdded(attempts=[1], keys=["x"])]
    assert worker.state.record(DesiredCopies) == {}
    assert worker.run_all() == ["y", "z"]
    assert worker.state.by_key["x"].state == "memory"


def test_a_task_here_is_left_as_it_is(worker):
    worker.receive(assign("2 x"))
    worker.receive(hold(X))
    assert worker.state.record(DesiredCopies) == {}
    assert worker.fetches == {}


def test_copies_without_another_holder_are_reported_as_missing(worker):
    (missing,) = worker.receive(hold(("x", 1, 100, ["tcp://me"])))
    assert missing.keys == ["x"]
    assert worker.state.by_key == {}
    assert worker.receive(hold(("y", 2, 100, []))) == []
    assert worker.state.by_key == {}


def test_a_worker_that_ends_forgets_desired_copies(worker):
    worker.receive(hold(X))
    worker.receive(assign("2 y <- x"))
    worker.handle(WorkerEnding())
    assert worker.state.by_key == {}
    assert worker.state.record(DesiredCopies) == {}
