"""`weft.Retries`: its values, and how submissions take them."""

from __future__ import annotations

import datetime as dt

import pytest

import weft
from weft.client.calls.options import make_options
from weft.protocol.wire.options import OPTIONS


def test_pauses_are_sent_beside_the_number():
    options = make_options({"retries": weft.Retries(3, "500 ms", max_delay="1 min")})
    assert options.as_record() == {"retries": 3, "pauses": [0.5, 2.0, 60.0, 0.25]}
    OPTIONS["pauses"].check(options.pauses, [])
    assert options.for_attempt(7).pauses == options.pauses
    assert options.as_key() != make_options({"retries": 3}).as_key()


@pytest.mark.parametrize(
    "retries", [weft.Retries(3, 0), weft.Retries(3, max_delay=0), 3], ids=["delay", "max", "int"]
)
def test_retries_without_pauses_are_a_number(retries):
    assert make_options({"retries": retries}).as_record() == {"retries": 3}


def test_times_are_read_as_everywhere():
    assert weft.Retries(1, dt.timedelta(seconds=2)) == weft.Retries(1, "2 s")
    assert repr(weft.Retries(1, 2)) == "Retries(1, delay=2, factor=2, max_delay=60, jitter=0.25)"
    assert len({weft.Retries(1), weft.Retries(1), weft.Retries(2)}) == 2
    ages = weft.Retries(1, "100000 days", max_delay="100000 days").as_pauses()
    OPTIONS["pauses"].check(ages, [])


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"n": -1}, "whole number >= 0, not -1"),
        ({"n": True}, "whole number"),
        ({"n": 1.5}, "whole number"),
        ({"n": 1, "factor": 0.5}, "factor= is a number >= 1"),
        ({"n": 1, "factor": float("nan")}, "factor="),
        ({"n": 1, "factor": "2"}, "factor="),
        ({"n": 1, "jitter": 1.5}, "jitter= is a number from 0 to 1, not 1.5"),
        ({"n": 1, "delay": -1}, "delay"),
        ({"n": 1, "max_delay": "soon"}, "max_delay"),
    ],
)
def test_wrong_values_are_refused(arguments, text):
    with pytest.raises(ValueError, match=text):
        weft.Retries(**arguments)


@pytest.mark.parametrize(
    "pauses",
    [[], [1.0], ["1", 2.0, 3.0, 0.0], [-1.0, 2.0, 3.0, 0.0], [1.0, 0.5, 3.0, 0.0],
     [1.0, 2.0, float("nan"), 0.0], [1.0, 2.0, 3.0, 2.0], 7],
)  # fmt: skip
def test_a_scheduler_takes_no_other_pauses(pauses):
    with pytest.raises((TypeError, ValueError)):
        OPTIONS["pauses"].check(pauses, [])
