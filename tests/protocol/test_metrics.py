"""Histograms, and the lists of numbers in which workers report about themselves."""

from __future__ import annotations

import random

import pytest

from weft.protocol.metrics import BOUNDS_US, N_BUCKETS, Histogram
from weft.protocol.reported import (
    ACTIVITIES,
    OF_SUPERVISORS,
    OF_WORKERS,
    n_numbers,
    numbers_of,
    values_of,
)


def test_a_bucket_holds_what_is_not_above_its_bound():
    histogram = Histogram()
    for bound in BOUNDS_US:
        histogram.add(bound)
    assert histogram.counts == [1] * len(BOUNDS_US) + [0]
    histogram.add(BOUNDS_US[-1] + 1, 3)
    histogram.add(0)
    assert histogram.counts == [2] + [1] * (len(BOUNDS_US) - 1) + [3]
    assert histogram.sum_us == sum(BOUNDS_US) + 3 * (BOUNDS_US[-1] + 1)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 5, 100, 1000])
def test_a_column_counts_like_its_rows(n):
    rng = random.Random(n)
    column = [int(10 ** rng.uniform(0, 9.5)) for _ in range(n)]
    column += [rng.choice(BOUNDS_US) + rng.randint(-1, 1) for _ in range(n // 2)]
    one, other = Histogram(), Histogram()
    one.add_all(column)
    for duration_us in column:
        other.add(duration_us)
    assert (one.counts, one.sum_us) == (other.counts, other.sum_us)


def test_a_list_of_numbers_becomes_the_values_of_its_metrics():
    numbers = list(range(1, n_numbers(OF_WORKERS) + 1))
    values = values_of(OF_WORKERS, numbers)
    assert [*values] == [metric.name for metric in OF_WORKERS]
    assert values["weft_worker_tasks"] == {
        "executing": 1, "ready": 2, "waiting": 3, "fetching": 4
    }  # fmt: skip
    assert values["weft_worker_results"] == 5
    assert values["weft_worker_activity_seconds_total"] == {
        activity: n / 1e6 for n, activity in enumerate(ACTIVITIES, 7)
    }
    lag = values["weft_worker_event_loop_lag_seconds"]
    assert len(lag["counts"]) == N_BUCKETS
    assert lag["sum"] == (lag["counts"][-1] + 1) / 1e6


def test_numbers_that_an_earlier_version_does_not_report_are_zero():
    assert values_of(OF_SUPERVISORS, [7])["weft_supervisor_workers"] == 7
    assert values_of(OF_SUPERVISORS, [7])["weft_supervisor_memory_bytes"] == 0
    assert values_of(OF_SUPERVISORS, [])["weft_supervisor_workers_died_total"]["memory"] == 0


def test_a_histogram_is_reported_with_its_sum():
    histogram = Histogram()
    histogram.add(50, 2)
    assert [*numbers_of(histogram)] == [2] + [0] * (N_BUCKETS - 1) + [100]
