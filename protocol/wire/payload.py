"""The form of a pickled value on the wire: bytes, or bytes with out-of-band buffers.

Modules that only forward values use this one and never read a value. It must not import
`pickle`, because the scheduler uses it. `serialize` makes blobs and reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview


class Payload:
    """A pickle whose large buffers lie beside it, uncopied.

    Attributes:
        data: the pickle stream.
        buffers: the buffers that it refers to, in order. On the sending side these are views of the
            memory of the objects themselves; on the receiving side, of the received frame.
    """

    __slots__ = ("buffers", "data")

    def __init__(self, data: Buffer, buffers: Sequence[Buffer]) -> None:
        self.data = data
        self.buffers = buffers

    @property
    def nbytes(self) -> int:
        """The size of the stream and all buffers, in bytes."""
        return buffer_nbytes(self.data) + sum(map(buffer_nbytes, self.buffers))

    def __len__(self) -> int:
        """Return `nbytes`: `len` of any blob is its size, in a lane that counts nanoseconds."""
        return self.nbytes

    def __bool__(self) -> bool:
        return True

    def detached(self) -> Payload:
        """Return an equal payload that shares no memory with the objects it was made from.

        It is needed if the caller may change the objects before the bytes are sent. All bytes are
        copied once; the copies are writable.
        """
        return Payload(bytes(self.data), [bytearray(buffer) for buffer in self.buffers])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Payload):
            return NotImplemented
        return (
            self.data == other.data
            and len(self.buffers) == len(other.buffers)
            and all(map(_same, self.buffers, other.buffers))
        )

    __hash__ = None  # type: ignore[assignment]  # buffers are mutable

    def __repr__(self) -> str:
        return f"<Payload of {self.nbytes} bytes in {len(self.buffers)} buffers>"


#: A pickled value. Plain bytes when it has no out-of-band buffers, which is the common case.
Blob: TypeAlias = bytes | Payload


def blob_nbytes(blob: Blob) -> int:
    """Return how many bytes a blob takes on the wire, header aside."""
    return blob.nbytes if isinstance(blob, Payload) else len(blob)


def nbytes_of(blob: Blob | None) -> int:
    """Return the bytes of a blob; 0 if there is none."""
    return 0 if blob is None else blob_nbytes(blob)


def parts_of(blob: Blob) -> list[Buffer]:
    """Return the buffers of a blob, its data first."""
    return [blob.data, *blob.buffers] if isinstance(blob, Payload) else [blob]


def buffer_nbytes(buffer: Buffer) -> int:
    """Return how many bytes a buffer has."""
    # len() of a memoryview counts items of its first dimension, not bytes.
    return buffer.nbytes if isinstance(buffer, memoryview) else len(buffer)


def _same(left: Buffer, right: Buffer) -> bool:
    return memoryview(left).cast("B") == memoryview(right).cast("B")
