"""The process that runs one system's share of the graph benchmarks: `python -m
benchmarks.graphs.child SYSTEM WORKLOAD...`. It speaks to its parent as `child` does.
"""

from __future__ import annotations

import gc
import time
from functools import partial

from ..framework.child import WARM_UP_SIZE, Reporter, explain, repeat
from ..framework.options import parse_child
from .systems import GRAPH_SYSTEMS, GraphSystem
from .workloads import GRAPH_WORKLOADS, TOO_LONG_S, GraphWorkload, TooLong

#: See `child.repeat`.
CHEAP_S = 1.0


def run_once(
    workload: GraphWorkload,
    system: GraphSystem,
    size: int,
    report: Reporter,
    net_seconds: list[float],
) -> float:
    """Make one run; return its seconds.

    Args:
        net_seconds: the seconds without building the graph and checking the results go here.
    """
    gc.collect()
    start = time.perf_counter()
    sample = workload.run(system, size)
    run_s = time.perf_counter() - start
    report("run", value=sample.value, checksum=sample.checksum, extra=sample.extra, size=size)
    net_seconds.append(sample.extra.get("wall_s", run_s))
    return run_s


def refuse_long(workload: GraphWorkload, before: tuple[int, float] | None) -> None:
    """Raise `TooLong` if the point of the sweep before, (point, seconds), says so."""
    if before is None:
        return
    point, seconds = before
    expected_s = seconds * workload.point / point
    if expected_s > TOO_LONG_S:
        raise TooLong(f"not run: about {expected_s:.0f} s, by the point before")


def main() -> None:
    options = parse_child("benchmarks.graphs.child", __doc__, GRAPH_SYSTEMS, GRAPH_WORKLOADS)
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
            net_seconds: list[float] = []
            repeat(
                partial(run_once, workload, system, size, report, net_seconds),
                n_runs=options.repeat,
                cheap_s=CHEAP_S,
                # There are many points: the long ones get fewer runs.
                limit_s=limit_s if workload.sweep is None else limit_s / 2,
            )
            points[workload.sweep] = (workload.point, min(net_seconds))
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
