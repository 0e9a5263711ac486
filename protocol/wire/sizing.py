"""Estimates of the memory that messages take while they wait to be sent."""

from __future__ import annotations

from typing import Any, Final

from .message import Message
from .payload import Payload, blob_nbytes

#: Bytes that Python takes for a cell or an object, beside its text or bytes.
_CELL_BYTES: Final = 56


def message_nbytes(message: Message) -> int:
    """Return an estimate of a message's size in bytes; columns of texts are counted at C speed."""
    return sum(map(_nbytes, message.to_wire()))


def _nbytes(value: Any) -> int:
    kind = type(value)
    if kind is str or kind is bytes:
        return _CELL_BYTES + len(value)
    if isinstance(value, Payload):
        return _CELL_BYTES + blob_nbytes(value)
    if kind is list:
        return _CELL_BYTES * (len(value) + 1) + _list_nbytes(value)
    if kind is dict:
        return _CELL_BYTES + sum(_nbytes(k) + _nbytes(v) for k, v in value.items())
    return _CELL_BYTES


def _list_nbytes(values: list[Any]) -> int:
    kinds = set(map(type, values))
    if kinds <= {str} or kinds <= {bytes}:
        return sum(map(len, values))
    if kinds <= {int, float, bool, type(None)}:
        return 0
    return sum(map(_nbytes, values))
