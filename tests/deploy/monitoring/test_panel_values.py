"""The values of panels, from pages whose numbers are known, by promtool's own tests of queries.

One scheduler, one page of two workers, and one program that is no part of weft: what a panel counts
twice, or counts though it is another's, has a wrong value here.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.tools.find import tool
from weft.deploy.monitoring.panels import PANELS, RATE, VARIABLES

pytestmark = pytest.mark.slow

SCHEDULER = {"job": "weft-scheduler", "cluster": "main", "instance": "s0:8787"}
WORKERS = {"job": "weft-workers", "cluster": "main", "instance": "w0:9100"}
OTHER = {"job": "node", "instance": "n0:9100"}
#: (metric, labels, first value, growth each minute)
SERIES = [
    ("weft_build_info", {**SCHEDULER, "version": "1"}, 1, 0),
    ("weft_build_info", {**WORKERS, "version": "1"}, 1, 0),
    ("weft_scheduler_epoch_timestamp_seconds", SCHEDULER, 600, 0),
    ("weft_scheduler_workers", {**SCHEDULER, "state": "running"}, 2, 0),
    ("weft_scheduler_workers", {**SCHEDULER, "state": "paused"}, 1, 0),
    ("weft_scheduler_worker_threads", SCHEDULER, 8, 0),
    ("weft_scheduler_worker_threads_busy", SCHEDULER, 2, 0),
    ("weft_scheduler_tasks", {**SCHEDULER, "state": "queued"}, 5, 0),
    ("weft_scheduler_tasks", {**SCHEDULER, "state": "processing"}, 2, 0),
    ("weft_scheduler_tasks", {**SCHEDULER, "state": "memory"}, 9, 0),
    ("weft_scheduler_unrunnable_tasks", {**SCHEDULER, "reason": "resources"}, 3, 0),
    ("weft_scheduler_tasks_failed_total", {**SCHEDULER, "reason": "exception"}, 0, 60),
    ("weft_scheduler_tasks_completed_total", SCHEDULER, 0, 180),
    ("weft_worker_memory_bytes", {**WORKERS, "worker": "w-0", "kind": "managed"}, 100, 0),
    ("weft_worker_memory_bytes", {**WORKERS, "worker": "w-1", "kind": "managed"}, 200, 0),
    # Of workers without a page of their own: their sum.
    ("weft_worker_memory_bytes", {**SCHEDULER, "kind": "managed"}, 400, 0),
    ("process_resident_memory_bytes", SCHEDULER, 7000, 0),
    ("process_resident_memory_bytes", {**WORKERS, "worker": "w-0"}, 100, 0),
    ("process_resident_memory_bytes", {**WORKERS, "worker": "w-1"}, 200, 0),
    ("process_resident_memory_bytes", OTHER, 9000, 0),
]
#: {(title, is a number, number of the query): {labels of a series: value}}
EXPECTED = {
    ("Schedulers", True, 0): {"{}": 1},
    ("Running since", True, 0): {"{}": 600},
    ("Workers", True, 0): {"{}": 2},
    ("Threads with a task", True, 0): {"{}": 0.25},
    ("Unfinished tasks", True, 0): {"{}": 7},
    ("No worker can run", True, 0): {"{}": 3},
    ("Failures", True, 0): {"{}": 0.25},
    ("Alerts", True, 0): {"{}": 0},
    ("Tasks per second", False, 1): {"{}": 3},
    ("Tasks per second", False, 2): {"{}": 1},
    ("Workers", False, 0): {'{state="running"}': 2, '{state="paused"}': 1},
    ("Memory of workers", False, 0): {'{kind="managed"}': 700},
    ("Largest workers", False, 0): {
        '{instance="w0:9100", worker="w-0"}': 100,
        '{instance="w0:9100", worker="w-1"}': 200,
        '{instance="s0:8787"}': 400,
    },
    ("Memory of its process", False, 0): {'{instance="s0:8787"}': 7000},
}


def _series(metric: str, labels: dict[str, str], first: float, growth: float) -> dict[str, str]:
    inside = ",".join(f'{name}="{value}"' for name, value in labels.items())
    return {"series": f"{metric}{{{inside}}}", "values": f"{first}+{growth}x60"}


def _query(title: str, is_number: bool, index: int) -> str:
    (panel,) = (p for p in PANELS if (p.title, p.is_number) == (title, is_number))
    expr = panel.queries[index].expr
    for name in VARIABLES:
        expr = expr.replace(f"${name}", ".*")
    return expr.replace(RATE, "5m")


def test_each_panel_that_is_a_number_has_a_value_to_compare_with() -> None:
    titles = {title for title, is_number, _ in EXPECTED if is_number}
    assert titles == {panel.title for panel in PANELS if panel.is_number}


def test_panels_show_one_scheduler_beside_a_page_of_workers_and_another_program(
    tmp_path: Path,
) -> None:
    tests = [
        {
            "expr": _query(*which),
            "eval_time": "20m",
            "exp_samples": [{"labels": k, "value": v} for k, v in samples.items()],
        }
        for which, samples in EXPECTED.items()
    ]
    group = {
        "interval": "1m",
        "input_series": [_series(*row) for row in SERIES],
        "promql_expr_test": tests,
    }
    file = tmp_path / "panels.json"  # JSON is YAML
    file.write_text(json.dumps({"evaluation_interval": "1m", "tests": [group]}))
    done = subprocess.run(
        [tool("promtool"), "test", "rules", file],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
