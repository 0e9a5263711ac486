"""The table of the clusters: weft and its peers, each with one client and two workers."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator
from typing import Final

from ..framework.results import Cells, Found, grouped, median_of, quotient, show
from ..framework.table import Goal, Row, Section, Table
from ..virtual.graphs import n_steps
from .granularity import SHAPES
from .systems import N_WORKERS, SYSTEMS
from .workloads import LENGTHS, WORKLOADS

#: The least part of the workers' time that tasks of a length take, and the most CPU time of all
#: others for each of them.
SHORT_TASKS_GOALS: Final = {"1ms": (0.85, 175), "100us": (0.45, None)}
#: Where the shape of a graph keeps workers idle, this part of the ideal rate is enough.
SHAPED_GOAL: Final = 0.95


def _weft(workload: str) -> Found:
    return lambda cells: median_of(cells, workload, "weft")


def _bytes_per_task(cells: Cells) -> float | None:
    cell = cells.get(("big-map", "weft"))
    # Only the first run starts with a fresh scheduler; later ones reuse the memory that it has
    # taken.
    values = cell.extra.get("scheduler_bytes_per_task") if cell else None
    return values[0] if values else None


def _bytes_per_kept_task(cells: Cells) -> float | None:
    cell = cells.get(("scheduler-longest", "weft"))
    values = cell.extra.get("bytes_per_task") if cell else None
    return values[0] if values else None  # only the first run starts in a fresh process


def _viewers(cells: Cells) -> float | None:
    """Return the cost of viewers, None if the machine did not run as many tasks as it was to."""
    cell = cells.get(("viewers", "weft"))
    if cell is None or min(cell.extra.get("tasks_per_s", [0.0])) < 0.9 * cell.size:
        return None
    return cell.median


def _made_again(cells: Cells) -> float | None:
    cell = cells.get(("recovery", "weft"))
    values = cell.extra.get("n_again_or_lost") if cell else None
    return max(values) if values else None


def _extra(workload: str, name: str) -> Found:
    """Return the median of a figure beside the main one."""

    def found(cells: Cells) -> float | None:
        cell = cells.get((workload, "weft"))
        values = cell.extra.get(name) if cell else None
        return statistics.median(values) if values else None

    return found


def _short_tasks_goals() -> Iterator[Goal]:
    for shape_name, shape in SHAPES.items():
        graph = shape.make(shape.size)
        #: Slots times steps for each task: 1 if the shape lets all workers be busy to the end.
        room = N_WORKERS * n_steps(graph, N_WORKERS) / len(graph)
        for length, (part, others_us) in SHORT_TASKS_GOALS.items():
            name = f"{shape_name}-{length}"
            bound = min(part * room, SHAPED_GOAL)
            found = _extra(name, "of_ideal")
            yield Goal(f"{name}-ideal", show(bound), bound, found, at_least=True)
            if others_us is not None:
                yield Goal(f"{name}-others", str(others_us), others_us, _extra(name, "others_us"))


GOALS = (
    Goal("map", "60 000", 60_000, _weft("map"), at_least=True),
    Goal(
        "map",
        "25 x dask best",
        25,
        lambda cells: quotient(cells, ("map", "weft"), ("map", "dask-best")),
        at_least=True,
    ),
    Goal("submit", "30 000", 30_000, _weft("submit"), at_least=True),
    Goal(
        "awaited",
        "0.3 of submit",
        0.3,
        lambda cells: quotient(cells, ("awaited", "weft"), ("submit", "weft")),
        at_least=True,
    ),
    Goal("round-trip", "0.5", 0.5, _weft("round-trip")),
    Goal(
        "round-trip",
        "4 x bare hops",
        4,
        lambda cells: quotient(cells, ("round-trip", "weft"), ("round-trip", "floor")),
    ),
    *(
        Goal(
            name,
            "2 round trips",
            2,
            lambda cells, name=name: quotient(cells, (name, "weft"), ("round-trip", "weft")),
        )
        for name in ("lock", "queue", "variable")
    ),
    Goal(
        "actor-call",
        "1 round trip",
        1,
        lambda cells: quotient(cells, ("actor-call", "weft"), ("round-trip", "weft")),
    ),
    *(
        Goal(
            "actor-batch",
            text,
            least,
            lambda cells, peer=peer: quotient(
                cells, ("actor-batch", "weft"), ("actor-batch", peer)
            ),
            at_least=True,
        )
        for text, least, peer in (("10 x dask", 10, "dask"), ("Ray", 1, "ray"))
    ),
    Goal("chain", "20 000", 20_000, _weft("chain"), at_least=True),
    Goal("tree", "30 000", 30_000, _weft("tree"), at_least=True),
    Goal("neighbour", "30 000", 30_000, _weft("neighbour"), at_least=True),
    Goal("as-completed", "40 000", 40_000, _weft("as-completed"), at_least=True),
    *(
        Goal(
            name,
            text,
            least,
            lambda cells, name=name: quotient(cells, (name, "weft"), (name, "processes")),
            at_least=True,
        )
        for name, text, least in (
            ("executor-map", "4 x ProcessPool", 4),
            ("joblib", "loky", 1),
        )
    ),
    Goal(
        "inside",
        "0.3 of the map",
        0.3,
        lambda cells: quotient(cells, ("inside", "weft"), ("map", "weft")),
        at_least=True,
    ),
    Goal(
        "inside",
        "20 x dask",
        20,
        lambda cells: quotient(cells, ("inside", "weft"), ("inside", "dask")),
        at_least=True,
    ),
    Goal(
        "big-map",
        "0.7 of the small map",
        0.7,
        lambda cells: quotient(cells, ("big-map", "weft"), ("map", "weft")),
        at_least=True,
    ),
    Goal("big-map", "1 200 B/task", 1_200, _bytes_per_task),
    Goal(
        "argument",
        "1.2 x dask",
        1.2,
        lambda cells: quotient(cells, ("argument", "weft"), ("argument", "dask")),
    ),
    Goal(
        "metg",
        "1/20 of dask",
        0.05,
        lambda cells: quotient(cells, ("metg", "weft"), ("metg", "dask")),
    ),
    Goal("metg", "Ray", 1, lambda cells: quotient(cells, ("metg", "weft"), ("metg", "ray"))),
    *_short_tasks_goals(),
    Goal("recovery", "3", 3, _weft("recovery")),
    Goal("recovery-again", "0", 0, _made_again),
    Goal("resets", "0", 0, _weft("resets")),
    *(
        Goal(
            name,
            text,
            least,
            lambda cells, name=name: quotient(cells, (name, "weft"), ("scheduler", "weft")),
            at_least=True,
        )
        for name, text, least in (
            ("scheduler-wide", "0.5 of 2 workers", 0.5),
            ("scheduler-widest", "0.5 of 2 workers", 0.5),
            ("scheduler-longest", "0.67 of 200 000", 1 / 1.5),
        )
    ),
    Goal("scheduler-longest", "550 B/task", 550, _bytes_per_kept_task),
    Goal("joins", "20", 20, _weft("joins")),
    Goal("viewers", "1 %", 1, _viewers),
    Goal("import", "0.15", 0.15, _weft("import")),
    Goal("first-result", "1", 1.0, _weft("first-result")),
)


def _memory(cells: Cells) -> Iterator[str]:
    """Yield the memory of the scheduler per task of the big map, if it was measured."""
    cell = cells.get(("big-map", "weft"))
    if cell is None or "scheduler_bytes_per_task" not in cell.extra:
        return
    held = show(cell.extra["scheduler_bytes_per_task"][0])
    peak = show(cell.extra["scheduler_peak_bytes_per_task"][0])
    yield (
        f"weft's scheduler process held {held} bytes for each of {grouped(cell.size)} tasks when "
        f"all results were in hand, at most {peak} on the way (first run, fresh process)."
    )


def _viewed(cells: Cells) -> Iterator[str]:
    """Yield the rate of tasks beside the viewers, if it was lower than it was to be."""
    cell = cells.get(("viewers", "weft"))
    if cell is None or not cell.runs or _viewers(cells) is not None:
        return
    found = show(min(cell.extra["tasks_per_s"]))
    yield (
        f"The cost of viewers is not judged: {found} tasks/s were run, not {grouped(cell.size)}."
    )


def _closing(cells: Cells, spread: str, options: argparse.Namespace) -> Iterator[str]:
    yield from _memory(cells)
    yield from _viewed(cells)
    yield (
        f"{spread}; (Nx): weft is N times as fast as that system.\n"
        f"Each: one client, {N_WORKERS} single-thread workers, loopback; one system at a time."
    )


def _of_chain(cells: Cells, system: str) -> float | None:
    return quotient(cells, ("chain-across", system), ("chain", system))


#: {workload: figures beside its main one: (suffix of the row, title, name)}
_BESIDE = {
    "recovery": [("again", "held results made again or lost, tasks", "n_again_or_lost")],
    **{
        f"{shape}-{length}": [
            ("ideal", "of the rate if only tasks took time", "of_ideal"),
            ("others", "CPU of all others for each task, us", "others_us"),
        ]
        for shape in SHAPES
        for length in LENGTHS
    },
}


def _rows() -> Iterator[tuple[str, Row]]:
    for name, workload in WORKLOADS.items():
        yield name, Row(title=f"{workload.title}, {workload.unit}", workload=name)
        for suffix, title, extra in _BESIDE.get(name, ()):
            row = Row(title=f"... {title}", workload=name, extra=extra, factor=None)
            yield f"{name}-{suffix}", row
        if name == "chain-across":
            title = "... of the rate of the plain chain"
            yield f"{name}-part", Row(title=title, workload=name, derived=_of_chain, factor=None)


TABLE = Table(
    name="clusters",
    title="weft benchmarks",
    systems=SYSTEMS,
    workloads=WORKLOADS,
    groups={name: (name,) for name in WORKLOADS},
    sections=(
        Section(
            systems=tuple(SYSTEMS),
            rows=dict(_rows()),
        ),
    ),
    goals=GOALS,
    counterparts=dict.fromkeys((name for name in SYSTEMS if name != "weft"), "weft"),
    cheap_s=2.0,
    closing=_closing,
)
