"""The feature: workers leave, on request or by themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ....protocol.wire import messages as m
from ....protocol.wire.levels import Level
from ....protocol.wire.message import MAX_NUMBER
from ..feature import Departure, Feature, LateQuestion, Question, StateMetric
from . import departures, describing, leavers, retiring
from .retiring import retiring_of

if TYPE_CHECKING:
    from ..records.peers import WorkerHandle
    from ..state import SchedulerState


def _on_worker_gone(state: SchedulerState, ws: WorkerHandle, departure: Departure) -> None:
    leaver = leavers.leavers_of(state).by_worker.get(ws)
    if departure.reason is not None:
        departures.report(state, ws, departure, leaver)
    leavers.end(state, ws)
    if leaver is not None:
        retiring_of(state).note_gone(state, ws, departure.reason, leaver)


RETIRING: Final = Feature(
    name="retiring",
    records=(retiring.Retiring, leavers.Leavers),
    handlers={m.AskToLeave: leavers.on_ask_to_leave},
    # A client may retire workers: it may run any code on them, so it could end them in any case,
    # but then their results would be lost unnoticed. The questions look at what workers hold,
    # and serve only those that may retire some.
    questions={
        "leaving_order": Question(retiring.ask_order, Level.CLIENT),
        "leaving_losses": Question(retiring.ask_losses, Level.CLIENT),
    },
    orders={"retire": LateQuestion(retiring.on_retire, Level.CLIENT)},
    metrics=(
        StateMetric(
            "leaving_results",
            "Results that only workers have which leave.",
            read=describing.n_left,
        ),
        StateMetric(
            "leaving_bytes",
            "Their bytes.",
            read=describing.nbytes_left,
        ),
        StateMetric(
            "results_moved_total",
            "Results that others have got so that a worker could leave.",
            read=lambda state: leavers.leavers_of(state).n_moved,
        ),
        StateMetric(
            "moved_bytes_total",
            "Their bytes.",
            read=lambda state: min(leavers.leavers_of(state).nbytes_moved, MAX_NUMBER),
        ),
    ),
    invariants={**retiring.RETIRING_INVARIANTS, **leavers.LEAVER_INVARIANTS},
    settling=((leavers.Leavers, leavers.settle),),
    worker_joined=(leavers.note_joined,),
    worker_leaving=(leavers.begin,),
    worker_away=(leavers.note_away,),
    worker_back=(leavers.note_back,),
    replicas_added=(leavers.note_added,),
    not_fetched=(leavers.note_not_fetched,),
    replica_lost=(leavers.note_lost,),
    results_lost=(leavers.note_results_lost,),
    worker_gone=(_on_worker_gone,),
)
