"""Fetches between workers that failed because the reader did not reach the holder.

One record per pair of workers. Placement reads it, so that work goes around such a pair. It ends
with either of the two, when the holder comes back, and when a copy has come from that holder. A
record that was not renewed for `RECENT_S` counts no more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..records.peers import FailedFetches, WorkerHandle
from ..records.tasks import MEMORY

if TYPE_CHECKING:
    from ....protocol.wire import messages as m
    from ..state import SchedulerState

#: Failed fetches of one pair are told about for so long after the last one; a later one starts to
#: count anew. It is longer than placement avoids a pair: one that is tried each time stands.
RECENT_S: Final = 60.0


def note_not_reached(ws: WorkerHandle, holder: WorkerHandle, now: float) -> None:
    """Count a fetch of `ws` that failed because it did not reach `holder`."""
    known = ws.unreachable.get(holder)
    if known is None or now - known.last > RECENT_S:
        ws.unreachable[holder] = FailedFetches(now)
        holder.unreachable_from[ws] = None
    else:
        known.n += 1
        known.last = now


def note_reached(state: SchedulerState, ws: WorkerHandle, message: m.ReplicasAdded) -> None:
    """Forget that `ws` did not reach the holders from which these copies can only have come."""
    for attempt, key in zip(message.attempts, message.keys, strict=True):
        task = state.tasks.get(key)
        if task is None or task.state != MEMORY or task.attempt != attempt:
            continue
        if len(task.replicas) == 1 and task.replicas[0] in ws.unreachable:
            del ws.unreachable[task.replicas[0]]
            del task.replicas[0].unreachable_from[ws]


def forget_readers(holder: WorkerHandle) -> None:
    """Forget who did not reach a worker: it is lost, or its connection is a new one."""
    for ws in holder.unreachable_from:
        del ws.unreachable[holder]
    holder.unreachable_from.clear()


def forget_holders(ws: WorkerHandle) -> None:
    """Forget whom a worker did not reach: it is lost."""
    for holder in ws.unreachable:
        del holder.unreachable_from[ws]
    ws.unreachable.clear()
