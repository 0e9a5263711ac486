"""Tasks that name cores take that many seats of their worker, or a part of one, or none."""

from __future__ import annotations

import pytest

from tests.worker.builders import SLOW, Hands, assign, running, start_all
from weft.protocol.amounts import BESIDE, CORES, asked_by_cores
from weft.protocol.wire.messages import AttemptsBlocked
from weft.worker.core import seats
from weft.worker.core.offered import PATIENCE_S


def slot_of(worker: Hands, key: str) -> int:
    return next(i for i, tasks in worker.started.items() if key in [task.key for task in tasks])


def give(worker: Hands, *lines: str, cores: float = 1) -> None:
    worker.receive(assign(*lines, function=SLOW, resources=asked_by_cores(cores)))


def finish(worker: Hands, key: str) -> None:
    worker.report(slot_of(worker, key), duration_us=1_000_000)  # so a chunk has one task


def test_a_task_with_several_cores_leaves_the_others_to_plain_tasks():
    worker = Hands(4)
    give(worker, "1 wide", cores=3)
    give(worker, "2 a", "3 b")
    assert start_all(worker) == ["a", "wide"]
    finish(worker, "wide")
    assert start_all(worker) == ["a", "b"]
    assert worker.state.seats.n_held == 0


def test_a_task_with_several_cores_begins_when_so_many_threads_are_idle():
    worker = Hands(2)
    give(worker, "1 a", "2 b")
    start_all(worker)
    give(worker, "3 wide", cores=2)
    finish(worker, "a")
    assert start_all(worker) == ["b"]
    finish(worker, "b")
    assert start_all(worker) == ["wide"]


def test_tasks_share_a_core():
    worker = Hands(2)
    give(worker, *[f"{i} half{i}" for i in range(1, 7)], cores=0.5)
    assert len(start_all(worker)) == 4
    give(worker, "9 plain")
    finish(worker, running(worker)[0])
    assert len(start_all(worker)) == 4, "another half, so no thread is idle for the plain one"


def test_two_halves_and_a_plain_task_take_two_threads():
    worker = Hands(2)
    give(worker, "1 a", "2 b", cores=0.5)
    give(worker, "3 plain", "4 waits")
    assert start_all(worker) == ["a", "b", "plain"]
    finish(worker, "a")
    assert start_all(worker) == ["b", "plain"], "the other half still takes a thread"
    finish(worker, "b")
    assert start_all(worker) == ["plain", "waits"]


def test_a_task_without_cores_runs_beside_busy_threads(worker):
    give(worker, "1 plain")
    give(worker, "2 beside", "3 beside2", cores=0)
    assert start_all(worker) == ["beside", "beside2", "plain"]
    finish(worker, "beside")
    assert start_all(worker) == ["beside2", "plain"]
    finish(worker, "plain")
    finish(worker, "beside2")
    give(worker, "4 next", "5 last")
    assert start_all(worker) == ["next"], "there is one seat again"


def test_plain_tasks_that_keep_coming_do_not_keep_a_wide_one_from_beginning():
    worker = Hands(2)
    give(worker, "1 a", "2 b")
    start_all(worker)
    give(worker, "3 wide", cores=2)
    give(worker, *[f"{i} p{i:02}" for i in range(4, 14)])
    finish(worker, "a")
    assert start_all(worker) == ["b", "p04"]
    worker.now += PATIENCE_S + 0.1
    finish(worker, "b")
    assert start_all(worker) == ["p04"], "the thread is kept"
    finish(worker, "p04")
    assert start_all(worker) == ["wide"]
    finish(worker, "wide")
    assert start_all(worker) == ["p05", "p06"]


def test_plain_tasks_of_a_better_priority_take_what_is_kept():
    worker = Hands(2)
    give(worker, "1 a", "2 b")
    start_all(worker)
    give(worker, "3 wide", cores=2)
    finish(worker, "a")
    worker.now += PATIENCE_S + 0.1
    worker.receive(assign("4 urgent", function=SLOW, priority=-(1 << 54)))
    assert start_all(worker) == ["b", "urgent"]


