"""The feature: questions, and those that are passed on to other processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ....protocol.wire import messages as m
from ..feature import Departure, Feature
from . import metrics, passing, questions

if TYPE_CHECKING:
    from ..records.peers import WorkerHandle
    from ..state import SchedulerState


def _on_worker_gone(state: SchedulerState, ws: WorkerHandle, departure: Departure) -> None:
    passing.end_questions_to(state, ws)


FEATURE: Final = Feature(
    name="questions",
    records=(passing.PassedOn,),
    questions=questions.QUESTIONS,
    orders=questions.ORDERS,
    metrics=metrics.SHOWN,
    invariants=passing.PASSED_INVARIANTS,
    handlers={
        m.Ask: questions.on_ask,
        m.Answer: passing.on_answer,
        m.AskFailed: passing.on_answer,
        m.GetMetrics: metrics.on_get_metrics,
    },
    worker_away=passing.on_worker_away,
    worker_gone=_on_worker_gone,
    supervisor_gone=passing.end_questions_to,
    peer_closed=passing.end_questions_of,
    unsupported=passing.on_unsupported,
)
