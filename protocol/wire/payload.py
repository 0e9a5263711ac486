"""What a pickled value looks like on its way: bytes, or bytes with out-of-band buffers.

Everybody who forwards values imports this module and never looks inside one. It must not import
`pickle`: the scheduler uses it. `serialize` makes blobs and reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview


class Payload:
    """A pickle whose large buffers lie beside it, uncopied.

    Attributes:
        data: the pickle stream.
        buffers: what it refers to, in order. On the sending side these are views of the memory of
            the objects themselves; on the receiving side, of what came in.
    """

    __slots__ = ("buffers", "data")

    def __init__(self, data: Buffer, buffers: Sequence[Buffer]) -> None:
        self.data = data
        self.buffers = buffers

    @property
    def nbytes(self) -> int:
        """Bytes of the stream and all buffers together."""
        return _nbytes(self.data) + sum(map(_nbytes, self.buffers))

    def detached(self) -> Payload:
        """Return an equal payload that shares no memory with the objects it was made from.

        For a sender who hands the objects back to somebody that may change them before the bytes
        are on the wire. Costs one copy of everything; the copies are writable.
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


def _nbytes(buffer: Buffer) -> int:
    # len() of a memoryview counts items of its first dimension, not bytes.
    return buffer.nbytes if isinstance(buffer, memoryview) else len(buffer)


def _same(left: Buffer, right: Buffer) -> bool:
    return memoryview(left).cast("B") == memoryview(right).cast("B")
