"""Files that processes of one host map, so that large values are in its memory once.

Owns how such a file is made, named to a peer, opened and mapped. It knows no values.

**Made without a name.** The file is memory (`memfd_create`), which the kernel frees with the last
process that has it open or mapped, however that ends. After it is written it is sealed: no process
can change it or cut it off. It is written by `pwrite`, since a mapping would clear each page first;
but through a mapping where the system gives such files pages of 2 MiB to those who ask for them.
That takes a quarter of the time, and a reader maps 512 times fewer pages.

**Named by its process.** A peer opens `/proc/PID/fd/N`, or a path below `/proc/PID/root`. The
kernel permits that to processes of the same user only. By then the number may be that of another
file, and this host may be a copy of another one. So the name has a text that only this file has,
and it is compared with that of what was opened.

**Mapped privately.** All readers use the same memory. A process that writes to it gets a copy of
the pages that it writes to. A mapping needs no descriptor, since a process may have thousands.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import mmap
import os
import re
import stat
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

__all__ = [
    "LARGE_PAGE",
    "FileGone",
    "FileName",
    "HostFile",
    "has_large_pages",
    "host_id",
    "map_private",
    "mark_of",
    "offsets_of",
    "open_file",
    "own_copy",
    "write_file",
]

#: Each part of a file begins at a multiple of this. Arrow asks for 64, and no array for more.
_ALIGNMENT: Final = 64
_PREFIX: Final = "weft-"
#: Where the kernel says what a descriptor is: a file without a name begins so.
_IN_MEMORY: Final = "/memfd:"
_PATH: Final = re.compile(r"/proc/[0-9]+/(fd/[0-9]+|root/.+)")
#: Of Linux: seal a file against sealing, shrinking, growing and writing; return its seals.
_F_ADD_SEALS: Final = 1033
_F_GET_SEALS: Final = 1034
_SEALS: Final = 0x1 | 0x2 | 0x4 | 0x8
#: Of Linux, from 6.3 on: the file is not to be run. Some systems ask for it.
_MFD_NOEXEC_SEAL: Final = 0x8
#: The setting of the system that gives such files large pages, and its words for it.
_SHARED_PAGES: Final = "/sys/kernel/mm/transparent_hugepage/shmem_enabled"
_GIVEN: Final = ("[advise]", "[within_size]", "[always]", "[force]")
LARGE_PAGE: Final = 2 << 20
#: Whether memory is promised only as far as there is some: "2".
_OVERCOMMIT: Final = "/proc/sys/vm/overcommit_memory"
_STRICT: Final = "2"
#: Most parts of the descriptors that this process may have are for other things.
_MOST_FILES: Final = 1 / 2
#: Where MAP_FIXED is this number, and off_t a long.
_MAP_FIXED: Final = 0x10
_FIXED_PLATFORMS: Final = {"linux", "darwin"}


class FileGone(Exception):
    """The process that named a file has closed it meanwhile."""


class FileName(NamedTuple):
    """How another process of the host finds a file."""

    path: str
    #: only this file has it
    mark: str


def offsets_of(sizes: Sequence[int]) -> list[int]:
    """Return where each part of a file begins, and where the file ends."""
    offsets = [0]
    for i, size in enumerate(sizes):
        end = offsets[-1] + size
        offsets.append(end if i == len(sizes) - 1 else end + -end % _ALIGNMENT)
    return offsets


@functools.lru_cache(maxsize=1)
def host_id() -> str:
    """Return a text that processes have in common which can open each other's files; "" = none.

    It stands for the start of this machine, for the processes that see each other, and the user.
    """
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            start = file.read().strip()
        processes = os.readlink("/proc/self/ns/pid")
        if os.readlink("/proc/self") != str(os.getpid()):  # it is of other processes
            return ""
    except OSError:
        return ""
    text = f"{start} {processes} {os.geteuid()}"
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


class HostFile:
    """An open file, which is closed with the last reference to this."""

    __slots__ = ("fd", "nbytes")

    def __init__(self, fd: int, nbytes: int) -> None:
        """Take over the descriptor `fd`."""
        self.fd = fd
        self.nbytes = nbytes

    def __del__(self) -> None:
        os.close(self.fd)

    def name(self) -> FileName:
        """Return how others find it, as long as it is open here."""
        return FileName(f"/proc/{os.getpid()}/fd/{self.fd}", mark_of(self.fd))


def mark_of(fd: int) -> str:
    """Return a text that only this file has, as it is now."""
    name = os.readlink(f"/proc/self/fd/{fd}")
    if name.startswith(_IN_MEMORY):
        return name  # it has random digits
    found = os.fstat(fd)
    return f"{found.st_dev} {found.st_ino} {found.st_size} {found.st_mtime_ns}"


# --- Making and opening ---------------------------------------------------------------------------


def write_file(parts: Sequence[bytes | bytearray | memoryview]) -> HostFile:
    """Make a file in memory of these parts. Nobody can change it then.

    Raises:
        OSError: there is no room, there are too many open files, or this system has no such files.
    """
    fd = _new_file()
    try:
        _check_number(fd)
        views = [memoryview(part).cast("B") for part in parts]
        offsets = offsets_of([view.nbytes for view in views])
        os.ftruncate(fd, offsets[-1])
        fill = _write_mapped if offsets[-1] >= LARGE_PAGE and has_large_pages() else _write
        fill(fd, views, offsets)
        _fcntl(fd, _F_ADD_SEALS, _SEALS)
    except BaseException:
        os.close(fd)
        raise
    return HostFile(fd, offsets[-1])


def _write(fd: int, views: Sequence[memoryview], offsets: Sequence[int]) -> None:
    for begin, view in zip(offsets[:-1], views, strict=True):
        n = 0
        while n < view.nbytes:  # a call writes 2 GiB at most
            n += os.pwrite(fd, view[n:], begin + n)


def _write_mapped(fd: int, views: Sequence[memoryview], offsets: Sequence[int]) -> None:
    """Write through a mapping, which alone gets large pages. It must be gone before the seals."""
    with mmap.mmap(fd, offsets[-1]) as mapping:
        mapping.madvise(mmap.MADV_HUGEPAGE)
        for begin, view in zip(offsets[:-1], views, strict=True):
            mapping[begin : begin + view.nbytes] = view


@functools.lru_cache(maxsize=1)
def has_large_pages() -> bool:
    """Return whether this system gives pages of 2 MiB to files in memory.

    Where it promises memory only as far as there is some, they are not used: a page that a mapping
    cannot get ends the process by SIGBUS, while a `pwrite` fails.
    """
    try:
        with open(_OVERCOMMIT, encoding="ascii") as file:
            if file.read().strip() == _STRICT:
                return False
        with open(_SHARED_PAGES, encoding="ascii") as file:
            return any(word in _GIVEN for word in file.read().split())
    except OSError:  # no Linux, or one without such pages
        return False


def _new_file() -> int:
    if sys.platform != "linux" or not host_id():
        raise OSError(errno.ENOSYS, "this system has no files that other processes can open")
    name = f"{_PREFIX}{os.urandom(8).hex()}"
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    try:
        return os.memfd_create(name, flags | _MFD_NOEXEC_SEAL)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    return os.memfd_create(name, flags)  # an older kernel


def _check_number(fd: int) -> None:
    """Refuse to keep one more file open. A new one has the lowest number that is free."""
    import resource

    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and fd >= most * _MOST_FILES:
        raise OSError(errno.EMFILE, f"{fd} files are open already")


def _fcntl(fd: int, command: int, argument: int = 0) -> int:
    import fcntl  # here, because Windows has none

    return fcntl.fcntl(fd, command, argument)


def open_file(name: FileName, nbytes: int) -> HostFile:
    """Open a file of another process of this host.

    Raises:
        FileGone: that process has closed it.
        OSError: it cannot be opened, and others of that process neither.
    """
    if not _PATH.fullmatch(name.path):
        raise OSError(errno.EINVAL, f"a path that no peer sends: {name.path[:200]!r}")
    try:
        fd = os.open(name.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except FileNotFoundError:
        raise FileGone from None
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_size != nbytes or mark_of(fd) != name.mark:
            raise FileGone
        if name.mark.startswith(_IN_MEMORY) and _fcntl(fd, _F_GET_SEALS) & _SEALS != _SEALS:
            raise OSError(errno.EPERM, "a file that its process could change")
        _check_number(fd)
    except BaseException:
        os.close(fd)
        raise
    return HostFile(fd, nbytes)


# --- Mapping --------------------------------------------------------------------------------------


if TYPE_CHECKING:

    class Mapping(mmap.mmap):
        """A private mapping of a file, from `begin` on; `file` is the file if it is kept open."""

        file: HostFile | None
        begin: int
        address: int


@functools.cache
def _mapping_type() -> type[Mapping]:
    # Not made with this module: where a user's file hides `mmap`, the start of a worker says so.
    made: Any = type("Mapping", (mmap.mmap,), {"file": None, "begin": 0, "address": 0})
    return made  # type: ignore[no-any-return]


def map_private(fd: int, nbytes: int, begin: int = 0) -> Mapping:
    """Map a part of a file, writable: who writes has a copy of the pages. No descriptor is kept.

    The mapping may be longer, by memory that is of no file.

    Args:
        fd: of the file, which is at least so long.
        nbytes: to map, at least 1.
        begin: a multiple of the size of pages.

    Raises:
        OSError: there is no room.
    """
    mapping: Mapping
    if sys.platform != "win32" and sys.version_info >= (3, 13):
        mapping = _mapping_type()(fd, nbytes, access=mmap.ACCESS_COPY, trackfd=False, offset=begin)
    elif sys.platform in _FIXED_PLATFORMS:
        mapping = _map_over(fd, nbytes, begin)
    else:
        mapping = _mapping_type()(fd, nbytes, access=mmap.ACCESS_COPY, offset=begin)
    mapping.begin = begin
    mapping.address = _address_of(mapping)
    return mapping


#: Mappings that must not be unmapped; see `_map_over`.
_kept: Final[list[Mapping]] = []


def _map_over(fd: int, nbytes: int, begin: int) -> Mapping:
    """Map a file over anonymous memory: an `mmap` of a file keeps a duplicate of its descriptor.

    Python has an option for that from 3.13 on.
    """
    if begin + nbytes > os.fstat(fd).st_size:  # reading beyond the end would be SIGBUS
        raise OSError(errno.EINVAL, "the file is too short")
    # A length of whole large pages has an address where the kernel can map these as such.
    length = nbytes if nbytes < LARGE_PAGE else nbytes + -nbytes % LARGE_PAGE
    mapping = _mapping_type()(-1, length, access=mmap.ACCESS_COPY)
    address = _address_of(mapping)
    protection = mmap.PROT_READ | mmap.PROT_WRITE
    flags = mmap.MAP_PRIVATE | _MAP_FIXED
    found, error = _libc_mmap()(address, nbytes, protection, flags, fd, begin)
    if found != address:
        # The kernel may have unmapped the old memory before it failed. If so, unmapping it again
        # would unmap other memory that has that address by then.
        _kept.append(mapping)
        raise OSError(error, os.strerror(error))
    return mapping


@functools.lru_cache(maxsize=1)
def _libc_mmap() -> Callable[..., tuple[int | None, int]]:
    """Return mmap(2), which returns an address, and the number of an error."""
    import ctypes

    function = ctypes.CDLL(None, use_errno=True).mmap
    function.restype = ctypes.c_void_p
    integer = ctypes.c_int
    function.argtypes = [
        *(ctypes.c_void_p, ctypes.c_size_t, integer, integer, integer),
        ctypes.c_long,
    ]

    def call(*arguments: int) -> tuple[int | None, int]:
        return function(*arguments), ctypes.get_errno()

    return call


def _address_of(buffer: Any) -> int:
    import ctypes  # here, because most processes map nothing

    return ctypes.addressof(ctypes.c_char.from_buffer(buffer))


def own_copy(buffer: memoryview) -> memoryview | None:
    """Map the bytes of a view of a mapping again, as they are in the file.

    None if it is of no mapping whose file is kept open, or cannot be mapped.
    """
    mapping: Any = buffer.obj
    if type(mapping) is not _mapping_type() or mapping.file is None or buffer.readonly:
        return None
    begin = mapping.begin + _address_of(buffer) - mapping.address
    first = begin // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
    try:
        again = map_private(mapping.file.fd, begin - first + buffer.nbytes, first)
    except OSError:
        return None
    again.file = mapping.file
    return memoryview(again)[begin - first :][: buffer.nbytes]
