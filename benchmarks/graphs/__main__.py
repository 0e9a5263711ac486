"""Run the graph engines and in-process pools of weft beside dask's and the standard library's.

    python -m benchmarks.graphs [--only GROUP...] [--systems SYSTEM...] [--repeat N] [--quick]

`make bench` runs these after the clusters, in the same run. Each system has a process of its own; a
system that is missing, fails or hangs costs its cells, never the run.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from ..clusters.systems import n_cores
from ..framework import machine
from ..framework.driving import ROOT, Cells, Progress, Suite, headline, run_peer
from ..framework.options import add_run_options, settle_run_options
from ..framework.results import Cell
from .plots import write_plots
from .systems import GRAPH_SYSTEMS
from .tables import SECTIONS, TABLES_OF, SectionTable, to_json
from .workloads import GRAPH_WORKLOADS, GROUPS, names_of

GRAPHS = Suite("benchmarks.graphs.child", GRAPH_WORKLOADS)

#: Where the documentation takes its figures from.
PLOTS = ROOT / "docs" / "images"


@dataclass(frozen=True, slots=True)
class Outcome:
    """A finished run: what to print, what to write, and whether weft has all its figures."""

    text: str
    document: dict[str, Any]
    is_complete: bool


def plan(options: argparse.Namespace) -> tuple[dict[str, list[str]], Cells]:
    """Return the workloads of each system, and cells for what is left out with a reason."""
    work: dict[str, list[str]] = {}
    left_out: Cells = {}
    for system in options.systems or GRAPH_SYSTEMS:
        reason = GRAPH_SYSTEMS[system].missing()
        for name in names_of(options.only or GROUPS, quick=options.quick):
            workload = GRAPH_WORKLOADS[name]
            if system not in workload.systems:
                continue
            why = reason or workload.missing()
            if why:
                left_out[name, system] = Cell(system, name, note=why)
            else:
                work.setdefault(system, []).append(name)
    return work, left_out


def run_all(options: argparse.Namespace) -> Outcome:
    """Run what was asked for, one system after the other.

    Args:
        options: `only` (groups), `systems`, `repeat`, `limit`, `quick`, `plots`.
    """
    work, cells = plan(options)
    progress = Progress(sum(map(len, work.values())))
    for system, names in work.items():
        cells.update(run_peer(GRAPHS, system, names, options, progress))
    progress.end()
    tables = [
        SectionTable(SECTIONS[name], cells, is_quick=options.quick).render()
        for group in options.only or GROUPS
        for name in TABLES_OF[group]
    ]
    spread = (
        "One run" if options.repeat == 1 else f"Median ± half the range, >= {options.repeat} runs"
    )
    text = "\n\n".join(
        [
            *filter(None, tables),
            f"{spread}, less is better; (Nx): weft is N times as fast as that system, where weft's "
            f"engine of\nthe same kind is meant. Threads and processes: as many as cores "
            f"({n_cores()}).",
            *_plot(cells, options.plots),
        ]
    )
    is_complete = not any(
        cell.median is None and cell.note != GRAPH_SYSTEMS[system].missing()
        for (_, system), cell in cells.items()
        if system.startswith("weft")
    )
    return Outcome(text, to_json(cells, is_quick=options.quick), is_complete)


def _plot(cells: Cells, folder: Path | None) -> list[str]:
    if folder is None:
        return []
    try:
        written = write_plots(cells, folder)
    except ImportError as error:
        return [f"No plots: {error}."]
    return [f"Plots: {', '.join(map(str, written))}"] if written else []


def versions_of(systems: Sequence[str] | None) -> dict[str, str]:
    """Return the versions of the distributions under test that are installed; None: of all."""
    versions = {}
    for system in systems or GRAPH_SYSTEMS:
        distribution = GRAPH_SYSTEMS[system].distribution
        if distribution is None or GRAPH_SYSTEMS[system].missing():
            continue
        try:
            versions[distribution] = metadata.version(distribution)
        except metadata.PackageNotFoundError:
            versions[distribution] = "from the checkout"
    return versions


def options_for(*, repeat: int, limit: float, quick: bool) -> argparse.Namespace:
    """Return the options of a run of everything; the plots are made from real sizes only."""
    return argparse.Namespace(
        only=None,
        systems=None,
        repeat=repeat,
        limit=limit,
        quick=quick,
        plots=None if quick else PLOTS,
    )


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.graphs",
        description="Run weft's graph engines and pools beside dask's and the standard library's.",
        epilog="Groups: " + ", ".join(GROUPS) + ". Systems: " + ", ".join(GRAPH_SYSTEMS) + ".",
    )
    parser.add_argument(
        "--only", nargs="+", choices=GROUPS, metavar="GROUP", help="run these workloads only"
    )
    parser.add_argument(
        "--systems", nargs="+", choices=GRAPH_SYSTEMS, metavar="SYSTEM", help="run these only"
    )
    parser.add_argument(
        "--plots",
        type=Path,
        default=None,
        metavar="FOLDER",
        help="where to write the plots of the sweeps (docs/images; nowhere if --quick, --systems "
        "or --repeat is given)",
    )
    add_run_options(
        parser, exception="for a point of a sweep 0.15 of it", json_name="bench-graphs.json"
    )
    options = parser.parse_args(arguments)
    if options.plots is None and not (options.quick or options.systems or options.repeat):
        options.plots = PLOTS
    settle_run_options(parser, options)
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0, or 1 if weft was asked for and has no figure for some workload."""
    options = parse(arguments)
    facts = machine.describe(ROOT)
    versions = versions_of(options.systems)
    print(headline("weft graph benchmarks", facts, versions), flush=True)
    outcome = run_all(options)
    print(f"\n{outcome.text}\n")
    document = {"machine": facts, "versions": versions, **outcome.document}
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(f"All figures: {options.json}")
    return int(not outcome.is_complete)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        # All that was started has been stopped on the way here.
        print("\ninterrupted", file=sys.stderr)
        sys.exit(130)
