"""The journal of detached jobs: an SQLite database in the state directory. A part of the shell.

One thread writes it. Entries that come while it commits are one transaction with all that has come
by then, so the price of a commit is shared, and the loop never waits for the disk. What is reported
as recorded is on the disk: the database has a write-ahead log with `synchronous=FULL`.

What storage refuses (a full disk, a locked or damaged file) is reported to who asked. Any other
exception is a bug of weft: it ends the thread, and is passed on, since nobody would be answered.

The database is made with the first job. Its form has a number; a later one is refused.
"""

from __future__ import annotations

import contextlib
import itertools
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import msgpack

from ..protocol.errors import ConfigError
from ..protocol.wire.message import Message
from ..protocol.wire.messages import Answer, Ask, AskFailed
from ..protocol.wire.messages.questions import BAD_ARGUMENT, NO_ANSWER
from ..protocol.wire.payload import Blob, Payload
from .core.journal.entries import (
    Entry,
    JobAdded,
    JobChanged,
    JobEnded,
    JobForgotten,
    JobsRead,
    JournalRead,
    JournalWritten,
    ReadJobs,
    ValueKept,
    ValuesDropped,
    WriteJournal,
)
from .journal_descriptions import COLUMNS, MADE, OPEN, described
from .journal_values import TABLE, drop_values, joined, keep_values, parts, read_values

#: The form of the tables.
FORM: Final = 1
FILE: Final = "journal.sqlite"
#: Jobs that have ended are kept up to so many, the latest.
MAX_ENDED: Final = 100_000
#: And as long as their results have no more bytes.
MAX_ENDED_NBYTES: Final = 4 << 30
#: The oldest are looked for after so many transactions, or bytes of results.
_COMMITS_BETWEEN: Final = 1000
_NBYTES_BETWEEN: Final = 256 << 20
#: Jobs of one page of an answer.
N_JOBS: Final = 200
_BUSY_S: Final = 5.0
#: With fewer pages in memory, or of the write-ahead log, many jobs are written several times.
_CACHE_KIB: Final = 64 << 10
_LOG_PAGES: Final = 16_384
_NONE: Final = msgpack.packb([])
#: What is raised for a row that Python or SQLite cannot take.
_TOO_LARGE: Final = (OverflowError, MemoryError)
_OF_ROW: Final = (
    *_TOO_LARGE,
    sqlite3.DataError,
    sqlite3.IntegrityError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
)
#: What is raised for a row that was recorded and has become something else on the disk.
_DAMAGED: Final = (sqlite3.Error, ValueError, TypeError)

_TABLES: Final = """
CREATE TABLE functions (id BLOB PRIMARY KEY, blob BLOB NOT NULL, buffers BLOB) WITHOUT ROWID;
CREATE TABLE jobs (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    key TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    function BLOB NOT NULL,
    args BLOB NOT NULL,
    args_buffers BLOB,
    dependencies BLOB NOT NULL,
    options BLOB NOT NULL,
    spec_hash BLOB NOT NULL,
    client TEXT NOT NULL,
    state TEXT NOT NULL,
    submitted REAL NOT NULL,
    ended REAL,
    nbytes INTEGER NOT NULL DEFAULT 0,
    result BLOB,
    result_buffers BLOB,
    failure BLOB
);
"""
_ADDED: Final = "(?, ?, ?, ?, ?, ?, ?, ?, ?, 'pending', ?)"
#: A job that is submitted again is a new one, behind those that it may read.
_ADD: Final = """
INSERT OR REPLACE INTO jobs (key, name, function, args, args_buffers, dependencies, options,
                             spec_hash, client, state, submitted)
VALUES {rows}
"""
#: An end whose beginning could not be recorded must not change an earlier job of its key.
_ENDED: Final = "(?, ?, ?, ?, ?, ?, ?)"
_END: Final = """
WITH ends (key, state, ended, nbytes, result, result_buffers, failure) AS (VALUES {rows})
UPDATE jobs SET state = ends.state, ended = ends.ended, nbytes = ends.nbytes, result = ends.result,
    result_buffers = ends.result_buffers, failure = ends.failure
FROM ends WHERE jobs.key = ends.key AND jobs.state IN ('pending', 'made')
"""
#: Rows of one statement, during which the thread does not hold the interpreter.
N_ROWS: Final = 100


