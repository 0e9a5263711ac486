"""Errors of clusters on batch systems."""

from __future__ import annotations

from ...protocol.errors import WeftError


class BatchSystemError(WeftError):
    """A batch system refused a job, or could not be asked.

    The text has the command and what it printed. If a job was refused, correct what it names: the
    queue, the account, the walltime, the cores or the memory of the cluster.

    Args:
        text: what happened, in one line.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text
