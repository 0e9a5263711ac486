"""The value of an index: which attempts made the values that its readers read parts of, and where.

The scheduler makes it, and workers read it. It is stored as any value is, so it is a pickle: that
of a bytes object, which is put together here, because the scheduler imports no pickle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgpack

from ..errors import RemoteProtocolError
from .payload import Blob, Payload

__all__ = ["OUT_OF_REACH", "PartIndex", "as_value", "read_index"]

#: How the reason begins for which a task asks to be run again that did not reach a holder.
OUT_OF_REACH: Final = "parts of results are out of reach"
#: What precedes the length of a bytes object in its pickle: protocol 5, and BINBYTES8.
_BEGIN: Final = b"\x80\x05\x8e"
_END: Final = b"."
#: What tells these bytes from others.
_MAGIC: Final = b"weft index of parts\n"
#: A larger value travels beside its message.
_INLINE_NBYTES: Final = 4 << 10


class PartIndex(NamedTuple):
    """The inputs of an index, in their order."""

    keys: Sequence[str]
    attempts: Sequence[int]
    #: for each the numbers of its holders in `addresses`
    holders: Sequence[Sequence[int]]
    addresses: Sequence[str]

    def holder_of(self, place: int, failed: Mapping[str, float]) -> str:
        """Return the address at which a reader asks for the input at `place`.

        `failed` has the addresses that did not give it what it asked for, and when: others come
        first, then those that have failed the longest time ago. A holder may have left since the
        index was made.
        """
        addresses = self.addresses
        if not failed:
            return addresses[self.holders[place][0]]
        named = [addresses[number] for number in self.holders[place]]
        return min(named, key=lambda address: failed.get(address, 0.0))


def as_value(index: PartIndex) -> Blob:
    """Return the pickle of the bytes that `read_index` reads."""
    data = _MAGIC + msgpack.packb(list(index))
    value = b"".join([_BEGIN, len(data).to_bytes(8, "little"), data, _END])
    return value if len(value) <= _INLINE_NBYTES else Payload(value, ())


def read_index(data: object) -> PartIndex | None:
    """Return the index that a value is, None if it is another value.

    Raises:
        RemoteProtocolError: it is broken.
    """
    if type(data) is not bytes or not data.startswith(_MAGIC):
        return None
    try:
        index = PartIndex(*msgpack.unpackb(memoryview(data)[len(_MAGIC) :]))
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise RemoteProtocolError(f"an index of parts is broken: {error}") from None
    if not len(index.keys) == len(index.attempts) == len(index.holders):
        raise RemoteProtocolError("an index of parts has columns of different lengths")
    return index
