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

from ....protocol.death_facts import DeathFacts, HeldResults
from ....protocol.deaths import DeathLog, with_advice
from ....protocol.reported import DEATHS, RENEWED, REQUESTED
from ....protocol.wire import messages as m
from ....protocol.wording import placed_again
from ..feature import Departure, Feature, StateMetric
from ..interruption.interrupting import RESTARTED

if TYPE_CHECKING:
    from ..records.deadlines import Deadline
    from ..records.peers import WorkerHandle
    from ..state import SchedulerState

#: Why workers are lost: as their supervisors report, or else what the scheduler has seen.
LOSSES: Final = (*DEATHS, "silent", "disconnected")
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
    #: the reason as far as the scheduler knows: one of `LOSSES`
    seen: str
    held_most: list[HeldResults]


class Losses:
    """Losses of workers that were logged, and those that wait to be."""

    __slots__ = ("by_reason", "death_log", "departed", "exits", "line", "waiting")

    def __init__(self) -> None:
        #: {worker id: what was there} of lost workers, in order of time, that will be logged with
        #: the reason, or soon without it
        self.waiting: dict[str, Loss] = {}
        #: ids of workers whose exits were reported lately
        self.exits: dict[str, None] = {}
        #: {worker id: its name} of those that have left lately
        self.departed: dict[str, str] = {}
        self.death_log = DeathLog("were lost")  #: deaths that were logged, or counted, lately
        #: when a line of `death_log` may be due; None while it has counted nothing
        self.line: Deadline | None = None
        #: a loss is counted when its reason is known, or a second later
        self.by_reason = dict.fromkeys(LOSSES, 0)


def losses_of(state: SchedulerState) -> Losses:
    """Return what was logged of lost workers."""
    return state.record(Losses)


def _on_worker_gone(state: SchedulerState, ws: WorkerHandle, departure: Departure) -> None:
    """Log the end of a lost worker's connection, or wait for the reason."""
    if departure.reason is not None:
        departed = losses_of(state).departed
        departed[ws.worker_id] = ws.name
        if len(departed) > _MAX_EXITS:
            del departed[next(iter(departed))]
        return
    seen = "silent" if ws.is_silent else "disconnected"
    loss = Loss(ws.name, departure.n_tasks, departure.n_results, seen, departure.held_most)
    known = departure.report
    if known is not None:
        _report(state, loss, known)
    elif ws.supervisor_id in state.supervisors_by_id:
        losses_of(state).waiting[ws.worker_id] = loss
        state.call_after(REASON_WAIT_S, _report_unexplained, ws.worker_id, loss)
    else:
        _report(state, loss)


def _report_unexplained(state: SchedulerState, worker_id: str, loss: Loss) -> None:
    if losses_of(state).waiting.get(worker_id) is loss:
        del losses_of(state).waiting[worker_id]
        _report(state, loss)


def _on_worker_exited(state: SchedulerState, report: m.WorkerExited) -> None:
    """Record a supervisor's report. A worker that is still connected is logged with its loss.

    A supervisor whose connection broke reports again what it does not know to have arrived.
    """
    losses, worker_id, reason = losses_of(state), report.worker_id, report.reason
    was_reported = worker_id in losses.exits
    losses.exits[worker_id] = None
    if len(losses.exits) > _MAX_EXITS:
        del losses.exits[next(iter(losses.exits))]
    loss = losses.waiting.pop(worker_id, None)
    if loss is not None:
        _report(state, loss, report)
    elif worker_id in losses.departed and report.kind != "exit":  # else it has failed
        name = losses.departed[worker_id]
        state.log("info", f"the process of worker {name}, which has left, has ended: {reason}")
    elif worker_id not in state.workers_by_id and not was_reported:
        text = f"the process of worker {worker_id[:8]}, which is not connected, ended: {reason}"
        _log_death(state, text, "workers that had not joined", reason)


def _report_all(state: SchedulerState) -> None:
    """Log what is kept back, at the end of the scheduler."""
    waiting = losses_of(state).waiting
    for worker_id, loss in list(waiting.items()):
        del waiting[worker_id]
        _report(state, loss)
    for line in losses_of(state).death_log.finish(state.now):
        state.log("warning", line, "worker-lost")


def _log_death(state: SchedulerState, text: str, name: str, reason: str, **lost: int) -> None:
    """Log a death: the first of its cause as a warning, of later ones a line with their number."""
    is_first = losses_of(state).death_log.note(name, reason, state.now, **lost)
    if is_first:
        state.log("warning", with_advice(text, reason), "worker-lost")
    else:
        state.log("info", text)
    if losses_of(state).line is None:
        _wait_for_line(state)


def _wait_for_line(state: SchedulerState) -> None:
    due = losses_of(state).death_log.next_due
    delay_s = max(due - state.now, _LEAST_WAIT_S)
    losses_of(state).line = None if due == inf else state.call_after(delay_s, _report_deaths)


def _report_deaths(state: SchedulerState) -> None:
    for line in losses_of(state).death_log.due(state.now):
        state.log("warning", line, "worker-lost")
    _wait_for_line(state)


def _report(state: SchedulerState, loss: Loss, report: m.WorkerExited | None = None) -> None:
    reason, kind = ("", "") if report is None else (report.reason, report.kind)
    # An earlier version does not report the kind.
    kind = "signal" if kind == REQUESTED else kind
    losses_of(state).by_reason[kind if kind in DEATHS else "exit" if reason else loss.seen] += 1
    why = reason or "connection closed"
    is_wanted = reason in (RESTARTED, RENEWED)
    verb = "has ended" if is_wanted else "is lost"
    text = f"worker {loss.name} {verb} ({why}): {placed_again(loss.n_tasks, loss.n_results)}"
    if report is not None:
        facts = DeathFacts.from_plain(report.facts).holding(loss.held_most)
        text += facts.of_memory_after(reason)
    if not is_wanted and (reason or loss.n_tasks or loss.n_results):
        n_tasks, n_results = loss.n_tasks, loss.n_results
        _log_death(state, text, loss.name, why, n_tasks=n_tasks, n_results=n_results)
    else:  # nor is a connection a warning that ends without a death, and without lost work
        state.log("info", text)


FEATURE: Final = Feature(
    name="losses",
    records=(Losses,),
    metrics=(
        StateMetric(
            "workers_lost_total",
            "Workers that were lost: by an exit code, a signal, lack of memory or a failure of "
            "weft's own code, because they were silent, or because their connection ended and "
            "nothing else is known.",
            ("reason",),
            read=lambda state: dict(losses_of(state).by_reason),
        ),
    ),
    worker_gone=(_on_worker_gone,),
    worker_exited=(_on_worker_exited,),
    finishing=(_report_all,),
)
