"""The tables of the graph benchmarks: which row and column shows which figure."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from ..framework.machine import n_cores
from ..framework.results import Cells, grouped
from ..framework.table import Row, Section, Table
from .goals import GOALS, growth_of_edges, growth_of_submits
from .plots import write_plots
from .systems import SYSTEMS
from .workloads import ALL_ENGINES, EDGE_POINTS, ENGINES, LIMITS, POOLS, TASK_POINTS, WORKLOADS

#: {system: the one of weft that it is compared with}
COUNTERPARTS = {
    "dask-sync": "weft-sync",
    "dask-threaded": "weft-threaded",
    "dask-processes": "weft-processes",
    "dask-processes-kept": "weft-processes",
    "threads": "weft-pool",
}

#: {column: {row: µs per job}} from the page of JobSchedulers.jl, see `OTHER_MACHINE_NOTE`.
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


def _row(workload: str, title: str | None = None, **options: Any) -> Row:
    entry = WORKLOADS[workload]
    return Row(title=title or f"{entry.title}, {entry.unit}", workload=workload, **options)


def _crosstalk(edges: int) -> Row:
    plural = "s" if edges > 1 else ""
    title = f"crosstalk, 4 layers of {{n}}, {edges} edge{plural} per task, µs/task"
    return _row(f"edges-{edges}", title)


def _start_rows(name: str) -> dict[str, Row]:
    title = WORKLOADS[name].title
    return {
        name: _row(name, f"{title}: less submit().result(), µs"),
        f"{name}-raw": _row(name, f"{title}: get of one task, µs", extra="raw_us"),
    }


def _edge_point(edges: int) -> Row:
    title = f"{edges} per task, {{edges}} in all, µs/edge"
    return _row(f"edges-{edges}", title, divide=edges)


def _yes(value: float) -> str:
    return "yes" if value == 1 else "no"


SECTIONS = (
    Section(
        group="engines",
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
    Section(
        group="start",
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
    Section(
        group="pools",
        title="Pools inside the process: create, n times `x += y`, wait for all, destroy",
        systems=POOLS,
        rows={
            "submits-10000": _row("submits-10000"),
            "submits-100000": _row("submits-100000"),
            "submits-growth": _row(
                "submits-100000",
                "time per task of the longer over that of the shorter",
                derived=growth_of_submits,
                factor=None,
            ),
            "results-100000": _row("results-100000"),
        },
        quoted=OTHER_MACHINE,
        quoted_note=OTHER_MACHINE_NOTE,
    ),
    Section(
        group="sweeps",
        title="Sweep over tasks, in chains of five",
        systems=(*ENGINES, "bare"),
        rows={f"tasks-{n}": _row(f"tasks-{n}") for n in TASK_POINTS},
        with_goals=False,
    ),
    Section(
        group="sweeps",
        title="Sweep over edges, 4 layers of {n} tasks",
        systems=(*ENGINES, "bare"),
        rows={f"edges-{edges}": _edge_point(edges) for edges in EDGE_POINTS},
        with_goals=False,
    ),
    Section(
        group="limits",
        title="Limits that dask names for its shared-memory schedulers",
        systems=LIMITS,
        rows={
            "limit-machine": _row("limit-machine"),
            "limit-lock": _row(
                "limit-lock", f"{WORKLOADS['limit-lock'].title}, s (speed-up)", factor="bare"
            ),
            "limit-pickle": _row(
                "limit-pickle", WORKLOADS["limit-pickle"].title, text=grouped, factor=None
            ),
            "limit-named": _row(
                "limit-pickle", "that error names it", extra="is_named", text=_yes, factor=None
            ),
            "limit-data": _row("limit-data"),
            "limit-moved": _row(
                "limit-data",
                "MiB read and written by the calling process",
                extra="caller_mib",
                factor=None,
            ),
        },
        notes=(SPEED_UP_NOTE,),
    ),
)


def _groups() -> dict[str, list[str]]:
    """Return {value of --only: the workloads that its sections show}."""
    groups: dict[str, list[str]] = {}
    for section in SECTIONS:
        assert section.group is not None
        groups.setdefault(section.group, []).extend(r.workload for r in section.rows.values())
    return groups


def _closing(cells: Cells, spread: str, options: argparse.Namespace) -> Iterator[str]:
    yield (
        f"{spread}, less is better; (Nx): weft is N times as fast as that system, where weft's "
        f"engine of\nthe same kind is meant. Threads and processes: as many as cores "
        f"({n_cores()})."
    )
    if options.plots is None or (options.only and "sweeps" not in options.only):
        return
    try:
        written = write_plots(cells, options.plots)
    except ImportError as error:
        yield f"No plots: {error}."
    else:
        if written:
            yield f"Plots: {', '.join(map(str, written))}"


TABLE = Table(
    name="graphs",
    title="weft graph benchmarks",
    systems=SYSTEMS,
    workloads=WORKLOADS,
    groups=_groups(),
    sections=SECTIONS,
    goals=GOALS,
    counterparts=COUNTERPARTS,
    # There are many points: all together would take too long with more runs of each.
    cheap_s=1.0,
    closing=_closing,
)
