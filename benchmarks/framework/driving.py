"""Runs systems in child processes and collects their figures in cells.

Every workload gets its cell, also when the system under test fails, hangs or crashes.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from .resident import Peak
from .results import Cell
from .supervise import GRACE_S, Child, TimedOut
from .table import Table

ROOT = Path(__file__).resolve().parents[2]

#: These variables would make `Client()` connect to another cluster.
_FOREIGN = ("WEFT_ADDRESS", "WEFT_CONNECTION_FILE", "WEFT_TOKEN_FILE", "RAY_ADDRESS")

#: Systems read these when they are imported or started, so they are set before the interpreter
#: starts.
_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DISABLE_IMPORT_WARNING": "1",
    "PYTHONWARNINGS": "ignore",
}

#: The note of what a run left out because its time was over.
OVER = "not run: the time of the whole run was over"

Cells = dict[tuple[str, str], Cell]


def ends_at(options: argparse.Namespace) -> float:
    """Return the monotonic time at which nothing more is run."""
    end: float | None = getattr(options, "ends_at", None)
    return math.inf if end is None else end


class Progress:
    """One line that shows what runs now; on a terminal it is overwritten, elsewhere each step has
    a line of its own.
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

    def skip(self, n_steps: int) -> None:
        """Count steps that are not made."""
        self._n_done += n_steps

    def end(self) -> None:
        if self._is_terminal:
            print("\r\x1b[2K", end="", file=sys.stderr, flush=True)


def child_environment() -> dict[str, str]:
    environment = {key: value for key, value in os.environ.items() if key not in _FOREIGN}
    environment.update(_ENVIRONMENT)
    # Users have their bytecode cached; without it, `import` measures the compiler.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    # Workers of every system must find `benchmarks.tasks` and this checkout's weft.
    path = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment["PYTHONPATH"] = os.pathsep.join(path)
    return environment


def run_system(
    table: Table,
    system: str,
    workloads: Sequence[str],
    options: argparse.Namespace,
    progress: Progress,
) -> Cells:
    """Run the workloads on one system; every one of them gets its cell.

    Args:
        options: `repeat`, `limit` (seconds for all runs of one workload), `quick` and, if there is
            one, `ends_at` (the monotonic time at which nothing more is run) are read.
    """
    cells = {(name, system): Cell(system, name) for name in workloads}
    remaining = list(workloads)
    while remaining:
        if time.monotonic() >= ends_at(options):
            for name in remaining:
                cells[name, system].note = OVER
                _finish(table, cells[name, system], options, progress)
            break
        command = [sys.executable, "-m", "benchmarks.framework.child", table.name, system]
        command += [*remaining, "--repeat", str(options.repeat), "--limit", str(options.limit)]
        if options.quick:
            command.append("--quick")
        with contextlib.ExitStack() as stack:
            child = stack.enter_context(Child(command, cwd=ROOT, environment=child_environment()))
            peak = stack.enter_context(Peak(child.pids)) if table.with_memory else None
            failure = _watch(table, child, system, remaining, cells, options, progress, peak)
        if failure is not None:
            # The system does not start: another attempt per workload would only take time.
            for name in [name for name in remaining if table.workloads[name].needs_open]:
                cells[name, system].note = failure
                remaining.remove(name)
                _finish(table, cells[name, system], options, progress)
    return cells


def _watch(
    table: Table,
    child: Child,
    system: str,
    remaining: list[str],
    cells: Cells,
    options: argparse.Namespace,
    progress: Progress,
    peak: Peak | None,
) -> str | None:
    """Follow one child to its end, and take each finished or failed workload off `remaining`.

    Returns:
        Why the system did not start, None if it did or was not asked to.
    """
    was_opened = False
    deadline = time.monotonic() + options.limit
    while remaining:
        # The child runs the workloads in this order.
        cell = cells[remaining[0], system]
        workload = table.workloads[cell.workload]
        limit_s = options.limit * workload.patience
        note = None
        try:
            event = child.next_event(min(deadline, ends_at(options)))
        except TimedOut:
            event = None
            is_over = time.monotonic() >= ends_at(options)
            note = OVER if is_over else f"no end within {limit_s:.0f} s"
        if event is None:
            ended = note or f"the process ended early (exit code {child.exit_code(GRACE_S)})"
            cell.note = cell.note or ended
            cell.log = child.log_tail()
            del remaining[0]
            _finish(table, cell, options, progress)
            return cell.note if workload.needs_open and not was_opened else None
        kind = event["event"]
        if kind == "start":
            deadline = time.monotonic() + limit_s + GRACE_S
            if peak is not None:
                peak.take()
            child.answer()
            progress.show(f"{system}: {cell.workload}", is_step=False)
        elif kind == "open":
            was_opened = True
        elif kind == "run":
            cell.runs.append(event["value"])
            cell.checksum, cell.size = event["checksum"], event["size"]
            for key, value in event["extra"].items():
                cell.extra.setdefault(key, []).append(value)
            if peak is not None:
                cell.extra.setdefault("peak_mib", []).append(peak.take() / 2**20)
            progress.show(f"{system}: {cell.workload}, run {len(cell.runs)}", is_step=False)
        elif kind == "failed":
            cell.note = event["note"]
            cell.log = child.log_tail()
        elif kind == "end":
            del remaining[0]
            _finish(table, cell, options, progress)
    # All have their figures; the system is given the time to close by itself.
    child.exit_code(GRACE_S)
    return None


def _finish(table: Table, cell: Cell, options: argparse.Namespace, progress: Progress) -> None:
    """Show that a cell is final."""
    if cell.note is None and len(cell.runs) < options.repeat:
        cell.note = f"{len(cell.runs)} of {options.repeat} runs in the time limit"
    if cell.median is None:
        text = cell.note or ""
    else:
        unit = table.workloads[cell.workload].unit
        text = f"{cell.median:.4g} {unit}, median of {len(cell.runs)}"
    progress.show(f"{cell.peer}: {cell.workload}: {text}", is_step=True)
