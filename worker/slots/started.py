"""The attempts being executed or served, in a file that survives a SIGKILL of the worker.

A small file that is mapped into memory: 8 bytes per slot with the attempt that its thread runs, 0 =
none; and 8 bytes per thread that pickles results for readers with the attempt whose result it is,
negated. Attempts whose reports a bug of weft keeps from being sent are noted there as well. The
kernel keeps what was written when the process dies at any instant, so the supervisor can report
exactly which attempts had started, and the serving of which result may have killed the worker. It
costs 0.1 µs per task and no system call.

The last 24 bytes have the memory of the worker's own child processes, which the supervisor adds to
that of the worker; count the beats of the worker's event loop, for `silence`; and state whether the
worker has been registered, and whether it has left in order, for `restarts`: a note of its own
could fail, on a full disk.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import cast

from ...protocol.wire.codec import WireState
from ...protocol.wire.message import Message
from ...protocol.wire.messages import AttemptsErred, AttemptsFinished

#: In the byte order of this machine, where the reader runs, too.
_ATTEMPT = struct.Struct("q")

#: Number of threads that pickle results for readers, each with a place in the file.
N_SERVING = 4
#: Numbers behind those of attempts.
_N_LAST = 3


class StartedRecord:
    """The side of the worker, which writes the file."""

    def __init__(self, path: Path, nthreads: int) -> None:
        """Make or empty the file at `path`."""
        with open(path, "w+b") as file:
            nbytes = _ATTEMPT.size * (nthreads + N_SERVING + _N_LAST)
            file.write(bytes(nbytes))
            file.flush()
            self.map = mmap.mmap(file.fileno(), nbytes)
        self._nthreads = nthreads
        # One view for good: each write into the map itself would change its count of views, which
        # CPython 3.13t does not keep right when threads run in parallel.
        self._attempts = memoryview(self.map).cast("q")

    def note(self, slot: int, attempt: int) -> None:
        """Note the attempt that slot `slot` runs from now on; 0 = none."""
        self._attempts[slot] = attempt

    def note_serving(self, place: int, attempt: int) -> None:
        """Note the attempt whose result this thread pickles or sends from now on; 0 = none."""
        self._attempts[self._nthreads + place] = -attempt

    def note_reported(self, attempts: Iterable[int]) -> None:
        """Note attempts whose reports weft's own code fails to send: as many as there is room."""
        for place, attempt in enumerate(islice(attempts, N_SERVING)):
            self.note_serving(place, attempt)

    def beat(self, children_nbytes: int = 0) -> None:
        """Count a beat: the event loop runs. Note the memory of child processes."""
        self._attempts[self._nthreads + N_SERVING] = children_nbytes
        self._attempts[self._nthreads + N_SERVING + 1] += 1

    def note_joined(self) -> None:
        """Note that the scheduler has registered the worker."""
        self._attempts[self._nthreads + N_SERVING + 2] |= 1

    def note_left(self) -> None:
        """Note that the worker ends in order."""
        self._attempts[self._nthreads + N_SERVING + 2] |= 2

    def close(self) -> None:
        """Unmap the file; it stays where it is."""
        self._attempts.release()
        self.map.close()


def attempts_of_unsendable(messages: Iterable[Message]) -> list[int]:
    """Return the attempts whose reports cannot be encoded; all, if that fails for none alone."""
    reported: list[int] = []
    failing: list[int] = []
    for message in messages:
        if not isinstance(message, (AttemptsFinished, AttemptsErred)):
            continue
        for row in message.parts(1):
            attempts = cast("AttemptsFinished | AttemptsErred", row).attempts
            reported += attempts
            try:
                WireState().encode([row])
            except Exception:  # whatever it was: its caller reports it, this finds the rows
                failing += attempts
    return failing or reported


def read_started(path: Path) -> list[int]:
    """Return the attempts that a dead worker was executing, by slot; [] if it left no record."""
    return [number for number in _read(path)[:-_N_LAST] if number > 0]


def read_served(path: Path) -> list[int]:
    """Return the attempts whose results a dead worker was pickling or sending."""
    return [-number for number in _read(path)[:-_N_LAST] if number < 0]


def read_children_nbytes(path: Path) -> int:
    """Return the memory of a worker's own child processes, bytes."""
    return [0, 0, 0, *_read(path)][-_N_LAST]


def read_beats(path: Path) -> int:
    """Return how often the loop of a worker has beaten; 0 if it has not begun to."""
    return [0, 0, *_read(path)][-2]


def read_joined(path: Path) -> bool:
    """Return whether a worker has been registered, in any of its sessions."""
    return bool([0, *_read(path)][-1] & 1)


def read_left(path: Path) -> bool:
    """Return whether a worker has begun to end in order."""
    return bool([0, *_read(path)][-1] & 2)


def _read(path: Path) -> list[int]:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    whole = len(data) - len(data) % _ATTEMPT.size
    return [number for (number,) in _ATTEMPT.iter_unpack(data[:whole])]
