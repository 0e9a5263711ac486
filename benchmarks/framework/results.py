"""The outcome of a benchmark run: cells, goals, the table and the JSON. No processes, no clock."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..clusters.systems import SYSTEMS
from ..clusters.workloads import WORKLOADS, Workload


@dataclass(slots=True)
class Cell:
    """One workload on one system: its runs, or why there are none (or fewer than asked for)."""

    peer: str
    workload: str
    runs: list[float] = field(default_factory=list)
    size: int = 0
    checksum: int | None = None
    #: Figures beside the main one: {name: one value a run}.
    extra: dict[str, list[float]] = field(default_factory=dict)
    note: str | None = None
    #: The end of the system's own output, kept when something went wrong.
    log: str | None = None

    @property
    def median(self) -> float | None:
        return statistics.median(self.runs) if self.runs else None

    @property
    def spread(self) -> float | None:
        """Half the distance between the slowest and the fastest run, relative to the median;
        None for one run.
        """
        if len(self.runs) < 2:
            return None
        return (max(self.runs) - min(self.runs)) / 2 / statistics.median(self.runs)

    def to_json(self) -> dict[str, Any]:
        return {
            "peer": self.peer,
            "workload": self.workload,
            "unit": WORKLOADS[self.workload].unit,
            "size": self.size,
            "runs": self.runs,
            "median": self.median,
            "spread": self.spread,
            "checksum": self.checksum,
            "extra": self.extra,
            "note": self.note,
            "log": self.log,
        }


#: {(workload, peer): cell}
Cells = Mapping[tuple[str, str], Cell]


def median_of(cells: Cells, workload: str, peer: str) -> float | None:
    cell = cells.get((workload, peer))
    return cell.median if cell else None


def ratio(cells: Cells, workload: str, peer: str) -> float | None:
    """Return how many times faster weft is than the peer; None if either has no figure."""
    ours, theirs = median_of(cells, workload, "weft"), median_of(cells, workload, peer)
    if ours is None or theirs is None:
        return None
    return ours / theirs if WORKLOADS[workload].more_is_better else theirs / ours


@dataclass(frozen=True, slots=True)
class Goal:
    """What the project asks of weft. `found` returns the figure that is compared, None if it was
    not measured.
    """

    workload: str
    text: str
    bound: float
    at_least: bool
    found: Callable[[Cells], float | None]

    def is_met(self, cells: Cells) -> bool | None:
        value = self.found(cells)
        if value is None:
            return None
        return value >= self.bound if self.at_least else value <= self.bound


def _weft(workload: str) -> Callable[[Cells], float | None]:
    return lambda cells: median_of(cells, workload, "weft")


def _big_map_share(cells: Cells) -> float | None:
    big, small = median_of(cells, "big-map", "weft"), median_of(cells, "map", "weft")
    return None if big is None or small is None else big / small


def _bytes_per_task(cells: Cells) -> float | None:
    cell = cells.get(("big-map", "weft"))
    # The first run alone starts with a fresh scheduler; later ones reuse the memory that it has
    # taken.
    values = cell.extra.get("scheduler_bytes_per_task") if cell else None
    return values[0] if values else None


GOALS: tuple[Goal, ...] = (
    Goal("map", "60 000", 60_000, True, _weft("map")),
    Goal("map", "25 x dask best", 25, True, lambda cells: ratio(cells, "map", "dask-best")),
    Goal("submit", "30 000", 30_000, True, _weft("submit")),
    Goal("round-trip", "0.5", 0.5, False, _weft("round-trip")),
    Goal("chain", "20 000", 20_000, True, _weft("chain")),
    Goal("tree", "30 000", 30_000, True, _weft("tree")),
    Goal("neighbour", "30 000", 30_000, True, _weft("neighbour")),
    Goal("as-completed", "40 000", 40_000, True, _weft("as-completed")),
    Goal("big-map", "0.7 of the small map", 0.7, True, _big_map_share),
    Goal("big-map", "1 200 B/task", 1_200, False, _bytes_per_task),
    Goal("import", "0.15", 0.15, False, _weft("import")),
    Goal("first-result", "1", 1.0, False, _weft("first-result")),
)


def show(value: float) -> str:
    """Three significant digits, thousands set apart: 104 000, 590, 0.231."""
    if value >= 1000:
        digits = len(str(int(value))) - 3
        return grouped(round(value, -digits))
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}"


def grouped(value: float) -> str:
    """Set thousands apart: 1 000 000."""
    return f"{value:,.0f}".replace(",", " ")


def title(workload: Workload, size: int) -> str:
    return workload.title.format(n=grouped(size)) + f", {workload.unit}"


class Table:
    """Collects footnotes while cells are rendered, so that a cell stays short."""

    def __init__(self, cells: Cells, *, is_quick: bool) -> None:
        self._cells = cells
        self._is_quick = is_quick
        self._notes: list[str] = []

    def render(self, workloads: Sequence[str], peers: Sequence[str]) -> str:
        """Return one table, aligned and valid Markdown at once, with its footnotes below."""
        self._notes = []
        head = ["workload", "goal", *(SYSTEMS[peer].title for peer in peers)]
        with_goals = not self._is_quick and "weft" in peers
        if not with_goals:
            del head[1]
        rows = [head]
        for name in workloads:
            workload = WORKLOADS[name]
            size = workload.quick_size if self._is_quick else workload.size
            row = [title(workload, size)]
            if with_goals:
                row.append(self._goals(name))
            row += [self._cell(name, peer) for peer in peers]
            rows.append(row)
        lines = align(rows)
        if self._notes:
            lines += ["", *(f"[{i}] {note}" for i, note in enumerate(self._notes, 1))]
        return "\n".join(lines)

    def _goals(self, workload: str) -> str:
        parts = []
        for goal in GOALS:
            if goal.workload != workload:
                continue
            word = {True: "met", False: "MISSED", None: "?"}[goal.is_met(self._cells)]
            parts.append(f"{'≥' if goal.at_least else '≤'} {goal.text} {word}")
        return ", ".join(parts)

    def _cell(self, workload: str, peer: str) -> str:
        cell = self._cells.get((workload, peer))
        if cell is None:
            return ""
        mark = f" [{self._note(cell.note)}]" if cell.note else ""
        if cell.median is None:
            return f"-{mark}"
        text = show(cell.median)
        if cell.spread is not None:
            text += f" ±{cell.spread:.0%}"
        factor = ratio(self._cells, workload, peer)
        if peer != "weft" and factor is not None:
            text += f" ({show(factor)}x)"
        return text + mark

    def _note(self, text: str) -> int:
        if text not in self._notes:
            self._notes.append(text)
        return self._notes.index(text) + 1


def align(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the rows as lines, in columns of equal width."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for i, row in enumerate(rows):
        # Words to the left, figures to the right.
        cells = [
            text.ljust(width) if column == 0 else text.rjust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("| " + " | ".join(cells) + " |")
        if i == 0:
            rules = [
                ":" + "-" * (width - 1) if column == 0 else "-" * (width - 1) + ":"
                for column, width in enumerate(widths)
            ]
            lines.append("| " + " | ".join(rules) + " |")
    return lines


def memory_line(cells: Cells) -> str | None:
    """Say what the scheduler held for each task of the big map."""
    cell = cells.get(("big-map", "weft"))
    if cell is None or "scheduler_bytes_per_task" not in cell.extra:
        return None
    held = show(cell.extra["scheduler_bytes_per_task"][0])
    peak = show(cell.extra["scheduler_peak_bytes_per_task"][0])
    return (
        f"weft's scheduler process held {held} bytes for each of {grouped(cell.size)} tasks when "
        f"all results were in hand, at most {peak} on the way (first run, fresh process)."
    )


def to_json(
    cells: Cells,
    *,
    machine: Mapping[str, Any],
    versions: Mapping[str, str],
    options: Mapping[str, Any],
    is_quick: bool,
) -> dict[str, Any]:
    """Return all that was measured, as plain data."""
    ratios: dict[str, dict[str, float]] = {}
    for workload, peer in cells:
        factor = ratio(cells, workload, peer)
        if peer != "weft" and factor is not None:
            ratios.setdefault(workload, {})[peer] = factor
    goals = [
        {
            "workload": goal.workload,
            "goal": ("at least " if goal.at_least else "at most ") + goal.text,
            "found": goal.found(cells),
            "met": goal.is_met(cells),
        }
        for goal in GOALS
        if not is_quick
    ]
    return {
        "machine": dict(machine),
        "versions": dict(versions),
        "options": dict(options),
        "goals": goals,
        "ratios_weft_to_peer": ratios,
        "cells": [cell.to_json() for cell in cells.values()],
    }
