"""The scheduler's metrics in Prometheus' words: names, types, labels, help.

The core keeps plain ints and `info.metrics` names them; nothing is counted here. A name without an
entry in `_FAMILIES` is rendered as it is, as a counter if it ends in `_total`, so that a new one
shows at the next scrape.

For the HTTP process only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector, CollectorRegistry

PREFIX: Final = "weft_scheduler_"


@dataclass(frozen=True)
class _Family:
    text: str
    label: str = ""
    #: what the metric is called, if not as in `info.metrics`
    name: str = ""
    #: the one value of `label` of a metric that has no labels yet
    only: str = ""
    factor: float = 1.0


_FAMILIES: Final[dict[str, _Family]] = {
    "tasks": _Family("Tasks that the scheduler knows, by state.", "state"),
    "tasks_submitted_total": _Family("Tasks that clients submitted."),
    "tasks_completed_total": _Family("Tasks that finished."),
    "tasks_failed_total": _Family("Tasks given up, by reason.", "reason"),
    "tasks_cancelled_total": _Family("Tasks that clients cancelled."),
    "tasks_retried_total": _Family("Attempts made because an earlier one raised."),
    "tasks_recomputed_total": _Family("Tasks run again because their only copy was lost."),
    "tasks_returned_total": _Family("Unstarted attempts that busy workers gave back."),
    "tasks_assigned_total": _Family("Attempts given to workers."),
    "tasks_assigned_ahead_total": _Family("Attempts given to workers before their inputs were."),
    "reports_stale_total": _Family("Reports of attempts that were not current any more."),
    "replicas_missing_total": _Family("Copies that were not where they were expected."),
    "task_compute_seconds_total": _Family("Time that tasks ran, by function.", "prefix"),
    "tasks_finished_total": _Family("Tasks that finished, by function.", "prefix"),
    "workers": _Family("Workers that are connected.", "state", only="running"),
    "workers_joined_total": _Family("Workers that joined."),
    "workers_lost_total": _Family("Workers that were lost."),
    "workers_left_total": _Family("Workers that left in order."),
    "worker_threads": _Family("Threads of all workers."),
    "worker_threads_busy": _Family("Threads that have a task."),
    "memory_managed_bytes": _Family("Bytes of results that workers hold."),
    "clients": _Family("Clients that are connected or expected back."),
    "clients_joined_total": _Family("Clients that joined."),
    "clients_expired_total": _Family("Clients that were lost and did not come back."),
    "connections": _Family("Open connections."),
    "auth_failures_total": _Family("Connections refused before they proved the token."),
    "protocol_errors_total": _Family("Peers that broke the rules of the protocol."),
    "bytes_total": _Family("Bytes on all connections.", "direction"),
    "frames_total": _Family("Frames on all connections.", "direction"),
    "cpu_seconds_total": _Family("Processor time of the scheduler's process."),
    "epoch": _Family("When the scheduler started.", name="epoch_timestamp_seconds", factor=1e-9),
}


def render(values: Mapping[str, Any], facts: Mapping[str, str], accept: str) -> tuple[bytes, str]:
    """Return the page and its content type: text format 0.0.4, or OpenMetrics if asked for.

    Args:
        values: what `info.metrics` gave.
        facts: labels of weft_build_info.
        accept: the request's Accept header.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Values(values, facts))
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


class _Values(Collector):
    def __init__(self, values: Mapping[str, Any], facts: Mapping[str, str]) -> None:
        self._values = values
        self._facts = facts

    def describe(self) -> Iterable[Metric]:
        """Name nothing beforehand; the registry holds this collector only."""
        return []

    def collect(self) -> Iterable[Metric]:
        """Make the families."""
        build = GaugeMetricFamily(
            "weft_build_info", "The scheduler's versions.", labels=list(self._facts)
        )
        build.add_metric(list(self._facts.values()), 1)
        yield build
        for name, value in self._values.items():
            yield _family(name, value)


def _family(name: str, value: Any) -> Metric:
    family = _FAMILIES.get(name)
    if family is None:
        family = _Family(
            name.replace("_", " ").capitalize() + ".", "name" if isinstance(value, dict) else ""
        )
    labels = [family.label] if family.label else []
    full = PREFIX + (family.name or name)
    metric: CounterMetricFamily | GaugeMetricFamily
    if full.endswith("_total"):
        metric = CounterMetricFamily(full.removesuffix("_total"), family.text, labels=labels)
    else:
        metric = GaugeMetricFamily(full, family.text, labels=labels)
    rows = value if isinstance(value, dict) else {family.only: value}
    for label, number in rows.items():
        metric.add_metric([label] if labels else [], number * family.factor)
    return metric
