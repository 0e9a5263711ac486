"""The state described for display and for Prometheus: plain maps, made only on request.

A metric is declared once: counters in `counters.py`, values read off the state in `_SHOWN`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ...protocol.wire.message import MAX_NUMBER
from ...protocol.wording import counted
from .barrier import waits_for
from .counters import COUNTED, Metric, totals
from .desired import desired_workers
from .refusals import describe_refusals
from .tasks import NO_WORKER, PROCESSING, QUEUED, WAITING

if TYPE_CHECKING:
    from .peers import ClientHandle, WorkerHandle
    from .state import SchedulerState


def task_counts(state: SchedulerState) -> dict[str, int]:
    """Count tasks by state; sums to the number of known tasks. O(workers + classes)."""
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
        "nthreads": sum(ws.nthreads for ws in state.workers.values()),
        "memory": _total(ws.memory_limit for ws in state.workers.values()),
        "n_clients": len(state.clients),
        "refused_workers": describe_refusals(state),
        "tasks": task_counts(state),
    }


def describe_worker(state: SchedulerState, ws: WorkerHandle) -> dict[str, Any]:
    """Describe a worker (names, counts, bytes, seconds)."""
    seen = state.seen.get(ws.peer)
    if seen is None:  # it is away, since its connection ended
        seen = state.awake_s if ws.away_due is None else ws.away_due.when - state.away_s
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
        "rss": ws.resident_nbytes,
        "cpu": status.cpu_percent,
    }


def _memory_of_workers(state: SchedulerState) -> dict[str, int]:
    workers = state.workers.values()
    return {
        "managed": _total(ws.status.managed_nbytes for ws in workers if ws.status is not None),
        "resident": _total(ws.resident_nbytes for ws in workers),
    }


def _total(numbers: Iterable[int]) -> int:
    """Add up what peers report; some may be wrong, and the sum must fit into a message."""
    return min(sum(numbers), MAX_NUMBER)


def describe_client(state: SchedulerState, client: ClientHandle) -> dict[str, Any]:
    """Describe a client; `lost_s` is None while it is connected."""
    lease = client.lease
    return {
        "id": client.client_id,
        "name": client.name,
        "n_wants": len(client.wants),
        "lost_s": None if lease is None else state.awake_s + state.client_lease_s - lease.when,
    }


@dataclass(frozen=True, slots=True)
class _Shown(Metric):
    """A metric that is read off the state on request."""

    #: the number, or {value of the label: number}
    read: Callable[[SchedulerState], Any] = lambda state: 0


def _epoch_s(state: SchedulerState) -> float:
    return state.epoch / 1e9


_SHOWN: Final = (
    _Shown("tasks", "Tasks that the scheduler knows, by state.", "state", task_counts),
    _Shown(
        "task_compute_seconds_total",
        "Time that tasks ran, by function.",
        "prefix",
        lambda state: state.prefixes.totals(lambda prefix: prefix.compute_ns / 1e9),
    ),
    _Shown(
        "task_erred_seconds_total",
        "Time that attempts ran that raised, by function.",
        "prefix",
        lambda state: state.prefixes.totals(lambda prefix: prefix.erred_us / 1e6),
    ),
    _Shown(
        "task_queued_seconds_total",
        "Time from the arrival of attempts at a worker to the start of their chunk, by function.",
        "prefix",
        lambda state: state.prefixes.totals(lambda prefix: prefix.queued_us / 1e6),
    ),
    _Shown(
        "task_fetched_seconds_total",
        "The part of the queued time until the last input came from another worker, by function.",
        "prefix",
        lambda state: state.prefixes.totals(lambda prefix: prefix.fetched_us / 1e6),
    ),
    _Shown(
        "tasks_finished_total",
        "Tasks that finished, by function.",
        "prefix",
        lambda state: state.prefixes.totals(lambda prefix: prefix.n_finished),
    ),
    _Shown(
        "workers",
        "Workers that are connected.",
        "state",
        lambda state: {"running": len(state.workers)},
    ),
    _Shown(
        "worker_memory_bytes",
        "Memory of all workers: of the values in their stores, and of their processes.",
        "kind",
        _memory_of_workers,
    ),
    _Shown(
        "desired_workers",
        "Workers that would finish the present work in about the target time.",
        read=lambda state: desired_workers(state).n_workers,
    ),
    _Shown(
        "worker_threads",
        "Threads of all workers.",
        read=lambda state: sum(ws.nthreads for ws in state.workers.values()),
    ),
    _Shown(
        "worker_threads_busy",
        "Threads that have a task.",
        read=lambda state: sum(
            min(ws.nthreads, len(ws.processing)) for ws in state.workers.values()
        ),
    ),
    _Shown(
        "memory_managed_bytes",
        "Bytes of results that workers hold.",
        read=lambda state: _total(ws.nbytes for ws in state.workers.values()),
    ),
    _Shown(
        "clients",
        "Clients that are connected or expected back.",
        read=lambda state: len(state.clients),
    ),
    _Shown("connections", "Open connections.", read=lambda state: len(state.roles)),
    _Shown(
        "recovering",
        "1 while the peers of an earlier scheduler are waited for, and nothing is assigned.",
        read=lambda state: int(state.recovery is not None),
    ),
    _Shown(
        "epoch_timestamp_seconds",
        "When the scheduler started.",
        read=_epoch_s,
    ),
)
#: Values that the shell measures and passes in with ticks (`SchedulerTick.measurements`).
_MEASURED: Final = (
    Metric("auth_failures_total", "Connections refused before they proved the token."),
    Metric("bytes_total", "Bytes on all connections.", "direction"),
    Metric("frames_total", "Frames on all connections.", "direction"),
    Metric("cpu_seconds_total", "Processor time of the scheduler's process."),
)
#: Every metric of a scheduler, by name.
METRICS: Final[dict[str, Metric]] = {m.name: m for m in (*COUNTED, *_SHOWN, *_MEASURED)}


def metrics(state: SchedulerState) -> dict[str, Any]:
    """Every counter and gauge: name -> number, or name -> {label: number}."""
    shown = {metric.name: metric.read(state) for metric in _SHOWN}
    return {**shown, **totals(state.counters), **state.measurements}
