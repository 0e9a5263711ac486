"""The errors of a request for parts, and of a task that reads them."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.features.memory import PartsMissing, ValueLost


class PartsLost(Exception):
    """A holder was not reached; or it does not have some attempts."""

    def __init__(self, reason: str, attempts: Sequence[int] = ()) -> None:
        super().__init__(reason)
        #: that it does not have; () = it was not reached
        self.attempts = attempts


class PartsGone(Exception):
    """Parts are not where an index says: the task is to run again, when this has been reported."""

    def __init__(self, reason: str, reports: Sequence[PartsMissing | ValueLost]) -> None:
        super().__init__(reason)
        self.reports = reports
