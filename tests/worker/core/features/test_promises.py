"""Inputs that other workers promise, and attempts here that others wait for."""

from __future__ import annotations

from tests.worker.builders import Hands, assign, drop, give_back, locate, promised
from weft.protocol.wire.messages import KeysMissing
from weft.worker.core.events import SchedulerLost
from weft.worker.core.features.promises import PromiseAsked, PromiseExpired


def reader():
    worker = Hands()
    assert worker.receive(promised("9 y <- x")) == []
    return worker


# -- the reader -----------------------------------------------------------------------------------
def test_a_promised_input_is_asked_for_at_once_and_not_reported_as_missing():
    worker = reader()
    asked = worker.promises["x"]
    assert (asked.holder, asked.attempt) == ("tcp://b", 7)
    assert worker.state.fetching.peers == {}


def test_the_task_runs_when_its_input_has_come_and_the_value_goes_with_it():
    worker = reader()
    assert worker.keep("x") == []  # the scheduler is not told of a copy
    assert worker.run() == ["y"]
    assert 7 not in worker.store
    assert not worker.state.released


def test_two_tasks_that_read_the_same_input_ask_for_it_once():
    worker = reader()
    first = worker.promises["x"]
    worker.receive(promised("10 z <- x"))
    assert worker.promises["x"] is first
    worker.keep("x")
    assert worker.run_all() == ["y", "z"]


def test_a_value_that_has_come_is_used_by_a_task_that_is_assigned_later():
    worker = reader()
    worker.keep("x")
    worker.receive(promised("10 z <- x"))
    assert worker.promises == {}
    assert worker.run_all() == ["y", "z"]
    assert 7 not in worker.store


def test_a_value_that_has_come_counts_as_a_copy_when_the_scheduler_locates_it():
    worker = reader()
    worker.keep("x")
    worker.receive(assign("10 z <- x", located=[("x", 7, 100, ["tcp://b"])]))
    assert worker.run_all() == ["y", "z"]
    assert 7 in worker.store


def test_a_broken_promise_is_reported_as_a_key_without_a_holder():
    """Its worker may have the result by the time that the report is read."""
    worker = reader()
    sent = worker.break_promise("x")
    assert sent == [KeysMissing(keys=["x"], holder=worker.state.address, attempts=[7])]
    worker.receive(drop(9))
    assert not worker.state.by_key


def test_a_worker_out_of_reach_is_reported_so():
    worker = reader()
    (sent,) = worker.break_promise("x", is_unreachable=True)
    assert isinstance(sent, KeysMissing)
    assert sent.unreachable


def test_an_answer_for_a_task_that_was_dropped_is_forgotten():
    for kept in (True, False):
        worker = reader()
        worker.receive(drop(9))
        assert (worker.keep("x") if kept else worker.break_promise("x")) == []
        assert worker.store == set()


def test_a_value_that_is_fetched_as_well_is_not_lost():
    worker = reader()
    worker.receive(locate(("x", 7, 100, ["tcp://c"])))
    worker.keep("x")
    worker.answer("tcp://c")
    assert worker.run() == ["y"]
    assert 7 in worker.store


def test_the_input_may_be_assigned_to_the_reader_itself():
    worker = reader()
    worker.receive(assign("11 x"))
    assert worker.run_all() == ["x", "y"]
    worker.break_promise("x")
    assert worker.state.by_key["x"].state == "memory"


# -- the worker that is asked ---------------------------------------------------------------------
def test_an_attempt_is_answered_when_it_has_ended(worker):
    worker.receive(assign("7 x"))
    worker.handle(PromiseAsked(1, 7))
    assert worker.answered == []
    worker.run()
    assert worker.answered == [1]


def test_an_attempt_that_has_ended_is_answered_at_once(worker):
    worker.receive(assign("7 x"))
    worker.run()
    worker.handle(PromiseAsked(1, 7))
    worker.handle(PromiseAsked(2, 6))
    assert worker.answered == [1, 2]


def test_an_attempt_that_raises_or_is_dropped_or_given_back_is_answered(worker):
    worker.receive(assign("7 x", "8 y", "9 z"))
    for attempt in (7, 8, 9):
        worker.handle(PromiseAsked(attempt, attempt))
    worker.start()
    worker.receive(drop(8))
    assert worker.answered == [8]
    worker.receive(give_back(1))
    assert worker.answered == [8, 9]
    worker.report(failed=["x"])
    assert worker.answered == [8, 9, 7]


def test_an_attempt_may_be_asked_for_before_it_is_assigned(worker):
    worker.handle(PromiseAsked(1, 7))
    assert worker.answered == []
    worker.receive(assign("7 x"))
    assert worker.answered == []
    worker.run()
    assert worker.answered == [1]


def test_an_attempt_that_is_passed_over_is_answered(worker):
    worker.handle(PromiseAsked(1, 7))
    worker.receive(assign("8 x"))
    assert worker.answered == [1]


def test_an_attempt_that_is_not_assigned_by_the_end_of_a_session_is_answered(worker):
    worker.receive(assign("7 x"))
    worker.handle(PromiseAsked(1, 7))
    worker.handle(PromiseAsked(2, 8))
    worker.handle(SchedulerLost())
    assert worker.answered == [2]


def test_a_request_that_has_waited_for_long_is_forgotten(worker):
    worker.receive(assign("7 x"))
    worker.handle(PromiseAsked(1, 7))
    worker.handle(PromiseAsked(2, 7))
    worker.handle(PromiseExpired(1, 7))
    worker.run()
    assert worker.answered == [2]


def test_a_chunk_ends_with_an_attempt_that_others_wait_for(worker):
    worker.receive(assign("1 a"))
    worker.run()
    worker.handle(PromiseAsked(1, 3))
    worker.receive(assign("2 b", "3 c", "4 d", "5 e"))
    assert worker.run(n=9) == ["b", "c"]
    assert worker.answered == [1]
