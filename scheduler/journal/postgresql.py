"""The journal in PostgreSQL, for schedulers on several machines. A part of the shell.

The tables are those of the file, in a schema of their own. One more has a single row: the form of
the tables, the *epoch* of the scheduler that may write, and the number of its last transaction.
Each transaction begins by raising that number, if the epoch is still its own. So

- a scheduler writes nothing after a later one has claimed the database (`TakenOver`);
- a transaction is applied once: after a connection was lost while it was committed, the number
  tells whether it was. The row is locked until the server has ended a transaction, so the answer
  waits for one whose connection is gone.

A connection that is lost is made again, for as long as `PATIENCE_S`. Then the work fails, as in a
file that is locked. Nothing here may show a password.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.types.numeric import Int8BinaryDumper, Int8Dumper

from ...protocol.database_urls import schema_of, shown
from ...protocol.errors import CommError, ConfigError, TakenOver, WeftError
from .rows import FORM, steps_from
from .store import Database, FoundRows, RowError, StorageError, T

#: The time in which a server may come back, before work fails.
PATIENCE_S: Final = 30.0
#: ... and before a look at it fails.
PROBE_PATIENCE_S: Final = 1.0
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 2.0
#: A server is found dead after such times; the URL may have others (seconds, and milliseconds).
_CONNECTION: Final = {
    "application_name": "weft",
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}
#: The server waits for no lock for ever, and ends the transaction of a scheduler that is gone.
#: What is reported as recorded must be on its disk. And jobs are found by the index of keys: the
#: plans of statements are made while the table is small, and would read all of it for ever.
_SESSION: Final = """
SET lock_timeout = '20s';
SET idle_in_transaction_session_timeout = '15s';
SET search_path TO {schema};
SET enable_seqscan = off;
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SELECT set_config('synchronous_commit', 'on', false)
WHERE current_setting('synchronous_commit') = 'off'
"""
_HOLDER: Final = """
CREATE TABLE holder (
    form INTEGER NOT NULL, epoch INTEGER NOT NULL, commits INTEGER NOT NULL, name TEXT NOT NULL
)
"""
#: What SQLite says otherwise.
_WORDS: Final = {
    "BLOB": "bytea",
    "REAL": "double precision",
    "INTEGER PRIMARY KEY AUTOINCREMENT": "bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    "INTEGER": "bigint",
    " WITHOUT ROWID": "",
}
_WORD: Final = re.compile("|".join(rf"{word}\b" for word in _WORDS))
_OF_ROW: Final = (
    psycopg.DataError,
    psycopg.IntegrityError,
    psycopg.ProgrammingError,
    psycopg.NotSupportedError,
)
#: The class of errors about limits of the program, such as that of a key in an index.
_LIMIT_EXCEEDED: Final = "54"
#: The server has become one that follows another: the URL may have several hosts.
_READ_ONLY: Final = "25006"


class PostgresqlStore:
    """The schema of a journal in a database."""

    def __init__(self, url: str, *, may_make: bool = True) -> None:
        """Connect, and make the tables if there are none.

        Args:
            url: `postgresql://user@host/database?schema=weft`, with any other part that libpq has.
            may_make: False = for a command that only looks.

        Raises:
            CommError: the server cannot be reached, or refuses the user.
            ConfigError: the URL is not right, the tables cannot be made, or are of a later version.
        """
        self.name = shown(url)
        schema, plain = schema_of(url)
        self._schema = f'"{schema}"'
        try:
            given = conninfo_to_dict(plain)
        except psycopg.Error as error:
            why = f": {_text_of(error)}" if self.name == url else ""  # it may have the password
            raise ConfigError(
                f"{self.name} is not the URL of a database{why}; write for example "
                "postgresql://user@host:5432/database"
            ) from None
        if self.name != url and _is_misread(given):
            raise ConfigError(
                f"{self.name} is not the URL of a database as it is written: write @ and / in a "
                "password as %40 and %2F, or give it in PGPASSWORD or ~/.pgpass"
            )
        parameters: dict[str, Any] = {**_CONNECTION, **given}
        self._conninfo = make_conninfo("", **parameters)
        #: for error texts, and unlike that of any other scheduler
        self._holder = f"process {os.getpid()} on {socket.gethostname()}"
        self._connection: psycopg.Connection[Any] | None = None
        self._epoch = 0
        self._number = 0
        #: set = a server that is away is not waited for
        self._hurried = threading.Event()
        self.last_epoch = 0
        self._begin(may_make=may_make)

    is_there = True

    def claim(self, epoch: int) -> None:
        """Let no earlier scheduler write from now on. Raises TakenOver, StorageError."""

        def attempt() -> None:
            database = self._database()
            with _Transaction(database):
                row = database.execute("SELECT epoch, name FROM holder FOR UPDATE").fetchone()
                last, name = row
                claimed = epoch or last + 1
                if last > claimed or (last == claimed and name != self._holder):
                    raise self._taken_over(name)
                self._epoch, self._number = claimed, 0
                database.execute(
                    "UPDATE holder SET epoch = ?, commits = 0, name = ?", (claimed, self._holder)
                )
            self.last_epoch = claimed

        self._persist(attempt)

    def write(self, work: Callable[[Database], T]) -> T:
        """Commit what `work` does, or nothing of it. Raises TakenOver, StorageError."""
        self._number += 1
        done: list[T] = []

        def attempt() -> T:
            database = self._database()
            with _Transaction(database) as transaction:
                if not self._is_mine(database):
                    # It is committed, by an attempt whose connection was lost.
                    transaction.is_over = True
                    return done[-1]
                done.append(work(database))
            return done[-1]

        return self._persist(attempt)

    def read(self, work: Callable[[Database], T]) -> T:
        """Return what `work` reads. Raises StorageError."""
        return self._persist(lambda: work(self._database()))

    def probe(self) -> None:
        """Look whether this scheduler may write. Raises TakenOver, StorageError."""

        def attempt() -> None:
            database = self._database()
            with _Transaction(database) as transaction:
                transaction.is_over = True
                row = database.execute("SELECT epoch, name FROM holder FOR UPDATE").fetchone()
                if row[0] != self._epoch:
                    raise self._taken_over(row[1])

        self._persist(attempt, PROBE_PATIENCE_S)

    def unusable(self, error: Exception) -> WeftError:
        """Return the error for a user."""
        if self._connection is None:
            return self._away(str(error))
        return ConfigError(
            f"the journal {self.name} cannot be used: {error}. Mend it, restore a backup, or give "
            "another database or ?schema="
        )

    def _away(self, why: str) -> CommError:
        return CommError(
            f"the journal {self.name} cannot be reached: {why}. Start the server, or mend host, "
            "user or database in the URL, or the password in PGPASSWORD or ~/.pgpass"
        )

    def hurry(self) -> None:
        """Wait no longer for a server that is away."""
        self._hurried.set()

    def close(self) -> None:
        """Close the connection."""
        self._drop()

    # -- transactions -----------------------------------------------------------------------------
    def _is_mine(self, database: _Translating) -> bool:
        """Begin transaction `_number`; return False if it is committed. Raises TakenOver."""
        began = database.execute(
            "UPDATE holder SET commits = ? WHERE epoch = ? AND commits < ? RETURNING 1",
            (self._number, self._epoch, self._number),
        ).fetchone()
        if began is not None:
            return True
        epoch, name = database.execute("SELECT epoch, name FROM holder").fetchone()
        if epoch != self._epoch:
            raise self._taken_over(name)
        return False

    def _taken_over(self, name: str) -> TakenOver:
        return TakenOver(f"{name} has taken over the journal {self.name}")

    def _persist(self, attempt: Callable[[], T], patience_s: float | None = None) -> T:
        """Make an attempt, again whenever the connection is lost, and raise what it means."""
        patience_s = PATIENCE_S if patience_s is None else patience_s
        began = time.monotonic()
        pause_s = _FIRST_PAUSE_S
        for n_attempts in itertools.count(1):
            try:
                return attempt()
            except psycopg.Error as error:
                text = _text_of(error)
                code = error.sqlstate or ""
                is_lost = self._connection is None or self._connection.closed
                if not is_lost and code != _READ_ONLY:
                    is_of_row = isinstance(error, _OF_ROW) or code.startswith(_LIMIT_EXCEEDED)
                    raise (RowError if is_of_row else StorageError)(text) from None
                self._drop()
                is_over = time.monotonic() - began + pause_s > patience_s
                if is_over or (self._hurried.wait(pause_s) and n_attempts > 1):
                    raise StorageError(text) from None
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            except (OverflowError, MemoryError) as error:
                raise RowError(str(error) or type(error).__name__) from None
        raise AssertionError

    # -- connections ------------------------------------------------------------------------------
    def _database(self) -> _Translating:
        if self._connection is None:
            connection = psycopg.connect(self._conninfo, autocommit=True)
            try:
                connection.execute(_SESSION.format(schema=self._schema))
            except BaseException:
                connection.close()
                raise
            connection.cursor_factory = psycopg.RawCursor
            for dumper in (Int8Dumper, Int8BinaryDumper):  # one type for numbers of any size
                connection.adapters.register_dumper(int, dumper)
            self._connection = connection
        return _Translating(self._connection)

    def _drop(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(psycopg.Error):
                self._connection.close()
            self._connection = None

    def _begin(self, *, may_make: bool) -> None:
        try:
            database = self._database()
        except psycopg.Error as error:
            raise self._away(_text_of(error)) from None
        try:
            with _Transaction(database):
                form = self._form(database, may_make=may_make)
            if form != FORM:
                raise ConfigError(
                    f"the journal {self.name} has form {form}, and this version reads form {FORM}: "
                    "it was written by another one; use that one, or give another ?schema="
                )
        except psycopg.Error as error:
            unusable = self.unusable(StorageError(_text_of(error)))
            self._drop()
            raise unusable from None
        except BaseException:
            self._drop()
            raise

    def _form(self, database: _Translating, *, may_make: bool) -> int:
        """Return the form of the tables, after making them if there are none."""
        # Two schedulers that start at the same time make them one after the other.
        database.execute("SELECT pg_advisory_xact_lock(hashtext(?))", (f"weft {self._schema}",))
        (table,) = database.execute("SELECT to_regclass(?)", (f"{self._schema}.holder",)).fetchone()
        if table is None and not may_make:
            raise ConfigError(f"there is no journal {self.name}: a scheduler makes it at its start")
        if table is None:
            (schema,) = database.execute("SELECT to_regnamespace(?)", (self._schema,)).fetchone()
            if schema is None:  # else this user may use it without a right to make one
                database.execute(f"CREATE SCHEMA {self._schema}")
            database.execute(_HOLDER)
            database.execute("INSERT INTO holder VALUES (0, 0, 0, '')")
        form, self.last_epoch = database.execute("SELECT form, epoch FROM holder").fetchone()
        if form <= FORM and may_make:
            for statement in steps_from(form):
                database.execute(statement)
            database.execute("UPDATE holder SET form = ?", (FORM,))
            return FORM
        return int(form)


class _Translating:
    """A connection that understands the statements of SQLite."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> FoundRows:
        """Execute a statement, and return what it has found."""
        return self.connection.execute(_translated(statement), values, binary=True)

    def executemany(self, statement: str, rows: Sequence[Sequence[Any]], /) -> None:
        """Execute a statement once for the values of each row."""
        if rows:
            self.connection.cursor().executemany(_translated(statement), rows)


