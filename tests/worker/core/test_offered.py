"""offered.py: a task with resources begins when these are free, and holds no other task up."""

from __future__ import annotations

import pytest

from tests.worker.builders import SLOW, Hands, assign, drop, give_back, start_all
from weft.protocol.wire.messages import AttemptsBlocked, AttemptsReturned, WithdrawAttempts
from weft.worker.core.events import SchedulerLost, SessionOpened
from weft.worker.core.offered import amounts_of
from weft.worker.core.seats import SPARE

GPU = {"gpu": 1.0}


def test_one_task_at_a_time_has_the_only_unit():
    worker = Hands(2)
    worker.receive(assign("1 a", "2 b", "3 c", function=SLOW, resources=GPU))
    assert start_all(worker) == ["a"]
    (slot,) = worker.awake
    worker.report(slot)
    assert start_all(worker) == ["b"]
    worker.report(slot)
    assert worker.run_all(slot) == ["c"]
    assert worker.state.offered.free == worker.state.offered.total


def test_a_task_whose_amounts_are_not_free_holds_up_none_behind_it():
    worker = Hands(3)
    worker.receive(assign("1 a", "2 b", function=SLOW, resources=GPU))
    worker.receive(assign("3 other", function=SLOW, resources={"mem": 0.5}))
    worker.receive(assign("4 plain", function=SLOW))
    assert start_all(worker) == ["a", "other", "plain"]


def test_a_part_of_what_is_there_is_given_as_often_as_it_fits():
    worker = Hands(8)
    keys = [f"{i + 1} k{i}" for i in range(8)]
    worker.receive(assign(*keys, function=SLOW, resources={"mem": 0.3}))
    assert start_all(worker) == ["k0", "k1", "k2"]
    assert worker.state.offered.free["mem"] == 0.1


def test_tenths_add_up():
    worker = Hands(16)
    for round in range(3):
        keys = [f"{16 * round + i + 1} k{round}-{i}" for i in range(10)]
        worker.receive(assign(*keys, function=SLOW, resources={"mem": 0.1}))
        assert len(start_all(worker)) == 10
        for slot in list(worker.awake):
            worker.report(slot)
    worker.receive(assign("99 all", resources={"mem": 1.0}))
    assert start_all(worker) == ["all"]


def test_the_best_priority_that_fits_begins(worker):
    worker.receive(assign("1 first", function=SLOW, resources=GPU))
    worker.receive(assign("2 late", function=SLOW, resources=GPU, priority=5 << 53))
    worker.receive(assign("3 plain", function=SLOW, priority=4 << 53))
    worker.receive(assign("4 soon", function=SLOW, resources={"mem": 1.0}, priority=3 << 53))
    assert worker.run_all() == ["first", "soon", "plain", "late"]


def test_queues_of_one_priority_take_turns(worker):
    worker.receive(assign("1 a", "2 b", function=SLOW, resources=GPU))
    worker.receive(assign("3 x", "4 y", function=SLOW, resources={"mem": 1.0}))
    worker.receive(assign("5 p", "6 q", function=SLOW))
    ran = []
    while worker.awake:
        task = worker.start()
        assert task is not None
        ran.append(task.key)
        worker.report(duration_us=5000)
    assert {*ran[1:4]} == {"b", "x", "p"}, "a began when the others were not there"
    assert {*ran[4:]} == {"y", "q"}


def test_a_chunk_of_short_tasks_has_the_amounts_of_one():
    worker = Hands(2)
    worker.receive(assign("1 learn"))
    worker.run_all(next(iter(worker.awake)))
    keys = [f"{i + 2} k{i}" for i in range(6)]
    worker.receive(assign(*keys, resources=GPU))
    assert [len(slot.chunk) for slot in worker.state.slots if slot.busy] == [6]
    (slot,) = worker.awake
    worker.start(slot)
    assert worker.state.offered.free["gpu"] == 0.0
    assert len(worker.run_all(slot)) == 5
    assert worker.state.offered.free["gpu"] == 1.0


def test_a_slot_without_work_takes_half_of_a_chunk_only_if_its_amounts_are_free_once_more():
    for resources, n_awake in ((GPU, 1), ({"mem": 0.4}, 2)):
        worker = Hands(2)
        worker.receive(assign("1 learn"))
        worker.run_all(next(iter(worker.awake)))
        worker.receive(assign("2 long", function=SLOW))
        (plain,) = worker.awake
        worker.receive(assign("3 a", "4 b", "5 c", "6 d", resources=resources))
        assert start_all(worker) == ["a", "long"]
        worker.report(plain)
        assert len(worker.awake) == n_awake


def test_a_dropped_task_has_its_amounts_until_it_ends():
    worker = Hands(2)
    worker.receive(assign("1 a", "2 b", function=SLOW, resources=GPU))
    assert start_all(worker) == ["a"]
    (slot,) = worker.awake
    worker.receive(drop(1))
    assert start_all(worker) == ["a"], "it runs"
    worker.report(slot)
    assert worker.run_all(slot) == ["b"]
    worker.messages.clear()


def test_a_task_that_waits_keeps_its_amounts(worker):
    worker.receive(assign("1 a", "2 b", function=SLOW, resources=GPU))
    worker.receive(assign("3 plain", function=SLOW))
    worker.start(0)
    assert worker.block(0) == [AttemptsBlocked(attempts=[1])]
    assert worker.run_all(1) == ["plain"]
    worker.report(0)  # it ends without a seat
    assert worker.state.slots[0].place == SPARE
    assert worker.run_all(1) == ["b"]


def test_unstarted_tasks_are_given_back_and_asked_for_no_more(worker):
    worker.receive(assign("1 a", "2 b", "3 c", function=SLOW, resources=GPU))
    worker.start(0)
    assert worker.receive(give_back(1)) == [AttemptsReturned(attempts=[3])]
    worker.receive(WithdrawAttempts(attempts=[2]))
    assert [*worker.state.offered.asked] == [1]
    assert worker.run_all() == []
    assert not worker.state.offered.asked


def test_a_task_that_waits_for_an_input_takes_nothing_until_it_begins():
    worker = Hands(2)
    worker.receive(assign("1 in", function=SLOW))
    worker.receive(assign("2 reads <- in", function=SLOW, resources=GPU))
    worker.receive(assign("3 other", function=SLOW, resources=GPU))
    assert start_all(worker) == ["in", "other"]


def test_amounts_are_counted_in_the_next_session_too():
    worker = Hands(2)
    worker.receive(assign("1 a", "2 b", function=SLOW, resources=GPU))
    start_all(worker)
    worker.handle(SchedulerLost())
    worker.handle(SessionOpened(is_first=False))
    worker.receive(assign("3 c", function=SLOW, resources=GPU))
    assert start_all(worker) == ["a"]
    worker.messages.clear()


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ({}, ()),
        ({"b": 1, "a": 0.5}, (("a", 0.5), ("b", 1.0))),
        ({"none": 0, "third": 1 / 3}, (("third", 0.333333333),)),
    ],
)
def test_amounts_are_rounded_as_the_scheduler_rounds_them(resources, expected):
    assert amounts_of(resources) == expected
