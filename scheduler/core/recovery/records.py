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

#: The kinds of rows, in the order in which those of one key are merged.
KEPT: Final = 0
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
    nbytes: int = 0  #: of a kept result
    failure: Failure | None = None  #: of a failed attempt
    n_raised: int = 0  #: exceptions before an unfinished or a failed attempt


class Recovery:
    """What waits for peers of an earlier scheduler."""

    __slots__ = (
        "barrier",
        "functions",
        "has_news",
        "kept",
        "lacking",
        "lease",
        "lost",
        "n_ended",
        "rows",
        "rows_at",
        "took_s",
        "twins",
        "unstarted",
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
        #: {worker: {attempt: None}} of attempts of which it is not known that they have started:
        #: they went on, or their rows wait. What they wait for there need not be what their tasks
        #: read. Some have ended (`open_attempts`).
        self.unstarted: dict[WorkerHandle, dict[int, None]] = {}
        #: {worker: {key: None}}: it waits for them, and no holder was known when it asked; answered
        #: when it turns out who has them, or that nothing known needs them there
        self.lacking: dict[WorkerHandle, dict[str, None]] = {}
        #: {attempt: (worker, task)}: attempts beside the current ones, among the worker's zombies;
        #: the first result counts
        self.twins: dict[int, tuple[WorkerHandle, SchedulerTask]] = {}
        #: tasks without a recipe whose data is needed and lost, since the last event
        self.lost: list[SchedulerTask] = []
        #: `lacking` is to be looked at: it has grown, or more is known of what waits there
        self.has_news = False

    def note_unstarted(self, ws: WorkerHandle, attempt: int) -> None:
        """Note an attempt that may wait for inputs which the scheduler does not know."""
        self.unstarted.setdefault(ws, {})[attempt] = None

    def open_attempts(self, ws: WorkerHandle) -> list[int]:
        """Return the attempts of `unstarted` that have not ended, and forget the others."""
        attempts = self.unstarted.pop(ws, None)
        if attempts is None:
            return []
        rows, processing = self.rows_at.get(ws, {}), ws.processing
        left = [a for a in attempts if a in processing or (a in rows and rows[a].kind == ASSIGNED)]
        if left:
            self.unstarted[ws] = dict.fromkeys(left)
        return left

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


def look_again(state: SchedulerState, ws: WorkerHandle) -> None:
    """Answer what a worker lacks, at the end of this turn: more is known of its attempts."""
    recovery = recovery_of(state)
    if ws in recovery.lacking:
        recovery.has_news = True
        state.busy[Recovery] = None
