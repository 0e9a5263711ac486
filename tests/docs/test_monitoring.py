"""docs/monitoring.md shows the metrics that the code declares."""

from __future__ import annotations

from pathlib import Path

from weft.deploy.http.prometheus import ADDED
from weft.protocol.metrics import Metric
from weft.protocol.reported import OF_SUPERVISORS, OF_WORKERS
from weft.scheduler.core.features import METRICS

PAGE = Path(__file__).parents[2] / "docs" / "monitoring.md"


def declared() -> list[Metric]:
    """Return every metric, by the process that it is about."""
    reported = [*OF_WORKERS, *OF_SUPERVISORS]
    own = [metric for metric in METRICS.values() if metric not in reported]
    return [*own, *reported, *ADDED]


def table() -> str:
    """Render the metrics as the page shows them."""
    rows = [
        f"| `{metric.full_name}` | {metric.kind} | {', '.join(metric.labels)} | {metric.text} |"
        for metric in declared()
    ]
    return "\n".join(["| metric | type | labels | meaning |", "|---|---|---|---|", *rows]) + "\n"


def test_the_page_shows_the_metrics_of_the_code() -> None:
    assert table() in PAGE.read_text(encoding="utf-8"), f"put this into {PAGE}:\n{table()}"


def test_the_names_follow_the_conventions_of_prometheus() -> None:
    names = [metric.full_name for metric in declared()]
    assert len(names) == len({*names})
    for metric in declared():
        assert metric.text.endswith("."), metric.name
        assert metric.kind != "histogram" or metric.name.endswith("_seconds"), metric.name
        assert not metric.name.endswith(("_ms", "_us", "_ns", "_mb", "_count", "_sum")), metric.name
