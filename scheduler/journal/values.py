"""The table of durable values in the journal, and how pickles and failures are columns."""

from __future__ import annotations

from typing import Any, Final

import msgpack

from ...protocol.wire.failure import Failure
from ...protocol.wire.payload import Blob, Payload
from ..core.journal.entries import ValueKept, ValuesDropped
from .store import Database

#: Databases of the first form may lack it, and earlier versions do not look at it.
TABLE: Final = """
CREATE TABLE IF NOT EXISTS durable_values (
    number INTEGER PRIMARY KEY,
    place BLOB NOT NULL,
    keys BLOB NOT NULL,
    info BLOB NOT NULL,
    value BLOB,
    value_buffers BLOB
)
"""
_COLUMNS: Final = "number, place, keys, info, value, value_buffers"


def parts(blob: Blob) -> tuple[bytes, bytes | None]:
    """Return a pickle and its buffers, as two columns have them."""
    if isinstance(blob, Payload):
        return bytes(blob.data), msgpack.packb([bytes(buffer) for buffer in blob.buffers])
    return bytes(blob), None


def joined(data: bytes, buffers: bytes | None) -> Blob:
    """Return the pickle of two columns."""
    if buffers is None:
        return data
    return Payload(data, [bytearray(buffer) for buffer in msgpack.unpackb(buffers)])


def packed_failure(failure: Failure | None) -> bytes | None:
    """Return a failure as a column has it."""
    return None if failure is None else msgpack.packb(failure, default=_plain)


def _plain(value: Any) -> Any:
    """Return what stands for a payload in a failure: the exception is lost, its texts are not."""
    return bytes(value.data) if isinstance(value, Payload) else repr(value)


def keep_values(database: Database, kept: list[ValueKept]) -> None:
    """Record durable values, and drop those that they replace."""
    drop_values(database, [ValuesDropped([*one.replaces, one.number]) for one in kept])
    database.executemany(
        f"INSERT INTO durable_values ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)",
        [
            (
                one.number,
                *(msgpack.packb(column) for column in (one.place, one.keys, one.info)),
                *((None, None) if one.blob is None else parts(one.blob)),
            )
            for one in kept
        ],
    )


def drop_values(database: Database, dropped: list[ValuesDropped]) -> None:
    """Drop durable values."""
    numbers = [(number,) for one in dropped for number in one.numbers]
    database.executemany("DELETE FROM durable_values WHERE number = ?", numbers)


def read_values(database: Database, *, with_values: bool = True) -> list[ValueKept]:
    """Return all durable values in the order in which they were recorded, or only what they are."""
    columns = _COLUMNS if with_values else "number, place, keys, info, NULL, NULL"
    return [
        ValueKept(
            number,
            tuple(msgpack.unpackb(place)),
            None if value is None else joined(value, buffers),
            msgpack.unpackb(keys),
            msgpack.unpackb(info),
        )
        for number, place, keys, info, value, buffers in database.execute(
            f"SELECT {columns} FROM durable_values ORDER BY number"
        )
    ]
