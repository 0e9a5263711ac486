"""Recurring calls: what is refused before it is sent, and the future that gives the runs."""

from __future__ import annotations

import datetime as dt
import re
import time
from itertools import islice

import pytest

import weft
from tests.leaks import wait_until
from weft.client.calls.recurring import read_times
from weft.protocol.errors import InvalidSchedule, QuestionFailed

EACH_SECOND = "* * * * * *"


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    journal = str(tmp_path_factory.mktemp("recurring") / "journal.sqlite")
    with weft.Client(processes=False, n_workers=1, journal=journal, set_as_default=False) as client:
        client.submit(abs, 0, detached=True).result(60)  # with which the journal is made
        yield client


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"cron": "61 * * * *"}, "^cron: '61 .*bad minute; five fields"),
        ({"cron": 5}, "^cron: a text is expected, not int"),
        ({"cron": ""}, "^cron: .*five fields"),
        ({"cron": EACH_SECOND, "timezone": "Europe/Bonn"}, "^timezone: no time zone"),
        ({"cron": EACH_SECOND, "timezone": 3}, "^timezone: a text is expected"),
        ({"cron": EACH_SECOND, "until": "2020-01-01"}, "^until: '2020-01-01' is over"),
        ({"cron": EACH_SECOND, "until": "soon"}, "^until: 'soon' is no point in time"),
        ({"cron": EACH_SECOND, "until": object()}, "^until: .* is no point in time"),
        ({"cron": "0 0 1 1 *", "until": dt.timedelta(seconds=2)}, "^until: "),
        ({"cron": EACH_SECOND, "overlap": "wait"}, "^overlap: it is one of skip, queue, replace"),
        ({"cron": EACH_SECOND, "missed": 1}, "^missed: it is one of one, all, none"),
    ],
)
def test_wrong_times_are_one_error_and_nothing_is_submitted(client, given, text):
    before = client.futures
    with pytest.raises(InvalidSchedule, match=text):
        client.submit(abs, -1, **given)
    assert client.futures.keys() <= before.keys()  # earlier ones may be forgotten meanwhile


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"until": "2130-01-01"}, "until= belongs to cron="),
        ({"missed": "all"}, "missed= belongs to cron="),
        ({"cron": EACH_SECOND, "ttl": 5}, "leave ttl= out"),
        ({"cron": EACH_SECOND, "start_at": "2130-01-01"}, "leave start_at= out"),
        ({"cron": EACH_SECOND, "persist_to": "x"}, "persist_to= has equal calls read one result"),
    ],
)
def test_options_that_contradict_each_other_are_refused(client, given, text):
    with pytest.raises(TypeError, match=text):
        client.submit(abs, -1, **given)


def test_a_map_is_not_recurring_and_says_so(client):
    with pytest.raises(TypeError, match="cron= of submit, which a map has not"):
        client.map(abs, [-1], cron=EACH_SECOND)


def test_a_function_that_takes_such_a_keyword_is_given_it(client):
    def take(cron, until):
        return cron, until

    assert client.submit(take, cron="x", until="y").result(60) == ("x", "y")


def test_an_end_before_the_first_time_is_refused():
    soon = dt.datetime.now() + dt.timedelta(minutes=1)
    yearly = f"0 0 1 {soon.month % 12 + 1} *"
    with pytest.raises(InvalidSchedule, match="has no time before the end"):
        read_times(yearly, None, soon, None, None)


def test_a_job_gives_its_runs_and_ends_with_them(client):
    job = client.submit(time.time, cron=EACH_SECOND)
    assert isinstance(job, weft.RecurringFuture)
    planned = job.next_time()
    first, second = islice(job.runs(), 2)
    assert planned.tzinfo is dt.timezone.utc
    assert first.key == f"{job.key}@{planned.isoformat()}"
    assert planned.timestamp() <= first.result(60) < second.result(60)
    assert job.last().result(60) >= second.result(60)
    runs = job.runs()
    assert next(runs).key == first.key
    job.cancel()
    assert job.cancelled()
    assert len([*runs]) < 10
    assert [*job.runs()] == []
    assert (job.next_time(), job.last()) == (None, None)


@pytest.mark.parametrize("other", [{"cron": "@daily"}, {"overlap": "queue"}, {"cron": None}])
def test_a_key_with_other_times_is_refused_and_the_same_ones_are_shared(client, other):
    times = {"cron": "@yearly", "until": "2130-01-01", "overlap": "skip"}
    job = client.submit(abs, -1, key="its times", **times)
    again = client.submit(abs, -1, key="its times", **times)
    assert again.key == job.key
    changed = {**times, **other} if other != {"cron": None} else {}
    with pytest.raises(ValueError, match="or of other times"):
        client.submit(abs, -1, key="its times", **changed)
    assert job.next_time() is not None
    job.cancel()


def test_the_waits_for_a_run_end_with_the_client(tmp_path):
    with weft.Client(processes=False, n_workers=1, set_as_default=False) as client:
        job = client.submit(abs, -1, cron="@yearly")
        assert job.last() is None
    with pytest.raises(weft.ClientClosed):
        next(job.runs())
    with pytest.raises(weft.ClientClosed):
        job.next_time()


def test_a_job_ends_with_its_last_future(client):
    job = client.submit(abs, -1, cron=EACH_SECOND)
    run = next(job.runs())
    assert run.result(60) == 1
    key = job.key
    del job

    def is_unknown():
        try:
            client.explain(key)
        except QuestionFailed as error:
            return "knows no task" in str(error)
        return False

    wait_until(is_unknown, 60, "the end of the job")


def test_an_explanation_says_that_it_is_recurring(client):
    job = client.submit(abs, -1, cron="@yearly")
    assert "it is recurring: its runs are tasks of their own; the next one" in str(job.explain())


def test_a_detached_job_is_listed_with_its_next_time_and_its_runs_are_jobs(client):
    job = client.submit(abs, -4, cron=EACH_SECOND, detached=True)
    yearly = client.submit(abs, -4, cron="@yearly", detached=True)
    run = next(job.runs())
    assert run.result(60) == 4
    keys = [job.key, yearly.key]
    assert [one.key for one in client.jobs(recurring=True)] == keys[::-1]
    assert client.jobs(recurring=True, name=re.compile("nothing")) == []
    with pytest.raises(ValueError, match="is pending, and not done"):
        client.jobs(recurring=True, state="done")
    found = client.job(yearly.key)
    assert (found.cron, found.state) == ("@yearly", "pending")
    assert (found.next_time.month, found.next_time.day) in ((1, 1), (12, 31))  # local time
    assert client.job_result(run.key, timeout=60) == 4
    assert run.key in {one.key for one in client.jobs(name=re.compile(re.escape(job.key) + "@"))}
    for key in keys:
        client.cancel_job(key)
    assert client.jobs(recurring=True) == []
    ended = client.job(job.key)
    assert (ended.state, ended.cron, ended.next_time) == ("cancelled", "", None)


async def test_an_asynchronous_client_awaits_the_same():
    async with weft.Client(
        processes=False, n_workers=1, set_as_default=False, asynchronous=True
    ) as client:
        job = client.submit(abs, -5, cron=EACH_SECOND)
        with pytest.raises(RuntimeError, match="use `async for`"):
            iter(job.runs())
        async for run in job.runs():
            assert await run == 5
            assert (await job.last()).key == run.key
            break
        assert (await job.next_time()).tzinfo is dt.timezone.utc
        await job.cancel()
        assert [run async for run in job.runs()] == []
