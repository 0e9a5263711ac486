"""The process that runs one system's workloads.

    python -m benchmarks.framework.child TABLE SYSTEM WORKLOAD... --repeat N --limit S [--quick]

The process reports to its parent, one JSON object per line on standard output; whatever the system
itself prints goes to standard error. A workload begins once its parent has answered with a line,
so that the parent, however slow, has seen the memory of before. The process may be killed at any
moment: the parent keeps what was reported until then. Worker processes that a system spawns import
this module again, so it imports little: the table is loaded in `main`.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from typing import Any, TextIO

from .work import System, TooLong, Workload

#: A point of a sweep that would take longer than this is left out, with a note in its cell.
TOO_LONG_S = 20.0


class Reporter:
    """Writes the events; keeps the only handles on the real standard input and output."""

    def __init__(self) -> None:
        self._out: TextIO = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)
        self._answers: TextIO = os.fdopen(os.dup(0), encoding="utf-8")
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)

    def __call__(self, event: str, **fields: Any) -> None:
        print(json.dumps({"event": event, **fields}), file=self._out, flush=True)

    def ask(self, event: str, **fields: Any) -> None:
        """Write an event, and wait until the parent has answered, or is gone."""
        self(event, **fields)
        self._answers.readline()


def repeat(run: Callable[[], float], *, n_runs: int, cheap_s: float, limit_s: float) -> None:
    """Run until there are enough runs or the next one would pass the limit.

    Args:
        run: makes one run and returns its seconds.
        n_runs: this many; if it is more than one, up to three times as many while they are cheap.
        cheap_s: all runs together count as cheap up to this time.
        limit_s: for all runs and the work between them.
    """
    begin = time.perf_counter()
    spent_s, done = 0.0, 0
    while done < n_runs or (n_runs > 1 and done < 3 * n_runs and spent_s < cheap_s):
        run_s = run()
        spent_s += run_s
        done += 1
        if time.perf_counter() - begin + run_s > limit_s:
            return


def explain(error: BaseException) -> str:
    """Return one line that fits a table's footnote."""
    first = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}"[:200].rstrip(": ")


def refuse_long(workload: Workload, before: tuple[int, float] | None) -> None:
    """Raise `TooLong` if the point of the sweep before, (point, seconds), makes that likely."""
    if before is None:
        return
    point, seconds = before
    expected_s = seconds * workload.point / point
    if expected_s > TOO_LONG_S:
        raise TooLong(f"not run: about {expected_s:.0f} s, by the point before")


class Runner:
    """Runs workloads on one system, which it opens when the first workload needs it.

    Args:
        options: `repeat`, `limit` (seconds for all runs of one workload) and `quick` are read.
        cheap_s: see `repeat`.
    """

    def __init__(
        self, system: System, report: Reporter, options: argparse.Namespace, cheap_s: float
    ) -> None:
        self._system = system
        self._report = report
        self._options = options
        self._cheap_s = cheap_s
        self._is_open = False
        #: Sweeps, of which only the first point is warmed up.
        self._warm: set[str] = set()
        #: {sweep: (point, seconds of its fastest run)}
        self._points: dict[str, tuple[int, float]] = {}

    def run(self, name: str, workload: Workload) -> None:
        """Report all runs of a workload, or why there are none."""
        self._report.ask("start", workload=name)
        try:
            self._prepare(workload)
            self._repeat(workload)
        except TooLong as error:
            self._report("failed", note=str(error))
        # Every error of a system becomes the note of its cell.
        except Exception as error:
            self._report("failed", note=explain(error))
            if workload.needs_open:
                # Its state is unknown now; the parent starts a new process for the rest.
                raise
        self._report("end")

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._system.close()

    def _prepare(self, workload: Workload) -> None:
        if workload.is_fresh or not workload.needs_open:
            self.close()
        if not workload.needs_open:
            return
        if not self._is_open:
            self._system.open()
            self._is_open = True
            self._report("open")
        if workload.sweep is None or workload.sweep not in self._warm:
            size = min(workload.size_of(is_quick=self._options.quick), workload.warm_up_size)
            if size:
                workload.run(self._system, size)
            if workload.sweep is not None:
                self._warm.add(workload.sweep)
        self._system.settle()

    def _repeat(self, workload: Workload) -> None:
        limit_s = self._options.limit * workload.patience
        seconds: list[float] = []
        if workload.sweep is not None:
            refuse_long(workload, self._points.get(workload.sweep))
            # There are many points: the long ones get fewer runs.
            limit_s /= 2
        repeat(
            lambda: self._run_once(workload, seconds),
            n_runs=self._options.repeat,
            cheap_s=self._cheap_s,
            limit_s=limit_s,
        )
        if workload.sweep is not None:
            self._points[workload.sweep] = (workload.point, min(seconds))

    def _run_once(self, workload: Workload, seconds: list[float]) -> float:
        """Make one run and return its seconds; without building the graph and checking the results,
        where the sample has that figure, they are added to `seconds`.
        """
        size = workload.size_of(is_quick=self._options.quick)
        start = time.perf_counter()
        sample = workload.run(self._system, size)
        run_s = time.perf_counter() - start
        self._report(
            "run", value=sample.value, checksum=sample.checksum, extra=sample.extra, size=size
        )
        seconds.append(sample.extra.get("wall_s", run_s))
        if workload.needs_open:
            self._system.settle()
        return run_s


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.framework.child", description=__doc__)
    parser.add_argument("table")
    parser.add_argument("system")
    parser.add_argument("workloads", nargs="+")
    parser.add_argument("--repeat", type=int, required=True)
    parser.add_argument("--limit", type=float, required=True)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    report = Reporter()

    from .table import load

    table = load(options.table)
    runner = Runner(table.systems[options.system](), report, options, table.cheap_s)
    for name in options.workloads:
        runner.run(name, table.workloads[name])
    runner.close()


if __name__ == "__main__":
    main()
