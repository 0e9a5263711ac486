"""What the journal needs of a database, of whatever kind. A part of the shell.

The statements are the same for all (`rows`, `values`): those of SQLite, as far as
others understand them. A store knows how to open its database, what a transaction is, and what its
errors mean.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from ...protocol.errors import WeftError

T = TypeVar("T")


class StorageError(Exception):
    """The database cannot be read or written now: it is full, locked, damaged, or away."""


class RowError(StorageError):
    """The database does not take these rows. It may take others."""


class FoundRows(Protocol):
    """The rows that a statement has found."""

    def fetchone(self) -> Any:
        """Return the next row, None = there is none."""

    def __iter__(self) -> Iterator[Any]:
        """Yield the rows."""


class Database(Protocol):
    """An open database. A `?` in a statement stands for a value."""

    def execute(self, statement: str, values: Sequence[Any] = ..., /) -> FoundRows:
        """Execute a statement, and return what it has found."""

    def executemany(self, statement: str, rows: Sequence[Sequence[Any]], /) -> object:
        """Execute a statement once for the values of each row."""


class JournalStore(Protocol):
    """Where a journal is. All but the construction is called in the journal's thread.

    Attributes:
        name: what error texts call it; it has no password.
        last_epoch: of the last scheduler that used it, as far as it is known here; 0 = unknown.
    """

    name: str
    last_epoch: int

    @property
    def is_there(self) -> bool:
        """Return whether the database exists; the first `write` makes it otherwise."""

    def claim(self, epoch: int) -> None:
        """Let no scheduler of an earlier epoch write from now on; 0 = an epoch above the last one.

        Raises:
            TakenOver: a later scheduler has claimed it.
            StorageError: it cannot be written.
        """

    def write(self, work: Callable[[Database], T]) -> T:
        """Commit what `work` does, or nothing of it. It may be called again after a failure.

        Raises:
            TakenOver: a later scheduler has claimed the database.
            StorageError: it is not committed, or nobody knows whether it is.
        """

    def read(self, work: Callable[[Database], T]) -> T:
        """Return what `work` reads. It may be called again after a failure.

        Raises:
            StorageError: it cannot be read.
        """

    def probe(self) -> None:
        """Look whether the database is there and takes a transaction; this waits for it briefly.

        Raises:
            TakenOver: a later scheduler has claimed it.
            StorageError: it cannot be written now.
        """

    def unusable(self, error: Exception) -> WeftError:
        """Return the error for a user who starts a scheduler with a database that is of no use."""

    def hurry(self) -> None:
        """Wait no longer for a database that is away; called from any thread."""

    def close(self) -> None:
        """Close the database."""
