"""Tasks that are traced have a function of their own, by the column `traces` of their assignment.

So running others costs nothing: the shell asks no task whether it is traced. What is measured of
such a function is that of the one that it stands for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ....protocol.wire.messages import AssignTasks
from ..feature import WorkerFeature
from ..tasks import WorkerFunction, WorkerTask

if TYPE_CHECKING:
    from ..state import WorkerState


class TracedFunction(WorkerFunction):
    """The function of one task that is to run in a span."""

    __slots__ = ("of", "task", "trace")

    def __init__(self, task: WorkerTask, trace: Sequence[str]) -> None:
        self.of = task.function
        self.task = task.key, task.attempt
        self.trace = trace
        self.id = self.of.id
        self.blob = self.of.blob
        self.filing = self.of.filing
        self.call = None

    @property
    def estimate_us(self) -> float:
        """See `WorkerFunction`."""
        return self.of.estimate_us

    @estimate_us.setter
    def estimate_us(self, estimate_us: float) -> None:
        self.of.estimate_us = estimate_us


def _note(state: WorkerState, message: AssignTasks) -> None:
    """Give each traced attempt its function."""
    for attempt, trace in zip(message.attempts, message.traces, strict=True):
        task = state.by_attempt.get(attempt)
        if trace and task is not None and task.function.__class__ is WorkerFunction:
            task.function = TracedFunction(task, trace)


FEATURE: Final = WorkerFeature(name="traces", columns=(("traces", _note),))
