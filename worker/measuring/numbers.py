"""The numbers of a process in a file that is mapped into memory, for the page of its family.

A worker writes them once per second; the process that serves the page reads them. So a scrape is
answered at once while a task holds the interpreter lock of a worker, with numbers that are older.
"""

from __future__ import annotations

import mmap
import os
import struct
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

#: Of the files in the directory of a family.
SUFFIX: Final = ".numbers"
#: Of the file of the supervisor.
SUPERVISOR: Final = "supervisor"

#: The process id, and the worker's name.
_HEADER: Final = struct.Struct("q248s")
_NUMBER: Final = struct.Struct("q")


class Numbers(NamedTuple):
    """The numbers that a process has written; `name` is "" for the supervisor."""

    pid: int
    name: str
    numbers: list[int]


class NumbersFile:
    """The side of the process, which writes the file."""

    def __init__(self, path: Path, name: str, n_numbers: int) -> None:
        """Make or empty the file at `path`."""
        nbytes = _HEADER.size + _NUMBER.size * n_numbers
        with open(path, "w+b") as file:
            text = name.encode()[:248].decode(errors="ignore").encode()
            file.write(_HEADER.pack(os.getpid(), text) + bytes(nbytes - _HEADER.size))
            file.flush()
            self._map = mmap.mmap(file.fileno(), nbytes)
        self._numbers = memoryview(self._map)[_HEADER.size :].cast("q")

    def write(self, numbers: Sequence[int]) -> None:
        """Replace the numbers."""
        self._numbers[:] = memoryview(array("q", numbers))

    def close(self) -> None:
        """Unmap the file; it stays where it is."""
        self._numbers.release()
        self._map.close()


def read_numbers(directory: Path) -> list[Numbers]:
    """Return what the processes of a family have written, in order of their names."""
    found = []
    for path in directory.glob(f"*{SUFFIX}"):
        try:
            data = path.read_bytes()
        except FileNotFoundError:  # it has ended just now
            continue
        if len(data) < _HEADER.size or (len(data) - _HEADER.size) % _NUMBER.size:
            continue  # it is being made
        pid, text = _HEADER.unpack_from(data)
        numbers = [n for (n,) in _NUMBER.iter_unpack(data[_HEADER.size :])]
        is_supervisor = path.stem == SUPERVISOR
        name = "" if is_supervisor else text.rstrip(b"\0").decode(errors="replace")
        found.append(Numbers(pid, name, numbers))
    return sorted(found, key=lambda one: (one.name, one.pid))
