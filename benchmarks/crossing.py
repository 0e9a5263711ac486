"""How many inputs cross from one worker to another: the cores, in virtual time (`virtual/`).

    python -m benchmarks.crossing --workers 2 --task-us 640

A run is determined by its arguments, and shows what the placement costs and nothing else: the
inputs that were fetched, and the time beyond the ideal.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Final

from .virtual.cluster import VirtualCluster, Workload
from .virtual.graphs import Graph, chains, layers, shuffle, stencil, tree

GRAPHS: Final[dict[str, Callable[[], Graph]]] = {
    "stencil 16 x 60": stencil,
    "chains 16 x 60": chains,
    "tree of 1 024": tree,
    "shuffle of 24": shuffle,
    "random 1 000": layers,
}


def run(graph: Graph, n_workers: int, task_s: float) -> VirtualCluster:
    """Let all tasks of a graph end."""
    cluster = VirtualCluster(Workload(graph, {"": task_s}), n_workers)
    cluster.run()
    return cluster


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.crossing")
    parser.add_argument("--workers", type=int, default=2, metavar="N")
    parser.add_argument("--task-us", type=float, default=640.0, metavar="US")
    options = parser.parse_args()
    print(f"{options.workers} workers, tasks of {options.task_us:g} us")
    for name, make in GRAPHS.items():
        graph = make()
        ended = run(graph, options.workers, options.task_us * 1e-6)
        n_edges = sum(map(len, graph.values()))
        ideal_s = len(graph) * options.task_us * 1e-6 / options.workers
        print(
            f"{name}: {ended.n_fetched} of {n_edges} inputs fetched, "
            f"{ended.now / ideal_s:.2f} times the ideal time",
            flush=True,
        )


if __name__ == "__main__":
    main()
