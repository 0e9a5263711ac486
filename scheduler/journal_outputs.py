"""The table of what jobs have printed whose output is kept, beside their results."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgpack

from .core.journal.entries import OutputRecorded
from .journal_store import Database

#: Kept of all jobs; the oldest go first.
MAX_NBYTES: Final = 1 << 30
#: Databases of the present form may lack it, and earlier versions do not look at it.
OUTPUT_TABLES: Final = (
    """
CREATE TABLE IF NOT EXISTS job_outputs (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    key TEXT NOT NULL UNIQUE,
    job TEXT NOT NULL,
    nbytes INTEGER NOT NULL,
    output BLOB NOT NULL
)
""",
    "CREATE INDEX IF NOT EXISTS job_outputs_of_jobs ON job_outputs (job)",
)


def record_outputs(database: Database, outputs: list[OutputRecorded]) -> None:
    """Record what jobs have printed, in the place of what earlier attempts have."""
    last = {one.key: one for one in outputs}
    rows = [(key, one.job, msgpack.packb(one.output)) for key, one in last.items()]
    database.executemany("DELETE FROM job_outputs WHERE key = ?", [(key,) for key in last])
    database.executemany(
        "INSERT INTO job_outputs (key, job, nbytes, output) VALUES (?, ?, ?, ?)",
        [(key, job, len(packed), packed) for key, job, packed in rows],
    )


def forget_outputs(database: Database, jobs: Iterable[str]) -> None:
    """Forget what jobs, and the rows of arrays, have printed."""
    database.executemany("DELETE FROM job_outputs WHERE job = ?", [(job,) for job in jobs])


def drop_oldest_outputs(database: Database) -> None:
    """Forget the oldest that are too many, and those of no job."""
    database.execute(
        """
        DELETE FROM job_outputs WHERE number IN (
            SELECT number FROM (
                SELECT number, sum(nbytes) OVER (ORDER BY number DESC) AS total FROM job_outputs
            ) AS sums WHERE total > ?
        )
        """,
        (MAX_NBYTES,),
    )
    database.execute(
        "DELETE FROM job_outputs "
        "WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.key = job_outputs.job)"
    )


def output_of(database: Database, key: str) -> list[Any]:
    """Return what a job has printed: [[stdout, stderr, there was more]], or []."""
    query = "SELECT output FROM job_outputs WHERE key = ?"
    row = database.execute(query, (key,)).fetchone()
    return [] if row is None else [msgpack.unpackb(row[0])]