#: What `_submitted` reads.
_SUBMITTED: Final = """
SELECT number, key, name, function, functions.blob, functions.buffers, args, args_buffers,
       dependencies, options, spec_hash, client, state
FROM jobs JOIN functions ON functions.id = jobs.function
"""


class Journal:
    """The journal of one scheduler. Its reports are called in the journal's thread."""

    def __init__(self, path: Path) -> None:
        """Open a journal, if there is one.

        Raises:
            ConfigError: it cannot be read, is damaged, or was made by a later version.
        """
        self.path = path
        self._database: sqlite3.Connection | None = None
        self._work: queue.SimpleQueue[Callable[[], None] | _Write | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        #: since the oldest were looked for
        self._n_commits = 0
        self._nbytes = 0
        #: keys of jobs that were forgotten, and not reported yet
        self._dropped: list[str] = []
        #: called in the journal's thread with the bug of weft that has ended it
        self.on_bug: Callable[[Exception], None] = _reraise
        if path.exists():
            self._open()

    # -- from the loop ----------------------------------------------------------------------------
    def write(self, action: WriteJournal, report: Callable[[JournalWritten], None]) -> None:
        """Record entries; then call `report` in the journal's thread."""
        self._put(_Write(action, report))

    def answer(self, question: Ask, send: Callable[[Message], None]) -> None:
        """Answer a question about jobs by `send`, in the journal's thread."""
        self._put(lambda: send(self._answer(question)))

    def read(self) -> JournalRead:
        """Return what a scheduler begins with; all that was to be recorded is recorded before.

        Raises:
            ConfigError: the database is damaged.
        """
        done: queue.SimpleQueue[JournalRead | Exception] = queue.SimpleQueue()

        def work() -> None:
            try:
                done.put(self._read())
            except Exception as error:
                done.put(error)

        self._put(work)
        found = done.get()
        if isinstance(found, _DAMAGED):
            raise _unusable(self.path, found)
        if isinstance(found, Exception):
            raise found
        return found

    def read_again(self, asked: ReadJobs, report: Callable[[JobsRead], None]) -> None:
        """Read a job that is to run again; then call `report` in the journal's thread."""
        self._put(lambda: report(self._read_again(asked)))

    def close(self) -> None:
        """Record what is waiting, and close the database. It may take as long as the disk does."""
        if self._thread is not None:
            self._work.put(None)
            self._thread.join()
            self._thread = None
        if self._database is not None:
            self._database.close()
            self._database = None

    def _put(self, work: Callable[[], None] | _Write) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="weft-journal", daemon=True)
            self._thread.start()
        self._work.put(work)

    # -- in the thread ----------------------------------------------------------------------------
    def _run(self) -> None:
        try:
            self._work_off()
        except Exception as bug:
            self.on_bug(bug)

    def _work_off(self) -> None:
        """Do what comes until the journal is closed."""
        while True:
            writes: list[_Write] = []
            work = self._work.get()
            while isinstance(work, _Write):
                writes.append(work)
                try:
                    work = self._work.get_nowait()
                except queue.Empty:
                    break
            if writes:
                self._write(writes)
            if work is None:
                return
            if not isinstance(work, _Write):
                work()

    def _write(self, writes: list[_Write]) -> None:
        """Record several batches in one transaction; if one makes it fail, each one on its own.

        A database that is locked, full or read-only is so for each, and would be waited for again.
        """
        error = self._record([entry for write in writes for entry in write.action.entries])
        if isinstance(error, _OF_ROW) and len(writes) > 1:
            for write in writes:
                self._write([write])
            return
        text = ""
        if error is not None:
            text = (
                f"the journal {self.path} cannot be written: {str(error) or type(error).__name__}"
            )
        for write in writes:
            dropped, self._dropped = self._dropped, []
            write.report(JournalWritten(write.action.number, text, dropped))

    def _record(self, entries: list[Entry]) -> Exception | None:
        """Commit entries; return why that failed, None = it has not."""
        try:
            database = self._open()
            with _transaction(database):
                for kind, same in itertools.groupby(entries, type):
                    _RECORDERS[kind](database, [*same])
        except (sqlite3.Error, ConfigError, OSError, *_TOO_LARGE) as error:
            return error
        self._n_commits += 1
        self._nbytes += sum(one.result_nbytes for one in entries if isinstance(one, JobEnded))
        if self._n_commits >= _COMMITS_BETWEEN or self._nbytes >= _NBYTES_BETWEEN:
            self._n_commits = self._nbytes = 0
            with contextlib.suppress(sqlite3.Error), _transaction(database):  # or the next time
                self._dropped = _drop_oldest(database)
        return None

    def _open(self) -> sqlite3.Connection:
        if self._database is not None:
            return self._database
        is_new = not self.path.exists()
        database: sqlite3.Connection | None = None
        try:
            if is_new:
                self.path.touch(mode=0o600)
            database = sqlite3.connect(
                self.path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False
            )
            database.execute("PRAGMA auto_vacuum = INCREMENTAL")  # of a new one: see `compact`
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = FULL")
            database.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
            database.execute(f"PRAGMA wal_autocheckpoint = {_LOG_PAGES}")
            (form,) = database.execute("PRAGMA user_version").fetchone()
            if form == 0:
                with _transaction(database):
                    for statement in filter(str.strip, _TABLES.split(";")):
                        database.execute(statement)
                    database.execute(f"PRAGMA user_version = {FORM}")
            elif form != FORM:
                raise ConfigError(
                    f"the journal {self.path} has form {form}, and this version reads form {FORM}: "
                    "it was written by a later one; start that one, or give another --journal"
                )
            database.execute(TABLE)
        except (sqlite3.Error, OSError) as error:
            if database is not None:
                database.close()
            if is_new:
                with contextlib.suppress(OSError):
                    self.path.unlink()
            raise _unusable(self.path, error) from None
        except ConfigError:
            assert database is not None
            database.close()
            raise
        self._database = database
        return database

    def _read(self) -> JournalRead:
        read = JournalRead()
        if self._database is None and not self.path.exists():
            return read
        database = self._open()
        for row in database.execute(f"{_SUBMITTED} WHERE state IN (?, ?) ORDER BY number", OPEN):
            job, state = _submitted(row)
            read.jobs.append(job)
            if state == MADE:
                read.made[job.key] = None
        done = "SELECT key FROM jobs WHERE state = 'done' AND result IS NOT NULL"
        read.done = dict.fromkeys(key for (key,) in database.execute(done))
        read.values = read_values(database)
        needed = {key: None for job in read.jobs for key in job.dependencies if key in read.done}
        needed |= {key: None for one in read.values for key in one.keys if key in read.done}
        read.results = {key: _result(database, key) for key in needed}
        return read

    def _read_again(self, asked: ReadJobs) -> JobsRead:
        """Read a job that has failed, behind those that it reads and that have failed, too."""
        read = JournalRead()
        found: dict[str, tuple[int, JobAdded]] = {}
        needed = [asked.key]
        try:
            database = self._open()
            for key in needed:  # which grows
                if key in found or key in read.results:
                    continue
                row = database.execute(f"{_SUBMITTED} WHERE key = ?", (key,)).fetchone()
                if row is None:
                    return JobsRead(asked, read, f"the journal has no job {key!r} any more")
                job, state = _submitted(row)
                if state == "done":
                    read.results[key] = _result(database, key)
                elif state not in OPEN:
                    found[key] = row[0], job
                    needed += job.dependencies
        except (*_DAMAGED, ConfigError) as error:
            return JobsRead(asked, read, f"the journal cannot be read: {error}")
        read.jobs = [job for _, job in sorted(found.values(), key=itemgetter(0))]
        return JobsRead(asked, read)

    # -- questions --------------------------------------------------------------------------------
    def _answer(self, question: Ask) -> Message:
        try:
            return _ANSWERS[question.name](self, question)
        except ValueError as error:
            text = f"question {question.name!r}: {error}"
            return AskFailed(request=question.request, kind=BAD_ARGUMENT, text=text)
        except (sqlite3.Error, ConfigError) as error:
            text = f"the journal cannot be read: {error}"
            return AskFailed(request=question.request, kind=NO_ANSWER, text=text)

    def _answer_jobs(self, question: Ask) -> Message:
        """Answer with descriptions of jobs, the latest first."""
        wheres: list[str] = []
        values: list[str | float] = []
        for name in ("state", "name", "client"):
            if value := _text_in(question, name):
                wheres.append(f"{name} = ?")
                values.append(value)
        for name, where in (("since", "submitted >= ?"), ("until", "submitted < ?")):
            if moment := _number_in(question, name):
                wheres.append(where)
                values.append(moment)
        if question.page:
            wheres.append("number < ?")
            values.append(str(int(question.page)))
        where = f"WHERE {' AND '.join(wheres)} " if wheres else ""
        jobs = []
        if self._database is not None or self.path.exists():
            rows = self._open().execute(
                f"SELECT {COLUMNS} FROM jobs {where}ORDER BY number DESC LIMIT {N_JOBS}", values
            )
            jobs = [described(row) for row in rows]
        is_last = len(jobs) < N_JOBS
        next_page = "" if is_last else str(jobs[-1]["number"])
        return Answer(request=question.request, info={"jobs": jobs}, next_page=next_page)

    def _answer_counts(self, question: Ask) -> Message:
        """Answer with the number of jobs of each name and state."""
        counts = []
        if self._database is not None or self.path.exists():
            rows = self._open().execute(
                "SELECT name, CASE state WHEN ? THEN 'done' ELSE state END AS of_state, count(*) "
                "FROM jobs GROUP BY name, of_state ORDER BY max(number) DESC",
                (MADE,),
            )
            counts = [list(row) for row in rows]
        return Answer(request=question.request, info={"counts": counts})

    def _answer_job(self, question: Ask) -> Message:
        """Answer with one job, its result, and its failure."""
        key = _text_in(question, "key")
        row = None
        if self._database is not None or self.path.exists():
            columns = f"{COLUMNS}, result, result_buffers, failure"
            found = self._open().execute(f"SELECT {columns} FROM jobs WHERE key = ?", (key,))
            row = found.fetchone()
        if row is None:
            return Answer(request=question.request, info={"jobs": []})
        *columns_of_job, result, buffers, failure = row
        blobs = [None if result is None else joined(result, buffers), failure]
        return Answer(
            request=question.request, info={"jobs": [described(columns_of_job)]}, blobs=blobs
        )


