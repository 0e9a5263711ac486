"""The plots of the study: one for each section, a row for each workload, as SVG."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..framework import drawing
from ..framework.drawing import INK
from ..framework.results import Cells
from ..framework.table import Row, Section, Table

#: {system: (colour, marker)}
_LOOKS = {
    "weft": ("#3b82d6", "o"),
    "weft-expert": ("#3b82d6", "o"),
    "dask": ("#d9663a", "s"),
    "dask-best": ("#d9663a", "D"),
    "dask-expert": ("#d9663a", "D"),
    "ray": ("#2a9d6f", "^"),
    "limit": (INK, "|"),
}


def write_plots(
    table: Table, sections: Mapping[str, Section], cells: Cells, folder: Path, *, is_quick: bool
) -> list[Path]:
    """Write `study-{group}.svg` for each section that has figures.

    Raises:
        ImportError: matplotlib is not installed.
    """
    written = []
    for group, section in sections.items():
        if points_of(section, cells):
            figure = functools.partial(draw, table, section, cells, is_quick=is_quick)
            written.append(drawing.write(figure, folder / f"study-{group}.svg"))
    return written


def points_of(section: Section, cells: Cells) -> dict[str, list[tuple[str, list[float]]]]:
    """Return {system: [(name of the row, seconds of each run)]}, of those that have figures."""
    found: dict[str, list[tuple[str, list[float]]]] = {}
    for system in section.systems:
        for name, row in section.rows.items():
            runs = row.runs(cells, system)
            if runs:
                found.setdefault(system, []).append((name, runs))
    return found


def draw(table: Table, section: Section, cells: Cells, *, is_quick: bool) -> Any:
    """Return a figure with one line for each row: the median of each system, and from its fastest
    to its slowest run.
    """
    import statistics

    from matplotlib.figure import Figure

    points = points_of(section, cells)
    names = [n for n in section.rows if any(n == name for p in points.values() for name, _ in p)]
    places = {name: -number for number, name in enumerate(names)}
    figure = Figure(figsize=(9.6, 1.4 + 0.28 * len(names)), layout="constrained")
    axes = figure.subplots()
    for system, found in points.items():
        colour, marker = _LOOKS[system]
        # The two settings of dask have one colour.
        face = "none" if system == "dask-best" else colour
        title = section.headings.get(system, table.systems[system].title)
        axes.plot(
            [statistics.median(runs) for _, runs in found],
            [places[name] for name, _ in found],
            linestyle="none",
            marker=marker,
            color=colour,
            markerfacecolor=face,
            label=title,
        )
        for name, runs in found:
            axes.plot([min(runs), max(runs)], [places[name]] * 2, color=colour, linewidth=1)
    axes.set(xscale="log", xlabel="seconds", title=section.title)
    axes.set_yticks([*places.values()])
    axes.set_yticklabels([_label(table, section.rows[n], is_quick=is_quick) for n in names])
    axes.grid(visible=True)
    axes.minorticks_off()
    axes.xaxis.set_major_formatter(drawing.plain)
    figure.legend(loc="outside upper center", ncols=len(points))
    return figure


def _label(table: Table, row: Row, *, is_quick: bool) -> str:
    return table.titled(row, row.title, is_quick=is_quick)
