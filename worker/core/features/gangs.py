"""What tasks of gangs are told of the others, by the column `gangs` of their assignment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ....protocol.wire.messages import AssignTasks
from ..feature import WorkerFeature

if TYPE_CHECKING:
    from ..state import WorkerState


def _note(state: WorkerState, message: AssignTasks) -> None:
    """Keep with each attempt who runs with it."""
    for attempt, row in zip(message.attempts, message.gangs, strict=True):
        task = state.by_attempt.get(attempt)
        if row and task is not None:
            task.together = row


FEATURE: Final = WorkerFeature(name="gangs", columns=(("gangs", _note),))
