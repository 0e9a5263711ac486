"""The journal in a file: faults of its disk and of what is on it."""

from __future__ import annotations

import asyncio
import queue
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from tests.scheduler.test_journal import Opened, cron, job, read_again
from weft.protocol.errors import ConfigError
from weft.protocol.trust.security import Security
from weft.protocol.wire import messages as m
from weft.scheduler.config import SchedulerConfig
from weft.scheduler.core.insight.overview import overview
from weft.scheduler.core.journal.entries import (
    JobChanged,
    JobEnded,
    JournalRead,
    OutputRecorded,
    ValueKept,
    WriteJournal,
)
from weft.scheduler.core.journal.jobs import journal_of
from weft.scheduler.journal import journal as journal_module
from weft.scheduler.journal import rows as journal_rows
from weft.scheduler.journal.files import jobs_in
from weft.scheduler.journal.journal import Journal
from weft.scheduler.journal.outputs import drop_oldest_outputs, record_outputs
from weft.scheduler.journal.rows import FORM
from weft.scheduler.journal.sqlite import SqliteStore
from weft.scheduler.server import SchedulerServer


@pytest.fixture
def path(tmp_path):
    return tmp_path / "journal.sqlite"


@pytest.fixture
def opened(path):
    opened = Opened(path)
    yield opened
    opened.journal.close()


def test_a_new_journal_is_empty_and_makes_no_file(opened, path):
    assert opened.journal.read() == JournalRead()
    assert opened.ask("jobs") == m.Answer(request=1, info={"jobs": []})
    assert not path.exists()


def test_a_file_that_was_removed_is_said_without_any_write(opened, path, monkeypatch):
    monkeypatch.setattr(journal_module, "PROBE_S", 0.05)
    probed = queue.SimpleQueue()
    opened.journal.on_probed = probed.put
    opened.write(job("a"))
    path.rename(path.with_name("away"))
    text = f"the journal {path} cannot be written: the file was removed"
    assert probed.get(timeout=60).error.startswith(text)
    path.with_name("away").rename(path)
    while probed.get(timeout=60).error:
        pass
    assert opened.write(job("b")) == ""


def test_a_look_at_a_journal_makes_no_file(path):
    store = SqliteStore(path)
    store.probe()
    assert not path.exists()


def test_a_change_and_a_run_are_recorded_both_or_not_at_all(opened, path):
    opened.write(job("a"))
    with sqlite3.connect(path) as database:
        database.execute(
            "CREATE TRIGGER full BEFORE UPDATE OF options ON jobs BEGIN "
            "SELECT RAISE(ABORT, 'disk full'); END"
        )
    assert "disk full" in opened.write(job("a@1"), JobChanged("a", cron("* * * * *")))
    assert read_again(opened, path).jobs == [job("a")]


def test_a_database_of_before_durable_values_gets_their_table(opened, path):
    opened.write(job("a"))
    opened.journal.store.database.execute("DROP TABLE durable_values")
    assert read_again(opened, path).values == []
    assert opened.write(ValueKept(5, ("variable", "v"), b"pickle", [], {})) == ""


def test_a_database_that_is_full_says_so_and_goes_on_later(opened, path):
    opened.write(job("a"))
    database = opened.journal.store.database
    (n_pages,) = database.execute("PRAGMA page_count").fetchone()
    database.execute(f"PRAGMA max_page_count = {n_pages}")
    error = opened.write(job("b", args=b"x" * 100_000))
    assert "cannot be written" in error
    assert "full" in error
    database.execute("PRAGMA max_page_count = 1000000")
    assert opened.write(job("c")) == ""
    assert [one.key for one in read_again(opened, path).jobs] == ["a", "c"]


def test_a_locked_database_is_an_error(opened, path):
    opened.write(job("a"))
    other = sqlite3.connect(path, isolation_level=None)
    opened.journal.store.database.execute("PRAGMA busy_timeout = 50")
    other.execute("BEGIN IMMEDIATE")
    assert "locked" in opened.write(job("b"))
    other.execute("ROLLBACK")
    other.close()
    assert opened.write(job("b")) == ""


def test_batches_that_wait_for_a_locked_database_are_tried_together_once(opened, path):
    opened.write(job("a"))
    database = opened.journal.store.database
    database.execute("PRAGMA busy_timeout = 50")
    begun = []
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    release = queue.SimpleQueue()
    opened.journal._put(release.get)
    for number in range(8):
        opened.journal.write(WriteJournal(number, [job(f"b{number}")]), opened.reports.put)
    database.set_trace_callback(begun.append)
    release.put(None)
    reports = [opened.reports.get() for _ in range(8)]
    assert [one.number for one in reports] == [*range(8)]
    assert all("locked" in one.error for one in reports)
    assert begun.count("BEGIN IMMEDIATE") == 1
    database.set_trace_callback(None)
    other.execute("ROLLBACK")
    other.close()
    assert opened.write(job("b0")) == ""


