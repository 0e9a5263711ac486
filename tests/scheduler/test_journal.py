"""The journal in its database: what is read is what was recorded, and faults are said."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from weft.protocol.wire import messages as m
from weft.protocol.wire.payload import Payload
from weft.scheduler.core.journal.entries import (
    CategoryLearned,
    Entry,
    JobAdded,
    JobChanged,
    JobEnded,
    JobForgotten,
    JobsRead,
    JournalRead,
    JournalWritten,
    OutputRecorded,
    QueueChanged,
    ReadEnds,
    ReadJobs,
    ValueKept,
    ValuesDropped,
    WriteJournal,
)
from weft.scheduler.journal import categories as journal_categories
from weft.scheduler.journal import journal as module
from weft.scheduler.journal import outputs as journal_outputs
from weft.scheduler.journal import rows as journal_rows
from weft.scheduler.journal.journal import Journal
from weft.scheduler.journal.places import jobs_at, store_at


class Opened:
    """A journal, and its reports."""

    def __init__(self, path: Path | str) -> None:
        self.journal = Journal(store_at(str(path)))
        self.journal.read()
        self.reports: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._number = 0

    def write(self, *entries: Entry) -> str:
        """Record entries; return why that failed."""
        self._number += 1
        self.journal.write(WriteJournal(self._number, [*entries]), self.reports.put)
        report = self.reports.get()
        assert report.number == self._number
        return report.error

    def again(self, key: str) -> JobsRead:
        """Return what is read of a job that is to run again."""
        self.journal.read_for(ReadJobs(5, 7, key), self.reports.put)
        return self.reports.get()

    def ask(self, name: str, page: str = "", /, **arguments: str) -> object:
        ask = m.Ask(request=1, name=name, arguments=arguments, page=page)
        self.journal.answer(ask, self.reports.put)
        return self.reports.get()


@pytest.fixture(params=["file", "postgresql"])
def path(request, tmp_path):
    if request.param == "file":
        return tmp_path / "journal.sqlite"
    return request.getfixturevalue("postgresql").url()


@pytest.fixture
def opened(path):
    opened = Opened(path)
    yield opened
    opened.journal.close()


def job(key: str, *dependencies: str, args: object = b"args") -> JobAdded:
    return JobAdded(
        key, b"0" * 16, "inc", b"pickle", args, [*dependencies], {"retries": 2}, b"h" * 16, "alice"
    )


def read_again(opened: Opened, path: Path | str) -> JournalRead:
    """Return what the next scheduler reads."""
    opened.journal.close()
    again = Journal(store_at(str(path)))
    try:
        return again.read()
    finally:
        again.close()


def test_a_job_that_runs_again_was_submitted_when_it_was_the_first_time(opened, monkeypatch):
    opened.write(job("a"))
    first = opened.ask("job", key="a").info["jobs"][0]["submitted"]
    opened.write(JobEnded("a", "failed", ["exception", "a", "ValueError"]))
    monkeypatch.setattr(time, "time", lambda: first + 1000)
    for _ in range(2):
        opened.write(*opened.again("a").read.jobs)
        (found,) = opened.ask("job", key="a").info["jobs"]
        assert (found["state"], found["submitted"]) == ("pending", first)
        opened.write(JobEnded("a", "failed", ["exception", "a", "ValueError"]))
    opened.write(job("a"))  # by a client
    assert opened.ask("job", key="a").info["jobs"][0]["submitted"] == first + 1000


def test_jobs_that_have_not_ended_are_read_in_the_order_of_submission(opened, path):
    large = Payload(b"data", [bytearray(b"buffer")])
    jobs = [job("a"), job("b", "a", args=large), job("c")]
    assert opened.write(*jobs) == ""
    assert opened.write(JobEnded("c", "done", result=b"result")) == ""
    assert read_again(opened, path).jobs == jobs[:2]


def cron(expression: str, **changes: Any) -> dict[str, Any]:
    plain = {"zone": "UTC", "since_ms": 5, "until_ms": 0, "overlap": "skip", "missed": "one"}
    return {"cron": {"expression": expression, **plain, **changes}}


def test_other_options_of_a_job_are_read_by_the_next_scheduler(opened, path):
    opened.write(job("a"), job("b"), JobChanged("a", cron("* * * * *")))
    opened.write(JobChanged("a", cron("* * * * *", since_ms=60_000)), job("a@1"))
    read = read_again(opened, path)
    assert {one.key: one.options for one in read.jobs} == {
        "a": cron("* * * * *", since_ms=60_000),
        "b": {"retries": 2},
        "a@1": {"retries": 2},
    }


def test_a_job_that_has_ended_has_the_options_that_it_had(opened, path):
    opened.write(job("a"))
    opened.write(JobEnded("a", "failed"))
    assert opened.write(JobChanged("a", cron("* * * * *"))) == ""
    assert opened.again("a").read.jobs == [job("a")]


def test_the_next_time_of_a_recurring_job_is_told_until_it_has_ended(opened, path):
    opened.write(job("a"), job("b"), job("c"), job("d"))
    opened.write(
        JobChanged("a", cron("0 0 1 1 *")),
        JobChanged("b", cron("0 0 1 1 *", until_ms=60_000)),
        JobChanged("c", cron("0 0 1 1 *", zone="Europe/Bonn")),
    )
    found = {one["key"]: (one.get("cron"), one.get("next")) for one in told(opened, path)}
    next_s = found["a"][1]
    assert next_s > time.time()
    assert found == {
        "a": ("0 0 1 1 *", next_s),
        "b": ("0 0 1 1 *", None),
        "c": ("0 0 1 1 *", None),
        "d": (None, None),
    }
    opened.write(JobEnded("a", "cancelled"))
    assert "cron" not in opened.ask("job", key="a").info["jobs"][0]


def told(opened: Opened, path: Path) -> list[dict[str, Any]]:
    """Return jobs as the scheduler tells them; a command that reads the journal tells the same."""
    found = opened.ask("jobs").info["jobs"]
    assert jobs_at(str(path), 10) == found
    return found


def test_results_are_read_that_jobs_need(opened, path):
    opened.write(job("a"), job("b", "a"), job("c"))
    result = Payload(b"data", [bytearray(b"buffer")])
    opened.write(JobEnded("a", "done", result=result), JobEnded("c", "done", result=b"unneeded"))
    read = read_again(opened, path)
    assert [one.key for one in read.jobs] == ["b"]
    assert read.results == {"a": result}


def test_a_job_with_a_large_result_is_read_as_made(opened, path):
    opened.write(job("a"))
    opened.write(JobEnded("a", "done", nbytes=1 << 20))
    read = read_again(opened, path)
    assert read.jobs == [job("a")]
    assert read.made == {"a": None}


def test_a_key_that_is_submitted_again_is_one_job(opened, path):
    opened.write(job("a"))
    opened.write(JobEnded("a", "failed", ["exception", "a", Payload(b"x", [])]))
    opened.write(job("a", args=b"others"))
    assert read_again(opened, path).jobs == [job("a", args=b"others")]


def test_an_end_changes_no_job_that_has_ended_before(opened):
    """The key was submitted again, and that could not be recorded."""
    opened.write(job("a"))
    opened.write(JobEnded("a", "done", result=b"result"))
    opened.write(JobEnded("a", "failed", ["unrecorded", "a", "the disk is full"]))
    answer = opened.ask("job", key="a")
    assert isinstance(answer, m.Answer)
    assert [one["state"] for one in answer.info["jobs"]] == ["done"]
    assert answer.blobs[0] == b"result"


def test_jobs_are_listed_page_by_page(opened, monkeypatch):
    monkeypatch.setattr(module, "N_JOBS", 2)
    opened.write(*map(job, "abc"))
    opened.write(JobEnded("b", "cancelled", ["cancelled", "b", "why"]))
    first = opened.ask("jobs")
    assert [one["key"] for one in first.info["jobs"]] == ["c", "b"]
    second = opened.ask("jobs", first.next_page)
    assert [one["key"] for one in second.info["jobs"]] == ["a"]
    assert second.next_page == ""
    found = opened.ask("jobs", state="cancelled")
    assert [(one["key"], one["state"]) for one in found.info["jobs"]] == [("b", "cancelled")]
    assert opened.ask("jobs", name="dec").info == {"jobs": []}


def test_jobs_are_listed_by_the_time_of_their_submission(opened, monkeypatch):
    for key, now in (("a", 100.0), ("b", 200.0), ("c", 300.0)):
        monkeypatch.setattr(journal_rows.time, "time", lambda now=now: now)
        opened.write(job(key))
    found = opened.ask("jobs", since=200.0, until=300.0)
    assert [one["key"] for one in found.info["jobs"]] == ["b"]


def test_jobs_are_counted_by_name_and_state(opened):
    assert opened.ask("job_counts").info == {"counts": []}
    opened.write(*map(job, "abc"))
    opened.write(JobEnded("a", "done", nbytes=1 << 20), JobEnded("b", "done", result=b"result"))
    assert sorted(opened.ask("job_counts").info["counts"]) == [
        ["inc", "done", 2],
        ["inc", "pending", 1],
    ]


def test_one_job_is_answered_with_its_result(opened):
    opened.write(job("a"), job("b"))
    opened.write(JobEnded("a", "done", result=b"result"))
    opened.write(JobEnded("b", "failed", ["exception", "b", "ValueError"]))
    assert opened.ask("job", key="a").blobs == [b"result", None]
    result, failure = opened.ask("job", key="b").blobs
    assert result is None
    assert journal_rows.msgpack.unpackb(failure) == ["exception", "b", "ValueError"]
    assert opened.ask("job", key="c").info == {"jobs": []}


@pytest.mark.parametrize(
    ("name", "page", "arguments"),
    [("jobs", "x", {}), ("job", "", {"key": 5}), ("jobs", "", {"since": "today"})],
)
def test_bad_questions_are_refused(opened, name, page, arguments):
    opened.write(job("a"))
    assert type(opened.ask(name, page, **arguments)) is m.AskFailed


def test_the_latest_are_kept_of_those_that_have_ended(opened, path, monkeypatch):
    monkeypatch.setattr(journal_rows, "MAX_ENDED", 2)
    monkeypatch.setattr(module, "_COMMITS_BETWEEN", 1)
    keys = "abcde"
    opened.write(*map(job, keys))
    opened.write(*[JobEnded(key, "done", result=b"r") for key in keys[:4]])
    assert [one["key"] for one in opened.ask("jobs").info["jobs"]] == ["e", "d", "c"]


def test_older_results_make_room_for_later_ones(opened, monkeypatch):
    monkeypatch.setattr(journal_rows, "MAX_ENDED_NBYTES", 250)
    monkeypatch.setattr(module, "_NBYTES_BETWEEN", 100)
    opened.write(*map(job, "abcd"))
    for key in "abc":
        opened.write(JobEnded(key, "done", result=Payload(b"r" * 50, [bytearray(50)])))
    jobs = opened.ask("jobs").info["jobs"]
    assert [(one["key"], one["nbytes"]) for one in jobs] == [("d", 0), ("c", 100), ("b", 100)]


def test_results_that_are_needed_are_kept(opened, monkeypatch):
    monkeypatch.setattr(journal_rows, "MAX_ENDED", 0)
    opened.write(job("read"), job("kept"), job("old"), job("reader", "read"))
    opened.write(ValueKept(5, ("queue", "work"), b"pickle", ["kept"], {}))
    monkeypatch.setattr(module, "_COMMITS_BETWEEN", 1)
    keys = ["read", "kept", "old"]
    opened.journal.write(
        WriteJournal(9, [JobEnded(key, "done", result=b"r") for key in keys]), opened.reports.put
    )
    assert opened.reports.get() == JournalWritten(9, "", ["old"])
    left = {one["key"] for one in opened.ask("jobs").info["jobs"]}
    assert left == {"read", "kept", "reader"}


def test_jobs_are_kept_whose_ends_others_wait_for(opened, path, monkeypatch):
    monkeypatch.setattr(journal_rows, "MAX_ENDED", 0)
    options = {"conditions": [["failed", "a"], ["ended", "b"]]}
    opened.write(job("a"), job("b"), job("c"), replace(job("d"), options=options))
    failure = ["exception", "a", "x"]
    opened.write(JobEnded("a", "failed", failure), JobEnded("b", "cancelled", failure))
    opened.write(JobEnded("c", "lost", failure))
    opened.journal.store.write(journal_rows.drop_oldest)
    assert read_again(opened, path).ended == {"a": "failed", "b": "cancelled"}


def test_a_job_that_is_submitted_again_is_behind_those_that_it_may_read(opened, path):
    opened.write(job("report"), JobEnded("report", "failed", failure=("task", "report")))
    opened.write(job("data"), job("report", "data"))
    assert [one.key for one in read_again(opened, path).jobs] == ["data", "report"]


def test_durable_values_are_read_in_their_order_until_they_are_dropped(opened, path):
    values = [
        ValueKept(5, ("queue", "work"), b"pickle", ["job"], {"maxsize": 3}),
        ValueKept(1 << 62, ("metadata", "a", "b"), Payload(b"p", [bytearray(b"buffer")]), [], {}),
        ValueKept(3, ("variable", "v"), b"old", [], {}),
    ]
    assert opened.write(job("job"), JobEnded("job", "done", result=b"r"), *values) == ""
    assert opened.write(ValuesDropped([3, 4])) == ""
    read = read_again(opened, path)
    assert read.values == values[:2]
    assert read.results == {"job": b"r"}


def test_one_batch_that_fails_does_not_fail_those_beside_it(opened, path):
    opened.write(job("a"))
    release = queue.SimpleQueue()
    opened.journal._put(release.get)  # so that the next two are one transaction
    bad = job("b")
    bad.client = object()
    opened.journal.write(WriteJournal(8, [bad]), opened.reports.put)
    opened.journal.write(WriteJournal(9, [job("c")]), opened.reports.put)
    release.put(None)
    reports = [opened.reports.get() for _ in range(2)]
    assert [(one.number, bool(one.error)) for one in reports] == [(8, True), (9, False)]


def test_a_bug_in_the_thread_is_passed_on_and_the_journal_can_be_closed(opened, path):
    opened.journal.on_bug = opened.reports.put
    opened.journal.write(WriteJournal(1, [job("a")]), opened.reports.put)
    assert opened.reports.get().error == ""
    opened.journal.write(WriteJournal(2, ["no entry"]), opened.reports.put)
    assert isinstance(opened.reports.get(), KeyError)
    assert [one.key for one in read_again(opened, path).jobs] == ["a"]


@pytest.mark.parametrize("error", [OverflowError("too long"), MemoryError()])
def test_a_job_that_the_database_cannot_take_is_an_error_of_that_job(opened, monkeypatch, error):
    """They come from objects of gigabytes only."""
    opened.write(job("a"))
    with monkeypatch.context() as patch:
        patch.setitem(journal_rows.RECORDERS, JobAdded, lambda *_: raise_(error))
        assert (str(error) or "MemoryError") in opened.write(job("b"))
    assert opened.write(job("b")) == ""


def raise_(error: Exception) -> None:
    raise error


def test_queues_that_are_paused_are_read_until_they_are_resumed(opened, path):
    opened.write(QueueChanged("q", True), QueueChanged("p", True), QueueChanged("p", True))
    opened.write(QueueChanged("q", False), QueueChanged("r", True), QueueChanged("r", False))
    read = read_again(opened, path)
    assert read == JournalRead(paused=["p"])


def test_lessons_of_categories_are_read_as_they_were_recorded_last(opened, path):
    first = CategoryLearned("a", [(1 << 20, 2, 3.0)], 2, 3.0)
    others = [CategoryLearned(name, [], 1, 1.5) for name in ("b", "c")]
    last = CategoryLearned("a", [(1 << 20, 2, 3.0), (3 << 40, 1, 0.5)], 3, 3.5, [(2, 1, 0.5)])
    opened.write(first)
    opened.write(*others)
    opened.write(last)
    assert read_again(opened, path) == JournalRead(learned=[*others, last])


def test_the_categories_that_have_learned_last_are_kept_on_record(opened, path, monkeypatch):
    monkeypatch.setattr(journal_categories, "MAX_CATEGORIES", 2)
    for name in "abca":
        opened.write(CategoryLearned(name, [], 1, 1.0))
    assert [one.name for one in read_again(opened, path).learned] == ["c", "a"]


def test_damaged_lessons_of_a_category_are_left_out(opened, path):
    kept = CategoryLearned("kept", [], 1, 1.0)
    opened.write(CategoryLearned("damaged", [], 1, 1.0), kept)
    damage = "UPDATE learned_categories SET learned = ? WHERE name = ?"
    opened.journal.store.write(lambda database: database.execute(damage, (b"\xc1", "damaged")))
    assert read_again(opened, path).learned == [kept]


def test_lessons_of_a_version_that_learned_no_cores_are_read(opened, path):
    learned = CategoryLearned("a", [(1 << 20, 2, 3.0)], 2, 3.0)
    opened.write(learned)
    older = journal_rows.msgpack.packb((learned.peaks, learned.n_ended, learned.sum_s))
    change = "UPDATE learned_categories SET learned = ?"
    opened.journal.store.write(lambda database: database.execute(change, (older,)))
    assert read_again(opened, path).learned == [learned]


def test_jobs_are_listed_by_their_users(opened, monkeypatch):
    monkeypatch.setattr(module, "N_JOBS", 2)
    jobs = [replace(job(f"{user}{n}"), user=user) for n in range(3) for user in ("ann", "bob")]
    opened.write(job("a"), *jobs)
    answer = opened.ask("jobs", user="ann")
    assert [(one["key"], one["user"]) for one in answer.info["jobs"]] == [
        ("ann2", "ann"),
        ("ann1", "ann"),
    ]
    answer = opened.ask("jobs", answer.next_page, user="ann")
    assert [one["key"] for one in answer.info["jobs"]] == ["ann0"]
    assert opened.ask("job", key="bob0").info["jobs"][0]["user"] == "bob"
    assert opened.ask("job", key="a").info["jobs"][0]["user"] == ""


def test_a_job_that_is_to_run_again_is_read_with_the_failed_ones_before_it(opened):
    jobs = [job("a"), job("b"), job("c"), job("d", "a"), job("e", "d", "b", "c"), job("f", "e")]
    failed = [JobEnded(key, "failed", ["exception", key, "x"]) for key in "ade"]
    assert opened.write(*jobs, *failed, JobEnded("b", "done", result=b"7")) == ""
    found = opened.again("e")
    assert (found.asked.peer, found.asked.request, found.problem) == (5, 7, "")
    assert found.read == JournalRead([jobs[0], jobs[3], jobs[4]], results={"b": b"7"})
    assert "no job 'x'" in opened.again("x").problem


def test_ends_are_read_as_far_as_they_are_not_too_large(opened, monkeypatch):
    monkeypatch.setattr(module, "_NBYTES_OF_ENDS", 100)
    failure = ["exception", "b", "x"]
    ends = [JobEnded("a", "done", result=b"r" * 101), JobEnded("b", "failed", failure)]
    opened.write(*map(job, "abc"), *ends)
    opened.journal.read_for(ReadEnds(["b", "x", "c", "a", "b"]), opened.reports.put)
    read = opened.reports.get()
    assert read.rest == ["b"]
    assert read.ends == [
        (JobEnded("b", "failed", failure), job("b").spec_hash),
        (JobEnded("a", "done", result=b"r" * 101, nbytes=101), job("a").spec_hash),
    ]


def test_one_damaged_record_does_not_hide_those_beside_it(opened):
    opened.write(*map(job, "ab"), *(JobEnded(key, "done", result=b"r") for key in "ab"))
    damage = "UPDATE jobs SET failure = ? WHERE key = 'b'"
    opened.journal.store.write(lambda database: database.execute(damage, (b"\xc1",)))
    opened.journal.read_for(ReadEnds(["a", "b"]), opened.reports.put)
    read = opened.reports.get()
    assert [(end.key, end.state) for end, _ in read.ends] == [("a", "done"), ("b", "lost")]
    assert "is damaged" in read.ends[1][0].failure[2]


def test_ends_that_come_with_one_that_the_database_does_not_take_are_recorded(opened, path):
    opened.write(job("a"), job("b"), job("c"))
    ends = [JobEnded("a", "done", result=b"1"), JobEnded("b", "done", nbytes=1 << 70),
            JobEnded("c", "done", result=b"3")]  # fmt: skip
    opened.journal.write(WriteJournal(9, ends), opened.reports.put)
    assert opened.reports.get() == JournalWritten(9, refused=["b"])
    states = {one["key"]: one["state"] for one in opened.ask("jobs").info["jobs"]}
    assert states == {"a": "done", "b": "pending", "c": "done"}
    opened.journal.write(WriteJournal(10, ends[1:2]), opened.reports.put)
    assert opened.reports.get() == JournalWritten(10, refused=["b"])


def test_output_of_a_job_is_recorded_until_it_is_forgotten_or_begins_anew(opened):
    def outputs():
        return [opened.ask("job_output", key=key).info["outputs"] for key in ("a", "b", "b/1")]

    assert not opened.write(job("a"), job("b"))
    odd = ("out\0", "\N{SNOWMAN}", True)
    printed = [OutputRecorded("a", "a", odd), OutputRecorded("b/1", "b", ("one", "", False))]
    assert not opened.write(*printed, OutputRecorded("a", "a", ("again", "", False)))
    assert outputs() == [[["again", "", False]], [], [["one", "", False]]]
    assert not opened.write(OutputRecorded("a", "a", odd))
    assert outputs()[0] == [list(odd)]
    assert not opened.write(JobForgotten("b"))
    assert outputs()[1:] == [[], []]
    assert not opened.write(job("a"))
    assert outputs() == [[], [], []]


def test_the_oldest_outputs_of_jobs_are_dropped(opened, monkeypatch):
    monkeypatch.setattr(journal_outputs, "MAX_NBYTES", 250)
    assert not opened.write(*(job(key) for key in "abc"))
    assert not opened.write(OutputRecorded("d", "d", ("of no job", "", False)))
    text = "x" * 100
    assert not opened.write(*(OutputRecorded(key, key, (text, "", False)) for key in "abc"))
    opened.journal.store.write(journal_rows.drop_oldest)
    assert with_outputs(opened, "abcd") == ["b", "c"]


def test_the_outputs_of_jobs_are_dropped_with_these(opened, monkeypatch):
    monkeypatch.setattr(journal_rows, "MAX_ENDED", 1)
    assert not opened.write(*(job(key) for key in "abc"))
    rows = [OutputRecorded("a/1", "a", ("of a row", "", False))]
    assert not opened.write(*rows, *(OutputRecorded(key, key, (key, "", False)) for key in "abc"))
    assert not opened.write(*(JobEnded(key, "done", result=b"result") for key in "ab"))
    opened.journal.store.write(journal_rows.drop_oldest)
    assert with_outputs(opened, ["a/1", "a", "b", "c"]) == ["b", "c"]


def with_outputs(opened: Opened, keys: Iterable[str]) -> list[str]:
    """Return those of some keys that have output on record."""
    return [key for key in keys if opened.ask("job_output", key=key).info["outputs"]]
