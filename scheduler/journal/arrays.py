"""The tables of arrays in the journal: the states of their rows, and what is kept of each.

The states are one byte for each row that has ended, in chunks, each with the numbers of the states
in it. A row that has failed, or whose result is not None, has a line of its own. The oldest of
these are dropped when there are too many; the states stay as long as the array.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, Final

import msgpack

from ...protocol.array_rows import ArrayRows, row_of_key
from ...protocol.wire.options import ENDS
from ..core.arrays.records import CHUNK, DONE_WITH_NONE, NONE_BLOB, STATES
from ..core.journal.entries import PENDING, RowsChanged
from .descriptions import OPEN
from .store import Database
from .values import joined, packed_failure, parts

#: Rows of which more is kept than their states, of all arrays; and the bytes of their results.
MAX_KEPT: Final = 1_000_000
MAX_KEPT_NBYTES: Final = 4 << 30
#: States of rows of which nothing else is kept.
_OF_NOTHING: Final = (0, DONE_WITH_NONE)
#: Rows that are read at a time to find the oldest ones.
_N_LOOKED_AT: Final = 10_000
#: Databases of the first form may lack them, and earlier versions do not look at them.
ARRAY_TABLES: Final = (
    """
CREATE TABLE IF NOT EXISTS array_chunks (
    key TEXT NOT NULL,
    chunk INTEGER NOT NULL,
    done INTEGER NOT NULL,
    failed INTEGER NOT NULL,
    cancelled INTEGER NOT NULL,
    lost INTEGER NOT NULL,
    states BLOB NOT NULL,
    PRIMARY KEY (key, chunk)
)
""",
    """
CREATE TABLE IF NOT EXISTS array_rows (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    key TEXT NOT NULL,
    position INTEGER NOT NULL,
    ended REAL NOT NULL,
    nbytes INTEGER NOT NULL,
    result BLOB,
    result_buffers BLOB,
    failure BLOB,
    UNIQUE (key, position)
)
""",
)
_CHANGE: Final = """
INSERT INTO array_chunks (key, chunk, done, failed, cancelled, lost, states)
VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (key, chunk) DO UPDATE SET done = excluded.done, failed = excluded.failed,
    cancelled = excluded.cancelled, lost = excluded.lost, states = excluded.states
