"""What is known of the memory of a worker, from what it has reported last."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from ....protocol.reported import OF_WORKERS, SPILLED_BYTES, SPILLS, number_of

if TYPE_CHECKING:
    from ..records.peers import WorkerHandle


def used_nbytes(ws: WorkerHandle) -> int:
    """Return how much memory a worker uses, as far as that is known.

    That is the size of its process as it was last measured, and the results that have come and gone
    since. Workers that are threads of a program share one process: there only results count.
    """
    if not ws.resident_nbytes or ws.address.startswith("inproc:"):
        return ws.nbytes
    return max(ws.resident_nbytes + ws.nbytes - ws.measured_nbytes, 0)


def free_nbytes(ws: WorkerHandle, share: float) -> float:
    """Return how much a worker may add until it uses this part of its limit.

    inf = it has none, or makes room itself.
    """
    if not ws.memory_limit or spills(ws):
        return inf
    return share * ws.memory_limit - used_nbytes(ws)


def spills(ws: WorkerHandle) -> bool:
    """Return whether a worker writes results to its disk when its memory is nearly full."""
    return bool(ws.facts.get(SPILLS))


def managed_nbytes(ws: WorkerHandle) -> int:
    """Return the bytes of the values in the memory of a worker."""
    return 0 if ws.status is None else ws.status.managed_nbytes


def spilled_nbytes(ws: WorkerHandle) -> int:
    """Return the bytes of the results of a worker that are on its disk, and not in its memory."""
    return 0 if ws.status is None else number_of(OF_WORKERS, ws.status.numbers, SPILLED_BYTES)
