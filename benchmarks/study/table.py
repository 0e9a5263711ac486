"""The table of the study: rows, columns and goals."""

from __future__ import annotations

import argparse
import functools
import statistics
from collections.abc import Iterable, Iterator, Mapping

from ..framework.results import Cells, Found, median_of, quotient, show
from ..framework.table import Goal, Row, Section, Table
from ..framework.work import Workload
from . import arrays, frames, grid, memory, shapes
from .collections import EXPERT, NAIVE
from .plots import write_plots
from .systems import SYSTEMS

#: Five rows of dask's study with settings of experts: larger workers and larger chunks. This one
#: is the same as in the other table.
_EXPERT_TASKS = Workload(
    title=shapes.WORKLOADS["independent-10us"].title,
    run=shapes.WORKLOADS["independent-10us"].run,
    size=2_000,
    quick_size=400,
    unit="s",
    systems=EXPERT,
    warm_up_size=8,
)

#: {group: its workloads}
_GROUPS: dict[str, dict[str, Workload]] = {
    "tasks": shapes.WORKLOADS,
    "grid": grid.WORKLOADS,
    "arrays": arrays.USUAL,
    "small-arrays": arrays.WITH_SMALL_CHUNKS,
    "frames": frames.USUAL,
    "small-frames": frames.WITH_SMALL_PARTITIONS,
    "memory": memory.WORKLOADS,
    "expert": {
        "independent-10us-expert": _EXPERT_TASKS,
        **arrays.WITH_LARGE_CHUNKS,
        **frames.WITH_LARGE_PARTITIONS,
    },
}
WORKLOADS = {name: w for group in _GROUPS.values() for name, w in group.items()}

#: What a system runs before it is the next one's turn.
PARTS = tuple(
    [name for group in groups for name in _GROUPS[group]]
    for groups in (
        ("tasks",),
        ("grid",),
        ("arrays", "small-arrays"),
        ("frames", "small-frames"),
        ("expert",),
        ("memory",),
    )
)

_TITLES = {
    "tasks": "Tasks",
    "grid": "A client that accumulates results",
    "arrays": "Arrays, 4 x 4 chunks",
    "small-arrays": f"Arrays, chunks of {arrays.SMALL} x {arrays.SMALL}",
    "frames": "Data frames of ten columns, four partitions",
    "small-frames": f"Data frames of ten columns, partitions of {frames.SMALL} rows",
    "memory": "Data of three times the memory of two workers with 400 MiB each",
    "expert": "Settings of experts: one worker with two threads, chunks and partitions twice as "
    "large in each direction",
}
_COLUMNS = {
    "tasks": ("weft", "dask", "dask-best", "ray", "limit"),
    "grid": ("weft", "dask", "dask-best", "ray", "limit"),
    "expert": EXPERT,
}

_OF_COLLECTIONS = ("arrays", "small-arrays", "frames", "small-frames")

#: {end of the name of a workload of tasks: the largest part of dask's time}
_SHARES_OF_DASK = {"10us": 0.1, "1ms": 0.2}
_LIMITED = ("100ms", "1s")


def _share(workload: str, peer: str) -> Found:
    return lambda cells: quotient(cells, (workload, "weft"), (workload, peer))


