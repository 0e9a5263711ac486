"""The command behind `benchmarks.run` and `benchmarks.graphs`: run the tables that were asked for,
print them, and write all figures as JSON.

Each system runs in a process of its own, one system after the other. A system that is missing,
fails or hangs costs its cells, never the run.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import machine
from .driving import ROOT, Cells, Progress, run_system
from .results import Cell, median_of
from .signals import ending_on_sigterm
from .table import TABLES, Table, load
from .turns import is_hopeless, joined, turns_of

#: Where the documentation takes its figures from.
PLOTS = ROOT / "docs" / "images"


@dataclass(frozen=True, slots=True)
class Outcome:
    """A finished table: the text to print, the document to write, and whether weft has all its
    figures.
    """

    text: str
    document: dict[str, Any]
    is_complete: bool


def plan(table: Table, options: argparse.Namespace) -> tuple[dict[str, list[str]], Cells]:
    """Return the workloads of each system, and cells for what is left out with a reason.

    A workload that a system cannot run at all has no cell.
    """
    work: dict[str, list[str]] = {}
    left_out: Cells = {}
    for system in options.systems or table.systems:
        missing = table.systems[system].missing()
        for name in table.names(options.only, is_quick=options.quick):
            workload = table.workloads[name]
            if workload.systems is not None and system not in workload.systems:
                continue
            why = workload.refusals.get(system) or missing or workload.missing()
            if why is None and options.systems is None and system in workload.too_slow:
                why = f"not run unless named with --peers {system}"
            if why:
                left_out[name, system] = Cell(system, name, note=why)
            else:
                work.setdefault(system, []).append(name)
    return work, left_out


def explain_too_slow(table: Table, cells: Cells, *, is_quick: bool) -> None:
    """Put the time that a workload would have taken into the cells of systems that are too slow."""
    for (name, system), cell in cells.items():
        workload = table.workloads[name]
        rate = median_of(cells, workload.small, system)
        if rate is None or is_quick or not (cell.note or "").startswith("not run unless named"):
            continue
        minutes = workload.size / rate / 60
        rest = f"about {minutes:.0f} min per run at the rate of its {workload.small}"
        cell.note = f"{cell.note}: {rest}"


def run_table(table: Table, options: argparse.Namespace) -> Outcome:
    """Run what was asked for, one system after the other.

    Args:
        options: `only` (groups), `systems`, `repeat`, `limit`, `quick`; the table reads others.
    """
    work, cells = plan(table, options)
    if table.parts:
        turns = [*turns_of(work, table.parts, options.repeat)]
        # One run in each turn; the rounds are the runs.
        each = argparse.Namespace(**{**vars(options), "repeat": 1})
    else:
        turns, each = list(work.items()), options
    progress = Progress(sum(len(names) for _, names in turns))
    for system, names in turns:
        hopeful = [name for name in names if not is_hopeless(cells, name, system)]
        progress.skip(len(names) - len(hopeful))
        for key, cell in run_system(table, system, hopeful, each, progress).items():
            cells[key] = joined(cells.get(key), cell)
    progress.end()
    explain_too_slow(table, cells, is_quick=options.quick)
    spread = (
        "One run" if options.repeat == 1 else f"Median ± half the range, >= {options.repeat} runs"
    )
    sections = table.render(cells, options.only, is_quick=options.quick)
    is_complete = not any(
        cell.median is None and cell.note != table.systems[system].missing()
        for (_, system), cell in cells.items()
        if system.startswith("weft")
    )
    return Outcome(
        "\n\n".join([*sections, *table.closing(cells, spread, options)]),
        table.to_json(cells, is_quick=options.quick),
        is_complete,
    )


def versions_of(tables: Sequence[Table], systems: Sequence[str] | None) -> dict[str, str]:
    """Return the versions of the distributions under test that are installed."""
    versions: dict[str, str] = {}
    for table in tables:
        for name in systems or table.systems:
            versions |= table.systems[name].version()
    return versions


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options; `tables` are the chosen ones."""
    tables = [load(name) for name in TABLES]
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.run",
        description="Run weft and its peers through the same work, and print the tables: clusters, "
        "graph engines with the pools inside a process (python -m benchmarks.graphs), and jobs "
        "(python -m benchmarks.jobs).",
        epilog=" ".join(
            f"Table {t.name}: {', '.join(t.groups)}. Its systems: {', '.join(t.systems)}."
            for t in tables
        ),
    )
    parser.add_argument(
        "--table",
        choices=TABLES,
        help="run this table only (all; with --only or --peers the first one that has all of them)",
    )
    parser.add_argument("--only", nargs="+", metavar="WORKLOAD", help="run these workloads only")
    parser.add_argument(
        "--peers",
        "--systems",
        dest="systems",
        nargs="+",
        metavar="SYSTEM",
        help="run these systems only, and on every workload, however slow they are at it",
    )
    parser.add_argument("--repeat", type=int, metavar="N", help="runs per workload (3)")
    parser.add_argument(
        "--quick", action="store_true", help="small sizes, one run: does everything still run?"
    )
    parser.add_argument(
        "--limit",
        type=float,
        default=150.0,
        metavar="SECONDS",
        help="for all runs of one workload on one system (150; three times that for the big map, "
        "0.15 of it for a point of a sweep)",
    )
    parser.add_argument(
        "--plots",
        type=Path,
        metavar="FOLDER",
        help="where to write the plots of the sweeps (docs/images; nowhere if --quick, --systems "
        "or a --repeat below 3 is given)",
    )
    parser.add_argument(
        "--json",
        type=Path,
        metavar="PATH",
        help="where to write all figures (build/bench.json; bench-TABLE.json for another table)",
    )
    options = parser.parse_args(arguments)
    asked = [table for table in tables if options.table in (None, table.name)]
    fitting = [
        table
        for table in asked
        if {*(options.only or ())} <= {*table.groups}
        and {*(options.systems or ())} <= {*table.systems}
    ]
    if not fitting:
        picked = [*(options.only or ()), *(options.systems or ())]
        parser.error(f"no table has all of {', '.join(picked)}; --help lists all names")
    options.tables = fitting[:1] if options.only or options.systems else fitting
    if options.plots is None and not (options.quick or options.systems):
        options.plots = PLOTS if options.repeat is None or options.repeat >= 3 else None
    if options.repeat is None:
        options.repeat = 1 if options.quick else 3
    if options.repeat < 1 or options.limit <= 0:
        parser.error("--repeat and --limit must be positive")
    if options.json is None:
        first = options.tables[0]
        name = "bench.json" if first is tables[0] else f"bench-{first.name}.json"
        options.json = ROOT / "build" / name
    return options


