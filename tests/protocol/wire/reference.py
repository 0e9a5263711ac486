"""Encoding and checking of messages by loops over their fields, which `coders` must equal."""

from __future__ import annotations

import dataclasses
from typing import Any

from tests.protocol.strategies import schema_names
from weft.protocol.errors import RemoteProtocolError
from weft.protocol.wire.columns import CHECKS
from weft.protocol.wire.message import Message


def to_wire(message: Message) -> list[Any]:
    """Return `[code, field, ...]`."""
    return [message.code, *[getattr(message, name) for name in message._names]]


def from_wire(cls: type[Message], wire: list[Any], buffers: list[Any]) -> Message:
    """Check the wire form of a message of this class, and build it."""
    kinds = schema_names(cls)
    fields = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    required = [name for name in kinds if _default(fields[name]) is None]
    n_required = 1 + list(kinds).index(required[-1]) if required else 0
    n_sent = len(wire) - 1
    if n_sent < n_required:
        raise RemoteProtocolError(
            f"{cls.__name__}: at least {n_required} fields expected, {n_sent} came"
        )
    values: dict[str, Any] = {}
    for name, value in zip(kinds, wire[1:], strict=False):
        try:
            values[name] = CHECKS[kinds[name]](value, buffers)
        except (ValueError, TypeError) as error:
            raise RemoteProtocolError(f"{cls.__name__}.{name}: {error}") from None
    for name in list(kinds)[n_sent:]:
        make = _default(fields[name])
        assert make is not None
        values[name] = make()
    if cls.columns:
        n = len(values[cls.columns[0]])
        for name in cls.columns:
            _check_length(cls, name, len(values[name]), n)
        for name in cls.optional_columns:
            if values[name]:
                _check_length(cls, name, len(values[name]), n)
    for table in cls._tables:
        n = len(values[table[0]])
        for name in table:
            if values[name] or name not in cls._optional_lists:
                _check_length(cls, name, len(values[name]), n)
    for index, table in cls._indexes:
        if values[index] and max(values[index]) >= len(values[table[0]]):
            raise RemoteProtocolError(f"{cls.__name__}.{index} points beyond its table")
    return cls(**values)


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory
    return None if field.default is dataclasses.MISSING else lambda: field.default


def _check_length(cls: type[Message], name: str, length: int, expected: int) -> None:
    if length != expected:
        raise RemoteProtocolError(f"{cls.__name__}.{name}: {length} items for {expected} rows")
