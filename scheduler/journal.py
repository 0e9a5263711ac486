"""The journal of detached jobs: an SQLite database in the state directory. A part of the shell.

One thread writes it. Entries that come while it commits are one transaction with all that has come
by then, so the price of a commit is shared, and the loop never waits for the disk. What is reported
as recorded is on the disk: the database has a write-ahead log with `synchronous=FULL`.

What storage refuses (a full disk, a locked or damaged file) is reported to who asked. Any other
exception is a bug of weft: it ends the thread, and is passed on, since nobody would be answered.

The database is made with the first job. Its form has a number: one of an earlier form is brought up
to date, and a later one is refused.
"""

from __future__ import annotations

import contextlib
import itertools
import queue
import sqlite3
import threading
from collections.abc import Callable
from operator import itemgetter
from pathlib import Path
from typing import Final

from ..protocol.errors import ConfigError
from ..protocol.wire.message import Message
from ..protocol.wire.messages import Answer, Ask, AskFailed
from ..protocol.wire.messages.questions import BAD_ARGUMENT, NO_ANSWER
from .core.journal.entries import (
    Entry,
    JobAdded,
    JobEnded,
    JobsRead,
    JournalRead,
    JournalWritten,
    ReadJobs,
    WriteJournal,
)
from .journal_descriptions import MADE, OPEN, described
from .journal_rows import (
    FORM,
    RECORDERS,
    counts_of,
    done_keys,
    drop_oldest,
    jobs_listed,
    make_tables,
    one_job,
    open_jobs,
    recorded_job,
    result_of,
    transaction,
)
from .journal_values import joined, read_values

FILE: Final = "journal.sqlite"
#: The oldest are looked for after so many transactions, or bytes of results.
_COMMITS_BETWEEN: Final = 1000
_NBYTES_BETWEEN: Final = 256 << 20
#: Jobs of one page of an answer.
N_JOBS: Final = 200
_BUSY_S: Final = 5.0
#: With fewer pages in memory, or of the write-ahead log, many jobs are written several times.
_CACHE_KIB: Final = 64 << 10
_LOG_PAGES: Final = 16_384
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
            with transaction(database):
                for kind, same in itertools.groupby(entries, type):
                    RECORDERS[kind](database, [*same])
        except (sqlite3.Error, ConfigError, OSError, *_TOO_LARGE) as error:
            return error
        self._n_commits += 1
        self._nbytes += sum(one.result_nbytes for one in entries if isinstance(one, JobEnded))
        if self._n_commits >= _COMMITS_BETWEEN or self._nbytes >= _NBYTES_BETWEEN:
            self._n_commits = self._nbytes = 0
            with contextlib.suppress(sqlite3.Error), transaction(database):  # or the next time
                self._dropped = drop_oldest(database)
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
            if form > FORM:
                raise ConfigError(
                    f"the journal {self.path} has form {form}, and this version reads forms up to "
                    f"{FORM}: it was written by a later one; start that one, or give another "
                    "--journal"
                )
            make_tables(database, form)
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
        for job, state in open_jobs(database):
            read.jobs.append(job)
            if state == MADE:
                read.made[job.key] = None
        read.done = done_keys(database)
        read.values = read_values(database)
        needed = {key: None for job in read.jobs for key in job.dependencies if key in read.done}
        needed |= {key: None for one in read.values for key in one.keys if key in read.done}
        read.results = {key: result_of(database, key) for key in needed}
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
                recorded = recorded_job(database, key)
                if recorded is None:
                    return JobsRead(asked, read, f"the journal has no job {key!r} any more")
                number, job, state = recorded
                if state == "done":
                    read.results[key] = result_of(database, key)
                elif state not in OPEN:
                    found[key] = number, job
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
        columns = {"state": "state", "name": "name", "client": "client", "user": "user_name"}
        for name, column in columns.items():
            if value := _text_in(question, name):
                wheres.append(f"{column} = ?")
                values.append(value)
        for name, where in (("since", "submitted >= ?"), ("until", "submitted < ?")):
            if moment := _number_in(question, name):
                wheres.append(where)
                values.append(moment)
        if question.page:
            wheres.append("number < ?")
            values.append(str(int(question.page)))
        jobs = []
        if self._database is not None or self.path.exists():
            jobs = [described(row) for row in jobs_listed(self._open(), wheres, values, N_JOBS)]
        is_last = len(jobs) < N_JOBS
        next_page = "" if is_last else str(jobs[-1]["number"])
        return Answer(request=question.request, info={"jobs": jobs}, next_page=next_page)

    def _answer_counts(self, question: Ask) -> Message:
        """Answer with the number of jobs of each name and state."""
        counts = []
        if self._database is not None or self.path.exists():
            counts = [list(row) for row in counts_of(self._open())]
        return Answer(request=question.request, info={"counts": counts})

    def _answer_job(self, question: Ask) -> Message:
        """Answer with one job, its result, and its failure."""
        key = _text_in(question, "key")
        row = None
        if self._database is not None or self.path.exists():
            row = one_job(self._open(), key)
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
