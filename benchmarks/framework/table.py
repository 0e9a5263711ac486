"""A table: the systems and the workloads of one comparison, its rows and goals, and how it is
rendered as Markdown and as JSON.
"""

from __future__ import annotations

import argparse
import importlib
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .results import Cells, Found, align, grouped, show, spread_of
from .work import System, Workload

#: The values of `--table`: the folders with a module `table` that defines `TABLE`.
TABLES = ("clusters", "graphs", "jobs")


@dataclass(frozen=True, slots=True)
class Goal:
    """A goal of the project for weft: one figure and its bound. `row` is the row of the tables that
    shows it.
    """

    row: str
    text: str
    bound: float
    found: Found
    at_least: bool = False
    #: What the figure would be if nothing but the tasks took time.
    floor: Found | None = None

    def is_met(self, cells: Cells) -> bool | None:
        """Return None if there is no figure."""
        value = self.found(cells)
        if value is None:
            return None
        return value >= self.bound if self.at_least else value <= self.bound

    def render(self, cells: Cells) -> str:
        word = {True: "met", False: "MISSED", None: "?"}[self.is_met(cells)]
        value = self.found(cells)
        # The figure of the row may look like its bound.
        is_near = value is not None and show(value) == show(self.bound)
        exact = f" at {value:.5g}" if is_near else ""
        floor = self.floor(cells) if word == "MISSED" and self.floor is not None else None
        alone = "" if floor is None else f", tasks alone {floor:.2f}"
        return f"{'≥' if self.at_least else '≤'} {self.text} {word}{exact}{alone}"

    def to_json(self, cells: Cells) -> dict[str, Any]:
        found = self.found(cells)
        return {
            "row": self.row,
            "goal": ("at least " if self.at_least else "at most ") + self.text,
            "found": found if found is None or math.isfinite(found) else str(found),
            "met": self.is_met(cells),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure for each column."""

    title: str
    #: The workload with the cells; their notes explain empty ones.
    workload: str
    #: A figure beside the workload's main one.
    extra: str | None = None
    #: Figures are divided by this: edges per task.
    divide: float = 1.0
    derived: Callable[[Cells, str], float | None] | None = None
    text: Callable[[float], str] = show
    #: The comparison of `(Nx)` behind a figure: "counterpart": weft with this system; "bare": this
    #: system with the bare loop; None: there is no `(Nx)`.
    factor: str | None = "counterpart"

    def runs(self, cells: Cells, system: str) -> list[float]:
        """Return one figure per run, [] if there is none."""
        if self.derived is not None:
            value = self.derived(cells, system)
            return [] if value is None else [value]
        cell = cells.get((self.workload, system))
        if cell is None:
            return []
        values = cell.runs if self.extra is None else cell.extra.get(self.extra, [])
        return [value / self.divide for value in values]


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One table of the output."""

    #: {name of the row, which goals refer to: row}
    rows: Mapping[str, Row]
    systems: Sequence[str]
    title: str | None = None
    #: The group of `--only` that it belongs to; None: it is always shown.
    group: str | None = None
    #: Headings in place of the systems' own.
    headings: Mapping[str, str] = field(default_factory=dict)
    #: {column: {row: figure from another machine}}, and where they are from.
    quoted: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    quoted_note: str = ""
    notes: Sequence[str] = ()
    #: False where another table shows the same cells with their goals.
    with_goals: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The content of one comparison; everything else about it is the framework's."""

    #: The value of `--table`.
    name: str
    title: str
    systems: Mapping[str, type[System]]
    workloads: Mapping[str, Workload]
    #: {value of `--only`: its workloads}
    groups: Mapping[str, Sequence[str]]
    sections: Sequence[Section]
    goals: Sequence[Goal]
    #: {system: the one of weft that it is compared with}
    counterparts: Mapping[str, str]
    #: All runs of a workload together count as cheap up to this time; see `child.repeat`.
    cheap_s: float
    #: Returns the paragraphs below the sections. It gets the cells, a text that describes
    #: the figures (one run or a median), and the options; it may write files.
    closing: Callable[[Cells, str, argparse.Namespace], Iterable[str]]
    #: Groups of workloads, if the systems take turns: each runs one group, then the next system
    #: does, in as many rounds as there are runs. (): each system runs all of its work in one go.
    parts: Sequence[Sequence[str]] = ()
    #: Each run gets the figure `peak_mib` (`resident.py`).
    with_memory: bool = False

    def names(self, groups: Sequence[str] | None, *, is_quick: bool) -> list[str]:
        """Return the workloads of these groups (None: all) in a run of this kind, in the table's
        order.
        """
        asked = {name for group in groups or self.groups for name in self.groups[group]}
        return [
            name
            for name, workload in self.workloads.items()
            if name in asked and not (is_quick and workload.quick_size is None)
        ]

    def factor(self, row: Row, cells: Cells, system: str) -> float | None:
        """Return the N of `(Nx)`, None if there is nothing to compare: above 1, weft is faster, or
        this system is faster than the bare loop.
        """
        slow, fast = system, self.counterparts.get(system)
        if row.factor == "bare":
            slow, fast = "bare", None if system == "bare" else system
        if row.factor is None or fast is None:
            return None
        if self.workloads[row.workload].more_is_better:
            slow, fast = fast, slow
        over, under = row.runs(cells, slow), row.runs(cells, fast)
        if not over or not under or statistics.median(under) <= 0:
            return None
        return statistics.median(over) / statistics.median(under)

    def titled(self, row: Row, title: str, *, is_quick: bool) -> str:
        """Put the sizes of a row into a title."""
        workload = self.workloads[row.workload]
        size = workload.size_of(is_quick=is_quick)
        return title.format(n=grouped(size), edges=grouped(size * 4 * workload.point))

    def render(self, cells: Cells, groups: Sequence[str] | None, *, is_quick: bool) -> list[str]:
        """Return the sections of these groups (None: all) of which anything was asked for."""
        return [
            _render(self, section, cells, is_quick=is_quick)
            for section in self.sections
            if (groups is None or section.group is None or section.group in groups)
            and any(
                (r.workload, s) in cells for r in section.rows.values() for s in section.systems
            )
        ]

    def to_json(self, cells: Cells, *, is_quick: bool) -> dict[str, Any]:
        """Return all that was measured, as plain data."""
        ratios: dict[str, dict[str, float]] = {}
        for name, system in cells:
            factor = self.factor(Row(title="", workload=name), cells, system)
            if factor is not None:
                ratios.setdefault(name, {})[system] = factor
        quoted = {title: by for section in self.sections for title, by in section.quoted.items()}
        return {
            "goals": [] if is_quick else [goal.to_json(cells) for goal in self.goals],
            "ratios_weft_to_peer": ratios,
            **({"quoted_from_another_machine": quoted} if quoted else {}),
            "cells": [c.to_json(self.workloads[c.workload].unit) for c in cells.values()],
        }


def load(name: str) -> Table:
    """Return a table of `TABLES`."""
    table: Table = importlib.import_module(f"benchmarks.{name}.table").TABLE
    return table


def _render(table: Table, section: Section, cells: Cells, *, is_quick: bool) -> str | None:
    """Return a title, a table that is aligned and valid Markdown at once, and its footnotes; None
    if the section has no cells.
    """
    rows = {
        name: row
        for name, row in section.rows.items()
        if any((row.workload, system) in cells for system in section.systems)
    }
    if not rows:
        return None
    systems = [s for s in section.systems if any((r.workload, s) in cells for r in rows.values())]
    goals = {
        name: ", ".join(goal.render(cells) for goal in table.goals if goal.row == name)
        for name in rows
    }
    with_goals = (
        section.with_goals
        and not is_quick
        and any(goals.values())
        and any(system.startswith("weft") for system in systems)
    )
    quoted = {} if is_quick else section.quoted
    #: {note: its number}
    notes: dict[str, int] = {}
    titles = [section.headings.get(system, table.systems[system].title) for system in systems]
    lines = [["workload", *(["goal"] if with_goals else []), *titles, *quoted]]
    for name, row in rows.items():
        lines.append(
            [
                table.titled(row, row.title, is_quick=is_quick),
                *([goals[name]] if with_goals else []),
                *(_cell(table, row, cells, system, notes) for system in systems),
                *(show(by_row[name]) if name in by_row else "" for by_row in quoted.values()),
            ]
        )
    text = align(lines)
    if section.title is not None:
        first = next(iter(rows.values()))
        text = [f"### {table.titled(first, section.title, is_quick=is_quick)}", "", *text]
    footnotes = [f"[{number}] {note}" for note, number in notes.items()]
    footnotes += [*([section.quoted_note] if quoted else []), *section.notes]
    return "\n".join([*text, *([""] if footnotes else []), *footnotes])


def _cell(table: Table, row: Row, cells: Cells, system: str, notes: dict[str, int]) -> str:
    cell = cells.get((row.workload, system))
    if cell is None:
        return ""
    mark = f" [{notes.setdefault(cell.note, len(notes) + 1)}]" if cell.note else ""
    runs = row.runs(cells, system)
    if not runs:
        return f"-{mark}" if mark else ""
    value = statistics.median(runs)
    text = ("-" if value < 0 else "") + row.text(abs(value))
    spread = spread_of(runs)
    if spread is not None and row.text is show:
        text += f" ±{spread:.0%}"
    factor = table.factor(row, cells, system)
    if factor is not None:
        text += f" ({show(factor)}x)"
    return text + mark
