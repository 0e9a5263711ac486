"""The consequences of the loss of a worker.

Its running work is placed again at once. A lost only copy is computed again from its lineage, if
it is still needed: the record of every task that a live task depends on is kept for that. Only
attempts whose user code was running when the process ended, or whose result was being pickled or
sent (its supervisor knows), count against a task.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ....protocol.death_facts import DeathFacts, HeldResults, most_of
from ....protocol.deaths import is_of_memory, may_be_of_memory, summarize
from ....protocol.wire import messages as m
from ....protocol.wire.failure import worker_died
from ....protocol.wording import counted, sized
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


def lose_worker(state: SchedulerState, ws: WorkerHandle, most: list[HeldResults]) -> None:
    """Place its tasks again, and compute the data again of which it had the only copy.

    It is out of `state.workers` already. `most` is what `held_most` has returned.
    """
    processing = dict(ws.processing)
    forget_readers(ws)
    forget_holders(ws)
    take_back(state, list(processing.values()))
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
    held = {task.attempt: task for task in lost} if ws.supervisor_id else {}
    replace_lost(state, lost)
    for client, keys in moved.items():
        # They may be waiting for an answer of the lost worker, which need not come.
        send_states(state, client, keys)
    for function in ws.functions:
        del function.workers[ws]
    ws.functions.clear()
    report = state.lost.exit_reports.pop(ws.worker_id, None)
    if (processing or held) and ws.supervisor_id:
        lost_worker = LostWorker(ws, processing, held, most)
        state.lost.unreported[ws.worker_id] = lost_worker
        state.call_after(EXIT_REPORT_WAIT_S, _end_wait_for_report, lost_worker)
        if report is not None:
            count_death(state, report)


def _end_wait_for_report(state: SchedulerState, lost: LostWorker) -> None:
    if state.lost.unreported.get(lost.worker.worker_id) is lost:
        del state.lost.unreported[lost.worker.worker_id]


def _holdings(reason: str, ws: WorkerHandle, held: list[SchedulerTask]) -> str:
    """Return what a worker held that died of its memory limit, and the remedy; else ""."""
    if not is_of_memory(reason):
        return ""
    text = ""
    if held:
        nbytes = sum(task.nbytes for task in held)
        text = f"; {ws.name} held {counted(len(held), 'result')}, {sized(nbytes)}"
    return text + "; raise memory_limit, or gather and release results in batches"


def memory_text(reason: str, facts: DeathFacts) -> str:
    """Return what a line about a death adds about memory; "" if that is not the cause.

    A supervisor of an earlier release reports no facts: its lines stay as they were.
    """
    known = facts.of_memory() if facts.peak_nbytes is not None else ""
    return f"; {known}" if known and may_be_of_memory(reason) else ""


def count_death(state: SchedulerState, report: m.WorkerExited) -> None:
    """Count a death against the tasks whose user code was running, or whose results were served.

    Too many and the task is given up.
    """
    lost = state.lost.unreported.pop(report.worker_id, None)
    if lost is None:
        return
    ws, processing, held, most = lost
    facts = DeathFacts.from_plain(report.facts).holding(most)
    reason = f"{report.reason}{memory_text(report.reason, facts)}"
    running = [processing[attempt] for attempt in report.running if attempt in processing]
    for on_died in state.features.worker_died:
        on_died(state, ws, report, list(held.values()), running)
    for attempt in dict.fromkeys(report.running):
        task = processing.get(attempt)
        is_served = task is None
        if is_served:
            task = held.get(attempt)
        # One that has failed since, or is not needed, starts to count anew if it runs again.
        if task is None or task.state in (RELEASED, ERRED, FORGOTTEN):
            continue
        if task.state == MEMORY and not is_served:
            continue  # another attempt has finished it
        for attempt_died in state.features.attempt_died:
            attempt_died(state, task, ws.name, reason, is_served)
        reasons = state.deaths.setdefault(task, [])
        what = f", while its result ({task.nbytes} bytes) was pickled or sent"
        reasons.append(report.reason + what * is_served)
        if len(reasons) > state.settings.allowed_deaths and task.state in ACTIVE:
            text = summarize(reasons) + _holdings(report.reason, ws, list(held.values()))
            err(state, task, worker_died(task.key, len(reasons), ws.name, text, facts))
