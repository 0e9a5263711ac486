"""Decides when a child has run long enough. A core: it has no I/O, clock or threads."""

from __future__ import annotations

from ...protocol.wording import sized
from ..policy import Isolation


class Recycling:
    """The calls and the memory of one child."""

    def __init__(self, isolation: Isolation) -> None:
        self._isolation = isolation
        self.n_calls = 0
        #: Memory after the first call, bytes; 0 = not known.
        self.first_nbytes = 0

    def note_idle(self, nbytes: int) -> str:
        """Note the end of a call, with the child's memory; return why it is replaced, "" if not."""
        self.n_calls += 1
        self.first_nbytes = self.first_nbytes or nbytes
        if self.n_calls >= self._isolation.max_tasks:
            return f"it has run {self.n_calls} calls"
        grown = nbytes - self.first_nbytes
        if grown > self._isolation.max_drift:
            return f"its memory has grown by {sized(grown)} in {self.n_calls} calls"
        return ""
