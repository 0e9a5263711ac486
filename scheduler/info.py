"""The state described for people and for Prometheus: plain maps, made only when somebody asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .state import SchedulerState

#: Workers described in one answer.
MAX_WORKERS_LISTED = 1000


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


def cluster_info(state: SchedulerState) -> dict[str, Any]:
    """Describe workers, clients and tasks (names, counts, bytes, seconds)."""
    workers = {
        ws.address: {
            "name": ws.name,
            "host": ws.host,
            "nthreads": ws.nthreads,
            "memory_limit": ws.memory_limit,
            "resources": ws.resources,
            "n_processing": len(ws.processing),
            "n_in_memory": len(ws.has_what),
            "nbytes": ws.nbytes,
            "occupancy_s": ws.occupancy_ns / 1e9,
            "last_seen_s": max(0.0, state.now - ws.last_seen),
            "metrics": ws.metrics,
        }
        for ws in list(state.workers.values())[:MAX_WORKERS_LISTED]
    }
    return {
        **state.facts,
        "epoch": state.epoch,
        "n_workers": len(state.workers),
        "nthreads": sum(ws.nthreads for ws in state.workers.values()),
        "workers": workers,
        "clients": [client.name for client in state.clients.values()],
        "tasks": task_counts(state),
    }


def metrics(state: SchedulerState) -> dict[str, Any]:
    """Every counter and gauge: name -> number, or name -> {label: number}."""
    counters = state.counters
    workers = state.workers.values()
    by_time = sorted(state.prefixes.values(), key=lambda p: -p.compute_ns)
    return {
        "tasks": task_counts(state),
        "tasks_submitted_total": counters.tasks_submitted,
        "tasks_completed_total": counters.tasks_completed,
        "tasks_failed_total": {
            "exception": counters.tasks_failed_exception,
            "worker_died": counters.tasks_failed_worker_died,
            "lost_data": counters.tasks_failed_lost_data,
        },
        "tasks_cancelled_total": counters.tasks_cancelled,
        "tasks_retried_total": counters.tasks_retried,
        "tasks_recomputed_total": counters.tasks_recomputed,
        "tasks_returned_total": counters.tasks_returned,
        "tasks_assigned_total": counters.tasks_assigned,
        "tasks_assigned_ahead_total": counters.tasks_assigned_ahead,
        "reports_stale_total": counters.reports_stale,
        "replicas_missing_total": counters.replicas_missing,
        "task_compute_seconds_total": {p.name: p.compute_ns / 1e9 for p in by_time[:50]},
        "tasks_finished_total": {p.name: p.n_finished for p in by_time[:50]},
        "workers": len(workers),
        "workers_joined_total": counters.workers_joined,
        "workers_lost_total": counters.workers_lost,
        "workers_left_total": counters.workers_left,
        "worker_threads": sum(ws.nthreads for ws in workers),
        "worker_threads_busy": sum(min(ws.nthreads, len(ws.processing)) for ws in workers),
        "memory_managed_bytes": sum(ws.nbytes for ws in workers),
        "clients": len(state.clients),
        "clients_joined_total": counters.clients_joined,
        "clients_expired_total": counters.clients_expired,
        "connections": len(state.roles),
        "protocol_errors_total": counters.protocol_errors,
        "epoch": state.epoch,
        **state.measurements,
    }
