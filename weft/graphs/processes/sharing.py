"""Values that are sent between processes: small ones as bytes, large ones through shared memory.

It owns the form of a value between processes (`Packed`), and the files with its large parts. `pack`
writes them once, however many processes `unpack` the value; neither of them sends anything.
`protocol/values/pickling` decides which pickler is used and which buffers travel beside the pickle,
`shared_directory` where the files are. A value for which there is no room stays whole, in the
bytes: shared memory makes runs faster, and its lack never makes one fail.

**One file per value**, with all its large buffers, and with the pickle itself if that is long.
It is written by `write`: a mapping would make the kernel clear each page first (twice the time),
and would end the process by SIGBUS when the memory is full, where `write` reports ENOSPC.

**Readers map it copy-on-write.** They all use the same memory until one of them writes to an array;
then it has a copy of the pages that it wrote to. Arrays are writable if they were. The mapping
lives as long as objects that use it, and needs neither the file's name nor an open file: `discard`
may be called at any time after `unpack`.

Costs, CPython 3.11: `pack((1, 2))` 0.75 µs and `unpack` 0.2 µs, where `pickle.dumps` takes 0.2
and `loads` 0.13. Larger ones: `python -m benchmarks.bench_sharing`.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import itertools
import logging
import mmap
import os
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from ...protocol.values import serialize
from ...protocol.values.pickling import OUT_OF_BAND_NBYTES, PROTOCOL
from ...protocol.wire.payload import Blob, Buffer, Payload
from .shared_directory import SharedDirectory

__all__ = [
    "SHARED_NBYTES",
    "Packed",
    "Segment",
    "SharedDirectory",
    "discard",
    "pack",
    "unpack",
]

logger = logging.getLogger("weft.client")

#: Values of this size on go through shared memory, smaller ones stay in the pickle. To write, map
#: and remove a file of 128 KiB takes 175 µs, half of it the kernel's for the memory. From a worker
#: to the parent and on to another worker that breaks even with pipes at 110 KiB, and with sockets,
#: which take 200 KiB at once, between 128 and 192 KiB; beyond, it is up to three times faster.
SHARED_NBYTES = 128 * 1024

#: Each buffer begins at a multiple of this in its file. Arrow asks for 64, and no array for more.
ALIGNMENT = 64

_new_tuple = tuple.__new__
_loads = serialize.loads
_dumps = serialize.dumps


class Segment(NamedTuple):
    """A file in the shared directory, with all the large buffers of one value."""

    name: str
    #: Bytes of the file.
    nbytes: int
    #: Bytes of each buffer, none of them 0. The first begins at 0, each other one at the next
    #: multiple of ALIGNMENT after the one before.
    sizes: tuple[int, ...]


class Packed(NamedTuple):
    """A packed value. It is small, unless there was no room for its large parts in shared memory.

    The functions here take a plain tuple of the two as well: in a message of many it is pickled in
    an eighth of the time.
    """

    #: The pickle; b"" if it is the first buffer of the segment.
    blob: bytes
    #: None or one.
    segments: tuple[Segment, ...]


# --- Packing --------------------------------------------------------------------------------------


def pack(obj: object, directory: str, what: str = "value") -> Packed:
    """Pickle `obj`, and write its large parts into a file in `directory`.

    Args:
        obj: anything; functions and classes that the reader could not import travel by value.
        directory: path of the run's `SharedDirectory`. If it has no room, or was removed, the value
            stays in the blob.
        what: the name of the object in errors.

    Raises:
        SerializationError: it, or something in it, cannot be pickled.
    """
    blob = _dumps(obj, what)
    if blob.__class__ is bytes and len(blob) < SHARED_NBYTES:
        return _new_tuple(Packed, (blob, ()))  # half the time of calling Packed
    return _pack_large(blob, directory)


def _pack_large(blob: Blob, directory: str) -> Packed:
    payload = blob if isinstance(blob, Payload) else Payload(blob, ())
    if payload.nbytes < SHARED_NBYTES:
        return Packed(in_band(payload), ())
    stream = bytes(payload.data)  # no copy: it is bytes
    try:
        if len(stream) < OUT_OF_BAND_NBYTES:
            return Packed(stream, (_write_segment(directory, payload.buffers),))
        return Packed(b"", (_write_segment(directory, [stream, *payload.buffers]),))
    except OSError as error:
        _say_no_room(directory, error.strerror)
        return Packed(in_band(payload), ())


class _InBand:
    """Pickles a payload as a whole: one copy of each buffer here, and one where it is read."""

    __slots__ = ("payload",)

    def __init__(self, payload: Payload) -> None:
        self.payload = payload

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        # Without a callback, a writable buffer becomes a bytearray and a read-only one bytes.
        payload = self.payload
        return _read_in_band, (payload.data, *map(pickle.PickleBuffer, payload.buffers))


def in_band(payload: Payload) -> bytes:
    """Return one pickle with all buffers in it."""
    if not payload.buffers:
        return bytes(payload.data)
    return pickle.dumps(_InBand(payload), PROTOCOL)


def _read_in_band(stream: bytes, *buffers: Buffer) -> Any:
    return _loads(Payload(stream, buffers))


@functools.lru_cache(maxsize=1)
def _say_no_room(directory: str, reason: str) -> None:
    """Log a reason once: without shared memory each large value would log it again."""
    logger.debug("large values go through pipes, because %s: %s", directory, reason)


# --- Unpacking ------------------------------------------------------------------------------------


def unpack(packed: Packed, directory: str) -> Any:
    """Return the object that was packed. May be called in many processes, and many times in each.

    Any error of unpickling is raised, most often ImportError for a module missing here.

    Raises:
        FileNotFoundError: the value was discarded, or its directory closed.
    """
    blob, segments = packed
    if not segments:
        return _loads(blob)
    (segment,) = segments
    buffers = _read_segment(directory, segment)
    if blob:
        return _loads(Payload(blob, buffers))
    return _loads(Payload(buffers[0], buffers[1:]))


def discard(packed: Packed, directory: str) -> None:
    """Free the shared memory of a value. Objects that were unpacked from it stay valid.

    Does nothing for a value that has none or was discarded before.
    """
    for segment in packed[1]:
        _unlink(os.path.join(directory, segment.name))


# --- Files ----------------------------------------------------------------------------------------

_numbers = itertools.count()

_O_BINARY = getattr(os, "O_BINARY", 0)  # Windows


def _write_segment(directory: str, buffers: Sequence[Buffer]) -> Segment:
    """Write `buffers` into a new file. Raises OSError, and then leaves nothing behind."""
    views = [memoryview(buffer) for buffer in buffers]
    sizes = tuple(view.nbytes for view in views)
    assert all(sizes), "small buffers are in the pickle, and empty ones are small"
    *_, (_, nbytes) = _spans(sizes)
    fd, name = _create_file(directory)
    try:
        try:
            _check_room(fd, nbytes)
            for view, (begin, end) in zip(views, _spans(sizes), strict=True):
                if begin:
                    os.lseek(fd, begin, os.SEEK_SET)
                written = begin
                while written < end:  # a call writes 2 GiB at most, or what there is room for
                    written += os.write(fd, view[written - begin :])
        finally:
            os.close(fd)
    except BaseException:
        _unlink(os.path.join(directory, name))
        raise
    return Segment(name, nbytes, sizes)


def _spans(sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield begin and end of each buffer in its file."""
    end = 0
    for size in sizes:
        begin = end + -end % ALIGNMENT
        end = begin + size
        yield begin, end


