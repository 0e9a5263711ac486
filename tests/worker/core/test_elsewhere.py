"""A holder names another worker that has a large value by now."""

from __future__ import annotations

from tests.worker.builders import Hands, assign
from weft.protocol.wire.messages import DropAttempts, KeysMissing

A, B, C = "tcp://a:1", "tcp://b:1", "tcp://c:1"


def reader() -> Hands:
    worker = Hands()
    worker.receive(assign("1 a <- x", located=[("x", 9, 10, [A])]))
    assert worker.asked(A) == ["x"]
    return worker


def test_a_copy_is_requested_from_the_worker_that_is_named():
    worker = reader()
    assert worker.pass_on(A, B) == []
    assert worker.asked(B) == ["x"]
    worker.answer(B)
    assert worker.run_all() == ["a"]


def test_the_first_holder_is_asked_again_if_the_named_one_is_out_of_reach():
    worker = reader()
    worker.pass_on(A, B)
    (missing,) = worker.fail(B)
    assert missing == KeysMissing(keys=["x"], holder=B, unreachable=True, attempts=[9])
    worker.answer(A)
    assert worker.run_all() == ["a"]


def test_a_copy_that_was_dropped_meanwhile_is_requested_nowhere():
    worker = reader()
    worker.receive(DropAttempts(attempts=[1]))
    worker.pass_on(A, B)
    assert worker.asked(B) == []
    assert worker.state.fetching.peers == {}


def test_a_worker_does_not_ask_itself():
    worker = reader()
    worker.pass_on(A, worker.state.address)
    assert worker.asked(A) == ["x"]
