"""Errors of tasks that something else ends, and the one that asks for another worker."""

from __future__ import annotations

from concurrent.futures import BrokenExecutor

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


class InitializerFailed(WeftError, BrokenExecutor):
    """The `initializer=` of an executor has raised on a worker, so its calls cannot run.

    Correct the initializer and make a new executor: this one takes no more calls. This is also a
    `concurrent.futures.BrokenExecutor`.

    Args:
        name: of the initializer.
        reason: the exception that it raised, as a text.
    """

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)
        self.name = name
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"the initializer {self.name} of the executor has raised on a worker: {self.reason}; "
            "the executor takes no more calls, make a new one"
        )