def _create_file(directory: str) -> tuple[int, str]:
    """Make an empty file for this user only. Return it, open for writing, and its name."""
    while True:
        name = f"{os.getpid():x}-{next(_numbers):x}"
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | _O_BINARY
        # There may be files of an earlier process with the same pid, or of the parent of a fork.
        with contextlib.suppress(FileExistsError):
            return os.open(os.path.join(directory, name), flags, 0o600), name


def _check_room(fd: int, nbytes: int) -> None:
    """Raise OSError if the file cannot grow to `nbytes`, before it fills the remaining memory."""
    if sys.platform == "win32":
        return
    status = os.fstatvfs(fd)
    # No blocks at all: a tmpfs without a limit.
    if status.f_blocks and status.f_bavail * status.f_frsize < nbytes:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _unlink(path: str) -> None:
    # Windows refuses while a reader has it mapped; then it is removed with the directory.
    with contextlib.suppress(FileNotFoundError, PermissionError):
        os.unlink(path)


def _read_segment(directory: str, segment: Segment) -> list[memoryview]:
    """Return the buffers of a segment, writable, and not copied if that is possible."""
    fd = os.open(os.path.join(directory, segment.name), os.O_RDONLY | _O_BINARY)
    try:
        memory: mmap.mmap | bytearray
        try:
            memory = _map(fd, segment.nbytes)
        except OSError as error:  # a process may have 65 530 mappings by default
            logger.debug("%s is read, because mapping it failed: %s", segment.name, error)
            memory = bytearray(segment.nbytes)
            with open(fd, "rb", closefd=False) as file:
                file.readinto(memory)
    finally:
        os.close(fd)
    view = memoryview(memory)
    return [view[begin:end] for begin, end in _spans(segment.sizes)]


