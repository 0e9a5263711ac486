"""seats.py: a slot whose task waits gives its seat up, and takes one before its task goes on."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from tests.worker.builders import SLOW, Hands, assign, drop
from weft.protocol.errors import InvalidTransition
from weft.protocol.wire.messages import (
    RETURNED,
    AttemptsBlocked,
    AttemptsEnded,
    AttemptsFinished,
    AttemptsResumed,
    FailWaits,
    InventoryEnd,
    InventoryFunctions,
    InventoryUnfinished,
)
from weft.worker.core import seats
from weft.worker.core.events import SchedulerLost, SessionOpened, SlotWaits, WorkerEnding
from weft.worker.core.tasks import Slot

ROOT = Path(__file__).resolve().parents[3]


def test_the_readme_shows_the_moves_of_slots():
    rows = [f"| {start} | {finish} | {why} |" for (start, finish), why in seats.MOVES.items()]
    table = "\n".join(["| from | to | because |", "|---|---|---|", *rows]) + "\n"
    readme = ROOT / "worker" / "README.md"
    assert table in readme.read_text(encoding="utf-8"), f"put this into {readme}:\n{table}"


def kinds(messages):
    return [type(message) for message in messages]


def in_the_next_session(worker):
    """Let the scheduler be lost and be back; return what is sent after the inventory."""
    worker.handle(SchedulerLost())
    *inventory, message = worker.handle(SessionOpened(is_first=False))
    assert kinds(inventory) == [InventoryUnfinished, InventoryFunctions, InventoryEnd]
    return message


def test_a_task_that_waits_lets_another_one_run_on_a_new_slot(worker):
    worker.receive(assign("1 parent", "2 child", function=SLOW))
    worker.start(0)
    assert worker.block(0) == [AttemptsBlocked(attempts=[1])]
    assert worker.run(1) == ["child"]
    assert worker.resume(0) == [AttemptsResumed(attempts=[1])]
    assert worker.seated == {0}
    assert kinds(worker.report(0)) == [AttemptsFinished]


def test_the_other_tasks_of_a_chunk_are_not_held_up_by_one_that_waits(worker):
    worker.receive(assign("1 warm"))
    worker.run_all()
    worker.receive(assign("2 done", "3 waits", "4 next", "5 last"))
    worker.start(0)
    worker.start(0)
    assert kinds(worker.block(0)) == [AttemptsFinished, AttemptsBlocked]
    assert worker.run_all(1) == ["next", "last"]


def test_a_slot_that_returns_waits_for_the_next_one_that_has_done_its_chunk(worker):
    worker.receive(assign("1 parent", "2 child", "3 next", function=SLOW))
    worker.start(0)
    worker.block(0)
    worker.start(1)
    assert worker.resume(0) == []
    assert worker.seated == {1}
    sent = worker.report(1)
    assert kinds(sent) == [AttemptsFinished, AttemptsResumed]
    assert worker.seated == {0}
    assert worker.state.ready.n == 1
    worker.report(0)
    assert worker.run(0) == ["next"]


def test_a_slot_that_returns_gets_the_seat_of_the_next_task_that_waits(worker):
    worker.receive(assign("1 one", "2 two", function=SLOW))
    worker.start(0)
    worker.block(0)
    worker.start(1)
    worker.resume(0)
    assert worker.block(1) == [AttemptsBlocked(attempts=[2]), AttemptsResumed(attempts=[1])]
    assert worker.seated == {0}
    worker.report(0)
    assert worker.resume(1) == [AttemptsResumed(attempts=[2])]
    worker.report(1)
    assert len(worker.state.slots) == 2


def test_a_spare_slot_is_used_again(worker):
    for attempt in range(1, 9):
        worker.receive(assign(f"{attempt} task", function=SLOW))
        (slot,) = worker.awake
        worker.start(slot)
        worker.block(slot)
        worker.resume(slot)
        worker.report(slot)
    assert len(worker.state.slots) == 2


def test_tasks_that_wait_for_each_other_thirty_deep_end_on_one_seat(worker):
    depth = 30
    for i in range(depth):
        worker.receive(assign(f"{i + 1} level-{i}", function=SLOW))
        worker.start(i)
        worker.block(i)
    for i in reversed(range(depth)):
        worker.resume(i)
        worker.report(i)
    assert len(worker.state.slots) == depth + 1
    assert worker.state.by_key.keys() == {f"level-{i}" for i in range(depth)}


def test_a_task_may_end_without_a_seat(worker):
    worker.receive(assign("1 seceded", "2 other", function=SLOW))
    worker.start(0)
    worker.block(0)
    assert kinds(worker.report(0)) == [AttemptsFinished]
    assert list(worker.state.seats.spare) == [worker.state.slots[0]]
    assert worker.run(1) == ["other"]


def test_a_dropped_task_that_waits_ends_without_a_result(worker):
    worker.receive(assign("1 task", function=SLOW))
    worker.start(0)
    worker.block(0)
    worker.receive(drop(1))
    worker.resume(0)
    assert AttemptsEnded(attempts=[1], ends=[RETURNED]) in worker.report(0)


def test_the_next_session_begins_with_what_waits(worker):
    worker.receive(assign("1 one", "2 two", function=SLOW))
    worker.start(0)
    worker.block(0)
    worker.start(1)
    worker.resume(0)
    assert in_the_next_session(worker) == AttemptsBlocked(attempts=[1])


def test_a_wait_for_tasks_names_them_and_may_fail_as_long_as_it_lasts(worker):
    worker.receive(assign("1 task", "2 other", function=SLOW))
    worker.start(0)
    assert worker.block(0, "a", "b") == [AttemptsBlocked(attempts=[1], keys=[["a", "b"]])]
    worker.start(1)
    worker.block(1)
    assert in_the_next_session(worker) == AttemptsBlocked(attempts=[1, 2], keys=[["a", "b"], []])
    worker.receive(FailWaits(attempts=[1, 2, 9], texts=["why", "not for a task", "unknown"]))
    assert worker.failed_waits == [(1, "why")]
    worker.resume(0)
    worker.receive(FailWaits(attempts=[1], texts=["too late"]))
    assert worker.failed_waits == [(1, "why")]


def test_waits_of_several_kinds_are_reported_together_each_in_its_column(worker):
    worker.receive(assign("1 task", "2 other", function=SLOW))
    worker.start(0)
    worker.block(0, "a")
    worker.start(1)
    worker.block(1)
    calls = worker.handle(SlotWaits(1, {"actors": ["b"], "calls": ["h/1/2"]}))
    assert calls == [AttemptsBlocked(attempts=[2], actors=[["b"]], calls=[["h/1/2"]])]
    worker.handle(SchedulerLost())
    sent = worker.handle(SessionOpened(is_first=False))
    *inventory, blocked = sent
    assert kinds(inventory) == [InventoryUnfinished, InventoryFunctions, InventoryEnd]
    assert blocked == AttemptsBlocked(
        attempts=[1, 2], keys=[["a"], []], actors=[[], ["b"]], calls=[[], ["h/1/2"]]
    )


def test_a_task_that_has_seceded_reports_its_waits_for_tasks_and_their_ends(worker):
    worker.receive(assign("1 task", function=SLOW))
    worker.start(0)
    assert worker.block(0) == [AttemptsBlocked(attempts=[1])]
    waits = worker.handle(SlotWaits(0, {"keys": ["a", "b"]}))
    assert waits == [AttemptsBlocked(attempts=[1], keys=[["a", "b"]])]
    worker.receive(FailWaits(attempts=[1], texts=["why"]))
    assert worker.failed_waits == [(1, "why")]
    assert worker.handle(SlotWaits(0)) == [AttemptsBlocked(attempts=[1])]
    worker.receive(FailWaits(attempts=[1], texts=["too late"]))
    assert worker.failed_waits == [(1, "why")]
    worker.resume(0)
    # It has a seat again, and waits with that.
    assert worker.handle(SlotWaits(0, {"keys": ["c"]})) == []


def test_beyond_many_waits_for_a_limit_no_other_task_is_started(monkeypatch):
    monkeypatch.setattr(seats, "MANY_BLOCKED", 0)
    monkeypatch.setattr(seats, "MORE_BLOCKED", 1)
    worker = Hands(1)
    worker.receive(assign("1 one", "2 two", "3 three", function=SLOW))
    worker.start(0)
    assert worker.block(0, may_park=True) == [AttemptsBlocked(attempts=[1])]
    worker.start(1)
    assert worker.block(1, may_park=True) == []
    assert worker.state.ready.n == 1
    assert not worker.seated
    assert in_the_next_session(worker) == AttemptsBlocked(attempts=[1])
    assert worker.resume(1) == []
    assert worker.seated == {1}
    assert worker.resume(0) == []  # it waits for the seat
    worker.report(1)
    assert worker.seated == {0}
    assert worker.run_all(0)[-1] == "three"


def test_the_last_seat_is_used_for_longer(monkeypatch):
    """A task at another worker may hold the limit, and wait for one that can run only here."""
    monkeypatch.setattr(seats, "MANY_BLOCKED", 1)
    monkeypatch.setattr(seats, "MORE_BLOCKED", 2)
    worker = Hands(2)
    worker.receive(assign(*(f"{i} limited-{i}" for i in range(1, 9)), function=SLOW))
    worker.start(0)
    worker.start(1)
    worker.block(0, may_park=True)
    worker.start(2)
    assert worker.block(1, may_park=True) == []  # slot 2 has the other seat
    assert worker.state.seats.n_kept == 1
    assert worker.block(2, may_park=True) == [AttemptsBlocked(attempts=[3])]
    worker.start(3)
    worker.receive(assign("9 child", function=SLOW))
    assert worker.block(3, may_park=True) == []  # these are too many
    assert not worker.seated


def test_a_parked_task_leaves_its_seat_to_one_that_returns(monkeypatch):
    monkeypatch.setattr(seats, "MANY_BLOCKED", 1)
    monkeypatch.setattr(seats, "MORE_BLOCKED", 0)
    worker = Hands(1)
    worker.receive(assign("1 one", "2 two", function=SLOW))
    worker.start(0)
    worker.block(0, may_park=True)
    worker.start(1)
    worker.resume(0)
    assert worker.block(1, may_park=True) == [AttemptsResumed(attempts=[1])]
    assert (worker.seated, worker.state.seats.n_kept) == ({0}, 0)


def test_a_parked_task_that_ends_goes_on_with_the_next_one_without_being_woken(monkeypatch):
    """Its thread is awake. Woken all the same, it would take a later wait of its own for over."""
    monkeypatch.setattr(seats, "MANY_BLOCKED", 0)
    monkeypatch.setattr(seats, "MORE_BLOCKED", 0)
    worker = Hands(1)
    worker.receive(assign("1 one", "2 two", function=SLOW))
    worker.start(0)
    worker.block(0, may_park=True)
    n_runs = worker.n_runs
    worker.report(0)
    assert worker.n_runs == n_runs
    assert worker.run(0) == ["two"]


def test_a_task_may_end_while_it_returns_if_the_worker_ends(worker):
    worker.receive(assign("1 parent", "2 child", function=SLOW))
    worker.start(0)
    worker.block(0)
    worker.start(1)
    worker.resume(0)
    assert worker.state.slots[0].place == "returning"
    worker.handle(WorkerEnding())
    worker.report(0)
    assert worker.state.slots[0].place == "spare"


def test_a_worker_that_ends_lets_tasks_that_wait_go_on(worker):
    worker.receive(assign("1 task", function=SLOW))
    worker.start(0)
    worker.block(0)
    worker.handle(WorkerEnding())
    worker.resume(0)
    worker.report(0)


@pytest.mark.parametrize(
    ("start", "finish"),
    [
        pair
        for pair in itertools.product(("seated", "blocked", "returning", "spare"), repeat=2)
        if pair not in seats.MOVES
    ],
)
def test_other_moves_are_bugs(start, finish):
    slot = Slot(0)
    slot.place = start
    with pytest.raises(InvalidTransition):
        seats.place(slot, finish)
