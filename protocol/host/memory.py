"""Memory that this process has freed, returned to the operating system."""

from __future__ import annotations

import contextlib
import gc
import sys


def return_memory() -> None:
    """Return what is free but kept: by the interpreter's free lists, and by the C library's heap.

    A free list holds a few thousand small objects that lie anywhere, and each keeps the megabyte
    around it. A full collection empties the lists; it takes as long as there are live objects, so
    call this where there are few. The heap is only trimmed where the C library can do so (glibc).
    """
    gc.collect()
    if sys.platform.startswith("linux"):
        import ctypes

        with contextlib.suppress(OSError, AttributeError):  # another C library
            ctypes.CDLL(None).malloc_trim(0)