# --- Mapping without an open file -----------------------------------------------------------------
# An mmap object keeps a duplicate of the file it was given, so that a process that holds a
# thousand values could open no file any more. From Python 3.13 on this can be avoided. On older
# versions, an object of anonymous memory is made, and the file is mapped over that memory.

#: The systems on which MAP_FIXED is this number, and off_t a long.
_MAP_FIXED = 0x10
_FIXED_PLATFORMS = {"linux", "darwin"}

#: Mappings that must not be unmapped; see `_map_over`.
_kept: list[mmap.mmap] = []


def _map(fd: int, nbytes: int) -> mmap.mmap:
    """Map the first `nbytes` of a file copy-on-write.

    Raises:
        OSError: there is no room.
        ValueError: the file is shorter.
    """
    if sys.platform != "win32" and sys.version_info >= (3, 13):
        return mmap.mmap(fd, nbytes, access=mmap.ACCESS_COPY, trackfd=False)
    if sys.platform in _FIXED_PLATFORMS:
        return _map_over(fd, nbytes)
    return mmap.mmap(fd, nbytes, access=mmap.ACCESS_COPY)


def _map_over(fd: int, nbytes: int) -> mmap.mmap:
    """Do `_map` by two calls of mmap(2), the second one at the address of the first one."""
    import ctypes

    if nbytes > os.fstat(fd).st_size:  # reading beyond the end would be SIGBUS
        raise ValueError(f"the file of a segment of {nbytes} bytes is shorter")
    mapping = mmap.mmap(-1, nbytes, access=mmap.ACCESS_COPY)
    address = ctypes.addressof(ctypes.c_char.from_buffer(mapping))
    protection = mmap.PROT_READ | mmap.PROT_WRITE
    flags = mmap.MAP_PRIVATE | _MAP_FIXED
    if _libc_mmap()(address, nbytes, protection, flags, fd, 0) != address:
        error = ctypes.get_errno()
        # The kernel may have unmapped the old memory before it failed. If so, unmapping it again
        # would unmap other memory that has that address by then.
        _kept.append(mapping)
        raise OSError(error, os.strerror(error))
    return mapping


@functools.lru_cache(maxsize=1)
def _libc_mmap() -> Callable[..., int | None]:
    import ctypes

    function = ctypes.CDLL(None, use_errno=True).mmap
    function.restype = ctypes.c_void_p
    integer = ctypes.c_int
    function.argtypes = [
        *(ctypes.c_void_p, ctypes.c_size_t, integer, integer, integer),
        ctypes.c_long,
    ]
    return function
