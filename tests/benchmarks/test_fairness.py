"""The benchmark of small calls beside a burden runs, for a client's and for a hostile peer's."""

from __future__ import annotations

import pytest

from benchmarks.fairness import SITUATIONS, Row, measure


def test_a_row_shows_median_ratio_worst_and_number_of_calls() -> None:
    row = Row("a map", [0.004, 0.002, 0.1], 2.0)
    assert row.show(0.002) == "| a map | 4.00 | 2.0 | 100.0 | 3 | 2.0 |"
    assert Row("a map", [], 0.0, "failed").show(0.002) == "| a map | - | - | - | 0 | failed |"


@pytest.mark.slow
@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda situation: situation.kind)
def test_calls_are_timed_beside_each_burden_until_it_is_over(situation) -> None:
    n_calls = 5
    idle, row = measure(situation, max(situation.n // 1000, 1), n_calls, limit_s=90.0)
    assert len(idle.calls) == n_calls
    assert not row.note
    assert row.lasted_s > 0
    assert len(row.calls) >= n_calls
