"""The feature: actors, tasks whose results live on the worker that made them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from ....protocol.wire import messages as m
from ..feature import Departure, Feature
from . import actors, waits

if TYPE_CHECKING:
    from ..records.peers import WorkerHandle
    from ..state import SchedulerState


def _on_worker_gone(state: SchedulerState, ws: WorkerHandle, departure: Departure) -> None:
    waits.forget_waits(state, ws)


ACTOR_INVARIANTS: Final[dict[str, Callable[[SchedulerState], Iterable[object]]]] = {
    "actors whose thread waits were made by attempts that have ended": lambda s: [
        (ws, attempt)
        for ws in s.workers.values()
        for attempt in waits.waits_at(s, ws)
        if attempt in ws.processing or attempt in ws.zombies
    ],
    "waits are those of actors of workers that are registered": lambda s: [
        ws
        for ws in s.record(waits.WaitingActors).by_worker
        if s.workers_by_id.get(ws.worker_id) is not ws
    ],
}


FEATURE: Final = Feature(
    name="actors",
    records=(waits.WaitingActors, actors.NamedActors),
    notes=(actors.NamedActors,),
    refusing=(actors.refuse,),
    unique=frozenset({m.ACTOR_FUNCTION}),
    handlers={m.ActorsBlocked: waits.on_actors_blocked, m.ActorsResumed: waits.on_actors_resumed},
    invariants=ACTOR_INVARIANTS,
    # It reports anew which of its actors wait.
    worker_connected=(waits.forget_waits,),
    worker_gone=(_on_worker_gone,),
    unique_wanted=(actors.on_wanted,),
    assignment_begun=(actors.on_assignment_begun,),
    unique_submitted=(actors.on_submitted,),
    results_lost=(actors.fail_lost,),
    may_submit=(actors.may_submit,),
    acts_for=(actors.maker_of,),
)
