"""Errors of clusters whose workers come as jobs."""

from __future__ import annotations

from collections.abc import Sequence

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

    Args:
        wanted: the number of workers that was waited for.
        arrived: the number of workers at the end of the time.
        timeout_s: how long it was waited, in seconds.
        problems: what is known of the jobs, one line each.
    """

    def __init__(
        self, wanted: int, arrived: int, timeout_s: float, problems: Sequence[str] = ()
    ) -> None:
        super().__init__(wanted, arrived, timeout_s)
        self.args = (wanted, arrived, timeout_s, tuple(problems))
        self.problems = tuple(problems)

    def __str__(self) -> str:
        return "\n  ".join([super().__str__(), *self.problems])
