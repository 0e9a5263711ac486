"""The feature: output of tasks and records of loggers, passed on to clients."""

from __future__ import annotations

from typing import Final

from ....protocol.wire import messages as m
from ..feature import Feature
from . import output, wishes

FEATURE: Final = Feature(
    name="output",
    records=(output.OutputFlow, wishes.OutputWishes),
    handlers={
        m.WantOutput: wishes.on_want_output,
        m.TaskOutput: output.on_task_output,
        m.LogRecords: output.on_log_records,
    },
    invariants={**output.OUTPUT_INVARIANTS, **wishes.OUTPUT_WISH_INVARIANTS},
    worker_connected=(wishes.greet_worker,),
    client_away=(wishes.on_client_away, output.on_client_away),
)
