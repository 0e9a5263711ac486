"""The reports of a supervisor about workers that ended, until the scheduler has read them.

A line that breaks loses what is on its way. The scheduler answers each report of living workers,
in order; so an answer proves that it has read every exit report that was sent before. What no
answer covers is sent again in the next session: else a scheduler would expect back a worker whose
end is known, and would not count the death against the tasks that ran there.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from ...protocol.wire.messages import WorkerExited

#: How many reports are kept; older ones are dropped.
MAX_REPORTS: Final = 1000


class ExitReports:
    """The exit reports of one supervisor: what is to be sent, and again."""

    def __init__(self) -> None:
        #: {number: report} of those that the scheduler may not have read, oldest first
        self._kept: dict[int, WorkerExited] = {}
        self._n_added = 0
        #: Those with lower numbers were sent in this session.
        self._n_sent = 0
        #: `_n_sent` at each beat of this session that is not answered, oldest first.
        self._beats: deque[int] = deque()
        self._n_answered = 0

    def add(self, report: WorkerExited) -> None:
        """Keep a report, which is sent with the next `take` or `beat`."""
        self._kept[self._n_added] = report
        self._n_added += 1
        if len(self._kept) > MAX_REPORTS:
            del self._kept[next(iter(self._kept))]

    def on_session(self) -> None:
        """Send everything that is kept again: a session begins."""
        self._n_sent = self._n_answered = 0
        self._beats.clear()

    def take(self) -> list[WorkerExited]:
        """Return what was not sent in this session."""
        reports = [report for number, report in self._kept.items() if number >= self._n_sent]
        self._n_sent = self._n_added
        return reports

    def beat(self) -> list[WorkerExited]:
        """Return what goes before a report of living workers, which will be answered."""
        reports = self.take()
        self._beats.append(self._n_sent)
        return reports

    def on_answers(self, n_answered: int) -> None:
        """Forget what the scheduler has read.

        Args:
            n_answered: beats that the scheduler has answered since the session began.
        """
        while self._n_answered < n_answered and self._beats:
            self._n_answered += 1
            below = self._beats.popleft()
            while self._kept and (first := next(iter(self._kept))) < below:
                del self._kept[first]
