"""The pickles of results, and whether they fit into this worker's memory beside the result.

A worker above its memory limit is killed. A result whose pickling kills its worker would be
computed again, requested again, and would kill the next worker. So the pickle of a result that is
large, compared with the limit, is made twice: once to count its bytes, which are discarded as they
come, and then to keep them. Buffers that travel beside the pickle (arrays) are not copied, and so
are not counted. This is no proof, because reductions may need memory of their own; if a pickle
kills the worker nevertheless, the attempt was noted (`started`), and the scheduler counts the
death.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, Final, NoReturn

from ...protocol.errors import SerializationError, UnpicklableResult
from ...protocol.values.exceptions import pack_exception, unpack_exception
from ...protocol.values.pickling import PROTOCOL, buffer_taker, type_name
from ...protocol.values.serialize import dumps
from ...protocol.values.sizeof import sizeof
from ...protocol.wire.messages import WANTED
from ...protocol.wire.payload import Blob, Payload, blob_nbytes
from ..core.features.times import MAX_TYPE_CHARS
from ..policy import TERMINATE_FRACTION

#: A wanted result up to this size is sent along with the report that it is there; if it was asked
#: for as a large one, up to the second.
RIDE_ALONG_BYTES: Final = 64 << 10
RIDE_ALONG_LARGE_BYTES: Final = 1 << 20
#: A blob above this size travels beside the message instead of in it.
_INLINE_BYTES: Final = 4 << 10
#: The pickle of a result below this part of the limit is assumed to fit.
_LARGE_FRACTION: Final = 1 / 8
#: Results of these types are pickled without asking for their size first.
_NUMBERS: Final = frozenset({bool, float, int, type(None)})
#: Pickling objects of exactly these types runs no user code.
PLAIN_TYPES: Final = frozenset({bool, bytes, float, int, str, type(None)})
#: The name of a class, whatever its metaclass says.
_name_of: Final[Callable[[type], str]] = type.__dict__["__name__"].__get__


def pack_result(value: object, key: str) -> Blob:
    """Pickle the result of task `key`.

    Raises:
        UnpicklableResult: it cannot be pickled, whatever its reduction raised.
    """
    try:
        blob = dumps(value, "result")
    except SerializationError as error:
        text = error.text if error.where == "result" else f"{error.where}: {error.text}"
        raise UnpicklableResult(key, error.type_name, text) from error
    except BaseException as error:  # of user code: SystemExit, and MemoryError, end no thread
        raise UnpicklableResult(key, type_name(value), _described(error)) from error
    if blob.__class__ is bytes and len(blob) > _INLINE_BYTES:
        return Payload(blob, ())
    return blob


def _described(error: BaseException) -> str:
    try:
        text = str(error)
    except BaseException:  # `__str__` is user code as well
        text = ""
    name = type(error).__name__
    return f"its pickling raised {name}: {text}" if text else f"its pickling raised {name}"


def pack_to_ride_along(value: object, key: str, wanted: int) -> tuple[Blob | None, int]:
    """Pickle a result if it is small; return the pickle, or None, and the size of the result.

    `wanted` says what is small: see `AssignTasks`.

    Raises:
        UnpicklableResult: it cannot be pickled.
    """
    if value.__class__ in _NUMBERS:
        data = pickle.dumps(value, PROTOCOL)
        if len(data) <= _INLINE_BYTES:
            return data, len(data)
    nbytes = sizeof(value)
    limit = RIDE_ALONG_BYTES if wanted == WANTED else RIDE_ALONG_LARGE_BYTES
    if nbytes > limit:
        return None, nbytes
    blob = pack_result(value, key)
    if blob_nbytes(blob) > limit:
        return None, nbytes
    if blob.__class__ is Payload and blob.buffers:
        # A task that runs before the bytes are sent may change the value in place.
        blob = blob.detached()
    return blob, nbytes


def pack_for_reader(value: object, key: str, nbytes: int, memory_limit: int) -> Blob:
    """Pickle a result, of the estimated size `nbytes`, that a client or another worker requested.

    A result that cannot be pickled, or whose pickle does not fit, becomes a pickle that raises
    `UnpicklableResult` where it is read: the key is not missing, and the reader gets the reason in
    its place; for a client it is the failure of the future from then on.

    Small results are pickled when the task ends; large ones only when they are requested. The only
    way to find out is to pickle, which for a large result takes as long as making it did, or
    longer, and as much memory again; and most large results are read by other tasks on the same
    worker and never leave it, so that they need not be picklable at all.
    """
    reason = why_too_large(value, nbytes, memory_limit)
    if reason:
        return error_blob(UnpicklableResult(key, type_name(value), reason))
    try:
        return pack_result(value, key)
    except UnpicklableResult as error:
        if isinstance(error.__cause__, MemoryError):
            text = (
                f"{error.text}; the result takes {nbytes} bytes, and its pickle is made beside it; "
                "return it in parts or as an array, which is not copied"
            )
            return error_blob(UnpicklableResult(key, error.type_name, text))
        return error_blob(error)


def error_blob(error: Exception) -> Blob:
    """Return a pickle that raises `error` where it is read."""
    return dumps(_Raises(error))


def raised_blob(error: BaseException, key: str, worker: str) -> Blob:
    """Return a pickle that raises `error` where it is read, with the traceback that it has here."""
    return dumps(_RaisesPacked(pack_exception(error, key, worker)))


class _Raises:
    """An object that is pickled as a call of `_raise`."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __reduce__(self) -> tuple[Any, ...]:
        return _raise, (self.error,)


