"""The tables of the graph benchmarks: which row and column shows which figure, and the JSON."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..framework.results import Cells, align, grouped, show
from .goals import GRAPH_GOALS, growth_of_edges, growth_of_submits
from .systems import GRAPH_SYSTEMS
from .workloads import (
    ALL_ENGINES,
    EDGE_POINTS,
    ENGINES,
    GRAPH_WORKLOADS,
    LIMITS,
    POOLS,
    TASK_POINTS,
)

#: {system: the one of weft that it is compared with}
COUNTERPARTS = {
    "dask-sync": "weft-sync",
    "dask-threaded": "weft-threaded",
    "dask-processes": "weft-processes",
    "dask-processes-kept": "weft-processes",
    "threads": "weft-pool",
}

#: {column: {row: µs a job}} from the page of JobSchedulers.jl (`OTHER_MACHINE_NOTE` says where).
OTHER_MACHINE: dict[str, dict[str, float]] = {
    "JobSchedulers.jl *": {"submits-10000": 1.71, "submits-100000": 2.38, "submits-growth": 1.39},
    "Dagger.jl *": {"submits-10000": 84.8, "submits-100000": 97.1, "submits-growth": 1.15},
}
OTHER_MACHINE_NOTE = (
    "* another machine, quoted from the overhead test in the documentation of JobSchedulers.jl: "
    "means of three runs\non a Threadripper PRO 7985WX, 24 threads, Julia 1.11.6."
)

START_NOTE = (
    "Each on a pool of the caller's that has run before; medians of many. \"less "
    "submit().result()\" is what the engine\nadds to the pool's own hand-over of a call and its "
    "result, measured in turns with it."
)
SPEED_UP_NOTE = (
    "(Nx) in the row of pure Python tasks is the speed-up: N times as fast as the bare loop."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure for every column."""

    title: str
    #: Has the cells; their notes explain what is empty.
    workload: str
    #: A figure beside the workload's main one.
    extra: str | None = None
    #: Figures are divided by this: edges of a task.
    divide: float = 1.0
    derived: Callable[[Cells, str], float | None] | None = None
    text: Callable[[float], str] = show
    #: `(Nx)` behind figures: against weft's counterpart, as a speed-up over the bare loop, or not.
    factor: str | None = "counterpart"

    def runs(self, cells: Cells, system: str) -> list[float]:
        """Return one figure a run, [] if there is none."""
        if self.derived is not None:
            value = self.derived(cells, system)
            return [] if value is None else [value]
        cell = cells.get((self.workload, system))
        if cell is None:
            return []
        values = cell.runs if self.extra is None else cell.extra.get(self.extra, [])
        return [value / self.divide for value in values]

    def factor_of(self, cells: Cells, system: str) -> float | None:
        """Return the N of `(Nx)`, None if there is nothing to compare."""
        if self.factor == "counterpart":
            top, bottom = system, COUNTERPARTS.get(system)
        else:
            top, bottom = "bare", None if system == "bare" else system
        if self.factor is None or bottom is None:
            return None
        over, under = self.runs(cells, top), self.runs(cells, bottom)
        if not over or not under or statistics.median(under) <= 0:
            return None
        return statistics.median(over) / statistics.median(under)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One table."""

    title: str
    systems: Sequence[str]
    #: {name of the row, which goals refer to: row}
    rows: Mapping[str, Row]
    #: Headings in place of the systems' own.
    headings: Mapping[str, str] = dataclasses.field(default_factory=dict)
    quoted: Mapping[str, Mapping[str, float]] = dataclasses.field(default_factory=dict)
    notes: Sequence[str] = ()
    #: False where another table shows the same cells with their goals.
    with_goals: bool = True


def _row(workload: str, title: str | None = None, **options: Any) -> Row:
    entry = GRAPH_WORKLOADS[workload]
    return Row(title=title or f"{entry.title}, {entry.unit}", workload=workload, **options)


def _crosstalk(edges: int) -> Row:
    plural = "s" if edges > 1 else ""
    title = f"crosstalk, 4 layers of {{n}}, {edges} edge{plural} a task, µs/task"
    return _row(f"edges-{edges}", title)


def _start_rows(name: str) -> dict[str, Row]:
    title = GRAPH_WORKLOADS[name].title
    return {
        name: _row(name, f"{title}: less submit().result(), µs"),
        f"{name}-raw": _row(name, f"{title}: get of one task, µs", extra="raw_us"),
    }


def _edge_point(edges: int) -> Row:
    title = f"{edges} a task, {{edges}} in all, µs/edge"
    return _row(f"edges-{edges}", title, divide=edges)


def _yes(value: float) -> str:
    return "yes" if value == 1 else "no"


SECTIONS: dict[str, Section] = {
    "engines": Section(
        title="Graph engines",
        systems=ALL_ENGINES,
        rows={
            "independent": _row("independent"),
            "tasks-10000": _row("tasks-10000", "{n} tasks in chains of five, µs/task"),
            **{f"edges-{edges}": _crosstalk(edges) for edges in (1, 10, 50)},
            "edges-growth": _row(
                "edges-100",
                "cost of one more edge, 50 to 100 against 10 to 50",
                derived=growth_of_edges,
                factor=None,
            ),
            "array-overhead": _row("array-overhead"),
            "array-get": _row("array-overhead", "the get itself, ms", extra="wall_ms"),
            "array-compute": _row("array-compute"),
        },
    ),
    "start": Section(
        title="Start-up of an engine on a given pool",
        systems=("weft-threaded", "dask-threaded"),
        headings={"weft-threaded": "weft", "dask-threaded": "dask"},
        rows={
            **_start_rows("start-sync"),
            **_start_rows("start-weft"),
            **_start_rows("start-threads"),
        },
        notes=(START_NOTE,),
    ),
    "pools": Section(
        title="Pools inside the process: create, n times `x += y`, wait for all, destroy",
        systems=POOLS,
        rows={
            "submits-10000": _row("submits-10000"),
            "submits-100000": _row("submits-100000"),
            "submits-growth": _row(
                "submits-100000",
                "a task of the longer over one of the shorter",
                derived=growth_of_submits,
                factor=None,
            ),
            "results-100000": _row("results-100000"),
        },
        quoted=OTHER_MACHINE,
        notes=(OTHER_MACHINE_NOTE,),
    ),
    "tasks": Section(
        title="Sweep over tasks, in chains of five",
        systems=(*ENGINES, "bare"),
        rows={f"tasks-{n}": _row(f"tasks-{n}") for n in TASK_POINTS},
        with_goals=False,
    ),
    "edges": Section(
        title="Sweep over edges, 4 layers of {n} tasks",
        systems=(*ENGINES, "bare"),
        rows={f"edges-{edges}": _edge_point(edges) for edges in EDGE_POINTS},
        with_goals=False,
    ),
    "limits": Section(
        title="What the shared-memory schedulers of dask name as their limits",
        systems=LIMITS,
        rows={
            "limit-machine": _row("limit-machine", GRAPH_WORKLOADS["limit-machine"].title),
            "limit-lock": _row(
                "limit-lock", GRAPH_WORKLOADS["limit-lock"].title, factor="speed-up"
            ),
            "limit-pickle": _row(
                "limit-pickle", GRAPH_WORKLOADS["limit-pickle"].title, text=grouped, factor=None
            ),
            "limit-named": _row(
                "limit-pickle", "that error names it", extra="is_named", text=_yes, factor=None
            ),
            "limit-data": _row("limit-data", GRAPH_WORKLOADS["limit-data"].title),
            "limit-moved": _row(
                "limit-data",
                "MiB read and written by the calling process",
                extra="caller_mib",
                factor=None,
            ),
        },
        notes=(SPEED_UP_NOTE,),
    ),
}
#: {what --only takes: the tables}
TABLES_OF = {
    "engines": ("engines",),
    "start": ("start",),
    "pools": ("pools",),
    "sweeps": ("tasks", "edges"),
    "limits": ("limits",),
}


class SectionTable:
    """Collects footnotes while cells are rendered, so that a cell stays short."""

    def __init__(self, section: Section, cells: Cells, *, is_quick: bool) -> None:
        self._section = section
        self._cells = cells
        self._is_quick = is_quick
        self._notes: list[str] = []

    def render(self) -> str | None:
        """Return a title, a table that is aligned and valid Markdown at once, and its footnotes;
        None if nothing of it was asked for.
        """
        self._notes = []
        section = self._section
        rows = {
            name: row
            for name, row in section.rows.items()
            if any((row.workload, system) in self._cells for system in section.systems)
        }
        systems = [
            system
            for system in section.systems
            if any((row.workload, system) in self._cells for row in rows.values())
        ]
        if not rows:
            return None
        goals = {
            name: ", ".join(goal.render(self._cells) for goal in GRAPH_GOALS if goal.row == name)
            for name in rows
        }
        with_goals = section.with_goals and any(goals.values()) and not self._is_quick
        quoted = {} if self._is_quick else section.quoted
        titles = [section.headings.get(s, GRAPH_SYSTEMS[s].title) for s in systems]
        lines = [["workload", *(["goal"] if with_goals else []), *titles, *quoted]]
        for name, row in rows.items():
            lines.append(
                [
                    self._title(row),
                    *([goals[name]] if with_goals else []),
                    *(self._cell(row, system) for system in systems),
                    *(show(by_row[name]) if name in by_row else "" for by_row in quoted.values()),
                ]
            )
        title = section.title.format(n=grouped(self._size(next(iter(rows.values())))))
        text = [f"### {title}", "", *align(lines)]
        footnotes = [f"[{i}] {note}" for i, note in enumerate(self._notes, 1)]
        footnotes += [note for note in section.notes if quoted or note != OTHER_MACHINE_NOTE]
        return "\n".join([*text, *([""] if footnotes else []), *footnotes])

    def _size(self, row: Row) -> int:
        workload = GRAPH_WORKLOADS[row.workload]
        return (workload.quick_size if self._is_quick else None) or workload.size

    def _title(self, row: Row) -> str:
        size, workload = self._size(row), GRAPH_WORKLOADS[row.workload]
        return row.title.format(n=grouped(size), edges=grouped(size * 4 * workload.point))

    def _cell(self, row: Row, system: str) -> str:
        cell = self._cells.get((row.workload, system))
        if cell is None:
            return ""
        mark = f" [{self._note(cell.note)}]" if cell.note else ""
        runs = row.runs(self._cells, system)
        if not runs:
            return f"-{mark}" if mark else ""
        value = statistics.median(runs)
        text = ("-" if value < 0 else "") + row.text(abs(value))
        if len(runs) > 1 and value > 0 and row.text is show:
            text += f" ±{(max(runs) - min(runs)) / 2 / value:.0%}"
        factor = row.factor_of(self._cells, system)
        if factor is not None:
            text += f" ({show(factor)}x)"
        return text + mark

    def _note(self, text: str) -> int:
        if text not in self._notes:
            self._notes.append(text)
        return self._notes.index(text) + 1


def to_json(cells: Cells, *, is_quick: bool) -> dict[str, Any]:
    """Return all that was measured, as plain data."""
    goals = []
    for goal in GRAPH_GOALS:
        found = goal.found(cells)
        goals.append(
            {
                "row": goal.row,
                "goal": ("at least " if goal.at_least else "at most ") + goal.text,
                "found": found if found is None or math.isfinite(found) else str(found),
                "met": goal.is_met(cells),
            }
        )
    return {
        "goals": [] if is_quick else goals,
        "quoted_from_another_machine": OTHER_MACHINE,
        "cells": [
            {
                **dataclasses.asdict(cell),
                "unit": GRAPH_WORKLOADS[cell.workload].unit,
                "median": cell.median,
            }
            for cell in cells.values()
        ],
    }
