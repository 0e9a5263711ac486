"""Blobs in files of this host: the one form in which its processes share large values.

A `HostBlob` is a pickle with its buffers in a file that other processes of the host can map
(`protocol/host/host_files`). It is sent to them as the file's name (`FileReference`), and to all
others as any blob. A value for which there is no such file stays as it is: sharing makes a cluster
faster, and its lack never makes one fail.

The first part of a file is the pickle, the others are its buffers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from ..host.host_files import (
    FileName,
    HostFile,
    map_private,
    offsets_of,
    open_file,
    write_file,
)
from ..wire import plain
from ..wire.payload import Blob, Buffer, Payload, blob_nbytes

if TYPE_CHECKING:
    from ..host.host_files import Mapping

__all__ = ["SHARED_NBYTES", "FileReference", "HostBlob", "in_file", "read_reference", "share"]

#: Values below this size are sent. A file takes about as long as sending 100 kB does, and a
#: descriptor of the process that has it.
SHARED_NBYTES: Final = 1 << 20
#: A pickle is read by making copies of what is in it, so only what lies beside it is shared.
_MOST_PICKLED: Final = 1 / 8
#: Bytes of a reference, and the number of parts; both are from a peer.
_MAX_PARTS: Final = 1 << 16


class FileReference(NamedTuple):
    """The file of a blob, for another process of this host."""

    name: FileName
    #: bytes of the pickle, and of each buffer
    sizes: Sequence[int]

    @property
    def nbytes(self) -> int:
        """The size of the blob, in bytes."""
        return sum(self.sizes)

    def packed(self) -> bytes:
        """Return its form in messages."""
        return plain.pack([*self.name, *self.sizes])


class HostBlob(Payload):
    """A payload in a file of this host. It has no views of its memory but while they are used.

    Attributes:
        mapping: of the whole file.
        sizes: bytes of the pickle, and of each buffer.
    """

    __slots__ = ("mapping", "sizes")

    def __init__(self, mapping: Mapping, sizes: Sequence[int]) -> None:
        self.mapping = mapping
        self.sizes = sizes

    @property
    def data(self) -> Buffer:  # type: ignore[override]  # never assigned
        """The pickle."""
        return memoryview(self.mapping)[: self.sizes[0]]

    @property
    def buffers(self) -> Sequence[Buffer]:  # type: ignore[override]
        """The buffers, writable; who writes has a copy of the pages."""
        view, sizes = memoryview(self.mapping), self.sizes[1:]
        begins = offsets_of(self.sizes)[1:]
        return [view[begin : begin + size] for begin, size in zip(begins, sizes, strict=False)]

    @property
    def nbytes(self) -> int:
        """The size of the pickle and all buffers, in bytes."""
        return sum(self.sizes)

    @property
    def reference(self) -> FileReference | None:
        """The name of its file, if that is kept open here."""
        file = self.mapping.file
        return None if file is None else FileReference(file.name(), self.sizes)


def in_file(file: HostFile, sizes: Sequence[int], *, is_kept: bool = True) -> HostBlob:
    """Return the blob in a file, with parts of these sizes; keep the file open or not."""
    mapping = map_private(file.fd, file.nbytes)
    if is_kept:
        mapping.file = file
    return HostBlob(mapping, sizes)


def share(blob: Blob) -> HostBlob | None:
    """Copy a blob into a file of this host; None if it is not worth it, or not possible."""
    if isinstance(blob, HostBlob) and blob.mapping.file is not None:
        return blob
    nbytes = blob_nbytes(blob)
    if nbytes < SHARED_NBYTES or not isinstance(blob, Payload):
        return None
    parts = [blob.data, *blob.buffers]
    sizes = [memoryview(part).nbytes for part in parts]
    if sizes[0] > nbytes * _MOST_PICKLED or len(sizes) > _MAX_PARTS:
        return None
    try:
        return in_file(write_file(parts), sizes)
    except OSError:
        return None


def read_reference(packed: Blob, *, is_kept: bool) -> HostBlob:
    """Return the blob of a reference that came from a peer on this host.

    Args:
        packed: the reference.
        is_kept: keep the file open, so that the blob can be passed on in the same way.

    Raises:
        FileGone: the peer does not have it any more.
        OSError: files of this peer cannot be opened.
    """
    try:
        path, mark, *sizes = plain.unpack(packed)
        if {type(path), type(mark)} != {str} or {*map(type, sizes)} != {int} or min(sizes) < 0:
            raise ValueError("it has other parts")
        if not 0 < len(sizes) <= _MAX_PARTS:
            raise ValueError("it has too many parts")
    except (ValueError, TypeError) as error:
        raise OSError(f"the name of a file cannot be read: {error}") from None
    file = open_file(FileName(path, mark), offsets_of(sizes)[-1])
    return in_file(file, sizes, is_kept=is_kept)
