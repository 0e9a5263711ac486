"""Copies of a journal, made and put back, beside a scheduler that uses it."""

from __future__ import annotations

import contextlib
import sqlite3

import pytest

from tests.scheduler.test_journal import Opened, job, read_again
from weft.protocol.errors import ConfigError
from weft.scheduler.core.journal.entries import JobForgotten
from weft.scheduler.journal.files import backup, compact, file_in, restore
from weft.scheduler.journal.journal import Journal
from weft.scheduler.journal.sqlite import SqliteStore


@pytest.fixture
def path(tmp_path):
    return tmp_path / "journal.sqlite"


@pytest.fixture
def opened(path):
    opened = Opened(path)
    yield opened
    opened.journal.close()


def keys_in(path):
    journal = Journal(SqliteStore(path))
    try:
        return [one.key for one in journal.read().jobs]
    finally:
        journal.close()


def test_a_copy_has_what_was_recorded_while_the_journal_is_written(opened, path, tmp_path):
    assert opened.write(job("a")) == ""
    copy = tmp_path / "copy"
    assert backup(file_in(tmp_path), copy) == copy.stat().st_size
    assert copy.stat().st_mode & 0o777 == 0o600
    assert opened.write(job("b")) == ""
    assert keys_in(copy) == ["a"]
    assert [one.key for one in read_again(opened, path).jobs] == ["a", "b"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["copy", "journal.sqlite"]


def test_a_copy_is_put_back_and_the_journal_before_it_is_kept(opened, path, tmp_path):
    opened.write(job("a"))
    backup(path, tmp_path / "copy")
    opened.write(job("b"))
    with pytest.raises(ConfigError, match=r"a scheduler has .* open: stop it first"):
        restore(tmp_path / "copy", path)
    opened.journal.close()
    kept = restore(tmp_path / "copy", path)
    assert keys_in(path) == ["a"]
    assert keys_in(kept) == ["a", "b"]
    again = restore(tmp_path / "copy", path)
    assert keys_in(again) == ["a"]
    assert keys_in(kept) == ["a", "b"]  # none is written over


def test_a_copy_is_put_where_there_is_none_or_a_damaged_one(opened, path, tmp_path):
    opened.write(job("a"))
    backup(path, tmp_path / "copy")
    opened.journal.close()
    path.write_bytes(b"not a database, but long enough to be one" * 100)
    assert restore(tmp_path / "copy", path) is not None
    assert keys_in(path) == ["a"]
    assert restore(tmp_path / "copy", tmp_path / "new") is None
    assert keys_in(tmp_path / "new") == ["a"]


def test_the_room_of_forgotten_jobs_is_given_back_while_the_journal_is_written(opened, path):
    opened.write(*[job(f"a{i}", args=bytes(100_000)) for i in range(50)])
    opened.write(*[JobForgotten(f"a{i}") for i in range(50)])
    before, after = compact(path)
    assert before > 5_000_000
    assert after < 200_000
    assert opened.write(job("b")) == ""
    assert compact(path)[1] < 200_000


@pytest.mark.parametrize("content", [None, b"no database at all, whatever its name says" * 50])
def test_a_file_that_is_no_journal_is_said_so(tmp_path, content):
    path = tmp_path / "journal.sqlite"
    if content is not None:
        path.write_bytes(content)
    for call in (
        lambda: backup(path, tmp_path / "copy"),
        lambda: restore(path, tmp_path / "other"),
        lambda: compact(path),
    ):
        with pytest.raises(ConfigError, match="no journal"):
            call()
    assert not (tmp_path / "other").exists()


def test_another_database_is_no_journal(tmp_path):
    path = tmp_path / "other.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE t (x)")
    with pytest.raises(ConfigError, match="its form is 0"):
        restore(path, tmp_path / "journal.sqlite")


def test_no_file_is_overwritten_by_a_copy(opened, path, tmp_path):
    opened.write(job("a"))
    (tmp_path / "copy").write_text("mine")
    with pytest.raises(ConfigError, match="exists: name a new file"):
        backup(path, tmp_path / "copy")
    assert (tmp_path / "copy").read_text() == "mine"
    with pytest.raises(ConfigError, match="cannot be written"):
        backup(path, tmp_path / "no folder" / "copy")
