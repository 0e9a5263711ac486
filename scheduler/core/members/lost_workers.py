"""The consequences of the loss of a worker.

Its running work is placed again at once. A lost only copy is computed again from its lineage, if
it is still needed: the record of every task that a live task depends on is kept for that. Only
attempts whose user code was running when the process ended, or whose result was being pickled or
sent (its supervisor knows), count against a task; and those on whose behalf such an attempt was
submitted, if they were in that process: they are run again and submit it anew, so nothing else
would count how often.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from ....protocol.death_facts import DeathFacts, HeldResults, most_of
from ....protocol.deaths import holdings_text, summarize
from ....protocol.wire import messages as m
from ....protocol.wire.failure import worker_died
from ..moves.reporting import send_states
from ..moves.transitions import ACTIVE, err, take_back
from ..records.peers import ClientHandle, WorkerHandle
from ..records.presence import LostWorker
from ..records.tasks import ERRED, FORGOTTEN, MEMORY, RELEASED, SchedulerTask
from ..reports.missing import forget_copies, lose_replica, replace_lost
from ..reports.unreached import forget_holders, forget_readers

if TYPE_CHECKING:
    from ..state import SchedulerState

#: A worker's supervisor has this long to report what ran when it died.
EXIT_REPORT_WAIT_S: Final = 60.0


def notify_workers_of_loss(state: SchedulerState, lost: WorkerHandle) -> None:
    """Let no worker wait for data of a lost one: those that run tasks which read some are notified.

    Its process need not have ended: one that is suspended, or whose machine is out of reach, keeps
    its connections and is silent.
    """
    readers: dict[WorkerHandle, None] = {}
    found = dict.fromkeys(task for data in lost.has_what for task in data.dependents or ())
    for task in (*found, *(x for kept in found if kept.is_keeping for x in kept.dependents or ())):
        if task.worker is not None:
            readers[task.worker] = None
    readers.pop(lost, None)
    for ws in readers:
        state.send(ws.peer, m.HoldersGone(addresses=[lost.address]))


def held_most(ws: WorkerHandle) -> list[HeldResults]:
    """Return the results of a worker by function, those with most bytes."""
    return most_of((task.group.prefix.name, task.nbytes) for task in ws.has_what)


def lose_worker(
    state: SchedulerState,
    ws: WorkerHandle,
    most: list[HeldResults],
    had: dict[int, SchedulerTask],
) -> None:
    """Place its tasks again, and compute the data again of which it had the only copy.

    It is out of `state.workers` already.

    Args:
        state: the scheduler's.
        ws: the worker.
        most: what `held_most` has returned.
        had: its attempts, those included that were dropped with the clients in its tasks.
    """
    forget_readers(ws)
    forget_holders(ws)
    take_back(state, list(ws.processing.values()))
    lost: list[SchedulerTask] = []
    moved: dict[ClientHandle, list[str]] = {}
    for task in list(ws.has_what):
        is_named = task.replicas[0] is ws
        if is_named:
            forget_copies(state, task)
        if lose_replica(state, task, ws):
            lost.append(task)
        elif is_named and not task.delivered:
            for client in task.wanted_by:
                moved.setdefault(client, []).append(task.key)
    sole = {task.attempt: task for task in lost} if ws.supervisor_id else {}
    replace_lost(state, lost)
    for client, keys in moved.items():
        # They may be waiting for an answer of the lost worker, which need not come.
        send_states(state, client, keys)
    for function in ws.functions:
        del function.workers[ws]
    ws.functions.clear()
    report = state.lost.exit_reports.pop(ws.worker_id, None)
    if (had or sole) and ws.supervisor_id:
        lost_worker = LostWorker(ws, had, sole, most)
        state.lost.unreported[ws.worker_id] = lost_worker
        state.call_after(EXIT_REPORT_WAIT_S, _end_wait_for_report, lost_worker)
        if report is not None:
            count_death(state, report)


def _end_wait_for_report(state: SchedulerState, lost: LostWorker) -> None:
    if state.lost.unreported.get(lost.worker.worker_id) is lost:
        del state.lost.unreported[lost.worker.worker_id]


def with_callers(
    running: Iterable[int], processing: Mapping[int, SchedulerTask]
) -> dict[int, None]:
    """Return attempts that ran in a process, and those of it on whose behalf they did."""
    found: dict[int, None] = {}
    for attempt in running:
        while attempt not in found:
            found[attempt] = None
            task = processing.get(attempt)
            attempt = attempt if task is None else task.group.options.attempt or attempt
    return found


def count_death(state: SchedulerState, report: m.WorkerExited) -> None:
    """Count a death against the tasks whose user code was running, or whose results were served.

    Too many and the task is given up.
    """
    lost = state.lost.unreported.pop(report.worker_id, None)
    if lost is None:
        return
    ws, processing, sole, most = lost
    facts = DeathFacts.from_plain(report.facts).holding(most)
    reason = report.reason + facts.of_memory_after(report.reason)
    running = [processing[attempt] for attempt in report.running if attempt in processing]
    for on_died in state.features.worker_died:
        on_died(state, lost, report, running)
    for attempt in with_callers(report.running, processing):
        task = processing.get(attempt)
        is_served = task is None
        if is_served:
            task = sole.get(attempt)
        # One that has failed since, or is not needed, starts to count anew if it runs again.
        if task is None or task.state in (RELEASED, ERRED, FORGOTTEN):
            continue
        if task.state == MEMORY and not is_served:
            continue  # another attempt has finished it
        for attempt_died in state.features.attempt_died:
            attempt_died(state, task, ws.name, reason, is_served)
        what = f", while its result ({task.nbytes} bytes) was pickled or sent" * is_served
        holdings = holdings_text(report.reason, ws.name, [x.nbytes for x in sole.values()])
        blame(state, task, ws, report.reason + what, facts, holdings)


def blame(
    state: SchedulerState,
    task: SchedulerTask,
    ws: WorkerHandle,
    reason: str,
    facts: DeathFacts,
    holdings: str = "",
) -> None:
    """Count the death of a worker against a task, which is given up after too many."""
    reasons = state.deaths.setdefault(task, [])
    reasons.append(reason)
    if len(reasons) > state.settings.allowed_deaths and task.state in ACTIVE:
        text = summarize(reasons) + holdings
        err(state, task, worker_died(task.key, len(reasons), ws.name, text, facts))