_ANSWERS: Final[dict[str, Callable[[Journal, Ask], Message]]] = {
    "jobs": Journal._answer_jobs,
    "job": Journal._answer_job,
    "job_counts": Journal._answer_counts,
}


class _Write:
    """A batch that waits to be recorded."""

    __slots__ = ("action", "report")

    def __init__(self, action: WriteJournal, report: Callable[[JournalWritten], None]) -> None:
        self.action = action
        self.report = report


# -- rows ------------------------------------------------------------------------------------------
@contextlib.contextmanager
def _transaction(database: sqlite3.Connection) -> Iterator[None]:
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
        database.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            database.execute("ROLLBACK")
        raise


def _submitted(row: Any) -> tuple[JobAdded, str]:
    """Return a job as it was submitted, and its state."""
    _, key, name, function, blob, buffers, args, args_buffers, *others = row
    dependencies, options, spec_hash, client, state = others
    job = JobAdded(
        key=key,
        function_id=function,
        function_name=name,
        function_blob=joined(blob, buffers),
        args=joined(args, args_buffers),
        dependencies=msgpack.unpackb(dependencies),
        options=msgpack.unpackb(options),
        spec_hash=spec_hash,
        client=client,
    )
    return job, state


def _result(database: sqlite3.Connection, key: str) -> Blob:
    """Return the result of a job that is done."""
    query = "SELECT result, result_buffers FROM jobs WHERE key = ? AND state = 'done'"
    return joined(*database.execute(query, (key,)).fetchone())


