"""Copies of the file of a journal, and its room, beside a scheduler that may be using it."""

from __future__ import annotations

import contextlib
import itertools
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from ...protocol.errors import ConfigError
from .arrays import with_rows
from .descriptions import COLUMNS, COLUMNS_1, described
from .rows import FORM, jobs_listed
from .sqlite import FILE

#: Pages of one step. Between two the scheduler can write.
_STEP_PAGES: Final = 256
_BUSY_S: Final = 5.0


def file_in(path: Path) -> Path:
    """Return the file of a journal: `path` itself, or the one in that state directory."""
    return path / FILE if path.is_dir() else path


def backup(journal: Path, copy: Path) -> int:
    """Copy a journal, as it is at one moment; return the bytes of the copy.

    The copy appears when it is complete, for this user only. A scheduler may go on writing.

    Raises:
        ConfigError: there is no journal, it is damaged, or the copy exists or cannot be written.
    """
    if copy.exists():
        raise ConfigError(f"{copy} exists: name a new file, or remove it first")
    part = copy.with_name(f"{copy.name}.part")
    with _opened(journal) as source:
        try:
            part.unlink(missing_ok=True)
            part.touch(mode=0o600)
            with contextlib.closing(sqlite3.connect(part, isolation_level=None)) as target:
                source.backup(target, pages=_STEP_PAGES)
                target.execute("PRAGMA journal_mode = DELETE")  # a file that is whole by itself
            os.rename(part, copy)
        except (OSError, sqlite3.Error) as error:
            with contextlib.suppress(OSError):
                part.unlink()
            raise ConfigError(f"the copy {copy} cannot be written: {error}") from None
    return copy.stat().st_size


def restore(copy: Path, journal: Path) -> Path | None:
    """Put a copy in the place of a journal that no scheduler has open; return where that went.

    Raises:
        ConfigError: it is no journal or damaged, or a scheduler has the other one open.
    """
    with _opened(copy) as source:
        _check(source, copy)
    kept: Path | None = None
    if journal.exists():
        _demand_unused(journal)
        names = (f"{journal.name}.before-{n}" for n in itertools.count(1))
        kept = next(path for path in map(journal.with_name, names) if not path.exists())
        for suffix in ("", "-wal", "-shm"):  # a damaged one may have left its log
            with contextlib.suppress(FileNotFoundError):
                os.rename(f"{journal}{suffix}", f"{kept}{suffix}")
    try:
        backup(copy, journal)
    except ConfigError:
        if kept is not None:
            for suffix in ("", "-wal", "-shm"):
                with contextlib.suppress(FileNotFoundError):
                    os.rename(f"{kept}{suffix}", f"{journal}{suffix}")
        raise
    return kept


def jobs_in(journal: Path, limit: int) -> list[dict[str, Any]]:
    """Return the jobs of a journal or of a copy, the latest first, as the scheduler describes them.

    Raises:
        ConfigError: there is no journal, or it is damaged.
    """
    with _opened(journal) as database:
        try:
            (form,) = database.execute("PRAGMA user_version").fetchone()
            columns = COLUMNS_1 if form == 1 else COLUMNS
            rows = [*jobs_listed(database, (), (), limit, columns)]
            return [with_rows(database, described(row)) for row in rows]
        except sqlite3.Error as error:
            raise ConfigError(f"{journal} is damaged: {error}") from None


def compact(journal: Path) -> tuple[int, int]:
    """Give back the room of jobs that are forgotten; return the bytes before and after.

    It takes short steps, so a scheduler may go on writing.

    Raises:
        ConfigError: there is no journal, or it cannot be written.
    """
    with _opened(journal) as database:
        before = _nbytes(database)
        try:
            (n_free,) = database.execute("PRAGMA freelist_count").fetchone()
            while n_free:
                database.execute(f"PRAGMA incremental_vacuum({_STEP_PAGES})").fetchall()
                (n_left,) = database.execute("PRAGMA freelist_count").fetchone()
                if n_left >= n_free:
                    break
                n_free = n_left
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        except sqlite3.Error as error:
            raise ConfigError(f"the journal {journal} cannot be written: {error}") from None
        return before, _nbytes(database)


@contextlib.contextmanager
def _opened(journal: Path) -> Iterator[sqlite3.Connection]:
    if not journal.is_file():
        raise ConfigError(
            f"there is no journal {journal}: name the file, or the scheduler's state directory"
        )
    try:
        database = sqlite3.connect(journal, timeout=_BUSY_S, isolation_level=None)
    except sqlite3.Error as error:
        raise ConfigError(f"the journal {journal} cannot be opened: {error}") from None
    with contextlib.closing(database):
        try:
            (form,) = database.execute("PRAGMA user_version").fetchone()
        except sqlite3.Error as error:
            raise ConfigError(f"{journal} is no journal, or is damaged: {error}") from None
        if not 0 < form <= FORM:
            raise ConfigError(f"{journal} is no journal of this version: its form is {form}")
        yield database


def _check(database: sqlite3.Connection, path: Path) -> None:
    """Read all of a journal. Raises ConfigError."""
    try:
        (found,) = database.execute("PRAGMA integrity_check(1)").fetchone()
    except sqlite3.Error as error:
        found = str(error)
    if found != "ok":
        raise ConfigError(f"{path} is damaged: {found}")


def _demand_unused(journal: Path) -> None:
    """Raise ConfigError if another process has a journal open."""
    try:
        with contextlib.closing(sqlite3.connect(journal, timeout=0.0)) as database:
            # The log can go only if this connection is the only one.
            (mode,) = database.execute("PRAGMA journal_mode = DELETE").fetchone()
    except sqlite3.OperationalError:
        mode = "locked"
    except sqlite3.DatabaseError:
        return  # damaged: whoever restores knows that
    if mode != "delete":
        raise ConfigError(f"a scheduler has {journal} open: stop it first")


def _nbytes(database: sqlite3.Connection) -> int:
    (n_pages,) = database.execute("PRAGMA page_count").fetchone()
    (page_nbytes,) = database.execute("PRAGMA page_size").fetchone()
    return int(n_pages * page_nbytes)
