"""The scheduler's metrics in Prometheus' words: names, types, labels, help.

Nothing is counted or named here: `scheduler/core/info.py` has the values and their names. A
name that ends in `_total` is a counter, any other a gauge.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector, CollectorRegistry

from ...scheduler.core.counters import Metric
from ...scheduler.core.info import METRICS

PREFIX: Final = "weft_scheduler_"


def render(values: Mapping[str, Any], facts: Mapping[str, str], accept: str) -> tuple[bytes, str]:
    """Return the page and its content type: text format 0.0.4, or OpenMetrics if asked for.

    Args:
        values: the result of `info.metrics`.
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

    def describe(self) -> Iterable[Family]:
        """Return no names beforehand; the registry has this collector only."""
        return []

    def collect(self) -> Iterable[Family]:
        """Make the families."""
        build = GaugeMetricFamily(
            "weft_build_info", "The scheduler's versions.", labels=list(self._facts)
        )
        build.add_metric(list(self._facts.values()), 1)
        yield build
        for name, value in self._values.items():
            yield _family(name, value)


def _family(name: str, value: Any) -> Family:
    metric = METRICS.get(name) or Metric(name, name, "name" if isinstance(value, dict) else "")
    labels = [metric.label] if metric.label else []
    family: CounterMetricFamily | GaugeMetricFamily
    if name.endswith("_total"):
        bare = PREFIX + name.removesuffix("_total")
        family = CounterMetricFamily(bare, metric.text, labels=labels)
    else:
        family = GaugeMetricFamily(PREFIX + name, metric.text, labels=labels)
    for label, number in (value if isinstance(value, dict) else {"": value}).items():
        family.add_metric([label] if labels else [], number)
    return family
