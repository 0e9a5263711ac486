"""The end of a process's log in a file that survives its SIGKILL.

A small file that is mapped into memory: the number of bytes that were ever written, and the latest
of them in a ring. The kernel keeps what was written when the process dies at any instant, so its
supervisor reads there which records it had logged last. A record costs one copy and no system call.
"""

from __future__ import annotations

import logging
import mmap
import os
import struct
from pathlib import Path
from typing import Final

#: Of the file beside a worker's record of started attempts.
SUFFIX: Final = ".log"
#: Bytes of the ring, and of one record in it: what is being written when the process dies replaces
#: the oldest bytes only, which are not shown.
_RING: Final = 32 << 10
_MOST: Final = 8 << 10
_MOST_CHARS: Final = 3000
_COUNT: Final = struct.Struct("q")
_NBYTES: Final = _COUNT.size + _RING


class LogTail:
    """The side of the process, which writes the file."""

    def __init__(self, path: Path) -> None:
        """Make or empty the file at `path`.

        Raises:
            OSError: it cannot be made.
        """
        with open(path, "w+b") as file:
            file.write(bytes(_NBYTES))
            file.flush()
            self._map = mmap.mmap(file.fileno(), _NBYTES)
        self._pid = os.getpid()
        self._n_written = 0
        self._times = logging.Formatter(datefmt="%H:%M:%S")

    def write(self, record: logging.LogRecord, text: str) -> None:
        """Write a record, unless this is a process that a task has forked. For one thread only."""
        if os.getpid() != self._pid:
            return
        when = self._times.formatTime(record, self._times.datefmt)
        if len(text) > _MOST_CHARS:  # the end of a traceback names the error
            text = f"{text[: _MOST_CHARS // 2]}\n[...]\n{text[-_MOST_CHARS // 2 :]}"
        line = f"{when} {record.levelname} {record.name[:200]}: {text}"
        data = line.encode("utf-8", "backslashreplace")[: _MOST - 1] + b"\n"
        begin = self._n_written % _RING
        n_first = min(len(data), _RING - begin)
        at = _COUNT.size
        self._map[at + begin : at + begin + n_first] = data[:n_first]
        self._map[at : at + len(data) - n_first] = data[n_first:]
        self._n_written += len(data)
        _COUNT.pack_into(self._map, 0, self._n_written)

    def close(self) -> None:
        """Unmap the file; it stays where it is."""
        self._map.close()


def read_tail(path: Path) -> str:
    """Return the last lines that a process has logged; "" if it has no such file."""
    try:
        data = path.read_bytes()
    except OSError:
        return ""
    if len(data) != _NBYTES:
        return ""  # it was being made
    (n_written,) = _COUNT.unpack_from(data)
    ring = data[_COUNT.size :]
    if n_written <= _RING - _MOST:
        return ring[:n_written].decode("utf-8", "replace")
    end = n_written % _RING
    latest = (ring[end:] + ring[:end])[_MOST:]
    return latest.partition(b"\n")[2].decode("utf-8", "replace")
