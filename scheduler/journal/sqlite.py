"""The journal in a file: an SQLite database in the state directory. A part of the shell.

What is committed is on the disk: it has a write-ahead log with `synchronous=FULL`. The file is made
with the first job. Its form has a number: one of an earlier form is brought up to date, and a later
one is refused. One scheduler uses it, which has locked its state directory.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from ...protocol.errors import ConfigError
from .rows import FORM, steps_from
from .store import Database, RowError, StorageError, T

FILE: Final = "journal.sqlite"
_BUSY_S: Final = 5.0
#: With fewer pages in memory, or of the write-ahead log, many jobs are written several times.
_CACHE_KIB: Final = 64 << 10
_LOG_PAGES: Final = 16_384
#: What is raised for a row that Python or SQLite cannot take.
_OF_ROW: Final = (
    OverflowError,
    MemoryError,
    sqlite3.DataError,
    sqlite3.IntegrityError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
)


class SqliteStore:
    """The file of a journal."""

    last_epoch = 0

    def __init__(self, path: Path) -> None:
        """Open the file, if there is one.

        Raises:
            ConfigError: it cannot be read, is damaged, or was made by a later version.
        """
        self.path = path
        self.name = str(path)
        self.database: sqlite3.Connection | None = None
        if path.exists():
            self._open()

    @property
    def is_there(self) -> bool:
        """Return whether there is a file."""
        return self.database is not None or self.path.exists()

    def claim(self, epoch: int) -> None:
        """Do nothing: the state directory is locked."""

    def write(self, work: Callable[[Database], T]) -> T:
        """Commit what `work` does, or nothing of it. Raises StorageError."""
        with _translated():
            database = self._open()
            with _transaction(database):
                return work(database)

    def read(self, work: Callable[[Database], T]) -> T:
        """Return what `work` reads. Raises StorageError."""
        with _translated():
            return work(self._open())

    def probe(self) -> None:
        """Begin a transaction, if there is a file. Raises StorageError."""
        if self.database is None:
            return
        if not self.path.exists():
            raise StorageError("the file was removed; nothing is kept of what is recorded now")
        self.write(lambda _: None)

    def unusable(self, error: Exception) -> ConfigError:
        """Return the error for a user."""
        return ConfigError(
            f"the journal {self.path} cannot be used: {error}. Mend it, restore a backup, or move "
            "it away: then a new one is begun, without the jobs in it"
        )

    def hurry(self) -> None:
        """Do nothing: a disk is waited for."""

    def close(self) -> None:
        """Close the file."""
        if self.database is not None:
            self.database.close()
            self.database = None

    def _open(self) -> sqlite3.Connection:
        if self.database is not None:
            return self.database
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
            with _transaction(database):  # as a whole or not at all
                for statement in steps_from(form):
                    database.execute(statement)
                database.execute(f"PRAGMA user_version = {FORM}")
        except (sqlite3.Error, OSError) as error:
            if database is not None:
                database.close()
            if is_new:
                with contextlib.suppress(OSError):
                    self.path.unlink()
            raise self.unusable(error) from None
        except ConfigError:
            assert database is not None
            database.close()
            raise
        self.database = database
        return database


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except _OF_ROW as error:
        raise RowError(str(error) or type(error).__name__) from None
    except (sqlite3.Error, OSError, ConfigError) as error:
        raise StorageError(str(error) or type(error).__name__) from None


@contextlib.contextmanager
def _transaction(database: sqlite3.Connection) -> Iterator[None]:
    """Commit what is done within, or nothing of it."""
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
        database.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            database.execute("ROLLBACK")
        raise
