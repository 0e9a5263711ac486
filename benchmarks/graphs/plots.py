"""The two figures of the sweeps, as SVG."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from ..framework import drawing
from ..framework.drawing import INK
from ..framework.results import Cells, grouped
from .systems import SYSTEMS
from .workloads import EDGE_POINTS, ENGINES, TASK_POINTS, WORKLOADS

#: {kind of engine: colour}; weft's lines are solid, dask's dashed.
COLOURS = {"sync": "#2a9d6f", "threaded": "#3b82d6", "processes": "#d9663a", "bare": INK}

#: Legends fill column by column: weft above dask.
_ORDER = [
    SYSTEMS[name].title
    for kind in ("sync", "threaded", "processes")
    for name in (f"weft-{kind}", f"dask-{kind}")
] + [SYSTEMS["bare"].title]


def write_plots(cells: Cells, folder: Path) -> list[Path]:
    """Write `scaling-tasks.svg` and `scaling-edges.svg`, each if its sweep was run.

    Raises:
        ImportError: matplotlib is not installed.
    """
    written = []
    for sweep, points in (("tasks", TASK_POINTS), ("edges", EDGE_POINTS)):
        if any(_points(cells, sweep, points, system) for system in (*ENGINES, "bare")):
            figure = functools.partial(draw, cells, sweep, points)
            written.append(drawing.write(figure, folder / f"scaling-{sweep}.svg"))
    return written


def draw(cells: Cells, sweep: str, points: tuple[int, ...]) -> Any:
    """Return the figure of a sweep: the whole graph on the left, one task or edge on the right."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 4.4), layout="constrained")
    whole, each = figure.subplots(1, 2)
    for system in (*ENGINES, "bare"):
        found = _points(cells, sweep, points, system)
        if found:
            x, seconds, micros = zip(*found, strict=True)
            whole.plot(x, seconds, **_look(system))
            each.plot(x, micros, **_look(system))
    unit = "task" if sweep == "tasks" else "edge"
    for axes in (whole, each):
        axes.set(xscale="log", yscale="log")
        axes.grid(visible=True)
        axes.minorticks_off()
        axes.set_xlabel("tasks in the graph" if sweep == "tasks" else "edges per task")
        axes.xaxis.set_major_formatter(drawing.plain)
        axes.yaxis.set_major_formatter(drawing.plain)
    whole.set(title="Whole graph", ylabel="seconds")
    each.set(title=f"One {unit}", ylabel=f"microseconds per {unit}")
    lines = sorted(whole.get_lines(), key=lambda line: _ORDER.index(line.get_label()))
    figure.legend(handles=lines, loc="outside upper center", ncols=4)
    left_out = _left_out(cells, sweep, points)
    if left_out:
        figure.supxlabel(left_out, fontsize=8)
    return figure


def _points(
    cells: Cells, sweep: str, points: tuple[int, ...], system: str
) -> list[tuple[float, float, float]]:
    """Return (x, seconds for the graph, µs per task or edge) of each point that has a figure."""
    found = []
    for point in points:
        cell = cells.get((f"{sweep}-{point}", system))
        if cell is None or cell.median is None:
            continue
        n_tasks = cell.extra["n_tasks"][0]
        x = n_tasks if sweep == "tasks" else point
        per = cell.median if sweep == "tasks" else cell.median / point
        found.append((float(x), cell.median * n_tasks / 1e6, per))
    return found


def _look(system: str) -> dict[str, Any]:
    library, _, kind = system.partition("-")
    look = {"color": COLOURS[kind or "bare"], "label": SYSTEMS[system].title}
    if library == "weft":
        return look | {"linestyle": "-", "linewidth": 2.2, "marker": "o", "markersize": 4}
    if library == "dask":
        return look | {"linestyle": "--", "linewidth": 1.5, "marker": "s", "markersize": 3.5}
    return look | {"linestyle": ":", "linewidth": 1.5}


def _left_out(cells: Cells, sweep: str, points: tuple[int, ...]) -> str:
    """Return which points have no figure, and why."""
    parts = []
    for system in ENGINES:
        for point in points:
            cell = cells.get((f"{sweep}-{point}", system))
            if cell is not None and cell.median is None:
                title = SYSTEMS[system].title
                name = WORKLOADS[cell.workload].title.format(n=grouped(point))
                parts.append(f"{title}, {name}: {cell.note}")
                break
    return "\n".join(parts)
