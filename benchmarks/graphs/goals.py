"""What the project asks of the graph engines and pools, and the figures that are derived from
several cells. No processes, no clock.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..framework.results import Cells, median_of

#: Figures of this kind are compared per task; less is better.
Found = Callable[[Cells], float | None]


def times_faster(cells: Cells, workload: str, slow: str, fast: str) -> float | None:
    """Return how many times as long the slow one takes; None if either has no figure."""
    slow_value, fast_value = median_of(cells, workload, slow), median_of(cells, workload, fast)
    if slow_value is None or fast_value is None:
        return None
    # What remains after a subtraction may be nothing, or less.
    return slow_value / fast_value if fast_value > 0 else float("inf")


def growth_of_edges(cells: Cells, system: str) -> float | None:
    """Return what one more edge costs between 50 and 100 edges a task, over the same between 10 and
    50: 1 if the cost is linear, 2.5 if it is quadratic.
    """
    low, middle, high = (median_of(cells, f"edges-{n}", system) for n in (10, 50, 100))
    if low is None or middle is None or high is None or middle <= low:
        return None
    return ((high - middle) / 50) / ((middle - low) / 40)


def growth_of_submits(cells: Cells, system: str) -> float | None:
    """Return what a task costs among 100 000, over the same among 10 000: 1 if it is flat."""
    few = median_of(cells, "submits-10000", system)
    many = median_of(cells, "submits-100000", system)
    return None if few is None or many is None else many / few


@dataclass(frozen=True, slots=True)
class Goal:
    """One figure and its bound. `row` is the row of the tables that shows it."""

    row: str
    text: str
    bound: float
    found: Found
    at_least: bool = False

    def is_met(self, cells: Cells) -> bool | None:
        """Return None if there is no figure."""
        value = self.found(cells)
        if value is None:
            return None
        return value >= self.bound if self.at_least else value <= self.bound

    def render(self, cells: Cells) -> str:
        word = {True: "met", False: "MISSED", None: "?"}[self.is_met(cells)]
        return f"{'≥' if self.at_least else '≤'} {self.text} {word}"


def _of(workload: str, system: str) -> Found:
    return lambda cells: median_of(cells, workload, system)


def _against_dask(workload: str) -> Found:
    return lambda cells: times_faster(cells, workload, "dask-threaded", "weft-threaded")


def _engines(workload: str) -> tuple[Goal, ...]:
    return (
        Goal(workload, "4 sync", 4, _of(workload, "weft-sync")),
        Goal(workload, "6 threaded", 6, _of(workload, "weft-threaded")),
        Goal(workload, "30 processes", 30, _of(workload, "weft-processes")),
    )


GRAPH_GOALS: tuple[Goal, ...] = (
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
