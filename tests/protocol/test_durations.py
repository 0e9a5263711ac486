"""Times that users give: the same values are right, and wrong, everywhere."""

from __future__ import annotations

import math
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.protocol.durations import seconds_of, seconds_or_none
from weft.protocol.errors import ConfigError, InvalidDuration

#: {name of a unit: its seconds}
UNITS = {
    "": 1,
    "ns": 1e-9,
    "nanoseconds": 1e-9,
    "us": 1e-6,
    "\u00b5s": 1e-6,
    "\u03bcs": 1e-6,
    "microsecond": 1e-6,
    "ms": 1e-3,
    "milliseconds": 1e-3,
    "s": 1,
    "sec": 1,
    "secs": 1,
    "second": 1,
    "seconds": 1,
    "m": 60,
    "min": 60,
    "mins": 60,
    "minute": 60,
    "minutes": 60,
    "h": 3600,
    "hr": 3600,
    "hrs": 3600,
    "hour": 3600,
    "hours": 3600,
    "d": 86400,
    "day": 86400,
    "days": 86400,
    "w": 604800,
    "week": 604800,
    "weeks": 604800,
}


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (0, 0),
        (30, 30),
        (0.5, 0.5),
        (Fraction(1, 4), 0.25),
        ("30", 30),
        ("30s", 30),
        ("15 min", 900),
        (" 1.5h ", 5400),
        ("1e3 ms", 1),
        (".5s", 0.5),
        ("5.", 5),
        ("2 DAYS", 172800),
        (timedelta(minutes=15), 900),
        (timedelta(0), 0),
    ],
)
def test_time_is_read(value, seconds):
    assert seconds_of(value, "timeout") == seconds
    assert seconds_or_none(value, "timeout") == seconds


@pytest.mark.parametrize(
    "value",
    [
        *(-1, -0.001, "-1", "-1s", timedelta(-1), -math.inf, math.nan, "nan", "inf"),
        *(True, False, "", " ", "s", "abc", "1 fortnight", "1s 2s", "1,5s", "1_000", "0x10", "1e"),
        *("1e400", 10**400, b"1s", [], {}, object(), 1j, Decimal(1), "\u0663s"),
    ],
)
def test_wrong_time_is_one_typed_error_that_says_what_is_right(value):
    with pytest.raises(
        InvalidDuration, match=r"^timeout: .* is (not a time|less than 0); "
    ) as info:
        seconds_of(value, "timeout")
    assert isinstance(info.value, ConfigError)
    assert isinstance(info.value, ValueError)
    assert "'15 min'" in str(info.value)


def test_time_below_the_least_one_is_refused():
    assert seconds_of("1s", "--liveness-timeout", 1.0) == 1
    with pytest.raises(InvalidDuration, match="'999 ms' is less than 1 s"):
        seconds_of("999 ms", "--liveness-timeout", 1.0)


def test_no_limit_is_none_or_infinity():
    assert seconds_or_none(None, "timeout") is None
    assert seconds_or_none(math.inf, "timeout") is None
    assert seconds_of(math.inf, "reconnect_timeout") == math.inf
    with pytest.raises(InvalidDuration):
        seconds_of(None, "timeout")


def test_numbers_and_times_of_numpy_are_read():
    numpy = pytest.importorskip("numpy", reason="numpy is missing: pip install numpy")
    assert seconds_of(numpy.float32(0.5), "timeout") == 0.5
    assert seconds_of(numpy.int64(3), "timeout") == 3
    assert seconds_of(numpy.timedelta64(1500, "ms"), "timeout") == 1.5
    for wrong in (numpy.timedelta64("NaT"), numpy.timedelta64(-1, "s"), numpy.bool_(True)):
        with pytest.raises(InvalidDuration):
            seconds_of(wrong, "timeout")


@given(
    number=st.floats(0, 1e6, allow_subnormal=False),
    unit=st.sampled_from(sorted(UNITS)),
    spaces=st.tuples(*[st.sampled_from(["", " ", "\t"])] * 3),
    is_upper=st.booleans(),
)
def test_each_unit_is_read_with_any_number(number, unit, spaces, is_upper):
    name = unit.upper() if is_upper and unit.isascii() else unit
    text = f"{spaces[0]}{number!r}{spaces[1]}{name}{spaces[2]}"
    assert seconds_of(text, "timeout") == pytest.approx(number * UNITS[unit])


@given(st.timedeltas(min_value=timedelta(0)))
def test_timedelta_is_its_seconds(value):
    assert seconds_of(value, "timeout") == value.total_seconds()


@given(
    st.one_of(
        st.text(),
        st.text(alphabet="0123456789.eE+-smhd "),
        st.floats(),
        st.integers(),
        st.timedeltas(),
        st.binary(),
        st.none(),
        st.complex_numbers(),
    )
)
def test_any_object_is_a_time_or_the_typed_error(value):
    try:
        seconds = seconds_of(value, "timeout")
    except InvalidDuration:
        return
    assert type(seconds) is float
    assert seconds >= 0
