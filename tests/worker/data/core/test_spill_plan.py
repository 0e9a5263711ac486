"""Which values leave the memory, and when others wait: decided without a disk or a process."""

from __future__ import annotations

import random

import pytest

from weft.worker.data.core.spill_plan import (
    AWAITED,
    DISK_PAUSE_S,
    FIRST_PAUSE_S,
    FREE,
    IN_USE,
    MIN_NBYTES,
    SpillPlan,
)
from weft.worker.policy import Fractions

LIMIT = 100 * MIN_NBYTES
UNIT = MIN_NBYTES


class Memory:
    """Values as a plan sees them: {attempt: bytes} in memory, with marks and needs."""

    def __init__(self, sizes):
        self.sizes = dict(sizes)
        self.marks = set()
        self.needs = {}

    @property
    def managed(self):
        return sum(self.sizes.values())

    def in_memory(self):
        return list(self.sizes)

    def size(self, attempt):
        return self.sizes.get(attempt, 0)

    def take_mark(self, attempt):
        found = attempt in self.marks
        self.marks.discard(attempt)
        return found

    def need(self, attempt):
        return self.needs.get(attempt, FREE)


def units(*numbers):
    return Memory(dict.fromkeys(numbers, 10 * UNIT))


def plan_for(fractions=None, limit=LIMIT, **options):
    return SpillPlan(limit, fractions or Fractions(), **options)


def chosen(plan, memory, resident=0, n=100, now=0.0):
    plan.measured(memory.managed, resident)
    return plan.choose(memory, n, now)


def test_nothing_leaves_below_the_target_and_the_oldest_beyond_it():
    plan = plan_for()
    assert chosen(plan, units(1, 2, 3, 4, 5, 6)) == []
    assert not plan.is_short
    assert chosen(plan, units(1, 2, 3, 4, 5, 6, 7, 8)) == [1, 2]
    assert plan.is_short


def test_a_value_that_is_being_written_counts_as_gone_and_is_not_chosen_again():
    plan, memory = plan_for(), units(1, 2, 3, 4, 5, 6, 7, 8)
    assert chosen(plan, memory, n=1) == [1]
    assert chosen(plan, memory) == [2]
    assert chosen(plan, memory) == []
    for attempt in (1, 2):
        del memory.sizes[attempt]
        plan.left(attempt)
    assert chosen(plan, memory) == []
    assert not plan.is_short


def test_a_value_that_was_read_stays_until_the_hand_comes_again():
    plan, memory = plan_for(), units(1, 2, 3, 4, 5, 6, 7)
    memory.marks = {1, 2}
    assert chosen(plan, memory) == [3]
    assert memory.marks == set()
    memory.sizes.pop(3)
    plan.left(3)
    memory.sizes |= {8: 10 * UNIT, 9: 10 * UNIT}
    # The hand goes on behind the last choice, and round.
    assert chosen(plan, memory) == [4, 5]


def test_inputs_of_waiting_tasks_leave_last_and_those_of_running_ones_never():
    plan, memory = plan_for(), units(1, 2, 3, 4, 5, 6, 7, 8)
    memory.needs = {1: IN_USE, 2: AWAITED, 3: AWAITED, **dict.fromkeys(range(5, 9), IN_USE)}
    assert chosen(plan, memory) == [4, 2]
    memory.sizes |= {9: 10 * UNIT, 10: 10 * UNIT}
    memory.needs |= {9: IN_USE, 10: IN_USE}
    assert chosen(plan, memory) == [3]


def test_small_values_and_those_that_cannot_be_written_stay():
    plan = plan_for()
    memory = Memory({1: UNIT - 1, 2: 40 * UNIT, 3: 40 * UNIT, 4: 30 * UNIT})
    assert chosen(plan, memory) == [2, 3]
    plan.stays(2)
    assert list(plan.stuck) == [2]
    assert chosen(plan, memory) == [4]
    plan.left(3)
    plan.left(4)
    # What is gone is forgotten with the next round.
    assert chosen(plan, Memory({5: 90 * UNIT})) == [5]
    assert not plan.stuck


def test_the_size_of_the_process_counts_above_spill_and_then_down_to_the_target():
    plan, memory = plan_for(), units(1, 2, 3)
    assert chosen(plan, memory, resident=70 * UNIT) == []
    assert chosen(plan, memory, resident=75 * UNIT) == [1, 2]


def test_when_nothing_is_left_it_is_looked_again_after_growing_pauses():
    plan, memory = plan_for(), Memory({1: 90 * UNIT})
    memory.needs[1] = IN_USE
    assert chosen(plan, memory) == []
    memory.needs.clear()
    assert chosen(plan, memory, now=FIRST_PAUSE_S / 2) == []
    assert chosen(plan, memory, now=FIRST_PAUSE_S) == [1]


