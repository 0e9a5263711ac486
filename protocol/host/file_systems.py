"""Whether a folder is on a disk, or in the memory of this machine."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Final

#: File systems whose files take memory.
_IN_MEMORY: Final = frozenset({"tmpfs", "ramfs", "devtmpfs", "hugetlbfs"})
_MOUNTS: Final = "/proc/self/mounts"
#: How a space and the like are written there.
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")


def is_in_memory(folder: str | os.PathLike[str]) -> bool:
    """Return whether files in this folder take memory; False where that is not known."""
    try:
        with open(_MOUNTS, encoding="utf-8", errors="surrogateescape") as file:
            return file_system_of(os.path.realpath(folder), file) in _IN_MEMORY
    except OSError:
        return False


def file_system_of(folder: str, mounts: Iterable[str]) -> str:
    """Return the kind of the file system of an absolute path; "" = not known. Pure.

    Args:
        folder: the path.
        mounts: the lines of the kernel's table. Later ones hide earlier ones.
    """
    found, length = "", -1
    for line in mounts:
        parts = line.split(" ")
        if len(parts) < 3:
            continue
        point = _ESCAPED.sub(lambda match: chr(int(match[1], 8)), parts[1]).rstrip("/")
        if (folder == point or folder.startswith(point + "/")) and len(point) >= length:
            found, length = parts[2], len(point)
    return found
