"""Run weft and its peers through the same work on this machine, and print one table.

    python -m benchmarks.run [--only WORKLOAD...] [--peers PEER...] [--repeat N] [--quick]

Each system runs in a process of its own, one system after the other, with one client, one scheduler
(if it has one) and two single-thread workers. A system that is missing, fails or hangs costs its
cells, never the run.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from . import machine
from .results import Cell, Table, median_of, memory_line, to_json
from .supervise import GRACE_S, Child, TimedOut
from .systems import ENVIRONMENT, N_WORKERS, SYSTEMS
from .workloads import WORKLOADS

ROOT = Path(__file__).resolve().parent.parent

#: These would make `Client()` find a cluster that is not ours.
_FOREIGN = ("WEFT_ADDRESS", "WEFT_CONNECTION_FILE", "WEFT_TOKEN_FILE", "RAY_ADDRESS")

Cells = dict[tuple[str, str], Cell]


class Progress:
    """One line that says what runs now; on a terminal it is overwritten, elsewhere each step is
    a line.
    """

    def __init__(self, n_cells: int) -> None:
        self._n_cells = n_cells
        self._n_done = 0
        self._begin = time.monotonic()
        self._is_terminal = sys.stderr.isatty()

    def show(self, text: str, *, is_step: bool) -> None:
        if is_step:
            self._n_done += 1
        elapsed = time.monotonic() - self._begin
        line = f"[{self._n_done}/{self._n_cells}] {elapsed:4.0f} s  {text}"
        if self._is_terminal:
            print(f"\r\x1b[2K{line[:110]}", end="", file=sys.stderr, flush=True)
        elif is_step:
            print(line, file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._is_terminal:
            print("\r\x1b[2K", end="", file=sys.stderr, flush=True)


def child_environment() -> dict[str, str]:
    environment = {key: value for key, value in os.environ.items() if key not in _FOREIGN}
    environment.update(ENVIRONMENT)
    # Users have their bytecode cached; without it, `import` measures the compiler.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    # Workers of every system must find `benchmarks.tasks` and this checkout's weft.
    path = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment["PYTHONPATH"] = os.pathsep.join(path)
    return environment


def run_peer(
    peer: str, workloads: Sequence[str], options: argparse.Namespace, progress: Progress
) -> Cells:
    """Run the workloads on one system; every one of them gets its cell."""
    cells = {(name, peer): Cell(peer, name) for name in workloads}
    remaining = list(workloads)
    while remaining:
        command = [sys.executable, "-m", "benchmarks.child", peer, *remaining]
        command += ["--repeat", str(options.repeat), "--limit", str(options.limit)]
        if options.quick:
            command.append("--quick")
        with Child(command, cwd=ROOT, environment=child_environment()) as child:
            failure = watch(child, peer, remaining, cells, options, progress)
        if failure is not None:
            # It does not come up: trying again for each workload would only take time.
            for name in [name for name in remaining if WORKLOADS[name].needs_open]:
                cells[name, peer].note = failure
                remaining.remove(name)
                finish(cells[name, peer], options, progress)
    return cells


def watch(
    child: Child,
    peer: str,
    remaining: list[str],
    cells: Cells,
    options: argparse.Namespace,
    progress: Progress,
) -> str | None:
    """Follow one child to its end, and take each finished or failed workload off `remaining`.

    Returns:
        Why the system did not come up, None if it did or nobody asked it to.
    """
    was_opened = False
    deadline = time.monotonic() + options.limit
    while remaining:
        # The child keeps to the order.
        cell = cells[remaining[0], peer]
        workload = WORKLOADS[cell.workload]
        limit_s = options.limit * workload.patience
        note = None
        try:
            event = child.next_event(deadline)
        except TimedOut:
            event = None
            note = f"no end within {limit_s:.0f} s"
        if event is None:
            ended = note or f"the process ended early (exit code {child.exit_code(GRACE_S)})"
            cell.note = cell.note or ended
            cell.log = child.log_tail()
            del remaining[0]
            finish(cell, options, progress)
            return cell.note if workload.needs_open and not was_opened else None
        kind = event["event"]
        if kind == "start":
            deadline = time.monotonic() + limit_s + GRACE_S
            progress.show(f"{peer}: {cell.workload}", is_step=False)
        elif kind == "open":
            was_opened = True
        elif kind == "run":
            cell.runs.append(event["value"])
            cell.checksum, cell.size = event["checksum"], event["size"]
            for key, value in event["extra"].items():
                cell.extra.setdefault(key, []).append(value)
            progress.show(f"{peer}: {cell.workload}, run {len(cell.runs)}", is_step=False)
        elif kind == "failed":
            cell.note = event["note"]
            cell.log = child.log_tail()
        elif kind == "end":
            del remaining[0]
            finish(cell, options, progress)
    # All have their figures; the system still deserves to close in peace.
    child.exit_code(GRACE_S)
    return None


def finish(cell: Cell, options: argparse.Namespace, progress: Progress) -> None:
    """Say that a cell is final."""
    if cell.note is None and len(cell.runs) < options.repeat:
        cell.note = f"{len(cell.runs)} of {options.repeat} runs in the time limit"
    if cell.median is None:
        text = cell.note or ""
    else:
        unit = WORKLOADS[cell.workload].unit
        text = f"{cell.median:.4g} {unit}, median of {len(cell.runs)}"
    progress.show(f"{cell.peer}: {cell.workload}: {text}", is_step=True)


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
        description="Run weft and its peers through the same work, and print one table.",
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
        help="for all runs of one workload on one system (150; thrice that for the big map)",
    )
    parser.add_argument(
        "--json",
        type=Path,
        default=ROOT / "build" / "bench.json",
        metavar="PATH",
        help="where to write all figures (build/bench.json)",
    )
    options = parser.parse_args(arguments)
    if options.repeat is None:
        options.repeat = 1 if options.quick else 3
    if options.repeat < 1 or options.limit <= 0:
        parser.error("--repeat and --limit must be positive")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0, or 1 if weft was asked for and has no figure for some workload."""
    options = parse(arguments)
    facts = machine.describe(ROOT)
    peers = list(dict.fromkeys(options.peers or SYSTEMS))
    workloads = list(dict.fromkeys(options.only or WORKLOADS))
    versions = versions_of(peers)
    print(
        f"weft benchmarks, {facts['date']}, commit {facts['commit']}\n"
        f"{facts['implementation']} {facts['python']} on {facts['system']}, {facts['cpu']}, "
        f"{facts['cores']} cores, {facts['memory_bytes'] / 2**30:.0f} GiB; load at the start "
        f"{facts['load_1min']}\n"
        + ", ".join(f"{name} {version}" for name, version in versions.items()),
        flush=True,
    )
    work, cells = plan(options)
    progress = Progress(sum(map(len, work.values())))
    for peer, names in work.items():
        cells.update(run_peer(peer, names, options, progress))
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
    document = to_json(
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
    return int(any(cell.median is None for (_, peer), cell in cells.items() if peer == "weft"))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        # All that was started has been stopped on the way here.
        print("\ninterrupted", file=sys.stderr)
        sys.exit(130)
