"""Attempts with a time limit: which of them are reported, and when."""

from __future__ import annotations

from tests.worker.builders import Hands, assign, drop, give_back
from weft.protocol.wire.failure import interrupted
from weft.protocol.wire.messages import (
    INTERRUPTED,
    RETURNED,
    AttemptsEnded,
    AttemptsOverdue,
)
from weft.worker.core.events import ChunkDone, SchedulerLost, SessionOpened
from weft.worker.core.features.timeouts import REPORT_AGAIN_S, RunningSeen, TimeLimits


def limited(*lines, us=5_000_000, **options):
    message = assign(*lines, **options)
    message.timeouts_us = [us] * len(lines)
    return message


def see(worker, at, *attempts):
    """Let the shell see that attempts run; return what is reported as overdue."""
    worker.now = at
    sent = worker.handle(RunningSeen(attempts))
    return sent.of(AttemptsOverdue)


def overdue(*attempts, us=5_000_000):
    return [AttemptsOverdue(attempts=[*attempts], timeouts_us=[us] * len(attempts))]


def test_an_attempt_is_overdue_when_its_time_has_passed_since_it_was_seen_to_run(worker):
    worker.now = 100.0
    worker.receive(limited("1 a"))
    assert worker.n_looks == 1
    worker.now = 200.0
    worker.start()
    assert see(worker, 300.0, 1) == []
    assert see(worker, 304.9, 1) == []
    assert see(worker, 305.0, 1) == overdue(1)
    # Again later, because the scheduler has not dropped it.
    assert see(worker, 306.0, 1) == []
    assert see(worker, 305.0 + REPORT_AGAIN_S, 1) == overdue(1)


def test_the_time_goes_on_while_the_task_waits(worker):
    worker.receive(limited("1 a"))
    worker.start()
    see(worker, 0.0, 1)
    worker.block()
    assert see(worker, 5.0, 1) == overdue(1)


def test_attempts_without_a_limit_are_not_looked_at(worker):
    worker.receive(assign("1 a"))
    worker.start()
    assert worker.n_looks == 0
    assert see(worker, 0.0, 1) == see(worker, 1e6, 1) == []
    message = limited("2 b", "3 c")
    message.timeouts_us = [0, 7]
    worker.receive(message)
    assert worker.n_looks == 1
    assert [*worker.state.record(TimeLimits)] == [3]


def test_nothing_is_left_of_an_attempt_that_has_ended(worker):
    worker.receive(limited("1 finishes", "2 raises", "3 is-dropped", "4 is-given", "5 waits <- x"))
    worker.receive(limited("1 finishes"))  # twice
    worker.start()
    worker.report()
    worker.start()
    worker.report(failed=["raises"])
    worker.receive(limited("1 finishes"))
    assert see(worker, 1e6, 1, 2) == []
    worker.start()
    worker.receive(drop(3, 5), give_back(1))
    assert worker.state.record(TimeLimits) == {}
    worker.report()


def test_a_new_attempt_takes_the_place_of_one_that_is_overdue():
    worker = Hands(2)
    worker.receive(limited("1 a"))
    worker.start()
    see(worker, 0.0, 1)
    assert see(worker, 5.0, 1) == overdue(1)
    worker.receive(drop(1), limited("2 a"))
    worker.start(1)
    assert see(worker, 6.0, 1, 2) == []
    assert see(worker, 11.0, 1, 2) == overdue(2)


def test_a_new_session_is_sent_what_is_overdue(worker):
    worker.receive(limited("1 a"))
    worker.start()
    see(worker, 0.0, 1)
    assert see(worker, 5.0, 1) == overdue(1)
    worker.handle(SchedulerLost())
    worker.handle(SessionOpened(is_first=False))
    assert see(worker, 5.1, 1) == overdue(1)


def end_dropped(failures):
    """Let a dropped attempt end; return the report."""
    worker = Hands()
    worker.receive(assign("1 a"))
    worker.start()
    worker.receive(drop(1))
    worker.started[0].clear()
    worker.awake.clear()
    if failures:
        event = ChunkDone(0, [], [], [], [], [1], [10], failures)
    else:
        worker.store.add(1)
        event = ChunkDone(0, [1], [8], [10], [None])
    return worker.handle(event)


def test_the_end_of_a_dropped_attempt_is_reported_with_how_it_came():
    assert end_dropped([interrupted("a")]) == [AttemptsEnded(attempts=[1], ends=[INTERRUPTED])]
    raised = ["exception", "a", b"", "ValueError", "", "", b""]
    assert end_dropped([raised]) == [AttemptsEnded(attempts=[1], ends=[RETURNED])]
    assert end_dropped([]) == [AttemptsEnded(attempts=[1], ends=[RETURNED])]


def test_the_end_of_a_dropped_attempt_that_had_not_begun_has_no_cause(worker):
    worker.receive(assign("1 a", "2 b"))
    assert worker.receive(drop(2)) == [AttemptsEnded(attempts=[2])]
