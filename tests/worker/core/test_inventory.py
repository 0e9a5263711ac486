"""inventory.py: a worker without a scheduler keeps everything, and lists it when it is back."""

from __future__ import annotations

import pytest

from weft.protocol.wire import messages as m
from weft.worker.core import inventory
from weft.worker.core.events import Leave, SchedulerLost, SessionOpened

from ..builders import INC, Hands, assign, drop

A = "tcp://a"


def come_back(worker: Hands) -> list[m.Message]:
    return worker.handle(SessionOpened(is_first=False))


def test_a_worker_without_a_scheduler_goes_on_and_keeps_what_it_has(worker):
    worker.receive(assign("1 a", "2 b <- a", "3 c"))
    assert worker.handle(SchedulerLost()) == []
    worker.run_all()
    assert worker.store == {1, 2, 3}
    assert list(worker.state.functions) == [INC]


def test_an_inventory_lists_each_record_once():
    worker = Hands(2)
    worker.receive(assign("1 a", function=b"slow"))
    for slot in list(worker.awake):
        worker.run_all(slot)
    worker.receive(assign("2 b", "3 c", function=b"slow"))
    worker.start(0)
    worker.start(1)
    worker.receive(
        assign("4 d", "5 e <- a", "6 f <- x", "7 g <- y", located=[("x", 60, 10, [A])]), drop(2)
    )
    worker.handle(SchedulerLost())
    kept, unfinished, functions, end, missing = come_back(worker)
    assert kept == m.InventoryKept(keys=["a"], attempts=[1], nbytes=kept.nbytes)
    assert isinstance(unfinished, m.InventoryUnfinished)
    assert dict(zip(unfinished.keys, unfinished.phases, strict=True)) == {
        "b": m.DROPPED,
        "c": m.RUNNING,
        **dict.fromkeys("defg", m.ASSIGNED),
    }
    assert unfinished.attempts == sorted(unfinished.attempts)
    assert functions == m.InventoryFunctions(functions=[b"slow", INC])
    assert end == m.InventoryEnd(n_rows=7)
    assert missing == m.KeysMissing(keys=["y"], holder="tcp://me")
    assert list(worker.state.owed) == [2]


def test_a_worker_is_unused_until_it_is_assigned_a_task_or_has_a_copy():
    tasks, copies = Hands(), Hands()
    assert tasks.state.is_unused
    assert copies.state.is_unused
    tasks.receive(assign("1 a"))
    tasks.run_all()
    tasks.receive(drop(1))
    assert not tasks.state.by_key
    assert not tasks.state.is_unused
    copies.receive(m.HoldCopies(keys=["x"], attempts=[60], nbytes=[10], holders=[[A]]))
    assert not copies.state.is_unused


def test_the_first_session_has_no_inventory(worker):
    assert worker.handle(SessionOpened(is_first=True)) == []


def test_reports_of_the_time_without_a_session_are_not_sent_beside_the_inventory(worker):
    worker.receive(assign("1 a"))
    worker.start()
    worker.handle(SchedulerLost())
    worker.report()
    assert [type(x) for x in come_back(worker)] == [
        m.InventoryKept,
        m.InventoryFunctions,
        m.InventoryEnd,
    ]


def test_failures_are_kept_until_the_scheduler_drops_them(worker):
    worker.receive(assign("1 a", "2 b"))
    for key in ("a", "b"):
        worker.start()
        worker.report(failed=[key])
    worker.receive(drop(1))
    failed, _, _ = come_back(worker)
    assert isinstance(failed, m.InventoryFailed)
    assert (failed.keys, failed.attempts) == (["b"], [2])
    assert failed.failures[0][1] == "b"


def test_the_oldest_failures_go_when_they_take_too_much(monkeypatch):
    monkeypatch.setattr(inventory, "MAX_FAILURES_NBYTES", 1500)
    worker = Hands()
    worker.receive(assign("1 a", "2 b", "3 c"))
    for key in ("a", "b", "c"):
        worker.start()
        worker.report(failed=[key])
    assert list(worker.state.failures.by_attempt) == [2, 3]


def test_hashes_of_named_keys_are_part_of_the_rows(worker):
    message = assign("1 a", "2 b")
    message.spec_hashes = [b"h" * 16, m.NO_HASH]
    worker.receive(message)
    worker.run_all()
    kept, *_ = come_back(worker)
    assert isinstance(kept, m.InventoryKept)
    assert dict(zip(kept.keys, kept.spec_hashes, strict=True)) == {"a": b"h" * 16, "b": m.NO_HASH}


