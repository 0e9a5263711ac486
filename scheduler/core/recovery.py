"""What is lost and found again: workers that die, data that is missing or has to be relayed.

A lost worker's running work is placed again at once. A lost only copy is computed again from its
lineage, if somebody still needs it: the record of every task that a live task depends on is kept
for that. Only attempts whose user code was running when the process ended, or whose result was
being pickled or sent (its supervisor knows), count against a task.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...protocol.net.liveness import MISSED_HEARTBEATS
from ...protocol.wire import messages as m
from ...protocol.wire.failure import data_lost, worker_died
from ...protocol.wire.payload import Blob
from .peers import ClientHandle, WorkerHandle
from .placement import reachable
from .submission import tell
from .tasks import ERRED, FORGOTTEN, MEMORY, NO_WORKER, QUEUED, RELEASED, SchedulerTask
from .transitions import (
    ACTIVE,
    abandon,
    activate,
    drop_attempt,
    err,
    move,
    parts_of,
    set_aside,
    take_back,
    wait_or_enqueue,
)

if TYPE_CHECKING:
    from .state import SchedulerState

#: Data of more than this is not carried through the scheduler; the client has to reach the worker.
MAX_RELAYED_BYTES = 64 << 20
#: A task is placed anew so often at once because the holder of an input cannot be reached; then
#: once a tick, for a beat longer than it takes to notice that the holder is dead.
MAX_UNREACHABLE_ROUNDS = 8


@dataclass(slots=True)
class Relay:
    """A client's FetchKeys that workers are answering."""

    client: ClientHandle
    request: int
    waiting_for: dict[int, list[str]]  #: {our request to a worker: keys}
    keys: list[str] = field(default_factory=list)
    results: list[Blob | None] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


# -- a worker is gone -----------------------------------------------------------------------------
def tell_peers(state: SchedulerState, lost: WorkerHandle) -> None:
    """Let no worker wait for data of a lost one.

    Its process need not have ended: one that is suspended, or whose machine is out of reach, keeps
    its connections and is silent.
    """
    if lost.has_what:
        for ws in state.workers.values():
            if ws.processing:
                state.send(ws.peer, m.HoldersGone(addresses=[lost.address]))


def lose_worker(state: SchedulerState, ws: WorkerHandle) -> None:
    """Place again what ran there, and compute again what only it had.

    It is out of `state.workers` already.
    """
    processing = dict(ws.processing)
    for other in state.workers.values():
        other.unreachable.pop(ws, None)
    take_back(state, list(processing.values()))
    lost: list[SchedulerTask] = []
    moved: dict[ClientHandle, list[str]] = {}
    for task in list(ws.has_what):
        is_named = task.replicas[0] is ws
        if lose_replica(state, task, ws):
            lost.append(task)
        elif is_named and not task.delivered:
            for client in task.wanted_by:
                moved.setdefault(client, []).append(task.key)
    held = {task.attempt: task for task in lost} if ws.supervisor_id else {}
    replace_lost(state, lost)
    for client, keys in moved.items():
        # They may be waiting for an answer of the lost worker, which need not come.
        for part in parts_of(keys):
            tell(state, client, part)
    for function in state.functions.values():
        function.workers.pop(ws, None)
    for request, relay in list(state.relays.items()):
        asked = relay.waiting_for.get(request)
        if asked is not None and state.relay_workers.get(request) is ws:
            _relay_part(state, request, relay, [], [], asked)
    if (processing or held) and ws.supervisor_id:
        state.lost_workers[ws.worker_id] = (state.now, ws, processing, held)
        report = state.exit_reports.pop(ws.worker_id, None)
        if report is not None:
            blame(state, report[1])


def blame(state: SchedulerState, report: m.WorkerExited) -> None:
    """Count a death against the tasks whose user code was running, or whose results were served.

    Too many and the task is given up.
    """
    lost = state.lost_workers.pop(report.worker_id, None)
    if lost is None:
        return
    _, ws, processing, held = lost
    for attempt in report.running:
        task = processing.get(attempt)
        is_served = task is None
        if is_served:
            task = held.get(attempt)
        # One that has failed since, or is not needed, starts to count anew if it runs again.
        if task is None or task.state in (RELEASED, ERRED, FORGOTTEN):
            continue
        if task.state == MEMORY and not is_served:
            continue  # another attempt has finished it
        reasons = state.deaths.setdefault(task, [])
        what = f", while its result ({task.nbytes} bytes) was pickled or sent"
        reasons.append(report.reason + what * is_served)
        if len(reasons) > state.allowed_deaths and task.state in ACTIVE:
            state.counters.tasks_failed_worker_died += 1
            text = _with_counts(reasons)
            err(state, task, worker_died(task.key, len(reasons), ws.name, text))


