"""The feature: questions, and those that are passed on to other processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ....protocol.wire import messages as m
from ..feature import Departure, Feature
from . import forwarded_questions, metrics, questions

if TYPE_CHECKING:
    from ..records.peers import WorkerHandle
    from ..state import SchedulerState


def _on_worker_gone(state: SchedulerState, ws: WorkerHandle, departure: Departure) -> None:
    forwarded_questions.end_questions_to(state, ws)


FEATURE: Final = Feature(
    name="questions",
    records=(forwarded_questions.PassedOn,),
    questions=questions.QUESTIONS,
    orders=questions.ORDERS,
    metrics=metrics.SHOWN,
    invariants=forwarded_questions.PASSED_INVARIANTS,
    handlers={
        m.Ask: questions.on_ask,
        m.Answer: forwarded_questions.on_answer,
        m.AskFailed: forwarded_questions.on_answer,
        m.GetMetrics: metrics.on_get_metrics,
    },
    worker_away=(forwarded_questions.on_worker_away,),
    worker_gone=(_on_worker_gone,),
    supervisor_gone=(forwarded_questions.end_questions_to,),
    peer_closed=(forwarded_questions.end_questions_of,),
    unsupported=(forwarded_questions.on_unsupported,),
)
