"""The feature: a brake where the memory of workers is nearly full, or they are paused."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from ....protocol.deaths import is_of_memory
from ..assignment.assignment import Draft, assign
from ..assignment.placement import ahead_worker
from ..feature import Departure, Feature
from ..records.tasks import WAITING, SchedulerTask
from . import admission, full, pausing, relief, set_aside
from .records import Memory, memory_of

if TYPE_CHECKING:
    from ....protocol.wire import messages as m
    from ..records.peers import WorkerHandle
    from ..records.presence import LostWorker
    from ..state import SchedulerState


def _on_worker_gone(state: SchedulerState, ws: WorkerHandle, departure: Departure) -> None:
    full.forget_worker(state, ws)
    pausing.forget_worker(state, ws)
    admission.forget_worker(state, ws)


def _on_measured(state: SchedulerState, ws: WorkerHandle) -> None:
    full.note_measured(state, ws)
    pausing.note_state(state, ws)


def _on_worker_died(
    state: SchedulerState,
    lost: LostWorker,
    report: m.WorkerExited,
    running: Collection[SchedulerTask],
) -> None:
    if is_of_memory(report.reason):
        relief.note_kill(state, lost, running)


def _waiting_nbytes(state: SchedulerState) -> int:
    return sum(task.group.prefix.result_nbytes for task in memory_of(state).aside)


def _assign_and_look(
    state: SchedulerState, drafts: dict[WorkerHandle, Draft], task: SchedulerTask, ws: WorkerHandle
) -> None:
    """Do what `assign` does, let what reads a large result follow, and see whether it is full now.

    Such a reader follows also to a worker that has enough to do: else the result would wait there.
    """
    assign(state, drafts, task, ws)
    if task.dependents and task.group.prefix.result_nbytes:
        for reader in list(task.dependents):
            if reader.state == WAITING and ahead_worker(reader) is ws:
                assign(state, drafts, reader, ws)
    full.note_assigned(state, ws, task)


#: {what holds: what breaks it}
MEMORY_INVARIANTS: Final = {
    **set_aside.ASIDE_INVARIANTS,
    **pausing.PAUSED_INVARIANTS,
    **admission.STOCK_INVARIANTS,
}

FEATURE: Final = Feature(
    name="memory",
    records=(Memory,),
    invariants=MEMORY_INVARIANTS,
    settling=((Memory, set_aside.settle),),
    placing_late=(set_aside.assign_to_full,),
    careful=(admission.place, _assign_and_look),
    worker_filled=(full.look_at,),
    waiting_nbytes=(_waiting_nbytes,),
    unfiled=(set_aside.discard,),
    worker_died=(_on_worker_died,),
    worker_joined=(full.note_measured,),
    worker_measured=(_on_measured,),
    worker_gone=(_on_worker_gone,),
)
