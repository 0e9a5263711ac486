"""Memory that this process has freed, returned to the operating system."""

from __future__ import annotations

import contextlib
import gc
import sys


def return_memory() -> None:
    """Return memory that is free but kept by the interpreter's free lists or the C library's heap.

    A free list holds a few thousand small objects at arbitrary addresses, and each keeps the
    megabyte around it. A full collection empties the lists; its time grows with the number of live
    objects, so call this when there are few. The heap is trimmed only if the C library can do so
    (glibc).
    """
    gc.collect()
    if sys.platform.startswith("linux"):
        import ctypes

        with contextlib.suppress(OSError, AttributeError):  # another C library has no such function
            ctypes.CDLL(None).malloc_trim(0)