def _in_round_trips(workload: str, cells: Cells) -> float | None:
    cell = cells.get((workload, "weft"))
    value = median_of(cells, workload, "weft")
    trips = sorted(cell.extra.get("round_trip_s", [])) if cell else []
    return value / trips[len(trips) // 2] if value is not None and trips else None


def _tasks_alone(workload: str, cells: Cells) -> float | None:
    """Return the part of dask's time that weft's tasks take, if both slots never wait."""
    cell = cells.get((workload, "weft"))
    theirs = median_of(cells, workload, "dask")
    times = cell.extra.get("tasks_s", []) if cell else []
    return statistics.median(times) / theirs if times and theirs else None


def _efficiency(workload: str) -> Found:
    return lambda cells: quotient(cells, (workload, "limit"), (workload, "weft"))


def _goals() -> Iterator[Goal]:
    for name in shapes.WORKLOADS:
        length = name.rpartition("-")[2]
        if length in _SHARES_OF_DASK:
            bound = _SHARES_OF_DASK[length]
            yield Goal(name, f"{bound:g} of dask", bound, _share(name, "dask"))
        else:
            yield Goal(name, "0.98 of the limit", 0.98, _efficiency(name), at_least=True)
    yield Goal("grid-batch", "10.1", 10.1, lambda cells: median_of(cells, "grid-batch", "weft"))
    for group in _OF_COLLECTIONS:
        for name in _GROUPS[group]:
            if "-access" in name:
                found = functools.partial(_in_round_trips, name)
                yield Goal(name, "2 round trips", 2, found)
            else:
                floor = functools.partial(_tasks_alone, name)
                yield Goal(name, "0.7 of dask", 0.7, _share(name, "dask"), floor=floor)


def _sections() -> Iterator[Section]:
    for group, title in _TITLES.items():
        yield Section(
            title=f"{title}: seconds",
            systems=_COLUMNS.get(group, NAIVE),
            rows={name: Row(title=w.title, workload=name) for name, w in _GROUPS[group].items()},
        )
    for group, title in _TITLES.items():
        systems = tuple(s for s in _COLUMNS.get(group, NAIVE) if s != "limit")
        yield Section(
            title=f"{title}: peak memory, MiB",
            systems=systems,
            rows={
                name: Row(title=w.title, workload=name, extra="peak_mib")
                for name, w in _GROUPS[group].items()
            },
            with_goals=False,
        )

    yield Section(
        title="Arrays and data frames: seconds that their tasks take alone, if no slot ever waits",
        systems=NAIVE,
        rows={
            name: Row(title=w.title, workload=name, extra="tasks_s")
            for group in _OF_COLLECTIONS
            for name, w in _GROUPS[group].items()
        },
        with_goals=False,
    )


def spilled(cells: Cells) -> dict[tuple[str, str], float]:
    """Return {(workload, system): MiB}, the most of all runs, where anything was spilled."""
    most = {key: max(cell.extra.get("spilled_mib", [0.0])) for key, cell in cells.items()}
    return {key: mib for key, mib in most.items() if mib > 0}


def _closing(cells: Cells, spread: str, options: argparse.Namespace) -> Iterable[str]:
    yield (
        f"{spread}; less is better. (Nx): weft is N times as fast as that system, or that system "
        "takes N times\nthe memory. Each: one client, two single-thread workers (grid: one with so "
        "many threads as slots), loopback;\none system at a time, by turns. Memory: the sum of the "
        "resident sets of all processes, the client included;\npages that they share count in each."
    )
    amounts = [f"{w} on {s}: {show(mib)} MiB" for (w, s), mib in spilled(cells).items()]
    nothing = "nothing, by the systems that report it."
    yield "Spilled: " + ("; ".join(amounts) or nothing)
    if options.plots is None:
        return
    try:
        written = write_plots(TABLE, SECTIONS, cells, options.plots, is_quick=options.quick)
    except ImportError as error:
        yield f"No plots: {error}."
    else:
        yield f"Plots: {', '.join(map(str, written))}"


#: {group: the section with its times}
SECTIONS: Mapping[str, Section] = dict(zip(_TITLES, _sections(), strict=False))

TABLE = Table(
    name="study",
    title="weft study",
    systems=SYSTEMS,
    workloads=WORKLOADS,
    groups={
        **{group: tuple(names) for group, names in _GROUPS.items()},
        **{name: (name,) for name in WORKLOADS},
    },
    sections=tuple(_sections()),
    goals=tuple(_goals()),
    counterparts={
        **dict.fromkeys(("dask", "dask-best", "ray", "limit"), "weft"),
        "dask-expert": "weft-expert",
    },
    cheap_s=0.0,
    closing=_closing,
    parts=PARTS,
    with_memory=True,
)
