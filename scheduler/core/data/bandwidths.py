"""How fast large values come to a worker: measured by the worker, used by placement.

A worker reports two sums with its heartbeats, the bytes of its large fetches and the times that
they were on their way. What is new in both is one measurement: the rate that a task may expect
there, links that are shared at that time included. What a fetch waited at its holder is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from ..feature import Departure, Feature
from ..records.peers import WorkerHandle

if TYPE_CHECKING:
    from ..state import SchedulerState

#: What is less shows nothing yet.
LEAST_BYTES: Final = 4 << 20
#: 20 GB/s and 2 MB/s: a measurement beyond these is one of something else.
FASTEST_NS_PER_MIB: Final = 1 << 16
SLOWEST_NS_PER_MIB: Final = 1 << 29


class Bandwidths:
    """The sums that are accounted for in `WorkerHandle.fetch_ns_per_mib`."""

    def __init__(self) -> None:
        #: {worker: (bytes, microseconds)}
        self.seen: dict[WorkerHandle, tuple[int, int]] = {}


def note_measured(state: SchedulerState, ws: WorkerHandle) -> None:
    """Take what a worker has measured since its last report."""
    status = ws.status
    if status is None or not status.fetched_nbytes:
        return
    seen = state.record(Bandwidths).seen
    nbytes, us = seen.get(ws, (0, 0))
    new_nbytes, new_us = status.fetched_nbytes - nbytes, status.fetched_us - us
    if new_nbytes < LEAST_BYTES:
        return
    found = (max(new_us, 0) * 1000 << 20) // new_nbytes
    found = min(max(found, FASTEST_NS_PER_MIB), SLOWEST_NS_PER_MIB)
    ws.fetch_ns_per_mib = found if ws not in seen else (ws.fetch_ns_per_mib + found) // 2
    seen[ws] = status.fetched_nbytes, status.fetched_us


def _on_worker_gone(state: SchedulerState, ws: WorkerHandle, departure: Departure) -> None:
    state.record(Bandwidths).seen.pop(ws, None)


BANDWIDTH_INVARIANTS: Final[dict[str, Callable[[SchedulerState], Iterable[Any]]]] = {
    "measured workers are registered": lambda s: [
        ws for ws in s.record(Bandwidths).seen if s.workers_by_id.get(ws.worker_id) is not ws
    ],
}

FEATURE: Final = Feature(
    name="bandwidths",
    records=(Bandwidths,),
    invariants=BANDWIDTH_INVARIANTS,
    worker_measured=(note_measured,),
    worker_gone=(_on_worker_gone,),
)
