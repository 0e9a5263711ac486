"""Sums over all registered workers, of what changes only when one joins, leaves or reports.

They are kept where that happens, so that reading them takes no time however many workers there are.
What changes with each task is summed on request, in the one pass of `desired`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from ..records.checking import differences, unless

if TYPE_CHECKING:
    from ....protocol.wire.messages import WorkerStatus
    from ..records.peers import WorkerHandle
    from ..state import SchedulerState


#: A worker that uses more than this part of its limit is nearly full.
MEMORY_HIGH: Final = 0.8


class Census:
    """The sums. They are exact, also beyond what fits into a message."""

    __slots__ = ("full", "managed", "memory_limit", "nthreads", "resident")

    def __init__(self) -> None:
        self.nthreads = self.memory_limit = 0
        #: bytes: of the values in the stores, and of the processes, as last reported
        self.managed = self.resident = 0
        #: {worker: None} of those that use more than MEMORY_HIGH of their limit
        self.full: dict[WorkerHandle, None] = {}

    def add(self, ws: WorkerHandle) -> None:
        """Count a worker that joins; it has reported nothing yet."""
        self.nthreads += ws.nthreads
        self.memory_limit += ws.memory_limit

    def remove(self, ws: WorkerHandle) -> None:
        """Leave a worker out that is gone."""
        self.nthreads -= ws.nthreads
        self.memory_limit -= ws.memory_limit
        self.managed -= _managed(ws)
        self.resident -= ws.resident_nbytes
        self.full.pop(ws, None)

    def note_status(self, ws: WorkerHandle, status: WorkerStatus) -> None:
        """Keep what a worker reports about itself."""
        self.managed += status.managed_nbytes - _managed(ws)
        ws.status = status
        self.note_resident(ws, status.resident_nbytes)

    def note_resident(self, ws: WorkerHandle, nbytes: int) -> None:
        """Note the size of the process of a worker."""
        self.resident += nbytes - ws.resident_nbytes
        ws.resident_nbytes = nbytes
        if _is_full(ws):
            self.full[ws] = None
        else:
            self.full.pop(ws, None)


def _managed(ws: WorkerHandle) -> int:
    return 0 if ws.status is None else ws.status.managed_nbytes


def _is_full(ws: WorkerHandle) -> bool:
    return ws.resident_nbytes > MEMORY_HIGH * ws.memory_limit > 0


# -- invariants ------------------------------------------------------------------------------------
def _sum(
    read: Callable[[WorkerHandle], int], field: str
) -> Callable[[SchedulerState], Iterable[object]]:
    def broken_by(state: SchedulerState) -> Iterable[object]:
        found: int = getattr(state.census, field)
        return unless(found == sum(map(read, state.workers.values())), found)

    return broken_by


#: {what holds: what breaks it}
CENSUS_INVARIANTS: Final[dict[str, Callable[[SchedulerState], Iterable[object]]]] = {
    "the census has the threads of all workers": _sum(lambda ws: ws.nthreads, "nthreads"),
    "the census has the memory limits of all workers": _sum(
        lambda ws: ws.memory_limit, "memory_limit"
    ),
    "the census has the managed memory of all workers": _sum(_managed, "managed"),
    "the census has the resident memory of all workers": _sum(
        lambda ws: ws.resident_nbytes, "resident"
    ),
    "the census lists the workers whose memory is nearly full": lambda s: differences(
        s.census.full, [ws for ws in s.workers.values() if _is_full(ws)]
    ),
}
