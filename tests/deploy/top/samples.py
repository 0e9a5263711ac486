"""Overviews and workers as a scheduler describes them, for tests of what is drawn."""

from __future__ import annotations

import copy
from typing import Any

from weft.deploy.overview.snapshot import Snapshot

OVERVIEW: dict[str, Any] = {
    "name": "",
    "version": "0.1.0",
    "python": "3.11.7",
    "host": "node1",
    "pid": 123,
    "epoch": 7,
    "uptime_s": 3720.0,
    "recovering": "",
    "tasks": {"waiting": 0, "queued": 1500, "processing": 4, "memory": 70_000, "erred": 2},
    "n_workers": {"running": 2, "leaving": 1, "away": 0},
    "threads": 6,
    "threads_busy": 4,
    "memory": {"managed": 3 << 30, "resident": 4 << 30, "limit": 16 << 30},
    "n_clients": 1,
    "desired_workers": 40,
    "cpu_s": 10.0,
    "loop_lag_s": 0.0031,
    "totals": {
        "submitted": 71_506,
        "completed": 70_000,
        "failed": 2,
        "cancelled": 0,
        "retried": 5,
        "recomputed": 0,
        "workers_lost": 1,
    },
    "functions": [
        {
            "name": "train",
            "n_finished": 100,
            "n_failed": 2,
            "n_unfinished": 1504,
            "n_processing": 4,
            "compute_s": 150.0,
        },
        {
            "name": "load",
            "n_finished": 69_900,
            "n_failed": 0,
            "n_unfinished": 0,
            "n_processing": 0,
            "compute_s": 70.0,
        },
    ],
    "failures": [
        {
            "key": "train-0a1b",
            "function": "train",
            "kind": "exception",
            "text": "ValueError: oops [red]not markup[/red]\nmore",
            "worker": "w-10",
            "age_s": 12.0,
        }
    ],
    "health": [{"level": "ok", "code": "ok", "text": "no problem is known"}],
}


def worker(i: int, **changes: Any) -> dict[str, Any]:
    """A worker w-i, which is idle and uses i percent of 10 GB."""
    return {
        "id": f"id{i}",
        "name": f"w-{i}",
        "host": f"host{i % 3}",
        "nthreads": 2,
        "memory_limit": 10**10,
        "is_leaving": False,
        "is_away": False,
        "n_processing": 0,
        "n_in_memory": 0,
        "nbytes": 0,
        "last_seen_s": 0.5,
        "metrics": {"rss": i * 10**8, "cpu": i},
        **changes,
    }


def snapshot(n_workers: int = 12, **changes: Any) -> Snapshot:
    """A snapshot after two looks, one second apart, with 100 tasks finished between them."""
    made = Snapshot(address="tcp://node1:8786")
    overview = copy.deepcopy(OVERVIEW) | changes
    made.take(copy.deepcopy(overview), 10.0)
    overview["totals"]["completed"] += 100
    for function in overview["functions"][:1]:
        function["n_finished"] += 100
    overview["cpu_s"] += 0.25
    made.take(overview, 11.0)
    made.workers = {f"tcp://10.0.0.{i}:1": worker(i) for i in range(n_workers)}
    return made
