"""The options that both benchmark commands have, and those that they hand on to their children."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from pathlib import Path

from .driving import ROOT


def add_run_options(parser: argparse.ArgumentParser, *, exception: str, json_name: str) -> None:
    """Add --repeat, --quick, --limit and --json.

    Args:
        parser: of a command.
        exception: for the help of --limit: which workloads have another.
        json_name: of the file in build/ that the figures go to.
    """
    parser.add_argument(
        "--repeat",
        type=int,
        default=None,
        metavar="N",
        help="runs of each workload (3; 1 with --quick)",
    )
    parser.add_argument(
        "--quick", action="store_true", help="small sizes: does everything still run?"
    )
    parser.add_argument(
        "--limit",
        type=float,
        default=150.0,
        metavar="SECONDS",
        help=f"for all runs of one workload on one system (150; {exception})",
    )
    parser.add_argument(
        "--json",
        type=Path,
        default=ROOT / "build" / json_name,
        metavar="PATH",
        help=f"where to write all figures (build/{json_name})",
    )


def settle_run_options(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Put the defaults in that depend on other options; end with what is wrong."""
    if options.repeat is None:
        options.repeat = 1 if options.quick else 3
    if options.repeat < 1 or options.limit <= 0:
        parser.error("--repeat and --limit must be positive")


def parse_child(
    prog: str, description: str | None, systems: Collection[str], workloads: Collection[str]
) -> argparse.Namespace:
    """Return the options of a process that runs the workloads of one system."""
    parser = argparse.ArgumentParser(prog=prog, description=description)
    parser.add_argument("system", choices=systems)
    parser.add_argument("workloads", nargs="+", choices=workloads)
    parser.add_argument("--repeat", type=int, required=True)
    parser.add_argument("--limit", type=float, required=True)
    parser.add_argument("--quick", action="store_true")
    return parser.parse_args()
