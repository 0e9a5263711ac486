"""Conditions of calls: what is read of `after=` and of times, and what is refused."""

from __future__ import annotations

import datetime as dt
import time

import pytest

import weft
from weft.client.calls.conditions import read_after
from weft.client.calls.options import make_options
from weft.client.core.features.conditions import is_met
from weft.client.core.tasks import FutureState
from weft.protocol.wire.columns import MAX_SIZE
from weft.protocol.wire.options import ENDS, OPTIONS, TaskOptions

STATUSES = {"done": "finished", "failed": "error", "cancelled": "cancelled", "lost": "lost"}


def record(**given):
    return make_options(given).as_record()


def the(seconds):
    return pytest.approx((time.time() + seconds) * 1000, abs=60_000)


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("ended", STATUSES)
def test_a_condition_is_met_by_its_state_and_ended_by_all(how, ended):
    state = FutureState("a")
    assert not is_met(state, how)
    state.status = STATUSES[ended]
    assert is_met(state, how) is (how in (ended, "ended"))


def test_conditions_are_sent_as_states_and_keys(client):
    a, b = (client.submit(abs, i, start_after="1 h") for i in (1, 2))
    assert read_after({"done": a, "any": [b]}) == {
        "conditions": [["done", a.key], ["ended", b.key]]
    }


def test_conditions_that_are_met_are_not_sent(client):
    future = client.submit(abs, -1)
    assert future.result(30) == 1
    assert read_after({"done": [future]}) == {}
    assert read_after({"failed": [future]}) == {"conditions": [["failed", future.key]]}


def test_options_with_conditions_must_be_understood():
    options = TaskOptions(conditions=[["done", "a"]], start_ms=5, begin_by_ms=6, end_by_ms=7)
    marks = [name for name in options.as_record()["resources"] if "understanding" in name]
    assert len(marks) == 4


@pytest.mark.parametrize(
    ("after", "error", "text"),
    [
        ("a", TypeError, "maps states to futures"),
        ({"finished": []}, ValueError, "one of done, failed, cancelled, lost, ended"),
        ({"fialed": []}, ValueError, "did you mean 'failed'"),
        ({"done": "a"}, TypeError, "to futures of this client, not to str"),
        ({"done": [1]}, TypeError, "not to int"),
    ],
)
def test_other_conditions_are_refused(after, error, text):
    with pytest.raises(error, match=text):
        read_after(after)


def test_futures_of_another_client_are_refused(client):
    with weft.Client(processes=False, n_workers=1, set_as_default=False) as other:
        future = other.submit(abs, 1, start_after=60)
        with pytest.raises(weft.ForeignFuture, match="belongs to another client"):
            client.submit(abs, 2, after={"done": future})
        future.cancel()


def test_times_are_sent_as_milliseconds_of_the_clock():
    soon = dt.datetime.now() + dt.timedelta(hours=1)
    utc = dt.datetime.now(dt.timezone.utc) + dt.timedelta(hours=1)
    for value in (soon, utc, soon.isoformat(), utc.isoformat()):
        assert record(start_at=value) == {"resources": ANY_MARK, "start_ms": the(3600)}
    assert record(start_after="1 h")["start_ms"] == the(3600)
    assert record(ttl=60)["begin_by_ms"] == the(60)
    for value in (3600, "1 h", dt.timedelta(hours=1), soon):
        assert record(deadline=value)["end_by_ms"] == the(3600)


class _AnyMark:
    def __eq__(self, other):
        return isinstance(other, dict) and len(other) == 1

    __hash__ = None


ANY_MARK = _AnyMark()


def test_a_start_in_the_past_is_one_at_once():
    assert 0 < record(start_at="2001-01-01")["start_ms"] < time.time() * 1000
    OPTIONS["start_ms"].check(MAX_SIZE, [])


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"start_at": "tomorrow"}, ValueError, "not a time; it is a datetime"),
        ({"start_at": 5}, TypeError, "start_at= is not int"),
        ({"start_after": -1}, weft.InvalidDuration, "less than 0"),
        ({"start_after": 1, "start_at": "2030-01-01"}, ValueError, "give one of them"),
        ({"ttl": 0}, weft.InvalidDuration, "less than 0.001"),
        ({"deadline": "2001-01-01"}, ValueError, "is over"),
        ({"deadline": 0}, ValueError, "is over"),
        ({"deadline": "later"}, weft.InvalidDuration, "not a time"),
    ],
)
def test_other_times_are_refused(given, error, text):
    with pytest.raises(error, match=text):
        record(**given)


def test_a_function_that_takes_such_a_keyword_gets_it(client):
    assert client.submit(lambda ttl, deadline: (ttl, deadline), ttl=1, deadline=2).result(30) == (
        1,
        2,
    )


def test_a_call_that_may_wait_only_so_long_for_a_worker_is_an_equal_call(client):
    first, second = (client.submit(abs, -4, no_worker_timeout=60) for _ in range(2))
    assert first.key == second.key
    assert make_options({"no_worker_timeout": "1 min"}).no_worker_ms == 60_000


def test_actors_take_no_conditions(client):
    with pytest.raises(TypeError, match="ttl= cannot be given for an actor"):
        client.submit(dict, actor=True, ttl=5)


def test_calls_with_conditions_are_no_other_calls(client):
    first, second = (client.submit(abs, -3, ttl=60) for _ in range(2))
    assert first.key != second.key
    assert client.gather([first, second]) == [3, 3]


def test_equal_calls_of_a_map_run_each(client):
    futures = client.map(abs, [-1, -1], start_after=0)
    assert len({future.key for future in futures}) == 2
    assert client.gather(futures) == [1, 1]
