"""Values in the store: as objects, or still packed as they came from a peer.

What is fetched stays packed until a task needs it, and is unpickled on the thread of that task: the
event loop runs no user code, and a copy that is only passed on is never unpickled at all.
"""

from __future__ import annotations

from typing import Any, NoReturn

from ..protocol.errors import SerializationError, UnpicklableResult
from ..protocol.values.pickling import type_name
from ..protocol.values.serialize import dumps, loads
from ..protocol.wire.payload import Blob, Payload

#: A wanted result up to this size rides along with the news that it is there.
RIDE_ALONG_BYTES = 64 << 10
#: A blob above this size travels beside the message instead of in it.
_INLINE_BYTES = 4 << 10


class Packed:
    """A value in the store that nobody here has looked at yet."""

    __slots__ = ("blob",)

    def __init__(self, blob: Blob) -> None:
        self.blob = blob


def pack_result(value: object, key: str) -> Blob:
    """Pickle what task `key` returned.

    Raises:
        UnpicklableResult: it cannot be.
    """
    try:
        blob = dumps(value, "result")
    except SerializationError as error:
        raise unpicklable(value, key, error) from error
    if blob.__class__ is bytes and len(blob) > _INLINE_BYTES:
        return Payload(blob, ())
    return blob


def unpicklable(value: object, key: str, error: Exception) -> UnpicklableResult:
    """Say that `value` cannot be pickled, and which part of it."""
    if isinstance(error, SerializationError):
        text = error.text if error.where == "result" else f"{error.where}: {error.text}"
        return UnpicklableResult(key, error.type_name, text)
    return UnpicklableResult(key, type_name(value), str(error))


def pack_for_peer(value: object, key: str) -> Blob:
    """Pickle a value that was asked for.

    One that cannot be pickled becomes a pickle that raises `UnpicklableResult` where it is read:
    the key is not missing, and whoever asked, client or task, gets the reason in its place; for a
    client it is the failure of the future from then on.

    It is not tried earlier, when the task ends, as it is with small results. The only way to know
    is to pickle, which for a large result takes as long as making it did, or longer, and as much
    memory again; and most large results are read by other tasks on the same worker and never leave
    it, where they need not be picklable at all.
    """
    if isinstance(value, Packed):
        return value.blob
    try:
        return pack_result(value, key)
    except UnpicklableResult as error:
        return error_blob(error)


def error_blob(error: Exception) -> Blob:
    """Return a pickle that raises `error` where it is read."""
    return dumps(_Raises(error))


class _Raises:
    """Pickled, a call of `_raise`."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __reduce__(self) -> tuple[Any, ...]:
        return _raise, (self.error,)


def _raise(error: Exception) -> NoReturn:
    raise error


def unpack(store: dict[int, Any], attempt: int) -> Any:
    """Return the value of `attempt`, which is in the store and stays there for now."""
    value = store[attempt]
    if value.__class__ is Packed:
        # Two threads may do this at once. Each gets a whole value, and one of them stays.
        value = store[attempt] = loads(value.blob)
    return value
