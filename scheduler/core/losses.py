"""The log lines about lost workers: the reason, and the work that was lost; few for many deaths.

The end of a worker's connection and the report of its supervisor come in either order, and are one
line. A supervisor that has not reported a second after the end will probably not report: the
worker's process is alive, or the supervisor is lost as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ...protocol.deaths import with_advice
from .peers import WorkerHandle

if TYPE_CHECKING:
    from .state import SchedulerState

#: The line about a lost worker waits this long for the reason.
REASON_WAIT_S: Final = 1.0


@dataclass(slots=True)
class Loss:
    """A worker that was lost, and the tasks and data that it had."""

    name: str
    when: float
    n_tasks: int
    n_results: int


def note_loss(state: SchedulerState, ws: WorkerHandle) -> None:
    """Record the end of a worker's connection, before its tasks and data are removed."""
    loss = Loss(ws.name, state.now, len(ws.processing), len(ws.has_what))
    known = state.exit_reports.get(ws.worker_id)
    if known is not None:
        _report(state, loss, known.reason)
    elif any(s.supervisor_id == ws.supervisor_id for s in state.supervisors.values()):
        state.losses[ws.worker_id] = loss
    else:
        _report(state, loss, "")


def note_exit(state: SchedulerState, worker_id: str, reason: str) -> None:
    """Record a supervisor's report. A worker that is still connected is logged with its loss."""
    loss = state.losses.pop(worker_id, None)
    if loss is not None:
        _report(state, loss, reason)
    elif worker_id not in state.workers_by_id:
        text = f"the process of worker {worker_id[:8]}, which is not connected, ended: {reason}"
        if state.death_log.note("workers that had not joined", reason, state.now):
            state.log("warning", with_advice(text, reason))
        else:
            state.log("info", text)


def report_losses(state: SchedulerState, *, is_end: bool = False) -> None:
    """Log what is due: losses without a reason, and the deaths that were counted."""
    for worker_id, loss in list(state.losses.items()):
        if is_end or state.now - loss.when >= REASON_WAIT_S:
            del state.losses[worker_id]
            _report(state, loss, "")
    lines = state.death_log.finish if is_end else state.death_log.due
    for line in lines(state.now):
        state.log("warning", line)


def _report(state: SchedulerState, loss: Loss, reason: str) -> None:
    why = reason or "connection closed"
    text = (
        f"worker {loss.name} is lost ({why}): {loss.n_tasks} tasks are placed again, "
        f"{loss.n_results} results were there"
    )
    # A connection that ends without a death, and without lost work, is no warning.
    if (reason or loss.n_tasks or loss.n_results) and state.death_log.note(
        loss.name, why, state.now, n_tasks=loss.n_tasks, n_results=loss.n_results
    ):
        state.log("warning", with_advice(text, why))
    else:
        state.log("info", text)
