"""The log lines about lost workers: the reason, and the work that was lost; few for many deaths.

A worker that a client or a plugin has restarted is wanted to end: its line is no warning, and does
not call it lost.

The end of a worker's connection and the report of its supervisor come in either order, and are one
line. A supervisor that has not reported a second after the end will probably not report: the
worker's process is alive, or the supervisor is lost as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Final

from ....protocol.deaths import with_advice
from ....protocol.reported import DEATHS, RENEWED, REQUESTED
from ....protocol.wording import placed_again
from ..interruption.interrupting import RESTARTED
from ..records.peers import WorkerHandle

if TYPE_CHECKING:
    from ..state import SchedulerState

#: The line about a lost worker waits this long for the reason.
REASON_WAIT_S: Final = 1.0
#: A line of the death log is looked for again after this time at the earliest.
_LEAST_WAIT_S: Final = 0.001
#: Workers whose exits are known to be reported; a supervisor repeats so many.
_MAX_EXITS: Final = 1000


@dataclass(slots=True)
class Loss:
    """A worker that was lost, and the tasks and data that it had."""

    name: str
    n_tasks: int
    n_results: int
    #: the reason as far as the scheduler knows: one of `counters.LOSSES`
    seen: str


def note_loss(state: SchedulerState, ws: WorkerHandle) -> None:
    """Record the end of a worker's connection, before its tasks and data are removed."""
    seen = "silent" if ws.is_silent else "disconnected"
    loss = Loss(ws.name, len(ws.processing), len(ws.has_what), seen)
    known = state.exit_reports.get(ws.worker_id)
    if known is not None:
        _report(state, loss, known.reason, known.kind)
    elif ws.supervisor_id in state.supervisors_by_id:
        state.losses[ws.worker_id] = loss
        state.call_after(REASON_WAIT_S, _report_unexplained, ws.worker_id, loss)
    else:
        _report(state, loss, "")


def _report_unexplained(state: SchedulerState, worker_id: str, loss: Loss) -> None:
    if state.losses.get(worker_id) is loss:
        del state.losses[worker_id]
        _report(state, loss, "")


def note_exit(state: SchedulerState, worker_id: str, reason: str, kind: str) -> None:
    """Record a supervisor's report. A worker that is still connected is logged with its loss.

    A supervisor whose line broke reports again what it does not know to have arrived.
    """
    was_reported = worker_id in state.exits
    state.exits[worker_id] = None
    if len(state.exits) > _MAX_EXITS:
        del state.exits[next(iter(state.exits))]
    loss = state.losses.pop(worker_id, None)
    if loss is not None:
        _report(state, loss, reason, kind)
    elif worker_id not in state.workers_by_id and not was_reported:
        text = f"the process of worker {worker_id[:8]}, which is not connected, ended: {reason}"
        _log_death(state, text, "workers that had not joined", reason)


def report_all(state: SchedulerState) -> None:
    """Log what is kept back, at the end of the scheduler."""
    for worker_id, loss in list(state.losses.items()):
        del state.losses[worker_id]
        _report(state, loss, "")
    for line in state.death_log.finish(state.now):
        state.log("warning", line)


def _log_death(state: SchedulerState, text: str, name: str, reason: str, **lost: int) -> None:
    """Log a death: the first of its cause as a warning, of later ones a line with their number."""
    is_first = state.death_log.note(name, reason, state.now, **lost)
    if is_first:
        state.log("warning", with_advice(text, reason))
    else:
        state.log("info", text)
    if state.death_line is None:
        _wait_for_line(state)


def _wait_for_line(state: SchedulerState) -> None:
    due = state.death_log.next_due
    delay_s = max(due - state.now, _LEAST_WAIT_S)
    state.death_line = None if due == inf else state.call_after(delay_s, _report_deaths)


def _report_deaths(state: SchedulerState) -> None:
    for line in state.death_log.due(state.now):
        state.log("warning", line)
    _wait_for_line(state)


def _report(state: SchedulerState, loss: Loss, reason: str, kind: str = "") -> None:
    # An earlier release does not report the kind.
    kind = "signal" if kind == REQUESTED else kind
    state.counters.losses[kind if kind in DEATHS else "exit" if reason else loss.seen] += 1
    why = reason or "connection closed"
    is_wanted = reason in (RESTARTED, RENEWED)
    verb = "has ended" if is_wanted else "is lost"
    text = f"worker {loss.name} {verb} ({why}): {placed_again(loss.n_tasks, loss.n_results)}"
    if not is_wanted and (reason or loss.n_tasks or loss.n_results):
        n_tasks, n_results = loss.n_tasks, loss.n_results
        _log_death(state, text, loss.name, why, n_tasks=n_tasks, n_results=n_results)
    else:  # nor is a connection a warning that ends without a death, and without lost work
        state.log("info", text)
