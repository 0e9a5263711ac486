"""Data that a holder does not have or cannot send, and copies that are added and removed.

A holder that a worker could not reach keeps its data; a holder that does not have the data loses
that copy in the records. When the last copy is lost, the task is computed again if it is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Final

from ....protocol.wire import messages as m
from ....protocol.wire.failure import data_lost
from ....protocol.wire.session import MISSED_HEARTBEATS
from ..assignment.placement import reachable
from ..moves.locating import located
from ..moves.reporting import send_states
from ..moves.transitions import (
    ACTIVE,
    abandon,
    activate,
    assigned_behind,
    drop_attempt,
    enqueue,
    err,
    move,
    release_unneeded,
    take_back,
    wait_or_enqueue,
)
from ..moves.unrunnable import file_unrunnable
from ..records.peers import ClientHandle, WorkerHandle
from ..records.tasks import MEMORY, NO_WORKER, QUEUED, RELEASED, SchedulerTask
from .unreached import note_not_reached, note_reached

if TYPE_CHECKING:
    from ..state import SchedulerState

#: Number of times that a task is placed anew at once because the holder of an input cannot be
#: reached; then it is placed after a pause each, for longer than it takes to notice a holder's
#: death. The first pause; each further one is twice as long, up to that part of this time.
MAX_UNREACHABLE_ROUNDS: Final = 8
RETRY_S: Final = 0.1
MAX_RETRY_PART: Final = 1 / 8


def on_replicas_added(state: SchedulerState, ws: WorkerHandle, message: m.ReplicasAdded) -> None:
    """Note copies that a worker fetched; let it drop those that do not count.

    Their tasks are not in memory any more, or have unique results. A drop that is on its way ends
    what was reported before it is read, too: after a worker's report that it lacks its own copy.
    """
    if ws.unreachable:
        note_reached(state, ws, message)
    outbox = state.outboxes.get(ws.peer, ())
    dropped = {a for sent in outbox if type(sent) is m.DropAttempts for a in sent.attempts}
    for attempt, key in zip(message.attempts, message.keys, strict=True):
        task = state.tasks.get(key)
        if task is None or task.state != MEMORY or task.attempt != attempt:
            drop_attempt(state, ws, attempt)
        elif ws in task.replicas or attempt in dropped:
            continue
        elif task.group.function.is_unique:
            drop_attempt(state, ws, attempt)  # when the tasks that read it there have ended
        else:
            task.replicas = (*task.replicas, ws)
            ws.has_what[task] = None
            ws.nbytes += task.nbytes
    for replicas_added in state.features.replicas_added:
        replicas_added(state, ws, message.keys)


def on_keys_missing(state: SchedulerState, ws: WorkerHandle, message: m.KeysMissing) -> None:
    """Act on a report that `holder` could not give `ws` these keys.

    Name other holders, or make them again and take back the tasks that wait for them.
    """
    holder = state.workers_by_address.get(message.holder)
    if not message.unreachable:
        holder_lacks(state, message.keys, message.holder, message.attempts)
    elif holder is not None:
        # It may well have them, and be reached by others: no reason to make them again.
        note_not_reached(ws, holder, state.now)
    there: list[SchedulerTask] = []
    theirs: list[list[WorkerHandle]] = []
    lacking = []
    for key in message.keys:
        task = state.tasks.get(key)
        if task is None:
            continue
        if task.state == MEMORY:
            if holders := reachable(ws, task, state.now):
                there.append(task)
                theirs.append(holders)
                continue
        elif task.worker is ws:
            continue  # that assignment has crossed the report, and ends what the worker misses
        lacking.append(task)
    if there:
        state.send(ws.peer, located(ws, there, theirs))
    behind = list(assigned_behind(lacking, ws))
    for task in behind:
        abandon(state, task)
    take_back(state, behind)
    if message.unreachable:
        give_up_unreachable(state, ws, message.holder, behind)
    for not_fetched in state.features.not_fetched:
        not_fetched(state, ws, message.keys)


def give_up_unreachable(
    state: SchedulerState, ws: WorkerHandle, holder: str, tasks: list[SchedulerTask]
) -> None:
    """Count failed fetches of tasks' inputs; after some rounds and time the tasks fail.

    A holder that died is out of reach as well, until that is noticed and its data made again. While
    it is known to be away, the time does not count: it comes back, or is given up.
    """
    patience = state.settings.heartbeat_s * (MISSED_HEARTBEATS + 1)
    aside: dict[float, list[SchedulerTask]] = {}
    holding = state.workers_by_address.get(holder)
    is_away = holding is not None and holding.is_away
    for task in tasks:
        n, first, last = state.out_of_reach.get(task, (0, state.now, state.now))
        if state.now - last > patience:
            n, first = 0, state.now  # it has run since: this is another matter
        n += 1
        first = state.now if is_away else first
        state.out_of_reach[task] = (n, first, state.now)
        if n <= MAX_UNREACHABLE_ROUNDS:
            continue
        if task.state == QUEUED:
            move(state, task, NO_WORKER)
            file_unrunnable(state, task)
            pause_s = RETRY_S * 2.0 ** min(n - MAX_UNREACHABLE_ROUNDS - 1, 20)
            pause_s = min(pause_s, MAX_RETRY_PART * patience)
            aside.setdefault(pause_s, []).append(task)
        is_over = state.now - first > patience and task.state in ACTIVE
        if holding is not None and is_over:
            text = (
                f"its inputs are at workers that cannot reach each other, {n} attempts failed; the "
                f"last one was to fetch from {holder} to {ws.name} ({ws.address})"
            )
            err(state, task, data_lost(task.key, text))
    for pause_s, tasks_aside in aside.items():
        state.call_after(pause_s, _try_again, tasks_aside)


def _try_again(state: SchedulerState, tasks: list[SchedulerTask]) -> None:
    """Queue tasks again that were set aside: their inputs may be within reach by now."""
    for task in tasks:
        if task.state == NO_WORKER and task.group.task_class.members:
            enqueue(state, task)


def on_report_missing(
    state: SchedulerState, client: ClientHandle, message: m.ReportMissing
) -> None:
    """Act on a client's report that `holder` could not give it these keys.

    Send it their other holders, or that they are computed again. The answer about a worker that is
    away waits for its return or its loss.
    """
    holder = state.workers_by_address.get(message.holder)
    if holder is not None and holder.is_away:
        holder.awaited.setdefault(client, {}).update(dict.fromkeys(message.keys))
        return
    holder_lacks(state, message.keys, message.holder)
    for key in message.keys:
        task = state.tasks.get(key)
        if task is not None and task.state == RELEASED and task in client.wants:
            task.delivered = False
            activate(state, task)
    send_states(state, client, message.keys)
    if unknown := [key for key in message.keys if key not in state.tasks]:
        state.send_client(client, m.KeysUnknown(keys=unknown))


def holder_lacks(
    state: SchedulerState, keys: list[str], holder: str, attempts: Sequence[int] = ()
) -> None:
    """Forget the copies that the worker at this address does not have.

    `attempts` are the copies that it was asked for, 0 = any; it may have made others since.
    """
    ws = state.workers_by_address.get(holder)
    lost: dict[SchedulerTask, None] = {}
    for key, attempt in zip(keys, attempts or repeat(0), strict=False):
        task = state.tasks.get(key)
        if ws is None or task is None or task.state != MEMORY or ws not in task.replicas:
            continue
        if attempt not in (0, task.attempt) or task in lost:
            continue
        state.counters.replicas_missing += 1
        drop_attempt(state, ws, task.attempt)
        if lose_replica(state, task, ws):
            lost[task] = None
    if lost:
        replace_lost(state, list(lost))


def lose_replica(state: SchedulerState, task: SchedulerTask, ws: WorkerHandle) -> bool:
    """Forget that `ws` has the data.

    True if that was the last copy (the task is still in memory then).
    """
    for replica_lost in state.features.replica_lost:
        replica_lost(state, task, ws)
    if len(task.replicas) == 1:
        return True
    task.replicas = tuple(w for w in task.replicas if w is not ws)
    del ws.has_what[task]
    ws.nbytes -= task.nbytes
    return False


def forget_copies(state: SchedulerState, task: SchedulerTask) -> None:
    """Let workers drop what counts as copies of a unique result, whose worker is lost."""
    if task.group.function.is_unique:
        for ws in task.replicas[1:]:
            drop_attempt(state, ws, task.attempt)
            del ws.has_what[task]
            ws.nbytes -= task.nbytes
        task.replicas = task.replicas[:1]


def replace_lost(state: SchedulerState, lost: list[SchedulerTask]) -> None:
    """Release tasks whose last copies are gone.

    Dependents that have not started wait again, needed ones run again. Unique ones fail.
    """
    unneeded = [task for task in lost if not (task.wanted_by or task.n_waiters)]
    if unneeded:  # they were kept for clients that may come back
        lost = [task for task in lost if task.wanted_by or task.n_waiters]
        for task in unneeded:
            move(state, task, RELEASED)
        release_unneeded(state, unneeded)
    for results_lost in state.features.results_lost:
        lost = results_lost(state, lost)
    pending: dict[ClientHandle, list[str]] = {}
    needed = []
    for task in lost:
        delivered = task.delivered
        is_needed = bool(task.n_waiters or (task.wanted_by and not delivered))
        move(state, task, RELEASED)
        if is_needed:
            needed.append(task)
            if not delivered:
                for client in task.wanted_by:
                    pending.setdefault(client, []).append(task.key)
        else:
            task.delivered = delivered
    stack: list[SchedulerTask] = []
    for task in lost:
        for dependent in task.dependents or ():
            if dependent.state in (QUEUED, NO_WORKER):
                wait_or_enqueue(state, dependent, stack)
            elif dependent.waiting_on is not None:
                dependent.waiting_on[task] = None
    for task in [*needed, *stack]:
        activate(state, task)
    # A lost task that is not made again, or fails at once, reads nothing.
    release_unneeded(state, [d for task in lost for d in task.dependencies if d.state == MEMORY])
    state.counters.tasks_recomputed += len(needed)
    state.story.note(state.now, "last copy lost", [task.key for task in lost])
    for client, keys in pending.items():
        state.send_client(client, m.KeysPending(keys=keys))
