"""Resident memory of each process before, during and after very many tasks.

`python -m benchmarks.memory` starts a cluster of two workers, maps `inc` over a million numbers,
gathers the results, releases the futures, and then waits until the scheduler holds no more than
`GOAL_MB`, or until no process has released memory for a while. It fails if the scheduler keeps more
than that.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from typing import Final

import psutil

import weft

from .clusters.systems import Weft
from .framework import machine
from .framework.driving import ROOT
from .tasks import inc
from .where import processes_by_role

#: Megabytes that an idle scheduler may keep after a million tasks.
GOAL_MB: Final = 100
#: Seconds between two looks at the memory, and seconds without a change of a megabyte after which
#: it counts as settled.
_LOOK_S: Final = 0.25
_SETTLED_S: Final = 5.0

Sizes = dict[int, float]


def measure(n: int, limit_s: float) -> bool:
    """Print one row per process, MB; return whether the scheduler met the goal."""
    deadline = time.monotonic() + limit_s
    facts = machine.describe(ROOT)
    print(machine.headline(f"memory of {n} tasks", facts, Weft.version()))
    with (
        weft.LocalCluster(n_workers=2, threads_per_worker=1, processes=True) as cluster,
        weft.Client(cluster) as client,
    ):
        client.wait_for_workers(2)
        client.gather(client.map(inc, range(1000), pure=False), timeout=limit_s)
        processes = [(role, p) for role, some in processes_by_role().items() for p in some]
        # The supervisor of the workers is one of them; only growth is of interest.
        before = _sizes([process for _, process in processes])
        futures = client.map(inc, range(n), pure=False)
        results = client.gather(futures, timeout=deadline - time.monotonic())
        if sum(results) != n * (n + 1) // 2:
            raise RuntimeError(f"{sum(results)} is not the sum of 1 to {n}")
        held = _sizes([process for _, process in processes])
        del futures, results
        client.submit(inc, 0, pure=False).result(timeout=deadline - time.monotonic())
        after = _settled([process for _, process in processes], deadline)
    print("| resident memory, MB | pid | before | held | released |")
    print("|:--|--:|--:|--:|--:|")
    for role, process in processes:
        pid = process.pid
        cells = " | ".join(f"{sizes.get(pid, 0.0):.0f}" for sizes in (before, held, after))
        print(f"| {role} | {pid} | {cells} |")
    return all(after[p.pid] <= GOAL_MB for role, p in processes if role == "scheduler")


def _sizes(processes: list[psutil.Process]) -> Sizes:
    sizes = {}
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            sizes[process.pid] = process.memory_info().rss / 1e6
    return sizes


def _settled(processes: list[psutil.Process], deadline: float) -> Sizes:
    """Wait until no process releases memory any more; return their sizes then."""
    best = _sizes(processes)
    changed = time.monotonic()
    while time.monotonic() < min(changed + _SETTLED_S, deadline):
        time.sleep(_LOOK_S)
        now = _sizes(processes)
        if any(now.get(pid, 0.0) < size - 1 for pid, size in best.items()):
            best, changed = now, time.monotonic()
    return _sizes(processes)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--tasks", type=int, default=1_000_000, help="tasks (default: 1 000 000)")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds (default: 300)")
    options = parser.parse_args()
    return 0 if measure(options.tasks, options.limit) else 1


if __name__ == "__main__":
    sys.exit(main())
