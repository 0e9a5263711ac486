"""The feature: what a scheduler that was started again learns from its peers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ....protocol.wire import messages as m
from ..feature import Departure, Feature, StateMetric
from . import barrier, claims, inventories, merging, phases, recipes

if TYPE_CHECKING:
    from ..records.peers import ClientHandle, WorkerHandle
    from ..state import SchedulerState


def _on_worker_connected(state: SchedulerState, ws: WorkerHandle) -> None:
    claims.withdraw_all(state, ws)  # it sends its inventory again
    barrier.note_worker(state, ws)


def _on_worker_gone(state: SchedulerState, ws: WorkerHandle, departure: Departure) -> None:
    claims.withdraw_all(state, ws)
    barrier.note_worker(state, ws)


def _on_client_connected(state: SchedulerState, client: ClientHandle, last_epoch: int) -> None:
    phases.note_client(state, client)


FEATURE: Final = Feature(
    name=merging.BUSY,
    handlers={
        m.Resubmitted: phases.on_resubmitted,
        m.InventoryHeld: inventories.on_held,
        m.InventoryUnfinished: inventories.on_unfinished,
        m.InventoryFailed: inventories.on_failed,
        m.InventoryFunctions: inventories.on_functions,
        m.InventoryEnd: inventories.on_end,
    },
    metrics=(
        StateMetric(
            "recovering",
            "1 while the peers of an earlier scheduler are waited for, and nothing is assigned.",
            read=lambda state: int(state.recovery is not None),
        ),
        StateMetric(
            "recovery_seconds",
            "How long that took the last time; 0 = it has not happened.",
            read=lambda state: state.counters.recovery_s,
        ),
    ),
    started=phases.start,
    registering=phases.note_registration,
    worker_connected=_on_worker_connected,
    worker_away=barrier.note_worker,
    worker_back=barrier.note_worker,
    worker_gone=_on_worker_gone,
    later_epoch=phases.meet_later_epoch,
    settling=merging.settle_twins,
    stale_ended=claims.on_ended,
    function_made=claims.on_function,
    may_come=recipes.may_come,
    tasks_made=claims.take_all,
    recipe_given=recipes.on_given,
    recipe_needed=recipes.on_needed,
    client_connected=_on_client_connected,
    ended=barrier.note_gone,
)
