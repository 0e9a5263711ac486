"""Attempts that are dropped and interrupted."""

from __future__ import annotations

from tests.worker.builders import assign
from weft.protocol.wire.messages import DropAttempts, InterruptAttempts


def test_only_running_attempts_are_interrupted(worker):
    worker.receive(assign("1 a"))
    worker.run()
    worker.receive(assign("2 b", "3 c"))
    worker.start()
    worker.receive(DropAttempts(attempts=[2, 3]), InterruptAttempts(attempts=[2, 3, 1, 99]))
    assert worker.interrupted == [2]
    worker.report()
    assert worker.run_all() == []


def test_attempts_that_were_not_dropped_are_not_interrupted(worker):
    worker.receive(assign("1 a"))
    worker.start()
    worker.receive(InterruptAttempts(attempts=[1]))
    assert worker.interrupted == []
    worker.report()
