"""Sums of the numbers that workers and supervisors report about themselves.

A report replaces the last one of its process, so a sum costs the length of a report, whatever the
number of processes. Counters only ever grow: those of a process that is gone stay in the sum, and a
process that comes back goes on where it was. Of a process that has served an earlier scheduler only
what it does from now on is counted; Prometheus would take its whole past for the work of a moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ....protocol.reported import Reported, n_numbers, values_of
from ....protocol.wire.message import MAX_NUMBER

#: Processes that are gone and whose last report is kept, in case they come back.
MAX_GONE: Final = 2000


class Sums:
    """The sum of the reports of all processes of one kind."""

    __slots__ = ("_gone", "_is_counter", "_table", "latest", "numbers")

    def __init__(self, table: Sequence[Reported]) -> None:
        self._table = table
        self._is_counter = [metric.kind != "gauge" for metric in table for _ in range(metric.n)]
        self.numbers = [0] * n_numbers(table)
        #: {process id: its last report}; processes with a session only
        self.latest: dict[str, list[int]] = {}
        #: the same of processes that are gone, the latest last; at most MAX_GONE
        self._gone: dict[str, list[int]] = {}

    def report(self, process_id: str, numbers: Sequence[int], *, is_new: bool) -> None:
        """Take a report; the process is new if it has never had a session before this one."""
        own = [*numbers[: len(self.numbers)]]
        if not own:
            return  # of an earlier release
        own += [0] * (len(self.numbers) - len(own))
        last = self.latest.get(process_id)
        if last is None:
            last = self._gone.pop(process_id, None)
            if last is None:
                last = [0] * len(own) if is_new else own
            counts = zip(last, self._is_counter, strict=True)
            last = [n if is_counter else 0 for n, is_counter in counts]
        sums = self.numbers
        for i, (before, after) in enumerate(zip(last, own, strict=True)):
            if after != before:
                if after < before and self._is_counter[i]:
                    own[i] = before  # a process that is wrong about itself
                else:
                    sums[i] += after - before
        self.latest[process_id] = own

    def remove(self, process_id: str) -> None:
        """Leave a process out that is gone, apart from what it has counted."""
        last = self.latest.pop(process_id, None)
        if last is None:
            return
        for i, n in enumerate(last):
            if not self._is_counter[i]:
                self.numbers[i] -= n
        self._gone[process_id] = last
        while len(self._gone) > MAX_GONE:
            del self._gone[next(iter(self._gone))]

    def values(self) -> dict[str, Any]:
        """Return the sums by metric."""
        return values_of(self._table, [min(n, MAX_NUMBER) for n in self.numbers])
