"""The feature: what a scheduler that was started again learns from its peers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from ....protocol.wire import messages as m
from ....protocol.wire.question_arguments import Info
from ..feature import Departure, Feature, StateMetric
from ..invariants.checking import differences, unless
from ..records.tasks import FORGOTTEN, PROCESSING
from . import barrier, inventories, lacking, merging, recipes, rows
from .records import ASSIGNED, InventoryRow, Recovery, recovery_of

if TYPE_CHECKING:
    from ..records.peers import WorkerHandle
    from ..state import SchedulerState


def _on_worker_gone(state: SchedulerState, ws: WorkerHandle, departure: Departure) -> None:
    rows.withdraw_all(state, ws)
    recovery_of(state).unstarted.pop(ws, None)
    barrier.note_worker(state, ws)


def _may_submit(state: SchedulerState, ws: WorkerHandle, _options: Info, attempt: int) -> bool:
    """Return whether an attempt runs whose row waits, or beside the current one of its task."""
    recovery = recovery_of(state)
    twin = recovery.twins.get(attempt)
    return recovery.find(ws, attempt) is not None or (twin is not None and twin[0] is ws)


# -- invariants ------------------------------------------------------------------------------------
def _miscounted_absentees(state: SchedulerState) -> list[object]:
    barrier = recovery_of(state).barrier
    if barrier is None:
        return []
    back = {ws.worker_id for ws in state.workers.values() if not ws.is_away}
    absent = [worker_id for worker_id in barrier.expected_workers if worker_id not in back]
    sending = [ws for ws in state.workers.values() if ws.inventory is not None]
    return [*differences(barrier.absent_workers, absent), *differences(barrier.sending, sending)]


def _waiting(state: SchedulerState) -> list[InventoryRow]:
    return [row for rows in recovery_of(state).rows.values() for row in rows]


#: {what holds: what breaks it}
RECOVERY_INVARIANTS: Final[dict[str, Callable[[SchedulerState], Iterable[object]]]] = {
    "peers are awaited before the barrier": lambda s: unless(
        s.awaits_peers == (recovery_of(s).barrier is not None), recovery_of(s).barrier
    ),
    "who awaits peers awaits owners": lambda s: unless(s.awaits_owners or not s.awaits_peers, s),
    "the recovery counts the workers that are absent or send inventories": _miscounted_absentees,
    "rows are filed at their workers": lambda s: differences(
        [(row.ws, row.attempt, row) for row in _waiting(s)],
        [(ws, a, row) for ws, at in recovery_of(s).rows_at.items() for a, row in at.items()],
    ),
    "rows wait at registered workers": lambda s: [
        row for row in _waiting(s) if s.workers_by_id.get(row.ws.worker_id) is not row.ws
    ],
    "a row waits for a task, or for its recipe, or for inputs": lambda s: [
        row
        for row in _waiting(s)
        if row.key in s.tasks
        and not s.tasks[row.key].is_without_recipe
        and (not s.awaits_peers or row.kind != ASSIGNED)
    ],
    "what is unneeded is kept only for clients that may come back": lambda s: unless(
        s.awaits_owners or not (recovery_of(s).kept or recovery_of(s).rows),
        (recovery_of(s).kept, recovery_of(s).rows),
    ),
    "unstarted attempts, and what is lacking, are of registered workers": lambda s: [
        ws
        for ws in (*recovery_of(s).unstarted, *recovery_of(s).lacking)
        if s.workers_by_id.get(ws.worker_id) is not ws
    ],
    "functions that no task uses are unknown": lambda s: [
        function_id
        for function_id in recovery_of(s).functions
        if function_id in s.functions or not s.awaits_owners
    ],
    "a twin runs beside the current attempt": lambda s: [
        (ws, task, attempt)
        for attempt, (ws, task) in recovery_of(s).twins.items()
        # One that a later feature has let go of in this pass is dropped with the next.
        if task.state not in (PROCESSING, FORGOTTEN) or attempt not in ws.zombies
    ],
    "recovery is busy while attempts run twice": lambda s: unless(
        Recovery in s.busy or not recovery_of(s).twins, recovery_of(s).twins
    ),
}


FEATURE: Final = Feature(
    name="recovery",
    records=(Recovery,),
    invariants=RECOVERY_INVARIANTS,
    handlers={
        m.Resubmitted: barrier.on_resubmitted,
        m.InventoryKept: inventories.on_kept,
        m.InventoryUnfinished: inventories.on_unfinished,
        m.InventoryFailed: inventories.on_failed,
        m.InventoryFunctions: inventories.on_functions,
        m.InventoryEnd: inventories.on_end,
    },
    metrics=(
        StateMetric(
            "recovering",
            "1 while the peers of an earlier scheduler are waited for, and nothing is assigned.",
            read=lambda state: int(state.awaits_peers),
        ),
        StateMetric(
            "recovery_seconds",
            "How long that took the last time; 0 = it has not happened.",
            read=lambda state: recovery_of(state).took_s,
        ),
        StateMetric(
            "recoveries_total",
            "Times that peers of an earlier scheduler were waited for.",
            read=lambda state: recovery_of(state).n_ended,
        ),
    ),
    started=(barrier.start,),
    registering=(barrier.note_registration,),
    worker_connected=(rows.withdraw_all, barrier.note_worker),  # it sends its inventory again
    worker_away=(barrier.note_worker,),
    worker_back=(barrier.note_worker,),
    worker_gone=(_on_worker_gone,),
    later_epoch=(barrier.meet_later_epoch,),
    settling=((Recovery, lacking.settle),),
    stale_ended=(rows.on_ended,),
    stale_overdue=(merging.end_twin,),
    function_made=(rows.on_function,),
    attempts_erred=(merging.on_erred, lacking.on_erred),
    not_fetched=(lacking.on_not_fetched,),
    keeps_unneeded=(recipes.keep,),
    may_submit=(_may_submit,),
    may_come=(recipes.may_come,),
    tasks_made=(rows.take_all,),
    recipe_given=(recipes.on_given,),
    recipe_needed=(recipes.on_needed,),
    client_connected=(barrier.note_client,),
    ended=(barrier.note_gone,),
)
