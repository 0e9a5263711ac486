"""The feature: visitors of the pages, and the orders that admins give about tasks."""

from __future__ import annotations

from typing import Final

from ....protocol.wire.levels import Level
from ..feature import Feature, LateQuestion, Question
from . import orders, visits

FEATURE: Final = Feature(
    name="visitors",
    records=(visits.Visits, orders.Orderer),
    questions={"visit": Question(visits.ask_visit)},
    orders={
        # A claim proves itself.
        "enter": LateQuestion(visits.on_enter, Level.VIEW),
        "leave": LateQuestion(visits.on_leave, Level.VIEW),
        "cancel_tasks": LateQuestion(orders.on_cancel_tasks, Level.ADMIN),
        "retry_tasks": LateQuestion(orders.on_retry_tasks, Level.ADMIN),
    },
    invariants=visits.VISIT_INVARIANTS,
)