def _with_counts(reasons: list[str]) -> str:
    """Say each reason once, in order of its first time."""
    counts = Counter(reasons)
    if len(counts) == 1:
        return reasons[0]  # how often is said already
    return "; ".join(f"{reason} ({n} times)" if n > 1 else reason for reason, n in counts.items())


def lose_replica(state: SchedulerState, task: SchedulerTask, ws: WorkerHandle) -> bool:
    """Forget that `ws` has the data.

    True if that was the last copy (the task is still in memory then).
    """
    if len(task.replicas) == 1:
        return True
    task.replicas = tuple(w for w in task.replicas if w is not ws)
    del ws.has_what[task]
    ws.nbytes -= task.nbytes
    return False


def replace_lost(state: SchedulerState, lost: list[SchedulerTask]) -> None:
    """The last copies of these are gone.

    Dependents that have not started wait again, needed ones run again.
    """
    pending: dict[ClientHandle, list[str]] = {}
    needed = []
    for task in lost:
        is_needed = bool(task.n_waiters or (task.wanted_by and not task.delivered))
        delivered = task.delivered
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
    state.counters.tasks_recomputed += len(needed)
    state.story.note(state.now, "last copy lost", [task.key for task in lost])
    for client, keys in pending.items():
        for part in parts_of(keys):
            state.send_client(client, m.KeysPending(keys=part))


# -- data that is not where it should be ----------------------------------------------------------
def on_replicas_added(state: SchedulerState, ws: WorkerHandle, message: m.ReplicasAdded) -> None:
    """A worker fetched copies. Copies of what is not in memory any more are dropped again."""
    for attempt, key in zip(message.attempts, message.keys, strict=True):
        task = state.tasks.get(key)
        if task is None or task.state != MEMORY or task.attempt != attempt:
            drop_attempt(state, ws, attempt)
        elif ws not in task.replicas:
            task.replicas = (*task.replicas, ws)
            ws.has_what[task] = None
            ws.nbytes += task.nbytes


def on_keys_missing(state: SchedulerState, ws: WorkerHandle, message: m.KeysMissing) -> None:
    """`holder` could not give `ws` these keys.

    Name other holders, or make them again and take back who waits.
    """
    holder = state.workers_by_address.get(message.holder)
    if not message.unreachable:
        _holder_lacks(state, message.keys, message.holder)
    elif holder is not None:
        # It may well have them, and be reached by others: no reason to make them again.
        ws.unreachable[holder] = state.now
    located = m.LocatedKeys(keys=[], attempts=[], nbytes=[], holders=[])
    behind: dict[SchedulerTask, None] = {}
    for key in message.keys:
        task = state.tasks.get(key)
        if task is None:
            continue
        if task.state == MEMORY:
            holders = reachable(ws, task, state.now)
            if holders:
                located.keys.append(key)
                located.attempts.append(task.attempt)
                located.nbytes.append(task.nbytes)
                located.holders.append([w.address for w in holders[:4]])
                continue
        stack = [task]
        while stack:
            for dependent in stack.pop().dependents or ():
                if dependent.worker is ws and dependent not in behind:
                    behind[dependent] = None
                    stack.append(dependent)
    if located.keys:
        state.send(ws.peer, located)
    for task in behind:
        abandon(state, task)
    take_back(state, list(behind))
    if message.unreachable:
        _give_up_unreachable(state, ws, message.holder, list(behind))


