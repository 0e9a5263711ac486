"""The process that runs one system's workloads.

    python -m benchmarks.framework.child PEER WORKLOAD...

It tells its parent what it does, one JSON object a line on standard output; whatever the system
itself prints goes to standard error. It may be killed at any moment: the parent keeps what it has
heard so far.
"""

from __future__ import annotations

import gc
import json
import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TextIO

from ..clusters.systems import SYSTEMS, System
from ..clusters.workloads import WORKLOADS, Workload, WrongResult
from ..tasks import inc
from .options import parse_child

#: See `repeat`.
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


def repeat(run: Callable[[], float], *, n_runs: int, cheap_s: float, limit_s: float) -> None:
    """Run until there are enough runs or the next would pass the limit.

    Args:
        run: makes one run and returns its seconds.
        n_runs: so many; one is one, of more there are up to thrice as many while they are cheap.
        cheap_s: all runs together may take so long to count as cheap.
        limit_s: for all runs and what is done between them.
    """
    begin = time.perf_counter()
    spent_s, done = 0.0, 0
    while done < n_runs or (n_runs > 1 and done < 3 * n_runs and spent_s < cheap_s):
        run_s = run()
        spent_s += run_s
        done += 1
        if time.perf_counter() - begin + run_s > limit_s:
            return


def run_once(workload: Workload, system: System, size: int, report: Reporter) -> float:
    """Make one run; return its seconds."""
    start = time.perf_counter()
    sample = workload.run(system, size)
    run_s = time.perf_counter() - start
    report("run", value=sample.value, checksum=sample.checksum, extra=sample.extra, size=size)
    if workload.needs_open:
        settle(system)
    return run_s


def explain(error: BaseException) -> str:
    """One line that fits a table's footnote."""
    first = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}"[:200].rstrip(": ")


def main() -> None:
    options = parse_child("benchmarks.framework.child", __doc__, SYSTEMS, WORKLOADS)
    report = Reporter()

    system = SYSTEMS[options.system]()
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
            size = workload.quick_size if options.quick else workload.size
            if workload.needs_open:
                workload.run(system, min(size, WARM_UP_SIZE))
                settle(system)
            repeat(
                partial(run_once, workload, system, size, report),
                n_runs=options.repeat,
                cheap_s=CHEAP_S,
                limit_s=options.limit * workload.patience,
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
