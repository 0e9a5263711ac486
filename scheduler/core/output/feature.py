"""The feature: output of tasks and records of loggers, passed on to clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ....protocol.wire import messages as m
from ....protocol.wire.levels import Level
from ..feature import Departure, Feature, Question, StateMetric
from . import kept, output, wishes

if TYPE_CHECKING:
    from ..records.peers import WorkerHandle
    from ..state import SchedulerState


def _on_worker_gone(state: SchedulerState, ws: WorkerHandle, departure: Departure) -> None:
    output.flow_of(state).shown_to.pop(ws, None)


FEATURE: Final = Feature(
    name="output",
    records=(output.OutputFlow, wishes.OutputWishes, kept.KeptOutputs),
    handlers={
        m.WantOutput: wishes.on_want_output,
        m.TaskOutput: output.on_task_output,
        m.LogRecords: output.on_log_records,
        m.AttemptsPrinted: kept.on_attempts_printed,
    },
    questions={"output": Question(kept.ask_output, Level.CLIENT)},
    metrics=(
        StateMetric(
            "lines_refused_total",
            "Lines of workers for clients of which they had no task.",
            read=lambda state: output.flow_of(state).n_refused,
        ),
    ),
    invariants={
        **output.OUTPUT_INVARIANTS,
        **wishes.OUTPUT_WISH_INVARIANTS,
        "the bytes of kept output are counted": kept.miscounted,
    },
    worker_connected=(wishes.greet_worker,),
    worker_gone=(_on_worker_gone,),
    client_away=(wishes.on_client_away, output.on_client_away),
    attempt_abandoned=(output.note_abandoned,),
)
