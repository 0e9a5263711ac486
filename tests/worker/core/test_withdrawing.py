"""Attempts that are asked back by name: the answer names each of them once."""

from __future__ import annotations

from tests.worker.builders import assign
from weft.protocol.wire.messages import AttemptsWithdrawn, WithdrawAttempts


def test_only_what_has_not_started_is_given_back(worker):
    worker.receive(assign("1 a"))
    worker.run()
    worker.receive(assign("2 b", "3 c", "4 d", "5 e"))
    worker.start()
    answer = worker.receive(WithdrawAttempts(attempts=[5, 1, 2, 4, 77]))
    assert answer == [AttemptsWithdrawn(attempts=[5, 4], started=[1, 2, 77])]
    worker.report()
    assert worker.run_all() == ["c"]


def test_the_first_task_of_a_thread_that_wakes_up_for_it_counts_as_started(worker):
    worker.receive(assign("1 a", "2 b", "3 c"))
    answer = worker.receive(WithdrawAttempts(attempts=[3, 1, 2]))
    assert answer == [AttemptsWithdrawn(attempts=[3, 2], started=[1])]
    assert worker.run_all() == ["a"]


def test_an_attempt_that_waits_for_an_input_is_given_back(worker):
    worker.receive(assign("1 a", "2 b <- a"))
    worker.start()
    assert worker.receive(WithdrawAttempts(attempts=[2])) == [
        AttemptsWithdrawn(attempts=[2], started=[])
    ]


def test_an_attempt_that_others_wait_for_here_is_kept(worker):
    worker.receive(assign("1 x", "2 a", "3 b <- a"))
    worker.start()
    assert worker.receive(WithdrawAttempts(attempts=[2])) == [
        AttemptsWithdrawn(attempts=[], started=[2])
    ]
    worker.report()
    assert worker.run_all() == ["a", "b"]
