"""A large argument that many tasks share: the value of a separate task, kept packed.

The client submits a task without a function once, and puts a `PackedArgument` at a worker as its
value. Each call that uses the argument depends on it; the call's own arguments contain a call of
`unpack` instead. So every call gets its own copy, which it may change in place, and the value
itself is moved, kept and lost like any other result. The scheduler imports nothing of this module.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from mmap import mmap
from pickle import PickleBuffer
from typing import Any

from ..host.buffers import copy_of
from ..host.host_files import own_copy
from ..wire.payload import Blob, Buffer, Payload
from .host_blobs import SHARED_NBYTES, HostBlob
from .serialize import loads, reduce_future


class PackedArgument:
    """A pickle with its buffers that stays packed when it is pickled and unpickled.

    Never changed: in process, the client's record and a worker's store share its memory.

    Args:
        data: the pickle.
        buffers: the buffers that it refers to, in order.
        is_frozen: for each buffer, whether its object was read-only.
    """

    __slots__ = ("buffers", "data", "is_frozen")

    def __init__(self, data: Buffer, buffers: Sequence[Buffer], is_frozen: Sequence[bool]) -> None:
        self.data = _owner(data)
        self.buffers = list(map(_owner, buffers))
        self.is_frozen = is_frozen

    @property
    def nbytes(self) -> int:
        """The size of the pickle and all buffers, in bytes."""
        return Payload(self.data, self.buffers).nbytes

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + self.nbytes

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        # The pickle travels as a buffer too: it may be as large as any.
        buffers = [PickleBuffer(buffer) for buffer in self.buffers]
        return PackedArgument, (PickleBuffer(self.data), buffers, self.is_frozen)


def _owner(buffer: Buffer) -> Buffer:
    """Return the object of a view that covers all of it.

    Records are parts of cycles, and to collect a view of a view crashes most versions of Python.
    """
    if isinstance(buffer, memoryview):
        owner = buffer.obj
        if isinstance(owner, (bytes, bytearray, mmap)) and len(owner) == buffer.nbytes:
            return owner  # type: ignore[return-value]  # an mmap is a buffer as well
    return buffer


def own_memory(blob: Blob) -> Blob:
    """Return a blob of `PackedArgument`s with their buffers in the place of views of them."""
    if isinstance(blob, Payload) and not isinstance(blob, HostBlob):
        return Payload(blob.data, [_owner(buffer) for buffer in blob.buffers])
    return blob


def unpack(argument: PackedArgument) -> Any:
    """Return a new object, which shares only read-only memory.

    Of a file of this host it shares the pages that it does not write to.
    """
    buffers = [
        memoryview(buffer).toreadonly() if is_frozen else _copied(buffer)
        for buffer, is_frozen in zip(argument.buffers, argument.is_frozen, strict=True)
    ]
    return loads(Payload(argument.data, buffers))


def _copied(buffer: Buffer) -> Buffer:
    if isinstance(buffer, memoryview) and buffer.nbytes >= SHARED_NBYTES:
        mapped = own_copy(buffer)
        if mapped is not None:
            return mapped
    return copy_of(buffer)


class SharedReference:
    """The place of a shared argument in those of a call; a task that reads it gets the argument."""

    __slots__ = ("_value",)

    def __init__(self, key: str) -> None:
        self._value = _Value(key)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return unpack, (self._value,)


class _Value:
    """Pickled like a future of the task `key`: a dependency, read as its result."""

    __slots__ = ("_key",)

    def __init__(self, key: str) -> None:
        self._key = key

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return reduce_future(self._key)