def test_nothing_is_kept_while_a_task_with_cores_waits_for_something():
    worker = Hands(3)
    give(worker, "1 outer", cores=2)
    give(worker, "2 a")
    start_all(worker)
    worker.block(slot_of(worker, "outer"))
    give(worker, "3 wide", cores=3)
    worker.now += PATIENCE_S + 0.1
    give(worker, "4 inner")
    assert "inner" in start_all(worker), "the outer one may wait for it"


@pytest.mark.parametrize("cores", [0, 0.5, 1, 2, 3])
def test_a_task_that_waits_gives_its_own_seat_up_and_takes_one_again(cores):
    worker = Hands(3)
    give(worker, "1 outer", cores=cores)
    start_all(worker)
    outer = slot_of(worker, "outer")
    worker.block(outer)
    give(worker, *[f"{i} p{i}" for i in range(2, 9)])
    n_plain = len(start_all(worker)) - 1
    assert n_plain == {0: 3, 0.5: 2, 1: 3, 2: 2, 3: 1}[cores]
    worker.resume(outer)
    assert (outer in worker.seated) == (cores < 1), "others sit down when a task has ended"
    finish(worker, "p2")
    assert outer in worker.seated
    worker.report(outer)
    start_all(worker)
    assert len(running(worker)) == 3
    assert worker.state.seats.n_held == 0


@pytest.mark.parametrize("cores", [0, 0.5, 2])
def test_a_task_that_ends_while_it_waits_gives_all_back(cores):
    worker = Hands(2)
    give(worker, "1 outer", cores=cores)
    start_all(worker)
    outer = slot_of(worker, "outer")
    worker.block(outer)
    worker.report(outer)
    give(worker, *[f"{i} p{i}" for i in range(2, 9)])
    assert len(start_all(worker)) == 2
    assert worker.state.seats.n_held == 0


def test_as_many_tasks_without_cores_run_as_there_are_places(worker):
    worker.state.offered.free[BESIDE] = worker.state.offered.total[BESIDE] = 2.0
    give(worker, "1 a", "2 b", "3 c", cores=0)
    assert start_all(worker) == ["a", "b"]
    finish(worker, "a")
    assert start_all(worker) == ["b", "c"]


def test_no_more_cores_are_taken_than_the_worker_has():
    worker = Hands(4)
    give(worker, "1 a", "2 b", "3 c", cores=1.5)
    assert start_all(worker) == ["a", "b"]
    give(worker, "4 plain", "5 last")
    assert start_all(worker) == ["a", "b", "plain"]
    assert worker.state.offered.free[CORES] == 1.0


def test_a_slot_that_has_its_seat_again_at_once_is_not_woken_beside_its_thread(worker):
    give(worker, "1 a", "2 b", "3 c", cores=0.5)
    assert start_all(worker) == ["a", "b"]
    n_runs = worker.n_runs
    finish(worker, "b")  # its slot sat beside the only seat, which two halves share
    assert start_all(worker) == ["a", "c"]
    assert worker.n_runs == n_runs


def test_a_task_with_several_cores_takes_the_seats_that_are_kept_for_waits_of_a_limit(monkeypatch):
    """The holder of the limit, at another worker, may wait for it."""
    monkeypatch.setattr(seats, "MANY_BLOCKED", 0)
    monkeypatch.setattr(seats, "MORE_BLOCKED", 2)
    worker = Hands(2)
    worker.receive(assign("1 limited", "2 plain", function=SLOW))
    start_all(worker)
    assert worker.block(slot_of(worker, "limited"), may_park=True) == []
    assert worker.state.seats.n_kept == 1
    worker.receive(assign("3 wide", function=SLOW, resources=asked_by_cores(2)))
    assert worker.state.seats.n_kept == 1, "the plain one still takes a seat"
    sent = worker.report(slot_of(worker, "plain"), duration_us=1_000_000)
    blocked = [one for one in sent if isinstance(one, AttemptsBlocked)]
    assert blocked == [AttemptsBlocked(attempts=[1])], "for the scheduler it has no thread now"
    assert "wide" in start_all(worker)
    assert (worker.state.seats.n_kept, worker.state.seats.parked) == (0, {})
