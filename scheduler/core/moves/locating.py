"""The columns that tell workers about inputs elsewhere: attempts, sizes, holders, spec hashes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from ....protocol.wire import messages as m

if TYPE_CHECKING:
    from ..records.peers import WorkerHandle
    from ..records.tasks import SchedulerTask

#: Holders that are named for one key.
MAX_HOLDERS: Final = 4


def located(
    ws: WorkerHandle, tasks: list[SchedulerTask], holders: Iterable[Sequence[WorkerHandle]]
) -> m.LocatedKeys:
    """Name to a worker the holders of tasks in memory."""
    return m.LocatedKeys(
        keys=[task.key for task in tasks],
        attempts=[task.attempt for task in tasks],
        nbytes=[task.nbytes for task in tasks],
        holders=addresses_of(ws, holders),
        spec_hashes=hashes_of(tasks),
    )


def addresses_of(ws: WorkerHandle, holders: Iterable[Sequence[WorkerHandle]]) -> list[list[str]]:
    """Return the addresses of some holders of each key; other readers get others, in other orders.

    With the first holders for all of them, these would send everything, and the others nothing.
    """
    return [_some(ws, one) if len(one) > 1 else [one[0].address] for one in holders]


def _some(ws: WorkerHandle, holders: Sequence[WorkerHandle]) -> list[str]:
    first = ws.peer % len(holders)
    return [holder.address for holder in (*holders[first:], *holders[:first])[:MAX_HOLDERS]]


def hashes_of(tasks: Iterable[SchedulerTask]) -> list[bytes]:
    """Return a column of spec hashes, which is empty if no task has one."""
    if not any(task.spec_hash for task in tasks):
        return []
    return [task.spec_hash or m.NO_HASH for task in tasks]
