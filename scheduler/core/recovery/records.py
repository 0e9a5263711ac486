"""What a scheduler has learned from peers of an earlier one, and what it waits for.

There is one record of it, and one question, `rows.waits`: may peers still bring what a key lacks?
It may lack its task, the recipe of that, or its inputs. While they may, what a worker has of the
key waits in the record.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ....protocol.wire.failure import Failure

if TYPE_CHECKING:
    from ..records.deadlines import Deadline
    from ..records.peers import WorkerHandle
    from ..records.tasks import SchedulerTask
    from ..state import SchedulerState
    from .barrier import Barrier

#: The name of recovery among `SchedulerState.busy`: attempts run twice, or workers are to be
#: answered.
BUSY: Final = "recovery"
#: The kinds of rows, in the order in which those of one key are merged.
HELD: Final = 0
RUNNING: Final = 1
ASSIGNED: Final = 2
FAILED: Final = 3


@dataclass(slots=True, eq=False)
class InventoryRow:
    """One row of a worker's inventory: what it has of one attempt."""

    ws: WorkerHandle
    key: str
    attempt: int
    kind: int
    spec_hash: bytes
    nbytes: int = 0  #: of a held result
    failure: Failure | None = None  #: of a failed attempt
    n_raised: int = 0  #: exceptions before an unfinished or a failed attempt


class Recovery:
    """What waits for peers of an earlier scheduler."""

    __slots__ = (
        "barrier",
        "functions",
        "kept",
        "lacking",
        "lease",
        "n_ended",
        "rows",
        "rows_at",
        "took_s",
    )

    def __init__(self) -> None:
        #: while `SchedulerState.awaits_peers`
        self.barrier: Barrier | None = None
        #: barriers that have ended, and how long the last one took, seconds
        self.n_ended = 0
        self.took_s = 0.0
        #: the end of `SchedulerState.awaits_owners`; None before the barrier
        self.lease: Deadline | None = None
        #: {key: rows} that wait for their task, or for what it lacks
        self.rows: dict[str, tuple[InventoryRow, ...]] = {}
        #: {worker: {attempt: row}} of the same
        self.rows_at: dict[WorkerHandle, dict[int, InventoryRow]] = {}
        #: {function id: {worker: None}} of functions that workers have and no task uses yet
        self.functions: dict[bytes, dict[WorkerHandle, None]] = {}
        #: results that no client has submitted yet, and actors whose handle a client may have that
        #: is not back, unless those that are back need them: they wait like rows without a task.
        #: One that is needed again, or lost, may still be here.
        self.kept: dict[SchedulerTask, None] = {}
        #: {worker: {key: None}}: it waits for them, and no holder was known when it asked; answered
        #: when no client may come back any more that submits them
        self.lacking: dict[WorkerHandle, dict[str, None]] = {}

    def find(self, ws: WorkerHandle, attempt: int) -> InventoryRow | None:
        """Return the row of an attempt that waits; None if there is none."""
        return self.rows_at[ws].get(attempt) if ws in self.rows_at else None

    def remove(self, row: InventoryRow) -> None:
        """Take a row out."""
        at = self.rows_at[row.ws]
        del at[row.attempt]
        if not at:
            del self.rows_at[row.ws]
        others = tuple(other for other in self.rows[row.key] if other is not row)
        if others:
            self.rows[row.key] = others
        else:
            del self.rows[row.key]


def recovery_of(state: SchedulerState) -> Recovery:
    """Return what waits for peers of an earlier scheduler."""
    return state.record(Recovery)
