"""The pauses before a process that ended is started again."""

from __future__ import annotations

import pytest

from weft.protocol.restarting import Restarting


def test_the_pauses_grow_with_deaths_in_a_row_up_to_half_a_minute():
    backoff = Restarting()
    pauses = [backoff.died(1.0) for _ in range(2000)]
    assert pauses[:5] == [0.0, 0.2, 0.4, 0.8, 1.6]
    assert pauses == sorted(pauses)
    assert set(pauses[9:]) == {30.0}


@pytest.mark.parametrize(("lived_s", "by_task"), [(61.0, False), (1.0, True)])
def test_a_death_that_does_not_predict_the_next_one_has_no_pause(lived_s, by_task):
    backoff = Restarting()
    for _ in range(5):
        backoff.died(1.0)
    assert backoff.died(lived_s, by_task=by_task) == 0.0
    assert backoff.died(1.0) == 0.2
