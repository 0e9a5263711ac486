"""Sums over all peers, of what changes only when one joins, leaves or reports.

They are kept where that happens, so that reading them takes no time however many peers there are.
What changes with each task is summed on request, in the one pass of `desired`.

A report of numbers replaces the last one of its process, so a sum costs the length of a report.
Counters only ever grow: those of a process that is gone stay in the sum, and a process that comes
back goes on where it was. Of a process that has served an earlier scheduler only what it does from
now on is counted; Prometheus would take its whole past for the work of a moment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from ....protocol.reported import (
    MEMORY_HIGH,
    METRICS_URL,
    OF_SUPERVISORS,
    OF_WORKERS,
    Reported,
    n_numbers,
    values_of,
)
from ....protocol.wire.message import MAX_NUMBER
from ..feature import Departure, Feature, StateMetric
from ..invariants.checking import differences, unless
from ..memory.usage import managed_nbytes
from ..records.peers import SupervisorHandle, WorkerHandle

if TYPE_CHECKING:
    from ..state import SchedulerState

#: Processes that are gone and whose last report is kept, in case they come back.
MAX_GONE: Final = 2000


class ClusterTotals:
    """The sums. Those over workers are exact, also beyond what fits into a message."""

    __slots__ = (
        "_counted",
        "full",
        "managed",
        "memory_limit",
        "nthreads",
        "of_pages",
        "of_supervisors",
        "of_workers",
        "resident",
    )

    def __init__(self) -> None:
        self.nthreads = self.memory_limit = 0
        #: bytes: of the values in the stores, and of the processes, as last reported
        self.managed = self.resident = 0
        #: {worker: what of it is in these two}
        self._counted: dict[WorkerHandle, tuple[int, int]] = {}
        #: {worker: None} of those that use more than MEMORY_HIGH of their limit
        self.full: dict[WorkerHandle, None] = {}
        #: sums of what they report about themselves, without those that have a metrics page
        self.of_workers, self.of_supervisors = Sums(OF_WORKERS), Sums(OF_SUPERVISORS)
        #: the same of the workers that have one
        self.of_pages = Sums(OF_WORKERS)

    def add(self, ws: WorkerHandle) -> None:
        """Count a worker that joins; it has reported nothing yet."""
        self.nthreads += ws.nthreads
        self.memory_limit += ws.memory_limit

    def remove(self, ws: WorkerHandle) -> None:
        """Leave a worker out that is gone."""
        self.nthreads -= ws.nthreads
        self.memory_limit -= ws.memory_limit
        managed, resident = self._counted.pop(ws, (0, 0))
        self.managed -= managed
        self.resident -= resident
        self.full.pop(ws, None)

    def note_measured(self, ws: WorkerHandle) -> None:
        """Count what is known of the memory of a worker now."""
        self.managed += managed_nbytes(ws)
        self.resident += ws.resident_nbytes
        managed, resident = self._counted.get(ws, (0, 0))
        self._counted[ws] = managed_nbytes(ws), ws.resident_nbytes
        self.managed -= managed
        self.resident -= resident
        if _is_full(ws):
            self.full[ws] = None
        else:
            self.full.pop(ws, None)


def totals_of(state: SchedulerState) -> ClusterTotals:
    """Return the sums."""
    return state.record(ClusterTotals)


def _is_full(ws: WorkerHandle) -> bool:
    return ws.resident_nbytes > MEMORY_HIGH * ws.memory_limit > 0


class Sums:
    """The sum of the reports of all processes of one kind."""

    __slots__ = ("_gone", "_is_counter", "_table", "latest", "numbers")

    def __init__(self, table: Sequence[Reported]) -> None:
        self._table = table
        self._is_counter = [metric.kind != "gauge" for metric in table for _ in range(metric.n)]
        self.numbers = [0] * n_numbers(table)
        #: {process id: its last report}; processes with a session only
        self.latest: dict[str, list[int]] = {}
        #: the reports of processes that are gone, the latest last; at most MAX_GONE
        self._gone: dict[str, list[int]] = {}

    def report(self, process_id: str, numbers: Sequence[int], *, is_new: bool) -> None:
        """Take a report; the process is new if it has never had a session before this one."""
        own = [*numbers[: len(self.numbers)]]
        if not own:
            return  # of an earlier version
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


# -- hooks -----------------------------------------------------------------------------------------
def _on_worker_joined(state: SchedulerState, ws: WorkerHandle) -> None:
    totals_of(state).add(ws)


def _on_worker_measured(state: SchedulerState, ws: WorkerHandle) -> None:
    totals_of(state).note_measured(ws)


def _on_worker_gone(state: SchedulerState, ws: WorkerHandle, departure: Departure) -> None:
    totals_of(state).remove(ws)
    totals_of(state).of_workers.remove(ws.worker_id)
    totals_of(state).of_pages.remove(ws.worker_id)


def _on_supervisor_gone(state: SchedulerState, supervisor: SupervisorHandle) -> None:
    totals_of(state).of_supervisors.remove(supervisor.supervisor_id)


def _on_numbers(
    state: SchedulerState, process: WorkerHandle | SupervisorHandle, numbers: Sequence[int]
) -> None:
    totals, has_page = totals_of(state), METRICS_URL in process.facts
    if isinstance(process, WorkerHandle):
        sums = totals.of_pages if has_page else totals.of_workers
        sums.report(process.worker_id, numbers, is_new=process.is_new)
    elif not has_page:
        totals.of_supervisors.report(process.supervisor_id, numbers, is_new=process.is_new)


# -- invariants ------------------------------------------------------------------------------------
def _sum(
    read: Callable[[WorkerHandle], int], field: str
) -> Callable[[SchedulerState], Iterable[object]]:
    def broken_by(state: SchedulerState) -> Iterable[object]:
        found: int = getattr(totals_of(state), field)
        return unless(found == sum(map(read, state.workers.values())), found)

    return broken_by


FEATURE: Final = Feature(
    name="totals",
    records=(ClusterTotals,),
    metrics=(
        StateMetric(
            "workers_stored_bytes",
            "Bytes of the values in the stores of all workers, copies included, as each last "
            "reported them.",
            read=lambda state: min(totals_of(state).managed, MAX_NUMBER),
        ),
        StateMetric(
            "workers_resident_bytes",
            "Resident memory of the processes of all workers, as each or its supervisor last "
            "reported it.",
            read=lambda state: min(totals_of(state).resident, MAX_NUMBER),
        ),
        StateMetric(
            "worker_threads",
            "Threads of all workers.",
            read=lambda state: totals_of(state).nthreads,
        ),
    ),
    invariants={
        "the totals have the threads of all workers": _sum(lambda ws: ws.nthreads, "nthreads"),
        "the totals have the memory limits of all workers": _sum(
            lambda ws: ws.memory_limit, "memory_limit"
        ),
        "the totals have the managed memory of all workers": _sum(managed_nbytes, "managed"),
        "the totals have the resident memory of all workers": _sum(
            lambda ws: ws.resident_nbytes, "resident"
        ),
        "the totals list the workers whose memory is nearly full": lambda s: differences(
            totals_of(s).full, [ws for ws in s.workers.values() if _is_full(ws)]
        ),
        "summed workers are registered": lambda s: [
            *({*totals_of(s).of_workers.latest, *totals_of(s).of_pages.latest} - {*s.workers_by_id})
        ],
        "summed supervisors are registered": lambda s: [
            *{*totals_of(s).of_supervisors.latest}
            - {u.supervisor_id for u in s.supervisors.values()}
        ],
    },
    worker_joined=(_on_worker_joined,),
    worker_measured=(_on_worker_measured,),
    numbers_reported=(_on_numbers,),
    worker_gone=(_on_worker_gone,),
    supervisor_gone=(_on_supervisor_gone,),
)
