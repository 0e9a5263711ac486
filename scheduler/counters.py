"""What happened so far, as plain ints.

Incremented once a batch, rendered only when somebody asks.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Counters:
    """Totals since the scheduler started; none ever decreases. Gauges (`n_*`) may."""

    tasks_submitted: int = 0
    tasks_completed: int = 0
    tasks_failed_exception: int = 0
    tasks_failed_worker_died: int = 0
    tasks_failed_lost_data: int = 0
    tasks_cancelled: int = 0
    tasks_retried: int = 0
    tasks_recomputed: int = 0
    tasks_returned: int = 0
    tasks_assigned: int = 0
    tasks_assigned_ahead: int = 0
    reports_stale: int = 0
    replicas_missing: int = 0
    workers_joined: int = 0
    workers_lost: int = 0
    workers_left: int = 0
    clients_joined: int = 0
    clients_expired: int = 0
    protocol_errors: int = 0
    #: gauges of the states that no container counts
    n_memory: int = 0
    n_erred: int = 0
    n_released: int = 0
