"""Sets the title of a process in `ps` and `top`: `weft scheduler` instead of the starting command.

On Linux only, and without a library: `ps` reads the part of a process's memory in which the kernel
has put the arguments of its command. The interpreter has copied them before any code of weft runs,
so a title is written over them, as `setproctitle` does. `top` shows a name of at most 15
characters, which the kernel keeps.

A title is for display only. If it cannot be set, that is ignored.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Final

#: An argument of this length makes room for titles in a command that is shorter than they are.
ROOM: Final = " " * 64

_PR_SET_NAME: Final = 15
_MAX_NAME_CHARS: Final = 15
#: Places of `arg_start` and `arg_end` among the fields of /proc/self/stat that follow the name.
_ARG_START: Final = 45
_ARG_END: Final = 46


def set_title(title: str) -> None:
    """Show this process as `title`, cut off where there is no more room."""
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    # Another libc may have no prctl; a container may hide /proc.
    with contextlib.suppress(OSError, AttributeError, ValueError, IndexError):
        name = title.encode(errors="replace")
        ctypes.CDLL(None).prctl(_PR_SET_NAME, name[:_MAX_NAME_CHARS], 0, 0, 0)
        with open("/proc/self/stat", encoding="utf-8", errors="replace") as file:
            # The name, in parentheses, may have spaces and parentheses itself.
            fields = file.read().rpartition(")")[2].split()
        start, end = int(fields[_ARG_START]), int(fields[_ARG_END])
        length = end - start
        # 0: not permitted to this process. The last byte stays 0, or `ps` would read on.
        if start and length > 1:
            ctypes.memmove(start, name[: length - 1].ljust(length, b"\0"), length)
