"""The table of what jobs have printed whose output is kept, beside their results."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgpack

from ..core.journal.entries import OutputRecorded
from .store import Database

#: Kept of all jobs; the oldest go first.
MAX_NBYTES: Final = 1 << 30
#: Outputs that are read at a time to find the oldest ones.
_N_LOOKED_AT: Final = 10_000
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
    # Their bytes are added up, and the oldest found, without the output in between.
    "CREATE INDEX IF NOT EXISTS job_outputs_nbytes ON job_outputs (number, nbytes)",
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
    """Forget the oldest that are too many.

    So those of jobs go that could not be recorded, too.
    """
    (nbytes,) = database.execute("SELECT coalesce(sum(nbytes), 0) FROM job_outputs").fetchone()
    nbytes_over = int(nbytes) - MAX_NBYTES  # a sum may be decimal
    oldest = "SELECT number, nbytes FROM job_outputs WHERE number > ? ORDER BY number LIMIT ?"
    last = -1
    while nbytes_over > 0:
        for number, nbytes in database.execute(oldest, (last, _N_LOOKED_AT)):
            if nbytes_over > 0:
                last = number
                nbytes_over -= nbytes
    database.execute("DELETE FROM job_outputs WHERE number <= ?", (last,))


def output_of(database: Database, key: str) -> list[Any]:
    """Return what a job has printed: [[stdout, stderr, there was more]], or []."""
    query = "SELECT output FROM job_outputs WHERE key = ?"
    row = database.execute(query, (key,)).fetchone()
    return [] if row is None else [msgpack.unpackb(row[0])]