class _Transaction:
    """Commits what is done within, or nothing of it."""

    def __init__(self, database: _Translating) -> None:
        self._connection = database.connection
        #: what is done within is of no use
        self.is_over = False

    def __enter__(self) -> _Transaction:
        self._connection.execute("BEGIN")
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and not self.is_over:
            self._connection.execute("COMMIT")
            return
        try:
            self._connection.execute("ROLLBACK")
        except psycopg.Error:
            self._connection.close()


def _is_misread(given: dict[str, Any]) -> bool:
    """Return whether a part of a password may be in the place of something else, to be shown."""
    places = (str(given.get(name) or "") for name in ("host", "port", "dbname"))
    return any("@" in place[1:] for place in places)  # the first @ is that of a socket


def _text_of(error: psycopg.Error) -> str:
    return " ".join(str(error).split()) or type(error).__name__


@functools.lru_cache(maxsize=512)
def _translated(statement: str) -> bytes:
    """Return a statement as PostgreSQL has it.

    With `$1` for the first value: psycopg itself looks at long statements each time for its `%s`,
    which takes longer than all else here.
    """
    first, *others = _WORD.sub(lambda found: _WORDS[found[0]], statement).split("?")
    return "".join([first, *(f"${n}{other}" for n, other in enumerate(others, 1))]).encode()
