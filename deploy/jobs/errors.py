"""Errors of clusters whose workers come as jobs."""

from __future__ import annotations

from ...protocol.errors import WeftError, WorkerStartTimeout


class JobsFailed(WeftError):
    """Jobs end again and again before their workers have joined, so no more are started.

    The text has the reason of the last one, and its log the details. Correct the cause, for
    instance the path of Python or the lines before the workers, and call `scale` again.

    Args:
        text: what happened, in one line.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class JobsNotReady(WorkerStartTimeout):
    """Workers did not join in time, or cannot join any more: their jobs wait, or have ended.

    The text says which jobs wait, and why others have ended. Raise `timeout` for those that wait,
    and correct what has ended the others.
    """
