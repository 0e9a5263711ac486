"""Where the microseconds go: CPU time per task, by process, for weft's workloads.

`python -m benchmarks.where` runs each workload on one cluster and divides the CPU time that the
operating system counted for each process by the number of tasks. Unlike rates, these figures hardly
depend on how many cores there are, and they show which process to look at with a profiler:
`py-spy record --pid PID` on the pids that are printed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import psutil

from .clusters import workloads
from .clusters.systems import System, Weft

#: (name, workload, size, tasks of that size)
CASES: list[tuple[str, Callable[[System, int], object], int, int]] = [
    ("map of 20 000", workloads.run_map, 20_000, 20_000),
    ("loop of 5 000 submit", workloads.run_submit, 5_000, 5_000),
    ("submit().result(), 1 000 times", workloads.run_round_trip, 1_000, 1_000),
    ("chain of 1 000", workloads.run_chain, 1_000, 1_000),
    ("tree of 8 192 leaves", workloads.run_tree, 8_192, 16_383),
    ("neighbours, 2 x 4 000", workloads.run_neighbour, 4_000, 8_000),
    ("as_completed of 5 000", workloads.run_as_completed, 5_000, 5_000),
]
ROLES = ("client", "scheduler", "workers")


def processes_by_role() -> dict[str, list[psutil.Process]]:
    """Sort this process and its descendants by role; all that are neither client nor scheduler are
    workers.
    """
    me = psutil.Process()
    found: dict[str, list[psutil.Process]] = {"client": [me], "scheduler": [], "workers": []}
    for child in me.children(recursive=True):
        is_scheduler = " ".join(child.cmdline()).startswith("weft scheduler")
        found["scheduler" if is_scheduler else "workers"].append(child)
    return found


def cpu_seconds(processes: list[psutil.Process]) -> float:
    """Return user and system time of all of them, seconds."""
    times = [process.cpu_times() for process in processes]
    return sum(t.user + t.system for t in times)


def measure(repeat: int) -> None:
    """Print one row per workload: microseconds of CPU per task in each role, and the wall time."""
    system = Weft()
    system.open()
    try:
        by_role = processes_by_role()
        pids = {role: [p.pid for p in by_role[role]] for role in ROLES}
        print("pids:", ", ".join(f"{role} {pids[role]}" for role in ROLES))
        print("| CPU per task, us | " + " | ".join(ROLES) + " | sum | wall |")
        print("|:--|--:|--:|--:|--:|--:|")
        for name, run, size, n_tasks in CASES:
            run(system, size)  # warm
            before = {role: cpu_seconds(by_role[role]) for role in ROLES}
            wall = 0.0
            for _ in range(repeat):
                start = time.perf_counter()
                run(system, size)
                wall += time.perf_counter() - start
            per_task = 1e6 / (repeat * n_tasks)
            used = [(cpu_seconds(by_role[role]) - before[role]) * per_task for role in ROLES]
            cells = " | ".join(f"{value:.1f}" for value in [*used, sum(used), wall * per_task])
            print(f"| {name} | {cells} |", flush=True)
    finally:
        system.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--repeat", type=int, default=10, help="runs per workload (default 10)")
    measure(parser.parse_args().repeat)
