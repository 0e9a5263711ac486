"""Fetches between workers that failed because the reader did not reach the holder.

One record per pair of workers. Placement reads it, so that work goes around such a pair, and users
are shown it. It ends with either of the two, when the holder comes back, and when a copy has come
from that holder. A record that was not renewed for `RECENT_S` counts no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

from ..records.peers import FailedFetches, WorkerHandle
from ..records.tasks import MEMORY

if TYPE_CHECKING:
    from ....protocol.wire import messages as m
    from ..state import SchedulerState

#: Failed fetches of one pair are told about for so long after the last one; a later one starts to
#: count anew. It is longer than placement avoids a pair: one that is tried each time stands.
RECENT_S: Final = 60.0
#: A pair with fewer failed fetches is not counted: a holder may have been about to end.
MANY: Final = 2
#: Pairs that are looked at for one overview: with 1 000 workers there may be a million.
MAX_PAIRS: Final = 2000


#: Readers that are named.
MAX_READERS_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class Unreached:
    """A worker that others do not reach, though it is connected to the scheduler."""

    #: names of the first of the readers, and the number of all
    readers: list[str]
    n_readers: int
    holder: str
    address: str
    #: failed fetches, and how long ago the first and the last one were
    n_failed: int
    first_s: float
    last_s: float


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


def recently_unreached(state: SchedulerState) -> list[Unreached]:
    """Return the workers that others fail to reach again and again, by holder, worst first."""
    pairs = (
        (holder, ws, failed)
        for holder in state.workers.values()
        if holder.unreachable_from and not holder.is_away
        for ws in holder.unreachable_from
        if (failed := ws.unreachable[holder]).n >= MANY and state.now - failed.last <= RECENT_S
    )
    by_holder: dict[WorkerHandle, list[tuple[WorkerHandle, FailedFetches]]] = {}
    for holder, ws, failed in islice(pairs, MAX_PAIRS):
        by_holder.setdefault(holder, []).append((ws, failed))
    found = [_describe(holder, readers, state.now) for holder, readers in by_holder.items()]
    return sorted(found, key=lambda unreached: -unreached.n_failed)


def _describe(
    holder: WorkerHandle, readers: Sequence[tuple[WorkerHandle, FailedFetches]], now: float
) -> Unreached:
    return Unreached(
        [ws.name for ws, _ in readers[:MAX_READERS_NAMED]],
        len(readers),
        holder.name,
        holder.address,
        sum(failed.n for _, failed in readers),
        now - min(failed.first for _, failed in readers),
        now - max(failed.last for _, failed in readers),
    )
