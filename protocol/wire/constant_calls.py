"""Calls of a function that returns a given pickle's value, made without pickling.

A scheduler knows results only as pickles. It makes a task of one by writing the opcodes around it:
`pickle` itself, which it must not import, is not needed for that. `protocol/values/constants.py`
has the function, and makes the same calls in other processes.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from .payload import Blob, Payload

# Opcodes of pickle, protocol 5.
_PROTO: Final = b"\x80\x05"
_GLOBAL: Final = b"c"
_BINBYTES8: Final = b"\x8e"
_EMPTY_LIST: Final = b"]"
_MARK: Final = b"("
_APPENDS: Final = b"e"
_NEWFALSE: Final = b"\x89"
_TUPLE: Final = b"t"
_TUPLE1: Final = b"\x85"
_REDUCE: Final = b"R"
_STOP: Final = b"."

_FUNCTION: Final = b"weft.protocol.values.constants\nconstant\n"
_PACKED: Final = b"weft.protocol.values.shared\nPackedArgument\n"

#: The function's pickle, which refers to it by name, and its id.
CONSTANT_BLOB: Final = _PROTO + _GLOBAL + _FUNCTION + _STOP
CONSTANT_ID: Final = blake2b(CONSTANT_BLOB, digest_size=16).digest()


def arguments_of(blob: Blob) -> bytes:
    """Return the pickled arguments of the call whose value `blob` is the pickle of."""
    if isinstance(blob, Payload):
        buffers = b"".join(_bytes(bytes(buffer)) for buffer in blob.buffers)
        flags = _NEWFALSE * len(blob.buffers)
        fields = _bytes(bytes(blob.data)) + _list(buffers) + _list(flags)
        argument = _GLOBAL + _PACKED + _MARK + fields + _TUPLE + _REDUCE
    else:
        argument = _bytes(blob)
    return _PROTO + argument + _TUPLE1 + _STOP


def _bytes(value: bytes) -> bytes:
    return _BINBYTES8 + len(value).to_bytes(8, "little") + value


def _list(items: bytes) -> bytes:
    return _EMPTY_LIST + _MARK + items + _APPENDS
