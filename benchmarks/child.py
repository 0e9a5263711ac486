"""The process that runs one system's workloads: `python -m benchmarks.child PEER WORKLOAD...`.

It tells its parent what it does, one JSON object a line on standard output; whatever the system
itself prints goes to standard error. It may be killed at any moment: the parent keeps what it has
heard so far.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import time
from typing import Any, TextIO

from .systems import SYSTEMS, System
from .tasks import inc
from .workloads import WORKLOADS, Workload, WrongResult

#: While all runs of a workload took less than this, more runs than asked for are made (at most
#: thrice as many).
CHEAP_S = 2.0

WARM_UP_SIZE = 64


class Reporter:
    """Writes the events; keeps the only handle on the real standard output."""

    def __init__(self) -> None:
        self._out: TextIO = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)

    def __call__(self, event: str, **fields: Any) -> None:
        print(json.dumps({"event": event, **fields}), file=self._out, flush=True)


def settle(system: System) -> None:
    """Let the system finish releasing what earlier runs held: a round trip queues up behind the
    releases.
    """
    gc.collect()
    for i in range(2):
        if system.call(inc, i) != i + 1:
            raise WrongResult("wrong result of a round trip")


def repeat(
    workload: Workload, system: System, *, size: int, n_runs: int, limit_s: float, report: Reporter
) -> None:
    """Warm up, then run until there are enough runs or the next would pass the limit."""
    begin = time.perf_counter()
    if workload.needs_open:
        warm = min(size, WARM_UP_SIZE)
        workload.run(system, warm)
        settle(system)
    spent_s = 0.0
    done = 0
    while done < n_runs or (n_runs > 1 and done < 3 * n_runs and spent_s < CHEAP_S):
        start = time.perf_counter()
        sample = workload.run(system, size)
        run_s = time.perf_counter() - start
        report("run", value=sample.value, checksum=sample.checksum, extra=sample.extra, size=size)
        if workload.needs_open:
            settle(system)
        spent_s += run_s
        done += 1
        if time.perf_counter() - begin + run_s > limit_s:
            return


def explain(error: BaseException) -> str:
    """One line that fits a table's footnote."""
    first = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}"[:200].rstrip(": ")


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.child", description=__doc__)
    parser.add_argument("peer", choices=SYSTEMS)
    parser.add_argument("workloads", nargs="+", choices=WORKLOADS)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--limit", type=float, default=150.0)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    report = Reporter()

    system = SYSTEMS[options.peer]()
    is_open = False
    for name in options.workloads:
        workload = WORKLOADS[name]
        report("start", workload=name)
        try:
            if is_open and (workload.is_fresh or not workload.needs_open):
                is_open = False
                system.close()
            if workload.needs_open and not is_open:
                system.open()
                is_open = True
                report("open")
            repeat(
                workload,
                system,
                size=workload.quick_size if options.quick else workload.size,
                n_runs=options.repeat,
                limit_s=options.limit * workload.patience,
                report=report,
            )
        # Whatever a system raises becomes its cell.
        except Exception as error:
            report("failed", note=explain(error))
            if workload.needs_open:
                # Its state is unknown now; the parent starts a new process for the rest.
                raise
        report("end")
    if is_open:
        system.close()


if __name__ == "__main__":
    main()
