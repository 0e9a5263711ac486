"""Values that travel inside of messages: one pickle with all its buffers in it."""

from __future__ import annotations

import gc
import pickle
import types
from collections.abc import Callable
from typing import Any, Final

from ...protocol.values.pickling import PROTOCOL
from ...protocol.values.serialize import dumps, loads
from ...protocol.wire.payload import Buffer, Payload

#: Values of this size on are no part of a message: they stay where they are until they are needed.
LARGE_NBYTES: Final = 128 * 1024
#: Objects inside of a value that are looked at for a finalizer.
_MOST_LOOKS: Final = 64
#: Types that are not looked into.
_WITHOUT: Final = frozenset(
    {types.BuiltinFunctionType, types.FunctionType, types.ModuleType, type, bytes, float, int, str}
)
#: The name of a task's value in errors.
RESULT: Final = "the result"


def dumps_in_band(value: Any) -> bytes:
    """Return the pickle of a value with all its buffers. Raises SerializationError."""
    blob = dumps(value, RESULT)
    if not isinstance(blob, Payload):
        return bytes(blob)
    return pickle.dumps(_InBand(blob), PROTOCOL) if blob.buffers else bytes(blob.data)


class _InBand:
    """Pickles a payload as a whole: one copy of each buffer here, and one where it is read."""

    __slots__ = ("payload",)

    def __init__(self, payload: Payload) -> None:
        self.payload = payload

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        # Without a callback, a writable buffer becomes a bytearray and a read-only one bytes.
        payload = self.payload
        return _read_in_band, (payload.data, *map(pickle.PickleBuffer, payload.buffers))


def _read_in_band(stream: bytes, *buffers: Buffer) -> Any:
    return loads(Payload(stream, buffers))


def has_finalizer(value: Any) -> bool:
    """Return whether the end of a value, or of an object near its surface, may undo something.

    So the folder of a temporary file goes with it. Such a value is not to end while copies of it
    are used, though it could be sent.
    """
    found: list[Any] = [value]
    seen: set[int] = set()
    while found and len(seen) < _MOST_LOOKS:
        one = found.pop()
        cls = type(one)
        if id(one) in seen or cls in _WITHOUT:
            continue
        if hasattr(cls, "__del__"):
            return True
        seen.add(id(one))
        found += gc.get_referents(one)[:_MOST_LOOKS]
    return False
