"""Passes interrupts to the children in which calls run."""

from __future__ import annotations

from typing import Any

from ..slots.interrupting import Interrupts
from .process import IsolatedProcess


class ChildInterrupts(Interrupts):
    """The running tasks that are to end: in children, or in threads, where actors are made."""

    def __init__(self, children: dict[int, IsolatedProcess], *args: Any) -> None:
        """Prepare; `children` are those that run calls, by slot."""
        super().__init__(*args)
        self._children = children
        #: {attempt: None} of those that run in the threads of their slots
        self.in_threads: dict[int, None] = {}

    def _interrupt(self, attempt: int) -> bool:
        for child in list(self._children.values()):
            if child.tell(attempt, "interrupt"):
                return True
        # Else its child has not begun yet, or has ended just now.
        return attempt in self.in_threads and super()._interrupt(attempt)
