"""`python -m benchmarks.study`: weft beside dask.distributed and Ray on the study's workloads."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ..framework.command import main
from ..framework.driving import ROOT
from ..framework.results import grouped
from .table import TABLE

#: Seconds after which nothing more is started: a quick run ends within three minutes.
QUICK_BUDGET_S = 160.0
BUDGET_S = 4 * 3600.0


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options that `framework.command.run` reads."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.study",
        description="Run weft, dask.distributed (as it is, and with its best settings) and Ray by "
        "turns on the workloads of the study; print time and memory, and write all figures.",
    )
    parser.add_argument("--list", action="store_true", help="print all workloads, and end")
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", help="run these groups or workloads only (--list)"
    )
    parser.add_argument(
        "--systems", nargs="+", choices=list(TABLE.systems), help="run these systems only"
    )
    parser.add_argument("--repeat", type=int, default=None, help="rounds, of one run each (3)")
    parser.add_argument("--quick", action="store_true", help="small sizes, one round: 3 minutes")
    parser.add_argument(
        "--limit",
        type=float,
        metavar="SECONDS",
        help="for one run of a workload, with its inputs (120; 20 if --quick)",
    )
    parser.add_argument(
        "--budget",
        type=float,
        metavar="SECONDS",
        help=f"for everything: what has not run by then is left out ({grouped(BUDGET_S)}; "
        f"{QUICK_BUDGET_S:g} if --quick)",
    )
    parser.add_argument(
        "--output",
        dest="json",
        type=Path,
        metavar="FILE",
        default=ROOT / "build" / "study.json",
        help="where to write all figures, as JSON (build/study.json)",
    )
    parser.add_argument(
        "--plots",
        type=Path,
        metavar="FOLDER",
        help="where to write the plots, as SVG (beside --output)",
    )
    options = parser.parse_args(arguments)
    unknown = [name for name in options.only or () if name not in TABLE.groups]
    if unknown:
        parser.error(f"no workload is named {', '.join(unknown)}; --list prints all names")
    is_quick = options.quick
    options.repeat = (1 if is_quick else 3) if options.repeat is None else options.repeat
    options.limit = options.limit or (20.0 if is_quick else 120.0)
    options.budget = options.budget or (QUICK_BUDGET_S if is_quick else BUDGET_S)
    if options.repeat < 1 or options.limit <= 0 or options.budget <= 0:
        parser.error("--repeat, --limit and --budget must be positive")
    if options.plots is None:
        options.plots = options.json.parent
    options.tables = [TABLE]
    if options.list:
        print(listing())
        raise SystemExit(0)
    options.ends_at = time.monotonic() + options.budget
    return options


def listing() -> str:
    """Return all groups with their workloads."""
    lines = []
    for group, names in TABLE.groups.items():
        if names == (group,):
            continue
        lines += ["", f"{group}:"]
        for name in names:
            workload = TABLE.workloads[name]
            title = workload.title.format(n=grouped(workload.size))
            small = "" if workload.quick_size is None else f"  [quick: {workload.quick_size}]"
            lines.append(f"  {name:28} {title}{small}")
    return "\n".join(lines[1:])


if __name__ == "__main__":
    sys.exit(main(parse=parse))
