"""Run weft and its peers through the same work on this machine, and print the tables.

    python -m benchmarks.run [--only WORKLOAD...] [--peers PEER...] [--repeat N] [--quick]

Each system runs in a process of its own, one system after the other, with one client, one scheduler
(if it has one) and two single-thread workers. A system that is missing, fails or hangs costs its
cells, never the run. The graph engines of `benchmarks.graphs` follow in the same run, unless --only
or --peers picks something.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from .clusters.systems import N_WORKERS, SYSTEMS
from .clusters.workloads import WORKLOADS
from .framework import machine
from .framework.driving import ROOT, Cells, Progress, Suite, headline, run_peer
from .framework.options import add_run_options, settle_run_options
from .framework.results import Cell, Table, median_of, memory_line, to_json
from .graphs import __main__ as graphs

CLUSTERS = Suite("benchmarks.framework.child", WORKLOADS)


def plan(options: argparse.Namespace) -> tuple[dict[str, list[str]], Cells]:
    """Return the workloads of each peer, and cells for what is left out with a reason.

    A workload that a system cannot run at all has no cell.
    """
    work: dict[str, list[str]] = {}
    left_out: Cells = {}
    for peer in options.peers or SYSTEMS:
        system = SYSTEMS[peer]
        is_missing = importlib.util.find_spec(system.module) is None
        for name in options.only or WORKLOADS:
            workload = WORKLOADS[name]
            if workload.only_peers is not None and peer not in workload.only_peers:
                continue
            if workload.is_graph and not system.has_dependencies:
                left_out[name, peer] = Cell(peer, name, note="no tasks that depend on tasks")
            elif name == "first-result" and system.first_result_code is None:
                continue
            elif is_missing:
                left_out[name, peer] = Cell(peer, name, note=f"{system.module} is not installed")
            elif (
                options.peers is None
                and workload.default_peers is not None
                and peer not in workload.default_peers
            ):
                left_out[name, peer] = Cell(peer, name, note="too slow")
            else:
                work.setdefault(peer, []).append(name)
    return work, left_out


def explain_too_slow(cells: Cells, *, is_quick: bool) -> None:
    """Put the time that the big map would have taken into the cells of those who did not run it."""
    for (name, peer), cell in cells.items():
        if cell.note != "too slow":
            continue
        workload = WORKLOADS[name]
        rate = median_of(cells, "map", peer)
        cell.note = f"not run unless named with --peers {peer}"
        if rate is not None and not is_quick:
            cell.note += (
                f": about {workload.size / rate / 60:.0f} min a run at the rate of its small map"
            )


def versions_of(peers: Sequence[str]) -> dict[str, str]:
    """Return the versions of the distributions under test that are installed."""
    versions = {}
    for peer in peers:
        system = SYSTEMS[peer]
        if system.distribution is None or importlib.util.find_spec(system.module) is None:
            continue
        try:
            versions[system.distribution] = system.version()
        except importlib.metadata.PackageNotFoundError:
            versions[system.distribution] = "from the checkout"
    return versions


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.run",
        description="Run weft and its peers through the same work, and print the tables. Without "
        "--only and --peers the graph engines follow (python -m benchmarks.graphs).",
        epilog="Peers: " + ", ".join(SYSTEMS) + ". Workloads: " + ", ".join(WORKLOADS) + ".",
    )
    parser.add_argument(
        "--only", nargs="+", choices=WORKLOADS, metavar="WORKLOAD", help="run these workloads only"
    )
    parser.add_argument(
        "--peers",
        nargs="+",
        choices=SYSTEMS,
        metavar="PEER",
        help="run these systems only, and on every workload, however slow they are at it",
    )
    add_run_options(parser, exception="thrice that for the big map", json_name="bench.json")
    options = parser.parse_args(arguments)
    settle_run_options(parser, options)
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0, or 1 if weft was asked for and has no figure for some workload."""
    options = parse(arguments)
    facts = machine.describe(ROOT)
    peers = list(dict.fromkeys(options.peers or SYSTEMS))
    workloads = list(dict.fromkeys(options.only or WORKLOADS))
    versions = versions_of(peers)
    with_graphs = options.only is None and options.peers is None
    if with_graphs:
        versions |= graphs.versions_of(None)
    print(headline("weft benchmarks", facts, versions), flush=True)
    work, cells = plan(options)
    progress = Progress(sum(map(len, work.values())))
    for peer, names in work.items():
        cells.update(run_peer(CLUSTERS, peer, names, options, progress))
    progress.end()
    explain_too_slow(cells, is_quick=options.quick)

    print("\n" + Table(cells, is_quick=options.quick).render(workloads, peers) + "\n")
    spread = (
        "One run" if options.repeat == 1 else f"Median ± half the range, >= {options.repeat} runs"
    )
    line = memory_line(cells)
    if line:
        print(line)
    print(
        f"{spread}; (Nx): weft is N times as fast as that system.\n"
        f"Each: one client, {N_WORKERS} single-thread workers, loopback; one system at a time."
    )
    is_complete = all(cells[key].median is not None for key in cells if key[1] == "weft")
    more = {}
    if with_graphs:
        chosen = graphs.options_for(repeat=options.repeat, limit=options.limit, quick=options.quick)
        outcome = graphs.run_all(chosen)
        print(f"\n{outcome.text}\n")
        more = {"graphs": outcome.document}
        is_complete = is_complete and outcome.is_complete
    document = more | to_json(
        cells,
        machine=facts,
        versions=versions,
        options={
            key: str(value) if isinstance(value, Path) else value
            for key, value in vars(options).items()
        },
        is_quick=options.quick,
    )
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(f"All figures: {options.json}")
    return int(not is_complete)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        # All that was started has been stopped on the way here.
        print("\ninterrupted", file=sys.stderr)
        sys.exit(130)
