"""The rows of jobs in the database of the journal, and its tables. A part of the shell.

The statements about jobs stand here, those about durable values in `values`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from sys import intern
from typing import Any, Final

import msgpack

from ...protocol.wire.payload import Blob
from ..core.journal.entries import (
    CategoryLearned,
    JobAdded,
    JobChanged,
    JobEnded,
    JobForgotten,
    OutputRecorded,
    QueueChanged,
    RowsChanged,
    ValueKept,
    ValuesDropped,
)
from .arrays import ARRAY_TABLES, change_rows, drop_oldest_rows, forget_arrays
from .categories import CATEGORY_TABLE, record_categories
from .descriptions import COLUMNS, MADE, OPEN
from .outputs import (
    OUTPUT_TABLES,
    drop_oldest_outputs,
    forget_outputs,
    record_outputs,
)
from .store import Database
from .values import (
    TABLE,
    drop_values,
    joined,
    keep_values,
    packed_failure,
    parts,
    read_values,
)

#: The form of the tables. Jobs have a user since form 2.
FORM: Final = 2
#: Jobs that have ended are kept up to so many, the latest.
MAX_ENDED: Final = 100_000
#: And as long as their results have no more bytes.
MAX_ENDED_NBYTES: Final = 4 << 30
_NONE: Final = msgpack.packb([])

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
    user_name TEXT NOT NULL DEFAULT '',
    state TEXT NOT NULL,
    submitted REAL NOT NULL,
    ended REAL,
    nbytes INTEGER NOT NULL DEFAULT 0,
    result BLOB,
    result_buffers BLOB,
    failure BLOB
);
"""
#: {form of a database: what makes the next form of it}
_NEXT_FORM: Final = {1: "ALTER TABLE jobs ADD COLUMN user_name TEXT NOT NULL DEFAULT ''"}
_PAUSED: Final = """
CREATE TABLE IF NOT EXISTS paused_queues (name TEXT PRIMARY KEY) WITHOUT ROWID
"""
#: Functions of no job are found by it, and not by reading all jobs for each.
_OF_FUNCTIONS: Final = "CREATE INDEX IF NOT EXISTS jobs_of_functions ON jobs (function)"
_ADDED: Final = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'pending', ?)"
#: A job that is submitted again is a new one, behind those that it may read.
_REPLACE: Final = "DELETE FROM jobs WHERE key IN ({rows})"
_UNPRINT: Final = "DELETE FROM job_outputs WHERE job IN ({rows})"
_ADD: Final = """
INSERT INTO jobs (key, name, function, args, args_buffers, dependencies, options, spec_hash,
                  client, user_name, state, submitted)
VALUES {rows}
"""
#: An end whose beginning could not be recorded must not change an earlier job of its key.
_ENDED: Final = "(?, ?, ?, ?, ?, ?, ?)"
_END: Final = """
WITH ends (key, state, ended, nbytes, result, result_buffers, failure) AS (VALUES {rows})
UPDATE jobs SET state = ends.state, ended = ends.ended, nbytes = ends.nbytes,
    result = CAST(ends.result AS BLOB), result_buffers = CAST(ends.result_buffers AS BLOB),
    failure = CAST(ends.failure AS BLOB)
FROM ends WHERE jobs.key = ends.key AND jobs.state IN ('pending', 'made')
"""
#: Rows of one statement, during which the thread does not hold the interpreter.
N_ROWS: Final = 100
#: And their bytes, beside those of one row: a database takes no statement of any size.
_NBYTES: Final = 16 << 20

#: What `_submitted` reads.
_SUBMITTED: Final = """
SELECT number, key, name, function, functions.blob, functions.buffers, args, args_buffers,
       dependencies, options, spec_hash, client, user_name, state, submitted
FROM jobs JOIN functions ON functions.id = jobs.function
"""


