"""What ends a task other than its own code, and what its own code raises to be run elsewhere."""

from __future__ import annotations

from .base import WeftError


class Reschedule(WeftError):
    """Raise this in a task to have it run again, on another worker if there is one that may run it.

    It costs no retry. A task that raises it again and again is run on one worker after the other,
    with growing pauses.

    Args:
        reason: for the task's story, "" if there is none to give.
    """

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