def _add(database: sqlite3.Connection, jobs: list[JobAdded]) -> None:
    functions = {job.function_id: job.function_blob for job in jobs}
    database.executemany(
        "INSERT OR IGNORE INTO functions (id, blob, buffers) VALUES (?, ?, ?)",
        [(function_id, *parts(blob)) for function_id, blob in functions.items()],
    )
    now = time.time()
    options: dict[int, bytes] = {}  # by the identity of a map that many share
    rows = []
    for job in jobs:
        packed = options.get(id(job.options))
        if packed is None:
            packed = options[id(job.options)] = msgpack.packb(job.options)
        dependencies = msgpack.packb(job.dependencies) if job.dependencies else _NONE
        rows.append(
            (
                job.key,
                job.function_name,
                job.function_id,
                *parts(job.args),
                dependencies,
                packed,
                job.spec_hash,
                job.client,
                now,
            )
        )
    _execute(database, _ADD, _ADDED, rows)


def _change(database: sqlite3.Connection, changes: list[JobChanged]) -> None:
    rows = [(msgpack.packb(change.options), change.key) for change in changes]
    database.executemany("UPDATE jobs SET options = ? WHERE key = ? AND state = 'pending'", rows)


def _end(database: sqlite3.Connection, ends: list[JobEnded]) -> None:
    now = time.time()
    rows = []
    for end in ends:
        result, buffers = (None, None) if end.result is None else parts(end.result)
        state = MADE if end.is_made else end.state
        failure = None if end.failure is None else msgpack.packb(end.failure, default=_plain)
        nbytes = end.nbytes or end.result_nbytes
        rows.append((end.key, state, now, nbytes, result, buffers, failure))
    _execute(database, _END, _ENDED, rows)


