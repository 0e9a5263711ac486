"""Files of values that have left the memory.

One file has one value: its pickle, and its large buffers behind it. What belongs to it (lengths and
a checksum) is in the memory of this process, since no other one reads the file and none outlives
it. So a file that was cut off, changed or removed is found out before its bytes are used. The first
reader that finds out, whoever it is, has it noted and logged here.

**Written** straight from the memory of the value: neither the pickle nor a buffer is copied as a
whole, since memory is short just then.

**Read** by mapping it, so that bytes come from the file as they are needed, and go without being
written anywhere. Values are writable if they were; who writes to one changes its own pages only.
Before that the file is read once, for the checksum: a mapping would end the process where the disk
fails, and would make the loop wait where it sends the bytes.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import logging
import os
import shutil
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from ...protocol.errors import Reschedule
from ...protocol.host.blocking import closed_here
from ...protocol.host.host_files import FileName, map_private, mark_of, offsets_of
from ...protocol.values.host_blobs import FileReference, HostBlob
from ...protocol.values.pickling import dump_by_value, dump_plain
from ...protocol.wire.payload import Blob, Payload

__all__ = ["DiskFailed", "GoneValue", "SpillFile", "SpillFolder"]

logger: Final = logging.getLogger("weft.worker")

#: Of the names of the folders (`WorkerConfig`), and of those around them.
_PREFIX: Final = "weft-"
_SUFFIX: Final = ".spill"
#: Times of writing and reading that are kept until they are reported.
_MAX_TIMES: Final = 1000
#: Files that count for the rate of writing: the latest ones.
_N_RATED: Final = 16
#: Bytes that are written or read at once.
_STEP_NBYTES: Final = 4 << 20
#: Smaller values are read into memory: a mapping of its own costs a descriptor.
_MAPPED_NBYTES: Final = 1 << 20
#: A part of the file system that is left free.
_LEAST_FREE: Final = 0.01
#: Of Linux, from 5.14 on: map the pages of a file that are there already.
_MADV_POPULATE_READ: Final = 22


class DiskFailed(Exception):
    """The disk does not take a value; the text says why."""

    def __init__(self, error: OSError) -> None:
        super().__init__(error.strerror or str(error))


class GoneValue(Reschedule):
    """The value of a result is not in its file any more.

    Nothing has to be done: it is computed again, and what reads it runs then.
    """

    def __init__(self, attempt: int, reason: str) -> None:
        super().__init__(f"a result that it reads was lost with its file on disk: {reason}")
        self.attempt = attempt


class SpillFolder:
    """The folder with the files of one worker. Any thread may call any method.

    Attributes:
        path: where it is, once a file was written.
        nbytes: of all files.
        n_written, n_read: bytes, in all.
        times: the latest (start, stop, bytes, whether they were read), monotonic seconds.
    """

    def __init__(self, path: Path, remove: Callable[[tuple[Path, int]], object]) -> None:
        """Use a folder that no other process uses.

        Args:
            path: of the folder, which is made with the first file.
            remove: called on any thread, at any time, with a file that is not needed any more, and
                its size. `removed` does it.
        """
        self.path = path
        self.nbytes = self.n_written = self.n_read = 0
        self.times: deque[tuple[float, float, int, bool]] = deque(maxlen=_MAX_TIMES)
        #: (bytes, seconds) of the files that were written last; replaced, since the loop reads it
        #: and must not wait for the lock, which is held while the disk makes the folder
        self._rated: tuple[tuple[int, float], ...] = ()
        self._remove = remove
        self._lock = threading.Lock()
        self._is_made = False
        #: files are gone from now on because nobody needs them
        self._is_closed = False
        #: of the folder, which is locked as long as this process lives; -1 = it is not
        self._lock_fd = -1
        self._numbers = itertools.count()

    def write(self, attempt: int, value: object, blob: Blob | None) -> SpillFile:
        """Write the value of an attempt, or its pickle if it has one.

        Raises:
            DiskFailed: the disk does not take it.
            Exception: the value cannot be pickled; of user code.
        """
        path = self.path / f"{attempt}-{next(self._numbers)}"
        start = time.monotonic()
        try:
            self._make()
            # Never into a file that is there: it is of someone else.
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise DiskFailed(error) from error
        writer = _Writer(fd)
        try:
            sizes = _write(writer, value, blob)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(path)
            if writer.error is not None:
                raise DiskFailed(writer.error) from writer.error
            raise
        finally:
            os.close(fd)
        stop = time.monotonic()
        with self._lock:
            self.nbytes += writer.nbytes
            self.n_written += writer.nbytes
            self._rated = (*self._rated, (writer.nbytes, stop - start))[-_N_RATED:]
        self.times.append((start, stop, writer.nbytes, False))
        return SpillFile(attempt, path, sizes, writer.checksum, self)

    @property
    def write_rate(self) -> int:
        """How fast the latest files were written, each of them: bytes per second; 0 = none was."""
        rated = self._rated
        seconds = sum(took for _, took in rated)
        return int(sum(nbytes for nbytes, _ in rated) / seconds) if seconds else 0

    def _make(self) -> None:
        with self._lock:
            if not self._is_made or not self.path.is_dir():  # somebody may have cleared it away
                os.mkdir(self.path, 0o700)
                self._is_made = True
                self._unlock()
                with contextlib.suppress(OSError):  # there are file systems without locks
                    self._lock_fd = _locked(self.path)
                remove_left(self.path)
        found = os.statvfs(self.path)
        if found.f_bavail < found.f_blocks * _LEAST_FREE:
            free = found.f_bavail * found.f_frsize >> 20
            raise OSError(errno.ENOSPC, f"no space left but {free} MiB")

    def give_up(self, path: Path, nbytes: int) -> None:
        """Have a file removed that is not needed any more."""
        self._remove((path, nbytes))

    def removed(self, path: Path, nbytes: int) -> None:
        """Remove a file. Not on an event loop: that takes a while if it is large."""
        with contextlib.suppress(OSError):
            os.unlink(path)
        with self._lock:
            self.nbytes -= nbytes

    def note_read(self, nbytes: int, start: float) -> None:
        """Count bytes that were read from `start`, a monotonic time, until now."""
        with self._lock:
            self.n_read += nbytes
        self.times.append((start, time.monotonic(), nbytes, True))

    def note_lost(self, file: SpillFile, reason: str) -> None:
        """Note why a file cannot be read, and log that once, however many readers find it out."""
        with closed_here():  # an interrupt between the two would leave no line
            with self._lock:
                is_news = not (file.lost or self._is_closed)
                file.lost = file.lost or reason
            if is_news:
                logger.warning(
                    "the result in %s is lost: %s; it is computed again if it is needed; look at "
                    "this disk, and at what else writes there",
                    file.path,
                    reason,
                    extra={"code": "result-lost"},
                )

    def close(self) -> None:
        """Remove the folder and all files."""
        with self._lock:
            self._is_closed = True
            if self._is_made:
                shutil.rmtree(self.path, ignore_errors=True)
                self._unlock()

    def _unlock(self) -> None:
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1


def _locked(folder: Path) -> int:
    """Return a descriptor that locks a folder. The kernel takes the lock off with the process.

    Raises:
        OSError: a living process has the lock, or the file system has none.
    """
    import fcntl  # here, because Windows has none, where workers are threads and spill nothing

    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise
    return fd


def remove_left(folder: Path) -> None:
    """Remove folders like this one, beside it or its parent, whose processes are gone.

    That is the work of their supervisors, which may have been killed together with them.
    """
    for pattern in (f"{_PREFIX}*{_SUFFIX}", f"../{_PREFIX}*/{_PREFIX}*{_SUFFIX}"):
        for path in folder.parent.glob(pattern):
            # They may be of another user, or gone by now.
            with contextlib.suppress(OSError):
                if path.name != folder.name and path.stat().st_uid == os.getuid():
                    fd = _locked(path)
                    shutil.rmtree(path, ignore_errors=True)
                    os.close(fd)


class SpillFile:
    """A value in a file, which is removed with the last reference to this."""

    __slots__ = (
        "_checksum",
        "_folder",
        "_is_removed",
        "_mark",
        "_sizes",
        "attempt",
        "lock",
        "lost",
        "nbytes",
        "path",
    )

    def __init__(
        self, attempt: int, path: Path, sizes: Sequence[int], checksum: int, folder: SpillFolder
    ) -> None:
        self.attempt = attempt
        self.path = path
        #: bytes of the pickle, and of each buffer
        self._sizes = sizes
        self.nbytes = offsets_of(sizes)[-1]
        self._checksum = checksum
        self._folder = folder
        #: held while the value is read
        self.lock = threading.Lock()
        #: why it cannot be read; "" = it can, as far as known
        self.lost = ""
        #: of the file when it was read last, "" = never
        self._mark = ""
        self._is_removed = False

    def __del__(self) -> None:
        if not self._is_removed:
            self._folder.give_up(self.path, self.nbytes)

    def remove(self) -> None:
        """Remove the file now. Not on an event loop."""
        if not self._is_removed:
            self._is_removed = True
            self.lost = "it was removed"
            self._folder.removed(self.path, self.nbytes)

    def read(self) -> Blob:
        """Return the pickle, over the bytes of the file; nothing was unpickled.

        Raises:
            GoneValue: the file is not what was written.
        """
        with self._opened() as fd:
            is_mapped = self.nbytes >= _MAPPED_NBYTES
            buffer = bytearray(_STEP_NBYTES if is_mapped else self.nbytes)
            self._check(fd, buffer)
            if not is_mapped:
                view = memoryview(buffer)
                first, *others = (
                    view[begin : begin + size]
                    for begin, size in zip(offsets_of(self._sizes)[:-1], self._sizes, strict=True)
                )
                return Payload(first, others)
            mapped = map_private(fd, self.nbytes)
        with contextlib.suppress(OSError):  # an older kernel: each page is mapped when it is used
            mapped.madvise(_MADV_POPULATE_READ)
        return HostBlob(mapped, self._sizes)

    def view(self) -> HostBlob:
        """Do `read` for one who needs a little of it now and then: only pages that are used come.

        Raises:
            GoneValue: the file is not what was written.
        """
        with self._opened() as fd:
            if mark_of(fd) != self._mark:
                self._check(fd, bytearray(_STEP_NBYTES))
            return HostBlob(map_private(fd, self.nbytes), self._sizes)

    def reference(self) -> FileReference:
        """Return how other processes of this host find the file; it is read once before.

        Raises:
            GoneValue: the file is not what was written.
        """
        with self._opened() as fd:
            if mark_of(fd) != self._mark:
                self._check(fd, bytearray(_STEP_NBYTES))
            path = f"/proc/{os.getpid()}/root{os.path.abspath(self.path)}"
            return FileReference(FileName(path, self._mark), self._sizes)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        """Open the file. Errors within are of the file: then it is lost."""
        if not self.lost:
            try:
                fd = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
                try:
                    yield fd
                finally:
                    os.close(fd)
                return
            except (OSError, ValueError) as error:
                self._folder.note_lost(self, getattr(error, "strerror", None) or str(error))
        raise GoneValue(self.attempt, f"{self.path.name}: {self.lost}")

    def _check(self, fd: int, buffer: bytearray) -> None:
        start = time.monotonic()
        mark = mark_of(fd)
        nbytes = os.fstat(fd).st_size
        if nbytes != self.nbytes:
            raise ValueError(f"it has {nbytes} of {self.nbytes} bytes")
        if _checksum_of(fd, nbytes, memoryview(buffer)) != self._checksum:
            raise ValueError("its bytes are not those that were written")
        self._mark = mark
        self._folder.note_read(self.nbytes, start)


def _checksum_of(fd: int, nbytes: int, buffer: memoryview) -> int:
    found = n = 0
    while n < nbytes:
        n_read = os.preadv(fd, [buffer[: nbytes - n]], n)
        if not n_read:
            raise ValueError(f"it ends after {n} of {nbytes} bytes")
        found = zlib.crc32(buffer[:n_read], found)
        n += n_read
    return found


class _Writer:
    """A file for a pickler, which counts and sums up what it writes."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.nbytes = self.checksum = 0
        #: of the disk, if it has failed
        self.error: OSError | None = None

    def write(self, data: Any) -> int:
        """Write all of it."""
        view = memoryview(data).cast("B")
        try:
            for begin in range(0, view.nbytes, _STEP_NBYTES):
                step = view[begin : begin + _STEP_NBYTES]
                self.checksum = zlib.crc32(step, self.checksum)
                n = 0
                while n < step.nbytes:
                    n += os.write(self._fd, step[n:])
        except OSError as error:
            self.error = error
            raise
        self.nbytes += view.nbytes
        return view.nbytes

    def restart(self) -> None:
        """Begin anew."""
        os.ftruncate(self._fd, 0)
        os.lseek(self._fd, 0, os.SEEK_SET)
        self.nbytes = self.checksum = 0

    def pad(self) -> None:
        """Fill up to where the next part may begin."""
        n = offsets_of([self.nbytes, 0])[1] - self.nbytes
        if n:
            self.write(bytes(n))


def _write(writer: _Writer, value: object, blob: Blob | None) -> list[int]:
    """Write the parts of a value; return their sizes."""
    buffers: Sequence[Any]
    if blob is None:
        taken: list[memoryview] = []
        if not dump_plain(value, writer.write, taken):
            writer.restart()
            taken.clear()
            dump_by_value(value, writer.write, taken)
        buffers = taken
    elif isinstance(blob, Payload):
        writer.write(blob.data)
        buffers = blob.buffers
    else:
        writer.write(blob)
        buffers = ()
    sizes = [writer.nbytes]
    for buffer in buffers:
        writer.pad()
        sizes.append(writer.write(buffer))
    return sizes
