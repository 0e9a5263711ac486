"""sizing.py: how much memory and how many cores a task gets first, by what others have used."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.protocol.wire.options import FIXED, MAX_SEEN, MAX_THROUGHPUT, MIN_WASTE, MODES
from weft.scheduler.core.categories.sizing import (
    FIRST_REVIEW,
    LEAST_NBYTES,
    LEAST_WALL_US,
    STEPS,
    LearnedPeaks,
    cores_used,
    rounded_up,
)

GB = 1 << 30
MB = 1 << 20

USES = st.lists(
    st.tuples(st.integers(1, 4 * GB), st.floats(0.0, 1e4)), min_size=FIRST_REVIEW, max_size=60
)


def learned(uses) -> LearnedPeaks:
    sizing = LearnedPeaks(LEAST_NBYTES, is_limit=True)
    for peak, wall_s in uses:
        sizing.note(peak, wall_s)
    return sizing


def learned_cores(uses) -> LearnedPeaks:
    peaks = LearnedPeaks(1, is_limit=False)
    for cores, wall_s in uses:
        peaks.note(cores, wall_s)
    return peaks


def wasted(allocation: int, largest: int, uses) -> float:
    """Return the memory over time that is not used, when each of these runs with an allocation."""
    total = 0.0
    for peak, wall_s in uses:
        if peak <= allocation:
            total += (allocation - peak) * wall_s
        else:
            total += allocation * wall_s + (largest - peak) * wall_s
    return total


def throughput(allocation: int, largest: int, uses) -> float:
    """Return the tasks that end in the place of a largest one, by the time of a task."""
    n = len(uses)
    share = sum(peak <= allocation for peak, _ in uses) / n
    mean_s = sum(wall_s for _, wall_s in uses) / n
    above_s = sum(wall_s for peak, wall_s in uses if peak > allocation) / n
    return (largest / allocation * share + 1 - share) / (mean_s + above_s)


def test_the_largest_is_given_until_some_are_measured():
    sizing = LearnedPeaks(LEAST_NBYTES, is_limit=True)
    for _ in range(FIRST_REVIEW - 1):
        assert not sizing.note(100 * MB, 1.0)
        assert {sizing.first(mode, GB) for mode in MODES} == {GB}
    assert sizing.note(100 * MB, 1.0)
    assert {sizing.first(mode, GB) for mode in MODES} == {GB, rounded_up(100 * MB, LEAST_NBYTES)}
    assert sizing.first(FIXED, GB) == GB


def test_allocations_are_chosen_anew_when_a_quarter_more_is_measured():
    sizing = LearnedPeaks(LEAST_NBYTES, is_limit=True)
    reviews = [n for n in range(1, 1001) if sizing.note(MB, 1.0)]
    assert reviews[:4] == [5, 7, 9, 12]
    assert len(reviews) < 30


def test_a_rare_large_task_is_run_again_rather_than_all_given_as_much():
    uses = [(100 * MB, 1.0)] * 99 + [(900 * MB, 1.0)]
    sizing = learned(uses)
    assert sizing.first(MAX_SEEN, GB) == rounded_up(900 * MB, LEAST_NBYTES)
    assert sizing.first(MIN_WASTE, GB) == rounded_up(100 * MB, LEAST_NBYTES)
    assert sizing.first(MAX_THROUGHPUT, GB) == rounded_up(100 * MB, LEAST_NBYTES)


def test_waste_counts_the_time_of_a_task_and_not_only_the_number():
    # Half of the tasks are large, and last a thousand times as long.
    uses = [(100 * MB, 1.0), (900 * MB, 1000.0)] * 10
    assert learned(uses).first(MIN_WASTE, GB) == rounded_up(900 * MB, LEAST_NBYTES)


@given(USES, st.integers(LEAST_NBYTES, 4 * GB))
def test_no_allocation_is_above_the_largest_or_below_the_least(uses, largest):
    sizing = learned(uses)
    for mode in MODES:
        assert LEAST_NBYTES <= sizing.first(mode, largest) <= largest


@given(USES)
def test_no_peak_that_was_seen_would_waste_less(uses):
    rounded = [(rounded_up(peak, LEAST_NBYTES), max(wall_s, 1e-6)) for peak, wall_s in uses]
    largest = max(peak for peak, _ in rounded)
    chosen = learned(uses).first(MIN_WASTE, largest)
    least = min(wasted(peak, largest, rounded) for peak, _ in rounded)
    # The numbers are sums of floats of very different sizes.
    whole = largest * sum(wall_s for _, wall_s in rounded)
    assert wasted(chosen, largest, rounded) <= least + whole * 1e-9


@given(USES)
def test_no_peak_that_was_seen_would_let_more_tasks_end(uses):
    rounded = [(rounded_up(peak, LEAST_NBYTES), max(wall_s, 1e-6)) for peak, wall_s in uses]
    largest = max(peak for peak, _ in rounded)
    chosen = learned(uses).first(MAX_THROUGHPUT, largest)
    most = max(throughput(peak, largest, rounded) for peak, _ in rounded)
    assert throughput(chosen, largest, rounded) >= most * (1 - 1e-9)


@given(USES, USES)
def test_the_order_of_tasks_does_not_matter_to_the_most_that_was_seen(some, more):
    largest = 4 * GB
    one, other = learned(some + more), learned(more + some)
    assert one.first(MAX_SEEN, largest) == other.first(MAX_SEEN, largest)
    assert one.n_measured == sum(row[0] for row in one.peaks.values())


# -- cores, which are no limit ---------------------------------------------------------------------
CORE_USES = st.lists(
    st.tuples(st.integers(1, 64), st.floats(0.1, 1e4)), min_size=FIRST_REVIEW, max_size=60
)


def test_a_task_has_its_thread_until_some_are_measured():
    peaks = learned_cores([(4, 1.0)] * (FIRST_REVIEW - 1))
    assert {peaks.first(mode, 8) for mode in MODES} == {1}
    assert peaks.note(4, 1.0)
    assert {mode: peaks.first(mode, 8) for mode in MODES} == {**dict.fromkeys(MODES, 4), FIXED: 1}


def test_some_wide_tasks_reserve_cores_for_all_and_a_rare_one_does_not():
    half, rare = [(1, 1.0), (4, 1.0)] * 10, [(1, 1.0)] * 99 + [(8, 1.0)]
    for mode in (MAX_THROUGHPUT, MIN_WASTE):
        assert (learned_cores(half).first(mode, 16), learned_cores(rare).first(mode, 16)) == (4, 1)
    assert learned_cores(rare).first(MAX_SEEN, 16) == 8


@given(CORE_USES, st.integers(1, 128))
def test_cores_are_chosen_with_least_waste_and_no_more_than_a_worker_has(uses, largest):
    peaks = learned_cores(uses)
    assert peaks.first(MAX_THROUGHPUT, largest) == peaks.first(MIN_WASTE, largest)
    for mode in MODES:
        assert 1 <= peaks.first(mode, largest) <= largest


@pytest.mark.parametrize(
    ("cpu_s", "wall_s", "cores"),
    [(1.05, 1.0, 1), (1.19, 1.0, 1), (1.3, 1.0, 2), (7.9, 2.0, 4), (0.1, 9.0, 1), (0.0, 1.0, 0)],
)
def test_cores_are_whole_ones_and_a_little_of_a_further_one_does_not_count(cpu_s, wall_s, cores):
    assert cores_used(int(cpu_s * 1e6), int(wall_s * 1e6)) == cores


def test_a_short_attempt_does_not_show_how_many_cores_it_needs():
    assert cores_used(4 * LEAST_WALL_US, LEAST_WALL_US - 1) == 0
    assert cores_used(4 * LEAST_WALL_US, LEAST_WALL_US) == 4


@given(st.integers(1, 2 * STEPS))
def test_few_cores_are_told_apart_one_by_one(cores):
    assert rounded_up(cores, 1) == cores


# -- both ------------------------------------------------------------------------------------------
@given(st.integers(1, 1 << 48))
def test_a_size_is_rounded_up_by_little(nbytes):
    rounded = rounded_up(nbytes, LEAST_NBYTES)
    assert rounded >= nbytes
    assert rounded_up(rounded, LEAST_NBYTES) == rounded
    assert rounded <= max(LEAST_NBYTES, nbytes + nbytes // (STEPS - 1) + 1)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("mode", "share"), [(MIN_WASTE, 0.25), (MAX_THROUGHPUT, 0.4)])
def test_less_is_wasted_than_with_whole_workers(seed, mode, share):
    """Play a workflow with few large tasks: what was measured before counts for each task."""
    rng = Random(seed)
    largest = 8 * GB
    uses = [
        (min(int(200 * MB * rng.paretovariate(1.5)), largest), rng.expovariate(0.1))
        for _ in range(2000)
    ]
    sizing = LearnedPeaks(LEAST_NBYTES, is_limit=True)
    learning = 0.0
    for peak, wall_s in uses:
        learning += wasted(sizing.first(mode, largest), largest, [(peak, wall_s)])
        sizing.note(peak, wall_s)
    assert learning < share * wasted(largest, largest, uses)