def steps_from(form: int) -> list[str]:
    """Return the statements that make the tables of a new database, whose form is 0.

    Or those that bring one of an earlier form up to date, or make what one of this form may lack.
    """
    later = ";".join((_PAUSED, _OF_FUNCTIONS, TABLE, CATEGORY_TABLE, *ARRAY_TABLES, *OUTPUT_TABLES))
    steps = ";".join(_NEXT_FORM[n] for n in range(form, FORM)) if form else _TABLES
    return [*filter(str.strip, f"{steps};{later}".split(";"))]


# -- reading ---------------------------------------------------------------------------------------
def open_jobs(database: Database) -> Iterator[tuple[JobAdded, str]]:
    """Yield the jobs in `OPEN` states, in the order of submission, and their states."""
    for row in database.execute(f"{_SUBMITTED} WHERE state IN (?, ?) ORDER BY number", OPEN):
        yield _submitted(row)


def recorded_job(database: Database, key: str) -> tuple[int, JobAdded, str] | None:
    """Return the number of a job, the job as it was submitted, and its state."""
    row = database.execute(f"{_SUBMITTED} WHERE key = ?", (key,)).fetchone()
    return None if row is None else (row[0], *_submitted(row))


def recorded_end(database: Database, key: str) -> tuple[JobEnded, bytes] | None:
    """Return how a job has ended, and the hash of its content; None = it has not."""
    columns = "state, nbytes, result, result_buffers, failure, spec_hash"
    row = database.execute(f"SELECT {columns} FROM jobs WHERE key = ?", (key,)).fetchone()
    if row is None or row[0] in OPEN:
        return None
    state, nbytes, result, buffers, packed, spec_hash = row
    failure = None if packed is None else msgpack.unpackb(packed)
    blob = None if result is None else joined(result, buffers)
    return JobEnded(key, state, failure, blob, nbytes), spec_hash


def _submitted(row: Any) -> tuple[JobAdded, str]:
    """Return a job as it was submitted, and its state."""
    _, key, name, function, blob, buffers, args, args_buffers, *others = row
    dependencies, options, spec_hash, client, user, state, submitted = others
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
        user=user,
        submitted=submitted,
    )
    return job, state


def result_of(database: Database, key: str) -> Blob:
    """Return the result of a job that is done."""
    query = "SELECT result, result_buffers FROM jobs WHERE key = ? AND state = 'done'"
    return joined(*database.execute(query, (key,)).fetchone())


def ended_jobs(database: Database) -> dict[str, str]:
    """Return how the jobs have ended that are in no `OPEN` state, by their keys."""
    found = database.execute("SELECT key, state FROM jobs WHERE state NOT IN (?, ?)", OPEN)
    return {key: intern(state) for key, state in found}


def paused_queues(database: Database) -> list[str]:
    """Return the names of the queues of jobs that are paused."""
    return [name for (name,) in database.execute("SELECT name FROM paused_queues ORDER BY name")]


def jobs_listed(
    database: Database,
    wheres: Sequence[str],
    values: Sequence[Any],
    limit: int,
    columns: str = COLUMNS,
) -> Iterable[Any]:
    """Yield rows with the `COLUMNS` of the latest jobs for which all `wheres` hold."""
    where = f"WHERE {' AND '.join(wheres)} " if wheres else ""
    query = f"SELECT {columns} FROM jobs {where}ORDER BY number DESC LIMIT ?"
    return database.execute(query, (*values, limit))


def counts_of(database: Database) -> Iterable[Any]:
    """Yield (name, state, number of jobs), the latest name first."""
    return database.execute(
        "SELECT name, CASE state WHEN ? THEN 'done' ELSE state END AS of_state, count(*) "
        "FROM jobs GROUP BY name, of_state ORDER BY max(number) DESC",
        (MADE,),
    )


def one_job(database: Database, key: str) -> Any:
    """Return the `COLUMNS` of a job, its result in two columns, and its failure; None = no job."""
    columns = f"{COLUMNS}, result, result_buffers, failure"
    return database.execute(f"SELECT {columns} FROM jobs WHERE key = ?", (key,)).fetchone()