def test_a_disk_that_fails_is_left_alone_for_a_while_and_the_values_are_tried_again():
    plan, memory = plan_for(), units(*range(1, 9))
    assert chosen(plan, memory, n=2) == [1, 2]
    plan.failed(1, 5.0)
    plan.failed(2, 5.0)
    assert not plan.stuck
    assert chosen(plan, memory, now=5.0 + DISK_PAUSE_S / 2) == []
    assert len(chosen(plan, memory, now=5.0 + DISK_PAUSE_S)) == 2


def test_those_who_add_wait_only_while_something_is_being_written():
    plan, memory = plan_for(), units(*range(1, 9))
    assert chosen(plan, memory, n=1) == [1]
    assert plan.is_pressed  # 0.8 of the limit
    plan.stays(1)
    plan.measured(memory.managed, 0)
    assert not plan.is_pressed
    memory.needs = dict.fromkeys(memory.sizes, IN_USE)
    assert chosen(plan, memory) == []
    assert not plan.is_pressed


def test_a_worker_is_paused_by_its_process_or_where_that_is_shared_by_its_values():
    plan = plan_for()
    for managed, resident, is_paused in (
        (10, 80, False),
        (10, 81, True),
        (10, 79, False),
        (80, 0, False),
        (81, 0, True),
    ):
        plan.measured(managed * UNIT, resident * UNIT)
        assert plan.is_paused is is_paused


@pytest.mark.parametrize("off", ["target", "spill", "pause"])
def test_each_threshold_can_be_switched_off(off):
    plan = plan_for(Fractions(**{off: 0.0}))
    plan.measured(65 * UNIT, 69 * UNIT)
    assert plan.is_short is (off != "target")
    plan.measured(10 * UNIT, 75 * UNIT)
    assert plan.is_short is (off != "spill")
    plan.measured(10 * UNIT, 85 * UNIT)
    assert plan.is_paused is (off != "pause")


def test_the_files_together_have_a_limit():
    plan = plan_for(max_nbytes=100)
    assert plan.fits_on_disk(60, 40)
    assert not plan.fits_on_disk(61, 40)


@pytest.mark.parametrize("seed", range(40))
def test_whatever_happens_the_memory_comes_below_the_target_if_it_can(seed):
    rng = random.Random(seed)
    plan, memory = plan_for(), Memory({})
    now, number = 0.0, 0
    writing = {}
    for _ in range(300):
        now += rng.random()
        event = rng.randrange(6)
        if event < 2:
            number += 1
            memory.sizes[number] = rng.randrange(UNIT // 2, 20 * UNIT)
            memory.needs[number] = rng.choice([FREE, FREE, AWAITED, IN_USE])
        elif event == 2 and memory.sizes:
            attempt = rng.choice(list(memory.sizes))
            memory.marks.add(attempt)
        elif event == 3 and memory.sizes:
            del memory.sizes[rng.choice(list(memory.sizes))]
        elif event == 4 and memory.sizes:
            memory.needs[rng.choice(list(memory.sizes))] = rng.choice([FREE, AWAITED, IN_USE])
        for attempt in list(writing):
            if rng.random() < 0.5:
                continue
            del writing[attempt]
            outcome = rng.randrange(10)
            if outcome == 0:
                plan.stays(attempt)
            elif outcome == 1:
                plan.failed(attempt, now)
            else:
                memory.sizes.pop(attempt, None)
                plan.left(attempt)
        before = memory.managed
        for attempt in chosen(plan, memory, resident=before + 5 * UNIT, n=2, now=now):
            assert attempt not in writing
            assert attempt not in plan.stuck
            assert memory.sizes[attempt] >= MIN_NBYTES
            assert memory.needs[attempt] != IN_USE
            writing[attempt] = memory.sizes[attempt]
        assert plan.writing.keys() == writing.keys()
        assert not (plan.is_pressed and not writing)
    # At rest: all that is being written is on disk, and the clock goes on.
    for _ in range(200):
        for attempt in list(plan.writing):
            memory.sizes.pop(attempt, None)
            plan.left(attempt)
        now += DISK_PAUSE_S
        chosen(plan, memory, n=2, now=now)
    left = [
        attempt
        for attempt, nbytes in memory.sizes.items()
        if nbytes >= MIN_NBYTES and memory.needs[attempt] != IN_USE and attempt not in plan.stuck
    ]
    assert memory.managed <= plan.target or not left
