"""Workers that others do not reach, though they are connected, as users are shown them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

from ..records.peers import FailedFetches, WorkerHandle
from ..reports.unreached import RECENT_S

if TYPE_CHECKING:
    from ..state import SchedulerState

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
