"""What the project asks of the graph engines and pools, and the figures that are derived from
several cells. No processes, no clock.
"""

from __future__ import annotations

from ..framework.results import Cells, Found, median_of, quotient
from ..framework.table import Goal


def growth_of_edges(cells: Cells, system: str) -> float | None:
    """Return the cost of one more edge between 50 and 100 edges per task, over that between 10 and
    50: 1 if the cost is linear, 2.5 if it is quadratic.
    """
    low, middle, high = (median_of(cells, f"edges-{n}", system) for n in (10, 50, 100))
    if low is None or middle is None or high is None or middle <= low:
        return None
    return ((high - middle) / 50) / ((middle - low) / 40)


def growth_of_submits(cells: Cells, system: str) -> float | None:
    """Return what a task costs among 100 000, over the same among 10 000: 1 if it is flat."""
    return quotient(cells, ("submits-100000", system), ("submits-10000", system))


def _of(workload: str, system: str) -> Found:
    return lambda cells: median_of(cells, workload, system)


def _against_dask(workload: str) -> Found:
    return lambda cells: quotient(cells, (workload, "dask-threaded"), (workload, "weft-threaded"))


def _engines(workload: str) -> tuple[Goal, ...]:
    return (
        Goal(workload, "4 sync", 4, _of(workload, "weft-sync")),
        Goal(workload, "6 threaded", 6, _of(workload, "weft-threaded")),
        Goal(workload, "30 processes", 30, _of(workload, "weft-processes")),
    )


GOALS = (
    *_engines("independent"),
    *_engines("tasks-10000"),
    *(
        Goal(name, "10 x dask threaded", 10, _against_dask(name), at_least=True)
        for name in ("edges-1", "edges-10", "edges-50")
    ),
    Goal(
        "edges-growth", "1.5 threaded", 1.5, lambda cells: growth_of_edges(cells, "weft-threaded")
    ),
    Goal("array-overhead", "8 x dask", 8, _against_dask("array-overhead"), at_least=True),
    *(
        Goal(name, "10", 10, _of(name, "weft-threaded"))
        for name in ("start-sync", "start-weft", "start-threads")
    ),
    *(
        Goal(name, "2.4 weft.ThreadPool", 2.4, _of(name, "weft-pool"))
        for name in ("submits-10000", "submits-100000")
    ),
    Goal(
        "submits-growth",
        "1.25 weft.ThreadPool",
        1.25,
        lambda cells: growth_of_submits(cells, "weft-pool"),
    ),
)
