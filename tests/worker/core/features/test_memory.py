"""Values that were lost with their files, and statuses that are sent at once."""

from __future__ import annotations

from tests.worker.builders import assign, drop
from weft.protocol.wire.messages import AttemptsFinished, KeysMissing, WorkerStatus
from weft.worker.core.features.memory import MemoryChanged, MemoryPressed, ValueLost

LOST = KeysMissing(keys=["a"], holder="tcp://me", unreachable=False, attempts=[1])


def test_a_lost_value_is_reported_as_one_that_this_worker_does_not_have(worker):
    worker.receive(assign("1 a"))
    worker.run_all()
    assert worker.handle(ValueLost(1)) == [LOST]


def test_a_value_that_was_dropped_or_made_again_meanwhile_is_not_reported(worker):
    worker.receive(assign("1 a"))
    worker.run_all()
    worker.receive(drop(1))
    assert worker.handle(ValueLost(1)) == []
    worker.receive(assign("2 a"))
    worker.run_all()
    assert worker.handle(ValueLost(1)) == []


def test_tasks_that_read_a_lost_value_are_taken_back_and_it_is_fetched_for_later_ones(worker):
    worker.receive(assign("1 a", "2 b <- a"))
    worker.run()
    worker.handle(ValueLost(1))
    # The scheduler drops the copy, and what is behind it.
    worker.receive(drop(1, 2))
    assert not worker.store
    worker.receive(assign("4 b <- a", located=[("a", 3, 100, ["tcp://other"])]))
    worker.answer("tcp://other")
    assert worker.run_all() == ["b"]


def test_a_status_follows_the_reports_that_wait(worker):
    worker.receive(assign("1 a"))
    task = worker.start()
    assert task is not None
    status = WorkerStatus(
        state="paused",
        nthreads=1,
        n_records=1,
        n_ready=0,
        managed_nbytes=1,
        resident_nbytes=2,
        cpu_percent=3,
        numbers=[],
    )
    sent = worker.report()
    sent += worker.handle(MemoryChanged(status))
    assert [type(message) for message in sent] == [AttemptsFinished, WorkerStatus]
    assert sent[-1] is status


def test_no_copy_is_asked_for_while_memory_is_short(worker):
    worker.handle(MemoryPressed(True))
    worker.receive(assign("2 b <- a", located=[("a", 1, 100, ["tcp://other"])]))
    assert not worker.fetches
    worker.handle(MemoryPressed(False))
    worker.answer("tcp://other")
    assert worker.run_all() == ["b"]


def test_a_worker_asks_for_no_more_than_it_has_room_for(worker):
    worker.state.fetching.memory_limit = 1600
    rows = [
        (f"{peer}-{i}", 10 * n + i, 60, [f"tcp://{peer}"])
        for n, peer in enumerate("abcd")
        for i in (1, 2)
    ]
    keys = " ".join(row[0] for row in rows)
    worker.receive(assign(f"99 x <- {keys}", located=rows))
    # An eighth of the limit in all, each request a sixteenth.
    assert [fetch.keys for fetch in worker.fetches.values()] == [["a-1"], ["b-1"], ["c-1"], ["d-1"]]
