from __future__ import annotations

import pytest

from weft.protocol.rates import LEAST_INTERVAL_S, TIME_CONSTANT_S, Rate


def observed(*pairs: tuple[float, int]) -> Rate:
    rate = Rate()
    for now_s, n_done in pairs:
        rate.observe(now_s, n_done)
    return rate


def test_one_observation_is_no_rate():
    rate = observed((5.0, 1000))
    assert rate.seen(1) == (None, None)
    assert observed((5.0, 1000), (6.0, 1000)).seen(1) == (0.0, None)
    assert rate.per_second == 0.0
    assert rate.eta_s(10) is None
    assert rate.eta_s(0) == 0.0


@pytest.mark.parametrize("step", [0.25, 1.0, 3.0, 60.0])
def test_a_constant_rate_is_found_at_once_and_kept_at_any_interval(step):
    rate = observed(*((i * step, round(100 * i * step)) for i in range(20)))
    assert rate.per_second == pytest.approx(100, rel=0.02)
    assert rate.eta_s(1000) == pytest.approx(10, rel=0.02)


def test_intervals_of_different_length_weigh_by_their_length():
    alone = observed((0.0, 0), (8.0, 800))
    parts = observed((0.0, 0), (1.0, 100), (1.5, 150), (8.0, 800))
    assert alone.per_second == pytest.approx(parts.per_second)


def test_a_rate_forgets_what_is_long_ago():
    rate = observed((0.0, 0), (1.0, 1000))
    for i in range(1, 40):
        rate.observe(1.0 + i * TIME_CONSTANT_S / 4, 1000 + 25 * i)
    assert rate.per_second == pytest.approx(10, rel=0.05)


def test_nothing_finishes_any_more_is_no_estimate():
    rate = observed((0.0, 0), (1.0, 5), (1.0 + 20 * TIME_CONSTANT_S, 5))
    assert rate.eta_s(1) is None


def test_a_count_that_goes_back_begins_anew():
    rate = observed((0.0, 0), (1.0, 1000), (2.0, 10))
    assert rate.per_second == 0.0
    rate.observe(3.0, 20)
    assert rate.per_second == pytest.approx(10)


def test_observations_in_quick_succession_count_as_one():
    rate = observed((0.0, 0), (LEAST_INTERVAL_S / 2, 90), (1.0, 100))
    assert rate.per_second == pytest.approx(100)


def test_time_in_which_nothing_was_to_be_done_does_not_lower_the_rate():
    rate = Rate()
    for second in range(60):
        rate.observe(float(second), 0, n_left=0)
    assert rate.seen(0) == (0.0, 0.0)
    rate.observe(60.0, 0, n_left=500)
    rate.observe(61.0, 25, n_left=475)
    assert rate.per_second == pytest.approx(12.5, rel=0.05)  # the look before it is when it began
    rate.observe(62.0, 50, n_left=450)
    assert rate.per_second == pytest.approx(17, rel=0.05)


def test_time_in_which_tasks_are_left_and_none_finishes_lowers_the_rate():
    rate = Rate()
    rate.observe(0.0, 0, n_left=10)
    rate.observe(1.0, 10, n_left=10)
    rate.observe(2.0, 10, n_left=10)
    assert rate.per_second == pytest.approx(5, rel=0.1)


def test_short_tasks_that_are_over_at_each_look_are_no_pauses():
    rate = Rate()
    for second in range(5):
        rate.observe(float(second), second * second, n_left=0)
    assert rate.per_second == pytest.approx(4, rel=0.2)