def run(options: argparse.Namespace) -> int:
    """Return 0, or 1 if weft was asked for and has no figure for some workload."""
    facts = machine.describe(ROOT)
    versions = versions_of(options.tables, options.systems)
    first, *others = options.tables
    print(machine.headline(first.title, facts, versions), flush=True)
    outcomes = {}
    for table in options.tables:
        outcomes[table.name] = run_table(table, options)
        print(f"\n{outcomes[table.name].text}\n", flush=True)
    plain = {
        key: str(value) if isinstance(value, Path) else value
        for key, value in vars(options).items()
        if key not in ("tables", "ends_at")
    }
    document = {"machine": facts, "versions": versions, "options": plain}
    document |= outcomes[first.name].document
    document |= {table.name: outcomes[table.name].document for table in others}
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(f"All figures: {options.json}")
    return int(not all(outcome.is_complete for outcome in outcomes.values()))


def main(
    arguments: Sequence[str] | None = None,
    *,
    parse: Callable[[Sequence[str] | None], argparse.Namespace] = parse,
) -> int:
    """Return the exit code.

    Args:
        parse: returns the options of a command with a table of its own.
    """
    try:
        options = parse(arguments)
        with ending_on_sigterm():
            return run(options)
    except KeyboardInterrupt:
        # All that was started has been stopped on the way here.
        print("\ninterrupted", file=sys.stderr)
        return 130
