"""`timeout=` of calls: whose it is, and how it is sent."""

from __future__ import annotations

import datetime as dt
import functools
import math

import pytest

import weft
from weft.client.calls.call_options import NOT_GIVEN, option_of
from weft.client.calls.options import make_options
from weft.client.results.failures import exception_from
from weft.protocol.wire.columns import MAX_SIZE
from weft.protocol.wire.failure import timed_out
from weft.protocol.wire.options import OPTIONS


def record(timeout):
    return make_options({"timeout": timeout}).as_record()


@pytest.mark.parametrize("timeout", [5, 5.0, "5 s", "5000ms", dt.timedelta(seconds=5)])
def test_limits_are_read_as_all_times(timeout):
    assert record(timeout) == {"timeout_us": 5_000_000}


def test_no_limit_is_sent_for_none_and_infinity():
    assert record(None) == record(math.inf) == {}


def test_limits_are_whole_microseconds_within_what_a_message_takes():
    assert record(1e-9) == {"timeout_us": 1}
    assert record(1e300) == {"timeout_us": MAX_SIZE}
    for sent in (1, MAX_SIZE):
        OPTIONS["timeout_us"].check(sent, [])


@pytest.mark.parametrize("sent", [-1, MAX_SIZE + 1, 1.0, "5", None, True])
def test_a_scheduler_takes_no_other_limits(sent):
    with pytest.raises(TypeError):
        OPTIONS["timeout_us"].check(sent, [])


@pytest.mark.parametrize(
    ("timeout", "text"),
    [
        (0, "leaves no time to run"),
        (-1, "less than 0"),
        ("soon", "not a time"),
        ([5], "not a time"),
    ],
)
def test_other_values_are_refused(client, timeout, text):
    with pytest.raises(weft.InvalidDuration, match=text):
        client.submit(abs, 1, timeout=timeout)
    with pytest.raises(weft.InvalidDuration, match=text):
        client.map(abs, [1], timeout=timeout)


def test_the_limit_is_a_part_of_the_options():
    options = make_options({"timeout": 5})
    done = options.changed(delivered=True, made=False)
    assert options.for_attempt(7).timeout_us == done.timeout_us == 5_000_000
    assert options.changed(span=["tag"]).timeout_us == 5_000_000
    assert options.as_key() != make_options({"timeout": 6}).as_key()


# -- whose it is ----------------------------------------------------------------------------------
def plain(x):
    return x


def with_timeout(x, timeout=1):
    return x, timeout


def with_any(x, **names):
    return x, names


def by_position(x, timeout=1, /):
    return x, timeout


@functools.wraps(plain)
def wrapped(*args, **kwargs):
    return plain(*args, **kwargs)


class Made:
    def __init__(self, x, *, timeout=None):
        pass


class Called:
    def __call__(self, x, timeout):
        return x, timeout


@pytest.mark.parametrize(
    "function",
    [with_timeout, with_any, Made, Called(), functools.partial(with_timeout, 1), with_any.__call__],
)
@pytest.mark.parametrize("timeout", [5, None, (1, 2)])
def test_a_function_that_takes_such_a_keyword_is_given_it(function, timeout):
    keywords = {}
    assert option_of(function, "timeout", timeout, keywords) is None
    assert keywords == {"timeout": timeout}


@pytest.mark.parametrize(
    "function", [plain, by_position, wrapped, abs, dict.fromkeys, max, Made(1), 5]
)
def test_otherwise_it_is_the_limit_of_the_task(function):
    keywords = {}
    assert option_of(function, "timeout", "5 s", keywords) == "5 s"
    assert keywords == {}


def test_functions_get_their_own_timeout(client):
    assert client.submit(with_timeout, 1, timeout=None).result(20) == (1, None)
    assert client.gather(client.map(with_any, [1], timeout="x")) == [(1, {"timeout": "x"})]
    assert client.submit(plain, 1, timeout=60).result(20) == 1
    assert client.submit(with_any, 1).result(20) == (1, {})
    assert repr(NOT_GIVEN) == "<not given>"


def refuses_all(x, **names):
    return plain(x, **names)


def test_the_error_of_a_function_that_takes_any_keyword_and_refuses_this_one_has_the_remedy():
    with (
        weft.Client(processes=False, n_workers=1, set_as_default=False) as client,
        pytest.raises(TypeError) as caught,
    ):
        client.submit(refuses_all, 1, timeout=5).result(20)
    assert any("dask.annotate(timeout=...)" in note for note in caught.value.__notes__)


# -- the error ------------------------------------------------------------------------------------
def test_the_error_has_the_facts():
    failure = timed_out("f-1", "f", 2_500_000, "w1", can_end=True, attempts=1)
    error = exception_from(failure, "f-1")
    assert isinstance(error, weft.TaskTimedOut)
    assert isinstance(error, TimeoutError)
    assert (error.key, error.function, error.timeout_s, error.worker) == ("f-1", "f", 2.5, "w1")
    text = "task 'f-1' (function f) ran on w1 for longer than its timeout=2.5 s: it was interrupted"
    assert str(error) == f"{text}, and its process is ended if it goes on all the same"


def test_the_error_names_the_category_whose_limit_it_is():
    failure = timed_out("f-1", "f", 2_500_000, "w1", can_end=True, attempts=1, category="fits")
    error = exception_from(failure, "f-1")
    assert isinstance(error, weft.TaskTimedOut)
    assert error.category == "fits"
    assert "ran on w1 for longer than max_wall_time=2.5 s of its category 'fits': " in str(error)


def test_the_error_says_where_a_process_cannot_be_ended_and_counts_attempts():
    failure = timed_out("f-1", "f", 2_500_000, "w1", can_end=False, attempts=3)
    text = str(exception_from(failure, "f-1"))
    assert "it keeps its thread, because its process is that of a program" in text
    assert text.endswith("(attempt 3 of 3: each one failed)")
