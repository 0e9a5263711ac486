"""The times of recurring jobs: fields, names, time zones, and what was missed."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.protocol import recurrence
from weft.protocol.errors import InvalidSchedule
from weft.protocol.recurrence import (
    ALIASES,
    due_ms,
    ms_of,
    next_ms,
    schedule_of,
    upcoming_ms,
    utc_of,
)

BERLIN = "Europe/Berlin"


def ms(text: str) -> int:
    """Return a time of UTC in ms since 1970."""
    return round(datetime.fromisoformat(text).replace(tzinfo=timezone.utc).timestamp() * 1000)


def times(cron: str, zone: str, after: str, n: int) -> list[str]:
    """Return the first times after one, in UTC."""
    found: list[str] = []
    after_ms = ms(after)
    for _ in range(n):
        next_time = next_ms(cron, zone, after_ms)
        assert next_time is not None
        after_ms = next_time
        found.append(f"{datetime.fromtimestamp(after_ms / 1000, timezone.utc):%m-%d %H:%M:%S}")
    return found


def test_six_fields_begin_with_seconds():
    expected = ["01-01 00:00:20", "01-01 00:00:40", "01-01 00:01:00"]
    assert times("*/20 * * * * *", "UTC", "2026-01-01 00:00:00", 3) == expected
    assert times("*/20 * * * *", "UTC", "2026-01-01 00:00:00", 1) == ["01-01 00:20:00"]


@pytest.mark.parametrize("alias", ALIASES)
def test_an_alias_is_its_expression(alias):
    now = ms("2026-05-05 05:05:05")
    assert next_ms(alias.upper(), "UTC", now) == next_ms(ALIASES[alias], "UTC", now)


def test_a_time_that_a_clock_leaves_out_is_the_end_of_the_gap():
    # On 2026-03-29 a clock in Berlin goes from 02:00 to 03:00, which is 01:00 UTC.
    expected = ["03-28 01:30:00", "03-29 01:00:00", "03-30 00:30:00"]
    assert times("30 2 * * *", BERLIN, "2026-03-27 12:00:00", 3) == expected


def test_a_time_that_a_clock_shows_twice_is_one_run():
    # On 2026-10-25 a clock in Berlin goes from 03:00 back to 02:00, which is 01:00 UTC.
    expected = ["10-24 00:45:00", "10-25 00:45:00", "10-26 01:45:00"]
    assert times("45 2 * * *", BERLIN, "2026-10-23 12:00:00", 3) == expected
    assert times("45 2 * * *", BERLIN, "2026-10-25 01:35:00", 1) == ["10-26 01:45:00"]


def test_each_hour_goes_by_time_passed_where_a_clock_is_put_back():
    expected = ["10-25 00:00:00", "10-25 01:00:00", "10-25 02:00:00"]
    assert times("@hourly", BERLIN, "2026-10-24 23:30:00", 3) == expected


@pytest.mark.parametrize(
    ("cron", "zone", "text"),
    [
        ("61 * * * *", "UTC", "cron: '61 .*bad minute; five fields"),
        ("* * *", "UTC", "wrong number of fields"),
        ("", "UTC", "wrong number of fields"),
        ("@never", "UTC", "wrong number of fields"),
        ("0 0 31 2 *", "UTC", "bad day-of-month"),
        ("* " * 200, "UTC", "at most 200 characters"),
        ("* * * * *", "Europe/Bonn", "timezone: no time zone 'Europe/Bonn'"),
        ("* * * * *", "../etc/passwd", "timezone: no time zone"),
        ("* * * * *", "", "timezone: no time zone"),
    ],
)
def test_a_wrong_one_is_refused(cron, zone, text):
    with pytest.raises(InvalidSchedule, match=text):
        next_ms(cron, zone, 0)


def test_after_the_last_year_there_is_no_time():
    assert next_ms("0 0 29 2 *", "UTC", ms("9999-01-01 00:00")) is None
    assert next_ms("* * * * *", "UTC", 1 << 48) is None


def test_no_time_of_a_job_is_after_its_end():
    cron = {"expression": "* * * * *", "zone": "UTC", "until_ms": 120_000}
    assert upcoming_ms(cron, 60_000) == 120_000
    assert upcoming_ms(cron, 120_000) is None
    assert upcoming_ms({**cron, "until_ms": 0}, 120_000) == 180_000


@pytest.mark.parametrize(
    "text", ["", "soon", "2030-12-24T17:05:00", "2030-12-24T18:05:00+01:00", "2030-12-24", "0" * 99]
)
def test_another_text_is_no_time_of_a_run(text):
    assert ms_of("2030-12-24T17:05:00+00:00") == ms("2030-12-24 17:05:00")
    assert utc_of(ms("2030-12-24 17:05:00")) == "2030-12-24T17:05:00+00:00"
    assert ms_of(text) is None


NOON = ms("2026-01-01 12:00:00")
MINUTE = 60_000


@pytest.mark.parametrize(
    ("missed", "expected"), [("one", [-2, -1, 0]), ("none", [-1, 0]), ("all", [-4, -3, -2, -1, 0])]
)
def test_of_missed_times_all_or_one_or_none_are_made(missed, expected):
    since, late = NOON - 5 * MINUTE, NOON - 2 * MINUTE
    found, up_to = due_ms("* * * * *", "UTC", since, NOON, late, missed, 100)
    assert [(time - NOON) // MINUTE for time in found] == expected
    assert up_to == NOON


@pytest.mark.parametrize("cron", ["* * * 1 1 *", "* * 1 1 *", "0 0 29 2 *", "* * * * * *"])
def test_the_latest_missed_time_takes_few_calls(cron, monkeypatch):
    calls = []

    def counting(*args):
        calls.append(args)
        return next_ms(*args)

    monkeypatch.setattr(recurrence, "next_ms", counting)
    since = ms("2023-01-01 00:00")
    late = ms("2026-11-20 12:00:00")
    (found,), _ = due_ms(cron, "UTC", since, late, late, "one", 100)
    assert next_ms(cron, "UTC", found - 1) == found <= late
    assert next_ms(cron, "UTC", found) > late
    assert len(calls) < 100


def test_times_above_the_limit_are_left():
    found, up_to = due_ms("* * * * *", "UTC", NOON - 5 * MINUTE, NOON, NOON, "all", 2)
    assert [*found, up_to] == [NOON - 4 * MINUTE, NOON - 3 * MINUTE, NOON - 3 * MINUTE]


def test_how_far_a_job_is_does_not_belong_to_its_schedule():
    cron = {"expression": "@daily", "zone": "UTC", "since_ms": 5}
    assert schedule_of(cron) == schedule_of({**cron, "since_ms": 6})
    assert schedule_of(cron) != schedule_of({**cron, "zone": "Europe/Berlin"})


CRONS = st.sampled_from(
    [
        "* * * * *",
        "*/7 2 * * *",
        "30 2 * * *",
        "0,30 2,3 * * *",
        "15 */2 * * *",
        "@daily",
        "5 0 2 * * *",
    ]
)
ZONES = st.sampled_from(["UTC", BERLIN, "America/New_York", "Australia/Lord_Howe"])


@given(CRONS, ZONES, st.integers(ms("2026-01-01 00:00"), ms("2026-12-31 00:00")))
def test_the_next_time_is_later_and_none_is_between(cron, zone, after):
    found = next_ms(cron, zone, after)
    assert found is not None
    assert found > after
    assert next_ms(cron, zone, (after + found) // 2) == found or (after + found) // 2 == found


@given(
    CRONS,
    ZONES,
    st.integers(ms("2026-01-01 00:00"), ms("2026-12-31 00:00")),
    st.lists(st.integers(-3_600_000, 90_000_000), max_size=4),
    st.sampled_from(["one", "all", "none"]),
)
def test_no_time_is_due_twice_and_each_is_later(cron, zone, since, steps, missed):
    made: list[int] = []
    now = since
    for step in steps:
        now += step
        found, since = due_ms(cron, zone, since, now, now - 10_000, missed, 50)
        made += found
    assert made == sorted(set(made))


@given(
    CRONS,
    ZONES,
    st.integers(ms("2026-01-01 00:00"), ms("2026-12-31 00:00")),
    st.integers(1, 200_000_000),
)
def test_the_latest_missed_time_is_the_last_of_all(cron, zone, since, length):
    late = since + length
    every, _ = due_ms(cron, zone, since, late, late, "all", 10_000)
    latest, _ = due_ms(cron, zone, since, late, late, "one", 10_000)
    assert latest == every[-1:]
