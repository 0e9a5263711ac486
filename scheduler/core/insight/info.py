"""The state described for display: plain maps, made only on request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....protocol.wire.message import MAX_NUMBER
from ....protocol.wording import counted
from ..blocking.feature import is_barred
from ..leaving.describing import facts_of
from ..memory.usage import spilled_nbytes
from ..records.tasks import NO_WORKER, PROCESSING, QUEUED, WAITING
from ..recovery.barrier import waits_for
from .closed import why_not
from .cluster_totals import totals_of
from .refused_workers import describe_refusals

if TYPE_CHECKING:
    from ..records.peers import ClientHandle, WorkerHandle
    from ..state import SchedulerState


def task_counts(state: SchedulerState, n_processing: int | None = None) -> dict[str, int]:
    """Count tasks by state; sums to the number of known tasks. O(workers + classes).

    Args:
        state: of the scheduler.
        n_processing: tasks at workers; None = count them.
    """
    processing = n_processing
    if processing is None:
        processing = sum(len(ws.processing) for ws in state.workers.values())
    queued = sum(len(c.queue) for c in state.classes.values())
    no_worker = sum(len(c.unrunnable) for c in state.classes.values())
    counters = state.counters
    known = counters.n_memory + counters.n_erred + counters.n_released
    return {
        "released": counters.n_released,
        "waiting": len(state.tasks) - processing - queued - no_worker - known,
        "queued": queued,
        "no_worker": no_worker,
        "processing": processing,
        "memory": counters.n_memory,
        "erred": counters.n_erred,
    }


def describe_unfinished(state: SchedulerState) -> str:
    """Describe which clients wait for tasks, "" if none does. O(wanted tasks)."""
    unfinished = (WAITING, QUEUED, NO_WORKER, PROCESSING)
    n_clients = sum(
        any(task.state in unfinished for task in client.wants) for client in state.clients.values()
    )
    if not n_clients:
        return ""
    counts = task_counts(state)
    n_tasks = sum(counts[name] for name in unfinished)
    has = "has" if n_clients == 1 else "have"
    return f"{counted(n_clients, 'client')} {has} {counted(n_tasks, 'unfinished task')}"


def describe_cluster(state: SchedulerState) -> dict[str, Any]:
    """Describe the scheduler; count workers, clients and tasks. O(workers + classes)."""
    return {
        **state.facts,
        "epoch": state.epoch,
        "recovering": waits_for(state),
        "n_workers": len(state.workers),
        "nthreads": totals_of(state).nthreads,
        "memory": min(totals_of(state).memory_limit, MAX_NUMBER),
        "n_clients": len(state.clients),
        "refused_workers": describe_refusals(state),
        "tasks": task_counts(state),
    }


def describe_worker(state: SchedulerState, ws: WorkerHandle) -> dict[str, Any]:
    """Describe a worker (names, counts, bytes, seconds)."""
    seen = state.seen.get(ws.peer)
    if seen is None:  # it is away, since its connection ended
        seen = state.awake_s if ws.away_due is None else ws.away_due.when - state.settings.away_s
    return {
        "id": ws.worker_id,
        "name": ws.name,
        "host": ws.host,
        "pid": ws.facts.get("pid"),
        "nthreads": ws.nthreads,
        "memory_limit": ws.memory_limit,
        "resources": ws.resources,
        "supervisor": ws.supervisor_id,
        "is_leaving": ws.is_leaving,
        "leaving": facts_of(state, ws),
        "is_paused": ws.is_paused,
        "is_blocked": is_barred(ws),
        "why_not": why_not(state, ws),
        "is_away": ws.is_away,
        "n_processing": len(ws.processing),
        "n_in_memory": len(ws.has_what),
        "nbytes": min(ws.nbytes, MAX_NUMBER),
        "occupancy_s": ws.occupancy_ns / 1e9,
        "last_seen_s": max(0.0, state.awake_s - seen),
        "metrics": _measurements(ws),
    }


def _measurements(ws: WorkerHandle) -> dict[str, int]:
    """Return what a worker last reported about itself; empty before its first heartbeat."""
    status = ws.status
    if status is None:
        return {"rss": ws.resident_nbytes} if ws.resident_nbytes else {}
    return {
        "tasks": status.n_records,
        "ready": status.n_ready,
        "managed": status.managed_nbytes,
        "spilled": spilled_nbytes(ws),
        "rss": ws.resident_nbytes,
        "cpu": status.cpu_percent,
        "fetched": min(status.fetched_nbytes, MAX_NUMBER),
    }


def describe_client(state: SchedulerState, client: ClientHandle) -> dict[str, Any]:
    """Describe a client; `lost_s` is None while it is connected."""
    lease = client.lease
    return {
        "id": client.client_id,
        "name": client.name,
        "user": client.user.name,
        "n_wants": len(client.wants),
        "lost_s": None
        if lease is None
        else state.awake_s + state.settings.client_lease_s - lease.when,
    }
