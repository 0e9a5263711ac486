"""The outcome of a run: its cells, the figures taken from them, and how figures and rows are shown.
No processes, no clock.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Cell:
    """One workload on one system: its runs, or why there are none (or fewer than asked for)."""

    peer: str
    workload: str
    runs: list[float] = field(default_factory=list)
    size: int = 0
    checksum: int | None = None
    #: Figures beside the main one: {name: one value per run}.
    extra: dict[str, list[float]] = field(default_factory=dict)
    note: str | None = None
    #: The end of the system's own output, kept when something went wrong.
    log: str | None = None

    @property
    def median(self) -> float | None:
        return statistics.median(self.runs) if self.runs else None

    def to_json(self, unit: str) -> dict[str, Any]:
        figures = {"unit": unit, "median": self.median, "spread": spread_of(self.runs)}
        return dataclasses.asdict(self) | figures


#: {(workload, system): cell}
Cells = Mapping[tuple[str, str], Cell]
#: A figure that is taken from the cells, None if it was not measured.
Found = Callable[[Cells], float | None]


def spread_of(runs: Sequence[float]) -> float | None:
    """Return half the distance between the slowest and the fastest run, relative to the median;
    None for one run, and for a median that is not positive.
    """
    if len(runs) < 2 or statistics.median(runs) <= 0:
        return None
    return (max(runs) - min(runs)) / 2 / statistics.median(runs)


def median_of(cells: Cells, workload: str, system: str) -> float | None:
    cell = cells.get((workload, system))
    return cell.median if cell else None


def quotient(cells: Cells, over: tuple[str, str], under: tuple[str, str]) -> float | None:
    """Divide the median of one cell, (workload, system), by that of another; None if either has no
    figure.
    """
    top, bottom = median_of(cells, *over), median_of(cells, *under)
    if top is None or bottom is None:
        return None
    # The rest after a subtraction may be nothing, or less.
    return top / bottom if bottom > 0 else float("inf")


def show(value: float) -> str:
    """Return three significant digits, thousands set apart: 104 000, 590, 0.231."""
    if value >= 1000:
        digits = len(str(int(value))) - 3
        return grouped(round(value, -digits))
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}"


def grouped(value: float) -> str:
    """Set thousands apart: 1 000 000."""
    return f"{value:,.0f}".replace(",", " ")


def align(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the rows as lines of a Markdown table, in columns of equal width."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rule = [":" + "-" * (widths[0] - 1), *("-" * (width - 1) + ":" for width in widths[1:])]
    lines = []
    for row in [rows[0], rule, *rows[1:]]:
        # Words to the left, figures to the right.
        first, *others = row
        cells = [text.rjust(width) for text, width in zip(others, widths[1:], strict=True)]
        lines.append("| " + " | ".join([first.ljust(widths[0]), *cells]) + " |")
    return lines
