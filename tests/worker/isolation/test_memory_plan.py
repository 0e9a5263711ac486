"""Which children end when memory is short, by the sizes that are measured."""

from __future__ import annotations

from weft.protocol.errors import MemoryExceeded, Reschedule
from weft.worker.isolation.memory_plan import MAX_AGAIN, SPARE_S, ChildSeen, MemoryPlan
from weft.worker.policy import Fractions

MIB = 1 << 20


def ended(own, *children, fractions=None, limit=100):
    """Return (slot, attempt, whether it is too large alone) of what ends, with two threads."""
    plan = MemoryPlan(limit, fractions or Fractions(), 2)
    ends = plan.choose(own, [ChildSeen(*child) for child in children])
    return [(end.slot, end.attempt, end.is_alone) for end in ends]


def test_nothing_ends_while_there_is_room():
    assert not ended(20, (0, 7, 30), (1, 0, 30))


def test_a_child_that_alone_is_too_large_ends_and_no_other():
    assert ended(20, (0, 7, 60), (1, 8, 96)) == [(1, 8, True)]
    assert ended(1, (0, 7, 96)) == [(0, 7, True)]


def test_idle_children_end_before_the_worker_takes_no_tasks():
    assert ended(20, (0, 7, 30), (1, 0, 30)) == []
    assert ended(21, (0, 7, 30), (1, 0, 30)) == [(1, 0, False)]


def test_children_that_were_idle_for_long_end_if_there_are_more_than_threads():
    long = SPARE_S + 1
    idle = [(slot, 0, 1, False, long + slot) for slot in range(3)]
    assert ended(0, *idle, limit=0) == [(2, 0, False)]
    assert ended(0, *idle[1:], (7, 9, 1), limit=0) == []
    assert ended(0, *idle[:2], (2, 0, 1, False, 1)) == [(1, 0, False)]
    assert not ended(0, *[(slot, 0, 1, False, 1) for slot in range(3)])


def test_the_largest_makes_room_but_not_the_oldest():
    assert ended(10, (0, 9, 20), (1, 7, 50), (2, 8, 30)) == [(2, 8, False)]
    assert ended(90, (0, 9, 10)) == [(0, 9, False)]


def test_nothing_more_ends_until_memory_has_come_back():
    assert not ended(10, (0, 9, 20), (1, 7, 50), (2, 8, 30, True))
    assert ended(10, (0, 9, 96), (1, 7, 50), (2, 8, 30, True)) == [(0, 9, True)]


def test_fractions_that_are_off_end_nothing():
    off = Fractions(terminate=0, pause=0)
    assert not ended(1000, (0, 9, 1000), (1, 0, 1000), fractions=off)
    assert ended(10, (0, 9, 96), (1, 0, 1), fractions=Fractions(pause=0)) == [
        (1, 0, False),
        (0, 9, True),
    ]


def test_a_call_that_is_too_large_fails_with_the_sizes():
    plan = MemoryPlan(1000 * MIB, Fractions(), 2)
    (end,) = plan.choose(MIB, [ChildSeen(0, 7, 960 * MIB)])
    error = plan.error_of("key", end)
    assert isinstance(error, MemoryExceeded)
    assert "its process takes 960 MiB of the memory limit of 1000 MiB" in str(error)


def test_a_task_that_made_room_is_placed_again_a_few_times():
    plan = MemoryPlan(1000 * MIB, Fractions(), 2)
    (end,) = plan.choose(100 * MIB, [ChildSeen(0, 7, 900 * MIB)])
    errors = [plan.error_of("key", end) for _ in range(MAX_AGAIN + 1)]
    assert [type(error) for error in errors] == [*[Reschedule] * MAX_AGAIN, MemoryExceeded]
    assert "ended 4 times to make room" in str(errors[-1])
    assert isinstance(plan.error_of("key", end), Reschedule)


def test_not_all_keys_are_remembered_for_ever():
    n = 20_000
    plan = MemoryPlan(1000 * MIB, Fractions(), 2)
    (end,) = plan.choose(100 * MIB, [ChildSeen(0, 7, 900 * MIB)])
    for i in range(n):
        plan.error_of(f"key-{i}", end)
    assert len(plan._n_ended) <= n / 2
