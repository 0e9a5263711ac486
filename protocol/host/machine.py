"""The cores and the memory that this process may use, which may be less than the machine has.

The graph engines and the clusters both use this module. The CPU affinity counts, and so do the
limits of the control groups that this process is in, which containers and batch systems set.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_GROUPS: Final = Path("/sys/fs/cgroup")
_PROCESSES: Final = Path("/proc")
_OWN_GROUPS: Final = _PROCESSES / "self" / "cgroup"


def n_cores() -> int:
    """Return how many cores this process may use, at least 1."""
    if hasattr(os, "sched_getaffinity"):
        n = len(os.sched_getaffinity(0))
    else:
        n = os.cpu_count() or 1
    return max(1, min(n, _cpu_quota() or n))


def memory_limit() -> int | None:
    """Return how many bytes the control groups leave to this process, None = no limit."""
    limits = _limits("memory", ("memory.max",), ("memory.limit_in_bytes",))
    return min((n for (n,) in limits if n > 0), default=None)


@functools.cache
def _cpu_quota() -> int | None:
    # Cached: a graph engine calls this at each start, and reading files takes longer than that.
    names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
    quotas = _limits("cpu", ("cpu.max",), names)
    return min((-(-quota // period) for quota, period in quotas if quota > 0), default=None)


def _limits(controller: str, unified: tuple[str], separate: tuple[str, ...]) -> list[list[int]]:
    """Read the limits of this process's groups, in either version of the kernel's interface."""
    found = []
    for folder in _groups(controller):
        for names in (unified, separate):
            try:
                words = " ".join((folder / name).read_text() for name in names).split()
                found.append([int(word) for word in words])
            except (OSError, ValueError):
                # The file does not exist, or contains "max".
                continue
    return found


def oom_counter(pid: int) -> Path | None:
    """Return the file that counts kills by the kernel's out-of-memory killer near a process.

    That is of the control group that the process is in, in either version of the interface, or of
    the nearest one around it that is seen here; None = there is none.
    """
    for folder in _groups("memory", _PROCESSES / str(pid) / "cgroup"):
        for name in ("memory.events", "memory.oom_control"):
            if n_oom_kills(folder / name) is not None:
                return folder / name
    return None


def n_oom_kills(counter: Path) -> int | None:
    """Return how many processes the kernel's out-of-memory killer has ended; None = not known."""
    with contextlib.suppress(OSError, ValueError):
        for line in counter.read_text().splitlines():
            name, _, number = line.partition(" ")
            if name == "oom_kill":
                return int(number)
    return None


def _groups(controller: str, listing: Path | None = None) -> Iterator[Path]:
    """Yield the folders of a process's control groups and their parents, which limit it too.

    Without a `listing` it is this process.
    """
    try:
        lines = (listing or _OWN_GROUPS).read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, names, path = line.split(":", 2)
        if names and controller not in names.split(","):
            continue
        root = _GROUPS / controller if names else _GROUPS
        parts = path.strip("/").split("/")
        # In a container the path may be the host's: then only the root exists, and is this group.
        depth = 0 if ".." in parts else len(parts)
        for n in range(depth, -1, -1):
            yield root.joinpath(*parts[:n])