def _forget(database: sqlite3.Connection, forgotten: list[JobForgotten]) -> None:
    keys = [(one.key,) for one in forgotten]
    database.executemany("DELETE FROM jobs WHERE key = ?", keys)


_RECORDERS: Final[dict[type, Callable[[sqlite3.Connection, list[Any]], None]]] = {
    JobAdded: _add,
    JobChanged: _change,
    JobEnded: _end,
    JobForgotten: _forget,
    ValueKept: keep_values,
    ValuesDropped: drop_values,
}


def _execute(
    database: sqlite3.Connection, statement: str, row: str, rows: list[tuple[Any, ...]]
) -> None:
    """Execute a statement for all rows, many at a time; the last of those with one key counts."""
    for start in range(0, len(rows), N_ROWS):
        part = [*{one[0]: one for one in rows[start : start + N_ROWS]}.values()]
        text = statement.format(rows=", ".join([row] * len(part)))
        database.execute(text, [value for one in part for value in one])


def _drop_oldest(database: sqlite3.Connection) -> list[str]:
    """Forget the oldest jobs that have ended, and the functions of none; return their keys.

    Results stay that jobs which have not ended read, or whose futures are in durable values.
    """
    needed = {key for one in read_values(database, with_values=False) for key in one.keys}
    reading = "SELECT dependencies FROM jobs WHERE state IN (?, ?) AND dependencies != ?"
    for (packed,) in database.execute(reading, (*OPEN, _NONE)):
        needed.update(msgpack.unpackb(packed))
    # `nbytes` is before the columns of large values, so this reads none of them.
    oldest = database.execute(
        """
        WITH ended AS (
            SELECT key, row_number() OVER latest AS place, sum(nbytes) OVER latest AS total
            FROM jobs WHERE state NOT IN (?, ?) WINDOW latest AS (ORDER BY number DESC)
        )
        SELECT key FROM ended WHERE place > ? OR total > ?
        """,
        (*OPEN, MAX_ENDED, MAX_ENDED_NBYTES),
    )
    dropped = [key for (key,) in oldest if key not in needed]
    database.executemany("DELETE FROM jobs WHERE key = ?", [(key,) for key in dropped])
    database.execute("DELETE FROM functions WHERE id NOT IN (SELECT function FROM jobs)")
    return dropped


def _plain(value: Any) -> Any:
    """Return what stands for a payload in a failure: the exception is lost, its texts are not."""
    return bytes(value.data) if isinstance(value, Payload) else repr(value)


def _text_in(question: Ask, name: str) -> str:
    value = question.arguments.get(name, "")
    if isinstance(value, str):
        return value
    raise ValueError(f"{name} is a text")


def _number_in(question: Ask, name: str) -> float:
    value = question.arguments.get(name, 0.0)
    if isinstance(value, (int, float)):
        return float(value)
    raise ValueError(f"{name} is a number of seconds")


def _reraise(bug: Exception) -> None:
    """Let the interpreter print a bug that nobody waits for."""
    raise bug


def _unusable(path: Path, error: Exception) -> ConfigError:
    return ConfigError(
        f"the journal {path} cannot be used: {error}. Mend it, restore a backup, or move it away: "
        "then a new one is begun, without the jobs in it"
    )
