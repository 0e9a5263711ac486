"""The table of what categories have learned, in the journal. A part of the shell."""

from __future__ import annotations

import contextlib
import time
from typing import Any, Final

import msgpack

from ..core.categories.records import MAX_CATEGORIES
from ..core.journal.entries import CategoryLearned
from .store import Database

#: Databases may lack it, and earlier versions do not look at it.
CATEGORY_TABLE: Final = """
CREATE TABLE IF NOT EXISTS learned_categories (
    name TEXT PRIMARY KEY,
    learned BLOB NOT NULL,
    recorded REAL NOT NULL
)
"""
_RECORD: Final = """
INSERT INTO learned_categories (name, learned, recorded) VALUES (?, ?, ?)
ON CONFLICT (name) DO UPDATE SET learned = excluded.learned, recorded = excluded.recorded
"""
_DROP_OLDEST: Final = """
DELETE FROM learned_categories WHERE name NOT IN
    (SELECT name FROM learned_categories ORDER BY recorded DESC LIMIT ?)
"""


def record_categories(database: Database, learned: list[CategoryLearned]) -> None:
    """Record what categories have learned, and drop those that have not for the longest time."""
    now = time.time()
    rows = [(c.name, msgpack.packb((c.peaks, c.n_ended, c.sum_s, c.cores)), now) for c in learned]
    database.executemany(_RECORD, rows)
    database.execute(_DROP_OLDEST, (MAX_CATEGORIES,))


def read_categories(database: Database) -> list[CategoryLearned]:
    """Return what categories have learned, without what is damaged: it is learned again."""
    read = []
    found = database.execute("SELECT name, learned FROM learned_categories ORDER BY recorded")
    for name, packed in found:
        with contextlib.suppress(ValueError, TypeError):
            # Earlier versions learned no cores.
            peaks, n_ended, sum_s, cores = [*msgpack.unpackb(packed), []][:4]
            read.append(CategoryLearned(name, _rows(peaks), n_ended, sum_s, _rows(cores)))
    return read


def _rows(peaks: list[list[Any]]) -> list[tuple[int, int, float]]:
    return [(peak, n, sum_s) for peak, n, sum_s in peaks]
