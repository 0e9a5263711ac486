"""The process that runs one system's share of the graph benchmarks: `python -m
benchmarks.graph_child SYSTEM WORKLOAD...`. It speaks to its parent as `child` does.
"""

from __future__ import annotations

import argparse
import gc
import time

from .child import WARM_UP_SIZE, Reporter, explain
from .graph_systems import GRAPH_SYSTEMS, GraphSystem
from .graph_workloads import GRAPH_WORKLOADS, TOO_LONG_S, GraphWorkload, TooLong

#: While all runs of a workload took less than this, more runs than asked for are made (at most
#: thrice as many).
CHEAP_S = 1.0


def repeat(
    workload: GraphWorkload,
    system: GraphSystem,
    *,
    size: int,
    n_runs: int,
    limit_s: float,
    report: Reporter,
) -> float:
    """Run until there are enough runs or the next would pass the limit; return the seconds of the
    shortest, without what building the graph and checking the results took.
    """
    begin = time.perf_counter()
    spent_s, done, shortest_s = 0.0, 0, float("inf")
    while done < n_runs or (n_runs > 1 and done < 3 * n_runs and spent_s < CHEAP_S):
        gc.collect()
        start = time.perf_counter()
        sample = workload.run(system, size)
        run_s = time.perf_counter() - start
        report("run", value=sample.value, checksum=sample.checksum, extra=sample.extra, size=size)
        shortest_s = min(shortest_s, sample.extra.get("wall_s", run_s))
        spent_s += run_s
        done += 1
        if time.perf_counter() - begin + run_s > limit_s:
            break
    return shortest_s


def refuse_long(workload: GraphWorkload, before: tuple[int, float] | None) -> None:
    """Raise `TooLong` if the point of the sweep before, (point, seconds), says so."""
    if before is None:
        return
    point, seconds = before
    expected_s = seconds * workload.point / point
    if expected_s > TOO_LONG_S:
        raise TooLong(f"not run: about {expected_s:.0f} s, by the point before")


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.graph_child", description=__doc__)
    parser.add_argument("system", choices=GRAPH_SYSTEMS)
    parser.add_argument("workloads", nargs="+", choices=GRAPH_WORKLOADS)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--limit", type=float, default=150.0)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    report = Reporter()

    system = GRAPH_SYSTEMS[options.system]()
    is_open = False
    warm: set[tuple[str, str | None]] = set()
    points: dict[str | None, tuple[int, float]] = {}
    for name in options.workloads:
        workload = GRAPH_WORKLOADS[name]
        report("start", workload=name)
        try:
            if not is_open:
                system.open()
                is_open = True
                report("open")
            size = (workload.quick_size if options.quick else None) or workload.size
            kind = (workload.group, workload.sweep or name)
            if kind not in warm:
                workload.run(system, min(size, WARM_UP_SIZE))
                warm.add(kind)
            if workload.sweep is not None:
                refuse_long(workload, points.get(workload.sweep))
            limit_s = options.limit * workload.patience
            shortest_s = repeat(
                workload,
                system,
                size=size,
                n_runs=options.repeat,
                # There are many points: the long ones get fewer runs.
                limit_s=limit_s if workload.sweep is None else limit_s / 2,
                report=report,
            )
            points[workload.sweep] = (workload.point, shortest_s)
        except TooLong as error:
            report("failed", note=str(error))
        # Whatever a system raises becomes its cell.
        except Exception as error:
            report("failed", note=explain(error))
            # Its state is unknown now; the parent starts a new process for the rest.
            raise
        report("end")
    if is_open:
        system.close()


if __name__ == "__main__":
    main()
