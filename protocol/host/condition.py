"""The condition of this process and its machine: clock, open files, memory, space for files.

`weft doctor` asks each kind of process for it. The answer takes some reads of small files, and one
list of the open files, so it is made on a thread of its own.
"""

from __future__ import annotations

import mmap
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from .host_files import LARGE_PAGE, has_large_pages
from .machine import memory_limit, n_cores


def process_condition() -> dict[str, Any]:
    """Return plain numbers: bytes, counts, seconds since 1970; 0 = not known, or no limit."""
    import psutil

    process = psutil.Process()
    machine = psutil.virtual_memory()
    limit = memory_limit() or 0
    soft, hard = _file_limits()
    temporary_free, _ = _space(Path(tempfile.gettempdir()))
    return {
        "pid": process.pid,
        "cores": n_cores(),
        "load": round(os.getloadavg()[0], 2),
        "open_files": process.num_fds(),
        "max_open_files": soft,
        "hard_max_open_files": hard,
        "rss": process.memory_info().rss,
        "machine_memory": machine.total,
        "available_memory": machine.available,
        "memory_limit": limit if limit < machine.total else 0,
        "shared_page_nbytes": LARGE_PAGE if has_large_pages() else mmap.PAGESIZE,
        "temporary_free": temporary_free,
        # Read last: the peer that asks compares it with the middle of the time that it waited.
        "time_s": time.time(),
    }


def _file_limits() -> tuple[int, int]:
    """Return the soft and the hard limit of open files, 0 = none."""
    import resource

    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft, hard = (0 if limit == resource.RLIM_INFINITY else limit for limit in limits)
    return soft, hard


def _space(folder: Path) -> tuple[int, int]:
    """Return the free and all bytes of the file system of a folder; 0 if there is none."""
    try:
        usage = shutil.disk_usage(folder)
    except OSError:
        return 0, 0
    return usage.free, usage.total