def _raise(error: Exception) -> NoReturn:
    """Raise `error`. Pickles name this function: readers are of the same version."""
    raise error


class _RaisesPacked:
    """An object that is pickled as a call of `_raise_packed`."""

    def __init__(self, packed: list[Any]) -> None:
        self.packed = packed

    def __reduce__(self) -> tuple[Any, ...]:
        return _raise_packed, (self.packed,)


def _raise_packed(packed: list[Any]) -> NoReturn:
    """Raise an error. Pickles name this function, as `_raise`."""
    raise unpack_exception(packed)


class _TooLarge(Exception):
    """Raised to end the pickling."""


class _CountingFile:
    """A file that keeps nothing."""

    def __init__(self, most: float) -> None:
        self.nbytes = 0
        self._most = most

    def write(self, data: Any) -> int:
        n = memoryview(data).nbytes
        self.nbytes += n
        if self.nbytes > self._most:
            raise _TooLarge
        return n


def is_large(nbytes: int, memory_limit: int) -> bool:
    """Return whether serving a result of this size may exceed the worker's memory limit."""
    return 0 < memory_limit * _LARGE_FRACTION < nbytes


def why_too_large(value: object, nbytes: int, memory_limit: int) -> str:
    """Return why the pickle of a result does not fit beside it; "" if it seems to fit.

    Args:
        value: the result.
        nbytes: its estimated size.
        memory_limit: of this worker, bytes; 0 = none.
    """
    if not is_large(nbytes, memory_limit):
        return ""
    import psutil  # here, because clients import this module to read the pickle of an error

    # Neither is exact: untouched memory is not resident, and shared parts count twice.
    resident = min(nbytes, psutil.Process().memory_info().rss)
    counter = _CountingFile(TERMINATE_FRACTION * memory_limit - resident)
    try:
        pickle.Pickler(counter, PROTOCOL, buffer_callback=buffer_taker([])).dump(value)
    except _TooLarge:
        return (
            f"the result takes {nbytes} bytes and its pickle, which is made beside it, at least "
            f"{counter.nbytes}, and the worker may use {memory_limit} in all; return it in parts "
            "or as an array, which is not copied, or raise the memory limit"
        )
    except BaseException:  # of user code; the pickling that follows reports the reason
        return ""
    return ""


def short_type_name(value: object) -> str:
    """Return the name of the type of a value, for display: cut, and without calling user code."""
    return _name_of(type(value))[:MAX_TYPE_CHARS]