def _give_up_unreachable(
    state: SchedulerState, ws: WorkerHandle, holder: str, tasks: list[SchedulerTask]
) -> None:
    """Count tasks whose inputs could not be fetched; after some rounds and time there is no way.

    A holder that died is out of reach as well, until that is noticed and its data made again.
    """
    patience = state.heartbeat_s * (MISSED_HEARTBEATS + 1)
    is_known = holder in state.workers_by_address
    for task in tasks:
        n, first, last = state.out_of_reach.get(task, (0, state.now, state.now))
        if state.now - last > patience:
            n, first = 0, state.now  # it has run since: this is another matter
        n += 1
        state.out_of_reach[task] = (n, first, state.now)
        if n <= MAX_UNREACHABLE_ROUNDS:
            continue
        if task.state == QUEUED:
            move(state, task, NO_WORKER)
            set_aside(state, task)
        if is_known and state.now - first > patience and task.state in ACTIVE:
            state.counters.tasks_failed_lost_data += 1
            text = (
                f"its inputs are at workers that cannot reach each other, {n} attempts failed; the "
                f"last one was to fetch from {holder} to {ws.name} ({ws.address})"
            )
            err(state, task, data_lost(task.key, text))


def on_report_missing(
    state: SchedulerState, client: ClientHandle, message: m.ReportMissing
) -> None:
    """`holder` could not give a client these keys.

    Tell it where they are, or that they come again.
    """
    _holder_lacks(state, message.keys, message.holder)
    for key in message.keys:
        task = state.tasks.get(key)
        if task is not None and task.state == RELEASED and task in client.wants:
            task.delivered = False
            activate(state, task)
    unknown = [key for key in message.keys if key not in state.tasks]
    tell(state, client, message.keys)
    if unknown:
        state.send_client(client, m.KeysUnknown(keys=unknown))


def _holder_lacks(state: SchedulerState, keys: list[str], holder: str) -> None:
    ws = state.workers_by_address.get(holder)
    lost = []
    for key in keys:
        task = state.tasks.get(key)
        if ws is None or task is None or task.state != MEMORY or ws not in task.replicas:
            continue
        state.counters.replicas_missing += 1
        drop_attempt(state, ws, task.attempt)
        if lose_replica(state, task, ws):
            lost.append(task)
    if lost:
        replace_lost(state, lost)


# -- data through the scheduler -------------------------------------------------------------------
def on_client_fetch(state: SchedulerState, client: ClientHandle, message: m.FetchKeys) -> None:
    """A client can not reach the workers itself: ask them for it, within MAX_RELAYED_BYTES."""
    by_worker: dict[WorkerHandle, list[str]] = {}
    relay = Relay(client, message.request, {})
    budget = MAX_RELAYED_BYTES
    for key in message.keys:
        task = state.tasks.get(key)
        if task is None or task.state != MEMORY or task.nbytes > budget:
            relay.missing.append(key)
            continue
        budget -= task.nbytes
        by_worker.setdefault(task.replicas[0], []).append(key)
    for ws, keys in by_worker.items():
        request = state.next_request
        state.next_request = request + 1
        relay.waiting_for[request] = keys
        state.relays[request] = relay
        state.relay_workers[request] = ws
        state.send(ws.peer, m.FetchKeys(request=request, keys=keys))
    if not by_worker:
        _answer(state, relay)


def on_worker_data(state: SchedulerState, ws: WorkerHandle, message: m.KeysData) -> None:
    """A worker's part of a relayed fetch."""
    relay = state.relays.get(message.request)
    if relay is None or state.relay_workers.get(message.request) is not ws:
        state.counters.reports_stale += 1
        return
    _relay_part(state, message.request, relay, message.keys, message.results, message.missing)


def _relay_part(
    state: SchedulerState,
    request: int,
    relay: Relay,
    keys: list[str],
    results: list[Blob | None],
    missing: list[str],
) -> None:
    relay.keys.extend(keys)
    relay.results.extend(results)
    relay.missing.extend(missing)
    del relay.waiting_for[request]
    del state.relays[request]
    ws = state.relay_workers.pop(request)
    if missing and ws.peer in state.workers:
        _holder_lacks(state, missing, ws.address)
    if not relay.waiting_for:
        _answer(state, relay)


def _answer(state: SchedulerState, relay: Relay) -> None:
    state.send_client(
        relay.client,
        m.KeysData(
            request=relay.request,
            keys=relay.keys,
            results=relay.results,
            missing=relay.missing,
        ),
    )
