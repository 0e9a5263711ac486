"""Whether a worker takes tasks: the one predicate.

`WorkerHandle.closed` is 0 while a worker takes tasks, else the sum of the reasons why it does not.
Placement, assignment, copies, the number of desired workers and explanations all ask that. It is
one attribute, so that the hot lanes need no more. `close` and `reopen` change it, and keep what
follows from it: a worker that takes nothing is not idle, not loaded, and not open in its classes.

One that leaves is in no class either (`membership`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..records.peers import TAKES_NOTHING, WorkerHandle

if TYPE_CHECKING:
    from ..state import SchedulerState


def close(state: SchedulerState, ws: WorkerHandle, reason: int) -> None:
    """Give a worker nothing more for this reason; of one that is full, only the usual lanes."""
    ws.closed |= reason
    state.idle.pop(ws, None)
    if reason & TAKES_NOTHING:
        state.loaded.pop(ws, None)
    for task_class in ws.classes:
        task_class.open.pop(ws, None)
        task_class.partly.pop(ws, None)


def reopen(state: SchedulerState, ws: WorkerHandle, reason: int) -> None:
    """Give a worker tasks again as far as this reason goes: the next pass finds its room."""
    ws.closed &= ~reason
    state.touched[ws] = None
