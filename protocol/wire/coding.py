"""What the functions of `coders.py` call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ..errors import RemoteProtocolError
from .columns import CHECKS

if TYPE_CHECKING:
    from .message import Message

#: Lists of up to this many items are short.
FEW: Final = 8
#: Blobs below this size are short.
SHORT_BYTES: Final = 4 << 10


def any_long(blobs: list[Any]) -> bool:
    """Return whether there are many blobs, or one that is long or has buffers."""
    if len(blobs) > FEW:
        return True
    for blob in blobs:
        if blob is not None and (type(blob) is not bytes or len(blob) >= SHORT_BYTES):
            return True
    return False


def completed(cls: type[Message], wire: list[Any]) -> list[Any]:
    """Bring a message of an earlier or a later version to its length."""
    n_sent = len(wire) - 1
    if n_sent < cls._n_required:
        raise RemoteProtocolError(
            f"{cls.__name__}: at least {cls._n_required} fields expected, {n_sent} came"
        )
    n_fields = len(cls._names)
    missing = [cls._defaults[name]() for name in cls._names[n_sent:] if name in cls._defaults]
    return [*wire[: n_fields + 1], *missing]


def misplaced(cls: type[Message], wire: list[Any], buffers: list[Any]) -> RemoteProtocolError:
    """Return the error of the first field whose check fails."""
    for name, value in zip(cls._names, wire[1:], strict=True):
        try:
            CHECKS[cls.__annotations__[name]](value, buffers)
        except (TypeError, ValueError) as error:
            return RemoteProtocolError(f"{cls.__name__}.{name}: {error}")
    raise AssertionError("no check fails")


def wrong_length(
    cls: type[Message], field: str, column: list[Any], n_rows: int
) -> RemoteProtocolError:
    """Return the error of a column that has not one item for each row."""
    return RemoteProtocolError(f"{cls.__name__}.{field}: {len(column)} items for {n_rows} rows")


def beyond(cls: type[Message], field: str) -> RemoteProtocolError:
    """Return the error of a column with a number that is not in its table."""
    return RemoteProtocolError(f"{cls.__name__}.{field} points beyond its table")