# -- writing ---------------------------------------------------------------------------------------
def _add(database: Database, jobs: list[JobAdded]) -> None:
    functions = {job.function_id: job.function_blob for job in jobs}
    database.executemany(
        "INSERT INTO functions (id, blob, buffers) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
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
                job.user,
                job.submitted or now,  # of one that runs again
            )
        )
    keys = [(job.key,) for job in jobs]
    _execute(database, _REPLACE, "?", keys)
    _execute(database, _UNPRINT, "?", keys)
    _execute(database, _ADD, _ADDED, rows)


def _change(database: Database, changes: list[JobChanged]) -> None:
    rows = [(msgpack.packb(change.options), change.key) for change in changes]
    database.executemany("UPDATE jobs SET options = ? WHERE key = ? AND state = 'pending'", rows)


def _end(database: Database, ends: list[JobEnded]) -> None:
    now = time.time()
    rows = []
    for end in ends:
        result, buffers = (None, None) if end.result is None else parts(end.result)
        state = MADE if end.is_made else end.state
        failure = packed_failure(end.failure)
        nbytes = end.nbytes or end.result_nbytes
        rows.append((end.key, state, now, nbytes, result, buffers, failure))
    _execute(database, _END, _ENDED, rows)


def _forget(database: Database, forgotten: list[JobForgotten]) -> None:
    keys = [(one.key,) for one in forgotten]
    database.executemany("DELETE FROM jobs WHERE key = ?", keys)
    forget_arrays(database, [one.key for one in forgotten])
    forget_outputs(database, [one.key for one in forgotten])


def _change_queues(database: Database, changes: list[QueueChanged]) -> None:
    last = {change.name: change.is_paused for change in changes}
    for name, is_paused in last.items():
        statement = "INSERT INTO paused_queues (name) VALUES (?) ON CONFLICT DO NOTHING"
        if not is_paused:
            statement = "DELETE FROM paused_queues WHERE name = ?"
        database.execute(statement, (name,))


RECORDERS: Final[dict[type, Callable[[Database, list[Any]], None]]] = {
    CategoryLearned: record_categories,
    JobAdded: _add,
    JobChanged: _change,
    JobEnded: _end,
    JobForgotten: _forget,
    OutputRecorded: record_outputs,
    QueueChanged: _change_queues,
    RowsChanged: change_rows,
    ValueKept: keep_values,
    ValuesDropped: drop_values,
}


def _execute(database: Database, statement: str, row: str, rows: list[tuple[Any, ...]]) -> None:
    """Execute a statement for all rows, many at a time; the last of those with one key counts."""
    start = 0
    while start < len(rows):
        end, nbytes = start, 0
        while end < len(rows) and end - start < N_ROWS and nbytes < _NBYTES:
            nbytes += sum([len(value) for value in rows[end] if type(value) is bytes])
            end += 1
        part = [*{one[0]: one for one in rows[start:end]}.values()]
        text = statement.format(rows=", ".join([row] * len(part)))
        database.execute(text, [value for one in part for value in one])
        start = end


def drop_oldest(database: Database) -> list[str]:
    """Forget the oldest jobs that have ended, and the functions of none; return their keys.

    Those stay that jobs wait for which have not ended, or whose futures are in durable values.
    """
    needed = {key for one in read_values(database, with_values=False) for key in one.keys}
    reading = "SELECT dependencies FROM jobs WHERE state IN (?, ?) AND dependencies != ?"
    for (packed,) in database.execute(reading, (*OPEN, _NONE)):
        needed.update(msgpack.unpackb(packed))
    reading = "SELECT DISTINCT options FROM jobs WHERE state IN (?, ?)"
    for (packed,) in database.execute(reading, OPEN):
        needed.update(key for _, key in msgpack.unpackb(packed).get("conditions", ()))
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
    drop_oldest_rows(database)
    forget_outputs(database, dropped)
    drop_oldest_outputs(database)
    database.execute(
        "DELETE FROM functions WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE function = functions.id)"
    )
    return dropped
