"""The journal of detached jobs, in a database. A part of the shell.

One thread writes it. Entries that come while it commits are one transaction with all that has come
by then, so the price of a commit is shared, and the loop never waits for the database. What is
reported as recorded is committed. `sqlite` knows what kind of database it is.

What storage refuses (a full disk, a locked or damaged file) is reported to who asked. Any other
exception is a bug of weft: it ends the thread, and is passed on, since nobody would be answered.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import queue
import threading
from collections.abc import Callable
from operator import itemgetter
from typing import Any, Final

from ...protocol.errors import TakenOver
from ...protocol.wire.failure import data_lost
from ...protocol.wire.message import Message
from ...protocol.wire.messages import NO_HASH, Answer, Ask, AskFailed
from ...protocol.wire.messages.questions import BAD_ARGUMENT, NO_ANSWER
from ...protocol.wire.options import DONE, LOST
from ..core.journal.entries import (
    EndsRead,
    Entry,
    JobAdded,
    JobEnded,
    JobsRead,
    JournalProbed,
    JournalRead,
    JournalWritten,
    ReadEnds,
    ReadJobs,
    RowsChanged,
    WriteJournal,
)
from . import arrays
from .categories import read_categories
from .descriptions import MADE, OPEN, described
from .outputs import output_of
from .rows import (
    RECORDERS,
    counts_of,
    drop_oldest,
    ended_jobs,
    jobs_listed,
    one_job,
    open_jobs,
    paused_queues,
    recorded_end,
    recorded_job,
    result_of,
)
from .store import Database, JournalStore, RowError, StorageError
from .values import joined, read_values

_log = logging.getLogger("weft.scheduler")
#: The oldest are looked for after so many transactions, or bytes of results.
_COMMITS_BETWEEN: Final = 1000
_NBYTES_BETWEEN: Final = 256 << 20
#: A database that nobody has used for so long is looked at.
PROBE_S: Final = 10.0
#: Jobs of one page of an answer.
N_JOBS: Final = 200
#: Bytes of results that are read at a time.
_NBYTES_OF_ENDS: Final = 8 << 20
#: What is raised for a row that was recorded and has become something else on the disk.
_DAMAGED: Final = (StorageError, ValueError, TypeError)


class Journal:
    """The journal of one scheduler. Its reports are called in the journal's thread."""

    def __init__(self, store: JournalStore) -> None:
        self.store = store
        self._work: queue.SimpleQueue[Callable[[], None] | _Write | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        #: since the oldest were looked for
        self._n_commits = 0
        self._nbytes = 0
        #: keys of jobs that were forgotten, and not reported yet
        self._dropped: list[str] = []
        #: jobs may be recorded: this scheduler has claimed the database
        self._is_claimed = False
        #: why the last look at the database failed, "" = it did not, or more was tried since
        self._away = ""
        #: called in the journal's thread when a look at the database fails, and when it does not
        #: any more
        self.on_probed: Callable[[JournalProbed], None] = _ignore
        #: called in the journal's thread with the bug of weft that has ended it
        self.on_bug: Callable[[Exception], None] = _reraise
        #: called in the journal's thread when a later scheduler uses the database
        self.on_taken_over: Callable[[TakenOver], None] = _reraise

    # -- from the loop ----------------------------------------------------------------------------
    def write(self, action: WriteJournal, report: Callable[[JournalWritten], None]) -> None:
        """Record entries; then call `report` in the journal's thread."""
        self._put(_Write(action, report))

    def answer(self, question: Ask, send: Callable[[Message], None]) -> None:
        """Answer a question about jobs by `send`, in the journal's thread."""
        self._put(lambda: send(self._answer(question)))

    def read(self, epoch: int = 0) -> JournalRead:
        """Return what a scheduler begins with; all that was to be recorded is recorded before.

        From now on no scheduler of an earlier epoch records anything. 0 = an epoch above the last.

        Raises:
            ConfigError: the database is damaged.
            TakenOver: a later scheduler uses the database.
        """
        done: queue.SimpleQueue[JournalRead | Exception] = queue.SimpleQueue()

        def work() -> None:
            try:
                done.put(self._read(epoch))
            except Exception as error:
                done.put(error)

        self._put(work)
        found = done.get()
        if isinstance(found, _DAMAGED):
            raise self.store.unusable(found)
        if isinstance(found, Exception):
            raise found
        return found

    def read_for(
        self, asked: ReadJobs | ReadEnds, report: Callable[[JobsRead | EndsRead], None]
    ) -> None:
        """Read jobs that have ended; then call `report` in the journal's thread."""
        self._put(
            lambda: report(
                self._read_ends(asked) if isinstance(asked, ReadEnds) else self._read_again(asked)
            )
        )

    def close(self) -> None:
        """Record what is waiting, and close the database. It may take as long as the disk does."""
        self.store.hurry()
        if self._thread is not None:
            self._work.put(None)
            self._thread.join()
            self._thread = None
        self.store.close()

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
            try:
                work = self._work.get(timeout=PROBE_S if self._is_claimed else None)
            except queue.Empty:
                self._probe()
                continue
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
        entries = [entry for write in writes for entry in write.action.entries]
        ends = [entry for entry in entries if isinstance(entry, JobEnded)]
        refused: list[str] = []
        try:
            error = self._record(entries)
            if isinstance(error, RowError) and len(writes) == 1 and len(ends) == len(entries):
                error = self._record_alone(ends, refused)
        except TakenOver as taken:
            self.on_taken_over(taken)  # and nothing is acknowledged any more
            return
        if isinstance(error, RowError) and len(writes) > 1:
            for write in writes:
                self._write([write])
            return
        text = self._cannot_be_written(error) if error else ""
        self._away = ""  # what is reported now counts
        for write in writes:
            dropped, self._dropped = self._dropped, []
            write.report(JournalWritten(write.action.number, text, dropped, refused))

    def _probe(self) -> None:
        """Look at a database that nobody has used for a while, so that an outage is known."""
        error = ""
        try:
            self.store.probe()
        except TakenOver as taken:
            self._is_claimed = False
            self.on_taken_over(taken)
        except StorageError as found:
            error = self._cannot_be_written(found)
        if error or self._away:
            self.on_probed(JournalProbed(error))
        self._away = error

    def _cannot_be_written(self, error: StorageError) -> str:
        return f"the journal {self.store.name} cannot be written: {error}"

    def _record_alone(self, ends: list[JobEnded], refused: list[str]) -> StorageError | None:
        """Commit each end on its own, and note the keys of those that the database does not take.

        They would be tried again otherwise, together and for ever.
        """
        for end in ends:
            error = self._record([end])
            if isinstance(error, RowError):
                text = "the journal does not take the end of job %r, which is not recorded: %s"
                _log.error(text, end.key, error, extra={"code": "journal-failed"})
                refused.append(end.key)
            elif error is not None:
                return error
        return None

    def _record(self, entries: list[Entry]) -> StorageError | None:
        """Commit entries; return why that failed, None = it has not."""

        def work(database: Database) -> None:
            for kind, same in itertools.groupby(entries, type):
                RECORDERS[kind](database, [*same])

        try:
            self.store.write(work)
        except StorageError as error:
            return error
        self._n_commits += 1
        with_results = (one for one in entries if isinstance(one, (JobEnded, RowsChanged)))
        self._nbytes += sum(one.result_nbytes for one in with_results)
        if self._n_commits >= _COMMITS_BETWEEN or self._nbytes >= _NBYTES_BETWEEN:
            self._n_commits = self._nbytes = 0
            with contextlib.suppress(StorageError, TakenOver):  # or the next time
                self._dropped = self.store.write(drop_oldest)
        return None

    def _read(self, epoch: int) -> JournalRead:
        is_there = self.store.is_there
        if is_there:
            self.store.claim(epoch)
        self._is_claimed = True
        return self.store.read(_begin_with) if is_there else JournalRead()

    def _read_again(self, asked: ReadJobs) -> JobsRead:
        try:
            return self.store.read(lambda database: _to_run_again(database, asked))
        except _DAMAGED as error:
            return JobsRead(asked, JournalRead(), f"the journal cannot be read: {error}")

    def _read_ends(self, asked: ReadEnds) -> EndsRead:
        try:
            return self.store.read(lambda database: _ends_of(database, asked))
        except _DAMAGED as error:
            return EndsRead(asked, problem=f"the journal cannot be read: {error}")

    # -- questions --------------------------------------------------------------------------------
    def _answer(self, question: Ask) -> Message:
        try:
            return _ANSWERS[question.name](self, question)
        except ValueError as error:
            text = f"question {question.name!r}: {error}"
            return AskFailed(request=question.request, kind=BAD_ARGUMENT, text=text)
        except StorageError as error:
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
        if self.store.is_there:
            jobs = self.store.read(lambda database: _listed(database, wheres, values))
        is_last = len(jobs) < N_JOBS
        next_page = "" if is_last else str(jobs[-1]["number"])
        return Answer(request=question.request, info={"jobs": jobs}, next_page=next_page)

    def _answer_counts(self, question: Ask) -> Message:
        """Answer with the number of jobs of each name and state."""
        counts = []
        if self.store.is_there:
            counts = self.store.read(lambda found: [list(row) for row in counts_of(found)])
        return Answer(request=question.request, info={"counts": counts})

    def _answer_job(self, question: Ask) -> Message:
        """Answer with one job, its result, and its failure."""
        key = _text_in(question, "key")
        jobs: list[dict[str, Any]] = []
        blobs: list[Any] = []
        if self.store.is_there:
            jobs, blobs = self.store.read(lambda database: _one(database, key))
        return Answer(request=question.request, info={"jobs": jobs}, blobs=blobs)

    def _answer_output(self, question: Ask) -> Message:
        """Answer with what a job has printed, if that is recorded."""
        key = _text_in(question, "key")
        found: list[Any] = []
        if self.store.is_there:
            found = self.store.read(lambda database: output_of(database, key))
        return Answer(request=question.request, info={"outputs": found})


_ANSWERS: Final[dict[str, Callable[[Journal, Ask], Message]]] = {
    "jobs": Journal._answer_jobs,
    "job": Journal._answer_job,
    "job_output": Journal._answer_output,
    "job_counts": Journal._answer_counts,
}


class _Write:
    """A batch that waits to be recorded."""

    __slots__ = ("action", "report")

    def __init__(self, action: WriteJournal, report: Callable[[JournalWritten], None]) -> None:
        self.action = action
        self.report = report


# -- work of the store ----------------------------------------------------------------------------
def _begin_with(database: Database) -> JournalRead:
    """Read what a scheduler begins with."""
    read = JournalRead()
    for job, state in open_jobs(database):
        read.jobs.append(job)
        if state == MADE:
            read.made[job.key] = None
        if "array" in job.options:
            read.arrays[job.key] = arrays.read_chunks(database, job.key)
    read.ended = ended_jobs(database)
    read.paused = paused_queues(database)
    read.learned = read_categories(database)
    read.values = read_values(database)
    needed = dict.fromkeys(key for job in read.jobs for key in job.dependencies)
    needed |= dict.fromkeys(key for one in read.values for key in one.keys)
    read.results = {k: result_of(database, k) for k in needed if read.ended.get(k) == DONE}
    return read


def _ends_of(database: Database, asked: ReadEnds) -> EndsRead:
    """Read how jobs have ended, as far as that is not too large."""
    read = EndsRead(asked)
    nbytes = 0
    for place, key in enumerate(asked.keys):
        if nbytes > _NBYTES_OF_ENDS:
            read.rest = asked.keys[place:]
            break
        try:
            found = recorded_end(database, key)
        except (ValueError, TypeError) as error:  # the others are not to wait for it
            damaged = data_lost(key, f"its record in the journal is damaged: {error}")
            found = JobEnded(key, LOST, damaged), NO_HASH
        if found is not None:
            read.ends.append(found)
            nbytes += found[0].result_nbytes
    return read


def _to_run_again(database: Database, asked: ReadJobs) -> JobsRead:
    """Read a job that has failed, behind those that it reads and that have failed, too."""
    read = JournalRead()
    found: dict[str, tuple[int, JobAdded]] = {}
    needed = [asked.key]
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
            if "array" in job.options:
                read.arrays[key] = arrays.read_chunks(database, key)
            needed += job.dependencies
    read.jobs = [job for _, job in sorted(found.values(), key=itemgetter(0))]
    return JobsRead(asked, read)


def _listed(
    database: Database, wheres: list[str], values: list[str | float]
) -> list[dict[str, Any]]:
    """Return descriptions of jobs, the latest first."""
    rows = [*jobs_listed(database, wheres, values, N_JOBS)]
    return [arrays.with_rows(database, described(row)) for row in rows]


def _one(database: Database, key: str) -> tuple[list[dict[str, Any]], list[Any]]:
    """Return the description of a job, or of a row of an array, with its result and failure."""
    row = one_job(database, key)
    if row is None:
        of_array = arrays.row_of(database, key)
        return ([], []) if of_array is None else ([of_array[0]], of_array[1])
    *columns_of_job, result, buffers, failure = row
    job = arrays.with_rows(database, described(columns_of_job))
    return [job], [None if result is None else joined(result, buffers), failure]


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


def _ignore(probed: JournalProbed) -> None:
    """Nobody wants to know."""


def _reraise(bug: Exception) -> None:
    """Let the interpreter print a bug that nobody waits for."""
    raise bug
