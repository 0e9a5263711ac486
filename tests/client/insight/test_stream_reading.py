"""stream_reading.py: pages of the task stream, kept as columns, within a limit."""

from __future__ import annotations

import pytest

from weft.client.insight import stream_reading
from weft.client.insight.stream_reading import StreamPages


def page(cursor, *keys, n_missed=0, **columns):
    n = len(keys)
    report = {
        "worker": "w",
        "address": "tcp://w",
        "offset_s": -100.0,
        "keys": list(keys),
        "kinds": [["f", ["a"]]],
        "kind_of": [0] * n,
        "attempts": list(range(1, n + 1)),
        "ended_us": [200_000_000] * n,
        "durations_us": [3_000_000] * n,
        "threads": [0] * n,
        "nbytes": [8] * n,
        "types": ["int"] * n,
        "failed": [],
        "waited_us": [],
        "arrived_us": [],
        "fetched_us": [],
        **columns,
    }
    reports = [report] if keys else []
    return {"cursor": cursor, "n_missed": n_missed, "to_unix_s": 1000.0, "reports": reports}


def test_times_are_those_since_1970_and_waits_lie_before_the_end():
    pages = StreamPages()
    pages._add(page("7.2", "a", "b", waited_us=[0, 2_000_000], arrived_us=[0, 194_000_000],
                    fetched_us=[0, 194_500_000], failed=[1, 0]))  # fmt: skip
    a, b = pages.timings()
    assert (a.start, a.stop, a.waited, a.is_failed, a.transfer) == (1097, 1100, 0, True, None)
    assert (b.start, b.stop, b.waited, b.is_failed) == (1095, 1100, 2, False)
    assert b.transfer == (1094.0, 1094.5)
    assert (b.function, b.span) == ("f", ("a",))


def test_attempts_that_were_taken_back_are_left_out():
    pages = StreamPages()
    pages._add(page("7.2", "a", ""))
    assert [one.key for one in pages.timings()] == ["a"]


def test_missed_attempts_are_added_up_and_another_scheduler_is_a_gap():
    pages = StreamPages()
    pages._add(page("7.2", n_missed=2))
    pages._add(page("7.5", "a", n_missed=3))
    assert (pages.n_missed, pages.has_gap) == (5, False)
    pages._add(page("8.1", "b"))
    assert pages.has_gap
    pages._add(page("8.2", "c"))
    assert [one.key for one in pages.timings()] == ["a", "b", "c"]
    pages.skip()
    assert (pages.n_missed, pages.has_gap, [*pages.timings()]) == (0, False, [])


def test_attempts_beyond_the_limit_are_counted(monkeypatch):
    monkeypatch.setattr(stream_reading, "MAX_ROWS", 3)
    pages = StreamPages()
    for i in range(4):
        pages._add(page(f"7.{i}", "a", "b"))
    assert (pages.n_rows, pages.n_missed) == (2, 6)


@pytest.mark.parametrize("wrong", [{}, {"cursor": 1}, {"cursor": "7.1", "n_missed": "2"}])
def test_an_answer_that_is_no_page_is_refused(wrong):
    with pytest.raises((TypeError, KeyError, ValueError)):
        StreamPages()._add(wrong)
