"""Counts of events, as plain ints, and the metric of each.

They are incremented once per batch and rendered only on request. A field's metadata is its
metric: the values are named and described by it, and the HTTP process gives Prometheus its name,
type, label and text. So adding a counter is one line here.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Final

from ....protocol.metrics import Metric
from ....protocol.wire.failure import MEMORY_EXCEEDED, TIMED_OUT


def _total(text: str, name: str = "", label: tuple[str, str] = ("", "")) -> int:
    """Declare a counter; by default its name is that of its field, with `_total`.

    Args:
        text: see `Metric`.
        name: several fields may have the same, if the values of their label differ.
        label: the label, and this field's value of it.
    """
    default: int = field(default=0, metadata={"text": text, "name": name, "label": label})
    return default


_FAILED: Final = ("Tasks given up, by reason.", "tasks_failed_total")


@dataclass(slots=True)
class Counters:
    """Totals since the scheduler started; none ever decreases. Gauges of states may."""

    tasks_submitted: int = _total("Tasks that clients submitted.")
    tasks_completed: int = _total("Tasks that finished.")
    tasks_failed_exception: int = _total(*_FAILED, ("reason", "exception"))
    tasks_failed_worker_died: int = _total(*_FAILED, ("reason", "worker_died"))
    tasks_failed_lost_data: int = _total(*_FAILED, ("reason", "lost_data"))
    tasks_failed_timed_out: int = _total(*_FAILED, ("reason", "timed_out"))
    tasks_failed_memory: int = _total(*_FAILED, ("reason", "memory"))
    tasks_cancelled: int = _total("Tasks that clients cancelled.")
    tasks_retried: int = _total("Attempts made because an earlier one raised, or took too long.")
    tasks_recomputed: int = _total("Tasks run again because their only copy was lost.")
    tasks_returned: int = _total("Unstarted attempts that busy workers gave back.")
    tasks_assigned: int = _total("Attempts given to workers.")
    tasks_assigned_ahead: int = _total("Attempts given to workers before their inputs were.")
    recipes_differing: int = _total(
        "Tasks of dask that were submitted again with another call, and shared as they were."
    )
    reports_stale: int = _total("Reports of attempts that were not current any more.")
    replicas_missing: int = _total("Copies that were not where they were expected.")
    results_kept: int = _total("Results that workers which came back had kept.")
    attempts_adopted: int = _total("Attempts that went on while their worker was away.")
    workers_joined: int = _total("Workers that joined.")
    workers_lost: int = 0
    workers_left: int = _total("Workers that left in order.")
    clients_joined: int = _total("Clients that joined.")
    clients_expired: int = _total("Clients that were lost and did not come back.")
    protocol_errors: int = _total("Peers that broke the rules of the protocol.")
    denied: int = _total("Messages that the sender's token does not permit.")
    #: tasks that failed by themselves, for any reason
    n_failed: int = 0
    #: gauges of the states that no container counts
    n_memory: int = 0
    n_erred: int = 0
    n_released: int = 0

    def count_failed(self, kind: str) -> None:
        """Count a task that fails by itself, by the kind of its failure (see `failure.py`)."""
        self.n_failed += 1
        if kind == "exception":
            self.tasks_failed_exception += 1
        elif kind == "worker-died":
            self.tasks_failed_worker_died += 1
        elif kind == "data-lost":
            self.tasks_failed_lost_data += 1
        elif kind == TIMED_OUT:
            self.tasks_failed_timed_out += 1
        elif kind == MEMORY_EXCEEDED:
            self.tasks_failed_memory += 1


@dataclass(frozen=True, slots=True)
class _Counted:
    metric: Metric
    field: str
    #: this field's value of the metric's label
    value: str


def _counted() -> list[_Counted]:
    found = []
    for counter in fields(Counters):
        if counter.metadata:
            label, value = counter.metadata["label"]
            name = counter.metadata["name"] or f"{counter.name}_total"
            metric = Metric(name, counter.metadata["text"], (label,) if label else ())
            found.append(_Counted(metric, counter.name, value))
    return found


_COUNTED: Final = _counted()
#: The metrics of `Counters`, each once.
COUNTED: Final = list({counted.metric.name: counted.metric for counted in _COUNTED}.values())


def totals(counters: Counters) -> dict[str, int | dict[str, int]]:
    """Return the values by metric: name -> number, or name -> {value of the label: number}."""
    values: dict[str, int | dict[str, int]] = {}
    for counted in _COUNTED:
        number: int = getattr(counters, counted.field)
        family = values.setdefault(counted.metric.name, {} if counted.value else number)
        if isinstance(family, dict):
            family[counted.value] = number
    return values