@pytest.mark.parametrize("content", [b"not a database" * 100, None])
def test_a_damaged_journal_ends_the_start_with_what_to_do(path, content):
    path.mkdir() if content is None else path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"cannot be used: .* restore a backup, or move it away"):
        SqliteStore(path)


def test_a_damaged_row_is_said_to_be_damage_when_it_is_read(opened, path):
    opened.write(job("a"), job("b"))
    opened.write(JobEnded("b", "failed", ["exception", "b", "x"]))
    opened.journal.store.database.execute("UPDATE jobs SET options = 'no map'")
    assert "cannot be read" in opened.again("b").problem
    with pytest.raises(ConfigError, match="cannot be used"):
        read_again(opened, path)


def test_a_journal_of_a_later_version_is_refused(opened, path):
    opened.write(job("a"))
    opened.journal.store.database.execute(f"PRAGMA user_version = {FORM + 1}")
    opened.journal.close()
    with pytest.raises(ConfigError, match="was written by a later one"):
        SqliteStore(path)


def to_form_1(path: Path) -> None:
    """Take out what form 2 has added."""
    with sqlite3.connect(path) as database:
        database.execute("ALTER TABLE jobs DROP COLUMN user_name")
        database.execute("DROP TABLE paused_queues")
        database.execute("PRAGMA user_version = 1")
    database.close()


def test_a_journal_of_form_1_is_brought_up_to_date(opened, path):
    opened.write(job("a"), job("b"), JobEnded("b", "done", result=b"result"))
    opened.journal.close()
    to_form_1(path)
    assert [(one["key"], one["user"]) for one in jobs_in(path, 10)] == [("b", ""), ("a", "")]
    again = Opened(path)
    assert again.journal.read().jobs == [job("a")]
    of_ann = replace(job("c"), user="ann")
    assert again.write(of_ann) == ""
    assert read_again(again, path).jobs == [job("a"), of_ann]
    with sqlite3.connect(path) as database:
        assert database.execute("PRAGMA user_version").fetchone() == (FORM,)
    database.close()


def test_a_journal_that_cannot_be_brought_up_to_date_is_left_as_it_is(opened, path, monkeypatch):
    opened.write(job("a"))
    opened.journal.close()
    to_form_1(path)
    with monkeypatch.context() as patch:
        alter = f"{journal_rows._NEXT_FORM[1]}; no statement"
        patch.setitem(journal_rows._NEXT_FORM, 1, alter)
        with pytest.raises(ConfigError, match="cannot be used"):
            SqliteStore(path)
    assert [one["key"] for one in jobs_in(path, 10)] == ["a"]
    again = Opened(path)
    assert again.journal.read().jobs == [job("a")]
    again.journal.close()


def test_no_more_than_the_sum_is_computed_of_outputs_if_none_is_to_be_dropped(tmp_path):
    store = SqliteStore(tmp_path / "journal.sqlite")
    n = 2000
    outputs = [OutputRecorded(f"a/{i}", "a", (str(i), "", False)) for i in range(n)]
    store.write(lambda database: record_outputs(database, outputs))
    steps: list[None] = []
    assert store.database is not None
    store.database.set_progress_handler(lambda: steps.append(None), 100)
    store.write(drop_oldest_outputs)
    assert 0 < 100 * len(steps) < 10 * n
    store.close()


async def test_health_says_that_a_journal_is_away_before_a_job_fails_of_it(
    path, tmp_path, monkeypatch, wait_until
):
    monkeypatch.setattr(journal_module, "PROBE_S", 0.05)
    store = SqliteStore(path)
    store.write(lambda _: None)  # it makes the file
    config = SchedulerConfig(
        [f"unix://{tmp_path}/s"],
        Security(b"a token for tests only", b"cluster-of-tests"),
        journal=Journal(store),
    )
    scheduler = SchedulerServer(config)
    await scheduler.start()
    path.rename(tmp_path / "away")
    journal = journal_of(scheduler.state)
    await asyncio.to_thread(wait_until, lambda: "the file was removed" in journal.error, 60)
    lines = {line["code"]: line["text"] for line in overview(scheduler.state)["health"]}
    assert "no job could be recorded" in lines["journal"]
    (tmp_path / "away").rename(path)
    await asyncio.to_thread(wait_until, lambda: not journal.error, 60)
    await scheduler.stop()
    await asyncio.get_running_loop().shutdown_default_executor()
