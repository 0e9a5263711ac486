"""Memory that processes take, and what this one has freed, returned to the operating system."""

from __future__ import annotations

import functools
import gc
import re
import sys
from collections.abc import Callable
from typing import Final


def return_memory() -> None:
    """Return memory that is free but kept by the interpreter's free lists or the C library's heap.

    A free list holds a few thousand small objects at arbitrary addresses, and each keeps the
    megabyte around it. A full collection empties the lists; its time grows with the number of live
    objects, so call this when there are few. The heap is trimmed only if the C library can do so
    (glibc).
    """
    gc.collect()
    trim_heap()


def trim_heap() -> None:
    """Return what the C library's heap keeps of freed memory. Objects stay as they are."""
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@functools.lru_cache(maxsize=1)
def _malloc_trim() -> Callable[[int], object] | None:
    if not sys.platform.startswith("linux"):
        return None
    import ctypes

    try:
        found: Callable[[int], object] = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):  # another C library has no such function
        return None
    return found


def taken_nbytes(pid: int = 0, in_files: int = 0) -> int:
    """Return how much memory a process takes, in bytes; 0 = not known.

    Pages of files that are mapped do not count where the system tells them apart: the kernel drops
    them when memory is short, and reads them again. Most of them are code, and values that were
    spilled to disk. Files in memory do count, if they are used.

    Args:
        pid: of the process; 0 = this one.
        in_files: bytes of files in memory that count in any case.
    """
    try:
        with open(f"/proc/{pid or 'self'}/status", "rb", buffering=0) as file:
            found = dict(_TAKEN.findall(file.read(_STATUS_NBYTES)))
    except OSError:  # another system, the process is gone, or all file descriptors are used up
        found = {}
    if found:
        taken = {name: int(number) << 10 for name, number in found.items()}
        return taken.get(b"Anon", 0) + max(taken.get(b"Shmem", 0), in_files)
    import psutil

    try:
        return int(psutil.Process(pid or None).memory_info().rss)
    except (psutil.Error, OSError):
        return 0


#: Kibibytes: not of a file, and of files in memory, which other processes may share.
_TAKEN: Final = re.compile(rb"^Rss(Anon|Shmem):\s*(\d+) kB$", re.M)
_STATUS_NBYTES: Final = 8192