def test_exceptions_of_earlier_attempts_are_part_of_the_rows(worker):
    message = assign("1 a", "2 b", "3 c")
    message.n_raised = [2, 1, 0]
    worker.receive(message)
    worker.start()
    worker.report(failed=["a"])
    unfinished, failed, *_ = come_back(worker)
    assert isinstance(unfinished, m.InventoryUnfinished)
    assert isinstance(failed, m.InventoryFailed)
    assert (unfinished.keys, unfinished.n_raised) == (["b", "c"], [1, 0])
    assert (failed.keys, failed.n_raised) == (["a"], [2])


def test_a_leaving_worker_comes_back_with_what_it_has_and_runs_and_gives_the_rest_back():
    worker = Hands(2)
    worker.receive(assign("1 a", function=b"slow"))
    worker.run_all(next(iter(worker.awake)))
    worker.receive(assign("2 b", "3 c", "4 d <- c", "5 e <- x", function=b"slow"))
    worker.start(0)
    worker.start(1)
    worker.handle(Leave("SIGTERM", 20.0))
    worker.handle(SchedulerLost())
    assert not worker.has_ended
    says, asks, kept, unfinished, _, end = come_back(worker)
    assert says == m.WorkerLeaving(reason="SIGTERM")
    assert asks == m.AskToLeave(request=1, left_ms=20_000)
    assert isinstance(kept, m.InventoryKept)
    assert kept.keys == ["a"]
    assert isinstance(unfinished, m.InventoryUnfinished)
    assert dict(zip(unfinished.keys, unfinished.phases, strict=True)) == {
        "b": m.RUNNING,
        "c": m.RUNNING,
    }
    assert end == m.InventoryEnd(n_rows=3)
    worker.report(0)
    worker.receive(m.MayLeave(request=1))
    assert not worker.has_ended
    worker.report(1)
    assert worker.has_ended


def test_a_leaving_worker_without_a_session_ends_if_it_has_nothing_that_runs_or_is_done(worker):
    worker.receive(assign("1 a <- x"))
    worker.handle(Leave("SIGTERM"))
    worker.handle(SchedulerLost())
    assert worker.has_ended


@pytest.mark.parametrize("by", ["assignment", "answer"])
def test_a_copy_has_the_hash_of_its_task(worker, by):
    if by == "assignment":
        message = assign("1 a <- x y", located=[("x", 8, 5, ["tcp://a"]), ("y", 9, 5, ["tcp://a"])])
        message.located_hashes = [b"x" * 16, m.NO_HASH]
        worker.receive(message)
    else:
        worker.receive(assign("1 a <- x y"))
        located = m.LocatedKeys(
            keys=["x", "y"], attempts=[8, 9], nbytes=[5, 5], holders=[["tcp://a"], ["tcp://a"]]
        )
        located.spec_hashes = [b"x" * 16, m.NO_HASH]
        worker.receive(located)
    worker.answer(A)
    kept, *_ = come_back(worker)
    assert isinstance(kept, m.InventoryKept)
    assert dict(zip(kept.keys, kept.spec_hashes, strict=True)) == {"x": b"x" * 16, "y": m.NO_HASH}


# -- tasks whose inputs the scheduler does not know -----------------------------------------------
def unknown(*keys: str) -> m.KeysUnknown:
    return m.KeysUnknown(keys=list(keys))


def test_tasks_that_wait_for_a_dropped_attempt_are_given_back_if_it_is_unknown(worker):
    worker.receive(assign("1 a"))
    worker.start()
    worker.receive(assign("2 b <- x", "3 c <- b", "4 d <- b c", "5 e"))
    assert worker.receive(drop(2)) == [
        m.KeysMissing(keys=["b"], holder="tcp://me"),
        m.AttemptsEnded(attempts=[2]),
    ]
    (returned,) = worker.receive(unknown("b"))
    assert isinstance(returned, m.AttemptsReturned)
    assert sorted(returned.attempts) == [3, 4]
    assert sorted(worker.state.by_key) == ["a", "e"]


def test_the_scheduler_is_not_asked_for_an_attempt_that_is_dropped_with_its_readers(worker):
    worker.receive(assign("1 a <- x", "2 b <- a"))
    assert worker.receive(drop(1, 2)) == [m.AttemptsEnded(attempts=[1, 2])]


def test_nothing_is_given_back_for_what_is_here_or_on_its_way(worker):
    worker.receive(assign("1 a", "2 b <- a x", located=[("x", 60, 10, [A])]))
    assert worker.receive(unknown("a", "x", "z")) == []
    assert sorted(worker.state.by_key) == ["a", "b", "x"]
