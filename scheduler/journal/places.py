"""Journals by their paths or URLs, for the scheduler and for commands. A part of the shell."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from ...protocol.database_urls import check_url, is_url, schema_of, shown
from ...protocol.errors import ConfigError
from ...protocol.wording import how_to_install
from .arrays import with_rows
from .descriptions import described
from .files import file_in, jobs_in
from .rows import jobs_listed
from .sqlite import SqliteStore
from .store import Database, JournalStore, StorageError

#: What PostgreSQL has in the place of a command for files.
_ADVICE: Final = {
    "backup": (
        "PostgreSQL copies the tables of a scheduler that goes on by: "
        "pg_dump '{url}' --schema={schema} --format=custom --file=COPY"
    ),
    "restore": (
        "PostgreSQL puts a copy back, when no scheduler uses it, by: "
        "pg_restore --clean --if-exists --dbname='{url}' COPY"
    ),
    "compact": (
        "PostgreSQL uses the room of forgotten jobs again by itself; to give it back to the disk, "
        "when no scheduler uses it: VACUUM FULL {schema}.jobs"
    ),
}


def store_at(place: str, *, may_make: bool = True) -> JournalStore:
    """Return the store at a path or a URL, opened.

    Args:
        place: of a file, or `postgresql://user@host/database`.
        may_make: make what is not there; False = for a command that only looks.

    Raises:
        ConfigError: it cannot be used, or the driver of its database is not installed.
        CommError: the server of the database cannot be reached.
    """
    if not is_url(place):
        return SqliteStore(Path(place))
    check_url(place, "journal")
    try:
        # Not at the top: it is an extra, and takes a tenth of a second.
        from .postgresql import PostgresqlStore
    except ImportError as error:
        raise ConfigError(
            f"a journal in PostgreSQL needs the package psycopg ({error}): "
            + how_to_install("postgres")
        ) from None
    return PostgresqlStore(place, may_make=may_make)


def jobs_at(place: str, limit: int) -> list[dict[str, Any]]:
    """Return the jobs of a journal, the latest first, as the scheduler describes them.

    A scheduler may go on writing.

    Raises:
        ConfigError: there is no journal, or it is damaged.
        CommError: the server of the database cannot be reached.
    """
    if not is_url(place):
        return jobs_in(file_in(Path(place)), limit)
    store = store_at(place, may_make=False)
    try:
        return store.read(lambda database: _listed(database, limit))
    except StorageError as error:
        raise store.unusable(error) from None
    finally:
        store.close()


def _listed(database: Database, limit: int) -> list[dict[str, Any]]:
    rows = [*jobs_listed(database, (), (), limit)]
    return [with_rows(database, described(row)) for row in rows]


def file_of(place: str, action: str) -> Path:
    """Return the file of a journal, for a command that works on files only.

    Raises:
        ConfigError: it is in a database that has commands of its own for that.
    """
    if not is_url(place):
        return file_in(Path(place))
    schema, plain = schema_of(place)
    advice = _ADVICE[action].format(url=shown(plain), schema=schema)
    raise ConfigError(f"'weft journal {action}' is for files. {advice}")
