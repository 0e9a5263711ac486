"""sparkline.py, and the parts of the last hour that it shows."""

from __future__ import annotations

import re

import pytest

from weft.deploy.http.sparkline import sparkline
from weft.deploy.overview.history import ClusterHistory


def points(markup):
    line = re.findall(r'd="M([^"Z]*)"', markup)[-1]
    return [tuple(map(float, point.split())) for point in line.split("L")]


def test_the_last_value_is_at_the_right_edge_and_the_largest_at_the_top():
    assert points(sparkline([0.0, 2.0, 4.0], 3, "run", "x")) == [(0, 23), (50, 12), (100, 1)]
    assert points(sparkline([0.0, 4.0], 5, "run", "x")) == [(75, 23), (100, 1)]
    assert points(sparkline([2.0, 2.0], 2, "run", "x", 4.0)) == [(0, 12), (100, 12)]


def test_one_value_is_no_line():
    assert sparkline([1.0], 10, "run", "x") is None
    assert sparkline([], 10, "run", "x") is None


def history(**columns):
    found = ClusterHistory()
    n = len(columns["at_ms"])
    rest = {"columns": columns, "cursor": f"1.{n}", "is_new": True, "to_unix_s": 100.0}
    found.take(rest)
    return found


def test_levels_and_rates_are_of_equal_parts_of_the_time_before_the_last_sample():
    found = history(at_ms=[0, 1000, 2000, 3000, 4000], n=[0, 10, 10, 30, 70])
    assert found.levels("n", 2, 4.0) == [10.0, 70.0]
    assert found.rates("n", 2, 4.0) == pytest.approx([5.0, 30.0])
    assert found.rates("n", 4, 4.0, unit=10.0) == pytest.approx([1.0, 0.0, 2.0, 4.0])
    assert found.rates("n", 100, 400.0) == pytest.approx([17.5])
    assert found.rates("n", 8, 4.0)[-4:] == pytest.approx([20.0, 20.0, 40.0, 40.0])
    assert found.levels("unknown", 4, 4.0) == []
    assert ClusterHistory().rates("n", 4, 4.0) == []


def test_the_samples_of_another_scheduler_replace_those_before():
    found = history(at_ms=[0, 1000], n=[500, 600])
    more = {"cursor": "1.3", "is_new": False, "to_unix_s": 100.0}
    found.take({"columns": {"at_ms": [2000], "n": [700]}, **more})
    assert found.levels("n", 3, 3.0) == [500.0, 600.0, 700.0]
    other = {"cursor": "2.1", "is_new": True, "to_unix_s": 900.0}
    found.take({"columns": {"at_ms": [0], "n": [1]}, **other})
    assert found.levels("n", 3, 3.0) == [1.0]
    assert found.cursor == "2.1"
