"""The rates that the pages show, from one overview to the next."""

from __future__ import annotations

import pytest

from weft.deploy.http.watching import ClusterWatch
from weft.scheduler.core.features import FEATURES
from weft.scheduler.core.insight.overview import overview
from weft.scheduler.core.state import SchedulerState


class Watched:
    """Gives overviews of one function to a watch, which asks nobody."""

    def __init__(self):
        self.watch = ClusterWatch(None)
        self.empty = overview(SchedulerState(1, features=FEATURES))

    def see(self, now, n_finished):
        row = {"name": "load", "n_finished": n_finished, "n_failed": 0, "n_unfinished": 10}
        totals = self.empty["totals"] | {"completed": n_finished}
        self.watch.observe(self.empty | {"functions": [row], "totals": totals}, now)
        return self.watch.rates.of_functions["load"][0], self.watch.rates.total[0]


def test_rates_are_not_known_before_the_second_overview():
    watched = Watched()
    assert watched.see(100.0, 5000) == (None, None)
    assert watched.see(102.0, 5200) == pytest.approx((100.0, 100.0))


def test_the_mean_of_the_time_in_which_no_browser_looked_is_not_shown():
    watched = Watched()
    watched.see(100.0, 0)
    watched.see(102.0, 200)
    assert watched.see(3702.0, 200) == (None, None)
    assert watched.see(3704.0, 400) == pytest.approx((100.0, 100.0))