"""
_COLUMNS: Final = "key, position, ended, nbytes, result, result_buffers, failure"


def change_rows(database: Database, changes: list[RowsChanged]) -> None:
    """Record the ends of rows, and that rows are to run again."""
    now = time.time()
    by_array: dict[str, RowsChanged] = {}
    for change in changes:
        first = by_array.get(change.key)
        by_array[change.key] = change if first is None else _joined(first, change)
    forget_arrays(database, [key for key, change in by_array.items() if change.is_new])
    for key, change in by_array.items():
        kept = [(key, position) for position in _change_states(database, change)]
        database.executemany("DELETE FROM array_rows WHERE key = ? AND position = ?", kept)
        rows = []
        for end in change.ends:
            result, buffers = (None, None) if end.result is None else parts(end.result)
            nbytes = end.nbytes or len(result or b"") + len(buffers or b"")
            failure = packed_failure(end.failure)
            rows.append((key, end.position, now, nbytes, result, buffers, failure))
        database.executemany(
            f"INSERT INTO array_rows ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)", rows
        )


def _joined(first: RowsChanged, then: RowsChanged) -> RowsChanged:
    """Return two changes of an array as one."""
    if then.is_new:
        return then
    ends = [end for end in first.ends if end.position not in then.states] + then.ends
    return RowsChanged(first.key, first.states | then.states, ends, first.is_new)


def _change_states(database: Database, change: RowsChanged) -> list[int]:
    """Record the states of rows; return those of which something may have been kept."""
    by_chunk: dict[int, dict[int, int]] = {}
    for position, code in change.states.items():
        number, place = divmod(position, CHUNK)
        by_chunk.setdefault(number, {})[place] = code
    kept: list[int] = []
    chunks: list[tuple[Any, ...]] = []
    for number, codes in by_chunk.items():
        states = bytearray(_chunk(database, change.key, number).ljust(max(codes) + 1, b"\0"))
        for place, code in codes.items():
            if states[place] not in _OF_NOTHING:
                kept.append(number * CHUNK + place)
            states[place] = code
        chunks.append((change.key, number, *_counts(states), bytes(states)))
    database.executemany(_CHANGE, chunks)
    return kept


def _chunk(database: Database, key: str, number: int) -> bytes:
    """Return the states of the first rows of a chunk; the others have not ended."""
    query = "SELECT states FROM array_chunks WHERE key = ? AND chunk = ?"
    found = database.execute(query, (key, number)).fetchone()
    return b"" if found is None else bytes(found[0])


def _counts(states: bytearray) -> list[int]:
    """Return how many rows of a chunk have ended in which way."""
    n_done, n_done_with_none, *others = map(states.count, range(1, len(STATES)))
    return [n_done + n_done_with_none, *others]


def forget_arrays(database: Database, keys: Iterable[str]) -> None:
    """Drop what is recorded of the rows of arrays."""
    for table in ("array_chunks", "array_rows"):
        database.executemany(f"DELETE FROM {table} WHERE key = ?", [(key,) for key in keys])


def drop_oldest_rows(database: Database) -> None:
    """Drop what is kept of the oldest rows, and all of arrays that the journal has no more."""
    # Rows are recorded with their chunks, which are few: these name all arrays.
    gone = database.execute(
        "SELECT DISTINCT key FROM array_chunks "
        "WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.key = array_chunks.key)"
    )
    forget_arrays(database, [key for (key,) in gone])
    count = "SELECT count(*), coalesce(sum(nbytes), 0) FROM array_rows"
    n_kept, nbytes_kept = map(int, database.execute(count).fetchone())  # sums may be decimal
    n_over, nbytes_over = n_kept - MAX_KEPT, nbytes_kept - MAX_KEPT_NBYTES
    oldest = "SELECT number, nbytes FROM array_rows WHERE number > ? ORDER BY number LIMIT ?"
    last = -1
    while n_over > 0 or nbytes_over > 0:
        for number, nbytes in database.execute(oldest, (last, _N_LOOKED_AT)):
            if n_over > 0 or nbytes_over > 0:
                last = number
                n_over, nbytes_over = n_over - 1, nbytes_over - nbytes
    database.execute("DELETE FROM array_rows WHERE number <= ?", (last,))


def read_chunks(database: Database, key: str) -> dict[int, bytes]:
    """Return the states of the rows of an array."""
    found = database.execute("SELECT chunk, states FROM array_chunks WHERE key = ?", (key,))
    return dict(found)


def with_rows(database: Database, job: dict[str, Any]) -> dict[str, Any]:
    """Return the description of a job, with how many rows have which state if it is an array."""
    n_rows = job.pop("n_rows", 0)
    if not n_rows:
        return job
    sums = ", ".join(f"coalesce(sum({state}), 0)" for state in ENDS[:-1])
    query = f"SELECT {sums} FROM array_chunks WHERE key = ?"
    found = map(int, database.execute(query, (job["key"],)).fetchone())  # sums may be decimal
    counts = dict(zip(ENDS[:-1], found, strict=True))
    return {**job, "rows": {PENDING: n_rows - sum(counts.values()), **counts}}


def row_of(database: Database, key: str) -> tuple[dict[str, Any], list[Any]] | None:
    """Return the description of a row of an array, with its result and failure; None = no row."""
    of_array, name = row_of_key(key)
    columns = "number, name, client, user_name, state, submitted, ended, options"
    query = f"SELECT {columns} FROM jobs WHERE key = ?"
    job = database.execute(query, (of_array,)).fetchone()
    if job is None:
        return None
    number, function, client, user, array_state, submitted, array_ended, options = job
    rows = msgpack.unpackb(options).get("array")
    position = ArrayRows(rows).position(name) if rows else None
    if position is None:
        return None
    states, place = _chunk(database, of_array, position // CHUNK), position % CHUNK
    code = states[place] if place < len(states) else 0
    state = STATES[code]
    query = f"SELECT {_COLUMNS} FROM array_rows WHERE key = ? AND position = ?"
    kept = database.execute(query, (of_array, position)).fetchone()
    if state == PENDING:  # it may have ended with its array, before it was begun
        kept = None
        state = PENDING if array_state in OPEN else array_state
    ended, nbytes, result, buffers, failure = (None, 0, None, None, None)
    if code == DONE_WITH_NONE:
        result = NONE_BLOB
    elif kept is not None:
        _, _, ended, nbytes, result, buffers, failure = kept
    return {
        "number": number,
        "key": key,
        "name": function,
        "client": client,
        "user": user,
        "state": state,
        "submitted": submitted,
        "ended": array_ended if ended is None else ended,
        "nbytes": nbytes,
        "is_recorded": result is not None or failure is not None,
        "array": of_array,
    }, [None if result is None else joined(result, buffers), failure]
