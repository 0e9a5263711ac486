"""Metrics in Prometheus' words: names, types, labels, help.

Nothing is counted or named here: `scheduler/core/insight/metrics.py` and `protocol/reported.py`
have the names and the values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from prometheus_client import ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.core import Metric as Family
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector, CollectorRegistry

from ...protocol.metrics import BOUNDS_US, Metric
from ...scheduler.core.features import METRICS

#: What the HTTP process itself adds to the scheduler's page.
ADDED: Final = (
    Metric("weft_build_info", "Always 1; the versions are labels.", ("version", "python")),
    Metric("process_cpu_seconds_total", "Processor time of the process."),
    Metric("process_resident_memory_bytes", "Resident memory of the process."),
    Metric("process_virtual_memory_bytes", "Virtual memory of the process."),
    Metric("process_open_fds", "Open file descriptors of the process."),
    Metric("process_max_fds", "The most that it may have."),
    Metric("process_start_time_seconds", "When the process started."),
)

#: The upper ends of the buckets of histograms, as texts.
_BOUNDS: Final = (*(repr(bound / 1e6) for bound in BOUNDS_US), "+Inf")


def render(
    values: Mapping[str, Any], facts: Mapping[str, str], accept: str, pid: int = 0
) -> tuple[bytes, str]:
    """Return the page and its content type: text format 0.0.4, or OpenMetrics if asked for.

    Args:
        values: the result of `metrics.metrics`.
        facts: labels of weft_build_info.
        accept: the request's Accept header.
        pid: of the scheduler's process, which runs on this machine; 0 = it is not known.
    """
    return encode(_families(values, facts, pid), accept)


def encode(families: Iterable[Family], accept: str) -> tuple[bytes, str]:
    """Return a page of these families and its content type."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Made(families))
    encoder, content_type = choose_encoder(accept)
    return encoder(registry), content_type


class _Made(Collector):
    def __init__(self, families: Iterable[Family]) -> None:
        self._families = families

    def describe(self) -> Iterable[Family]:
        """Return no names beforehand; the registry has this collector only."""
        return []

    def collect(self) -> Iterable[Family]:
        """Return the families."""
        return self._families


def _families(values: Mapping[str, Any], facts: Mapping[str, str], pid: int) -> Iterator[Family]:
    yield build_info(facts)
    for name, value in values.items():
        family = family_of(METRICS.get(name) or Metric(name, f"{name}."))
        add(family, value)
        yield family
    if pid:
        yield from ProcessCollector(pid=lambda: pid, registry=None).collect()


def build_info(facts: Mapping[str, str]) -> Family:
    """Return the family whose labels are versions."""
    build = GaugeMetricFamily(ADDED[0].name, ADDED[0].text, labels=list(facts))
    build.add_metric(list(facts.values()), 1)
    return build


def family_of(metric: Metric, labels: Iterable[str] = ()) -> Family:
    """Return the family of a metric, which has no values yet, with these labels before its own."""
    name, names = metric.full_name, [*labels, *metric.labels]
    if metric.kind == "counter":
        return CounterMetricFamily(name.removesuffix("_total"), metric.text, labels=names)
    if metric.kind == "histogram":
        return HistogramMetricFamily(name, metric.text, labels=names)
    return GaugeMetricFamily(name, metric.text, labels=names)


def add(family: Any, value: Any, labels: list[str] | None = None) -> None:
    """Add a value: a number, numbers by the values of labels, or a histogram's plain form."""
    labels = labels or []
    if isinstance(family, HistogramMetricFamily):
        n, buckets = 0, []
        for bound, count in zip(_BOUNDS, value["counts"], strict=True):
            n += count
            buckets.append((bound, n))
        family.add_metric(labels, buckets, value["sum"])
    elif isinstance(value, dict):
        for label, inner in value.items():
            add(family, inner, [*labels, label])
    else:
        family.add_metric(labels, value)
