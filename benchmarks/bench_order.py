"""How many results a graph holds at most: weft's own order beside `dask.order`, on graphs of dask.

    python -m benchmarks.bench_order
    python -m benchmarks.bench_order --cluster

Nothing is computed: tasks finish as soon as they are taken, `n_workers` at a time. A result is held
as long as some unfinished task, or the caller, still needs it. `--cluster`: the same on workers to
which the scheduler's core assigns the tasks (`order_on_cluster.py`), by the ranks of the rows.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Mapping
from typing import Any

from weft.graphs.core.reading import read_graph
from weft.graphs.core.state import finish
from weft.graphs.dask_graphs import node_types

N_WORKERS = (1, 4)


def peak_kept(
    dsk: Mapping[Any, Any], keys: Any, priorities: Mapping[Any, int] | None, n_workers: int
) -> int:
    """Return the largest number of results that are held at once."""
    graph = read_graph(dsk, keys, node_types=node_types())
    if priorities is not None:
        graph.sort(priorities)
    ready = graph.sources
    dropped: list[Any] = []
    n_kept = peak = 0
    while ready:
        for task in [ready.pop() for _ in range(min(n_workers, len(ready)))]:
            dropped.clear()
            finish(task, None, ready, dropped)
            n_kept += task.n_uses > 0
            peak = max(peak, n_kept)
            n_kept -= len(dropped)
    return peak


def optimized(collection: Any) -> tuple[dict[Any, Any], list[Any]]:
    """Return the graph and the keys that dask hands to a scheduler."""
    found: list[Any] = []

    def take(dsk: Any, keys: Any, **_: Any) -> list[None]:
        found.append((dict(dsk.__dask_graph__()), list(keys)))
        return [None] * len(keys)

    collection.compute(scheduler=take)
    return found[0]


def collections() -> dict[str, Any]:
    """Return small examples of common computations, by name."""
    import dask.array as da
    import dask.dataframe as dd
    import pandas as pd

    x = da.random.random((2000, 2000), chunks=100)
    tall = da.random.random((8000, 50), chunks=(100, 50))
    frame = dd.from_pandas(pd.DataFrame({"a": range(10_000), "b": range(10_000)}), npartitions=40)
    by_a = frame.shuffle("a", shuffle_method="tasks")
    by_b = frame.shuffle("b", shuffle_method="tasks")
    return {
        "x.sum()": x.sum(),
        "(x + x.T).sum()": (x + x.T).sum(),
        "(x @ x).sum()": (x @ x).sum(),
        "x.rechunk(...).sum()": x.rechunk((50, 2000)).sum(),
        "overlap(x).sum()": da.overlap.overlap(x, depth=2, boundary="none").sum(),
        "standardized sum": ((x - x.mean()) / x.std()).sum(),
        "qr of a tall array": da.linalg.qr(tall)[1],
        "groupby, split_out=4": frame.groupby("a").b.sum(split_out=4),
        "shuffle": by_a,
        "merge of two shuffles": frame.merge(by_b, on="a", shuffle_method="tasks"),
    }


def main() -> None:
    """Print a table."""
    from dask.order import order

    print(
        "results held at most      tasks  "
        + "  ".join(f"weft {n}, dask {n}" for n in N_WORKERS)
        + "  dask.order, us per task"
    )
    for name, collection in collections().items():
        dsk, keys = optimized(collection)
        begin = time.perf_counter()
        priorities = order(dsk)
        order_us = (time.perf_counter() - begin) / len(dsk) * 1e6
        cells = [
            f"{peak_kept(dsk, keys, None, n):6} {peak_kept(dsk, keys, priorities, n):7}"
            for n in N_WORKERS
        ]
        n_tasks = read_graph(dsk, keys, node_types=node_types()).n_tasks
        print(f"{name:24} {n_tasks:6}  {'  '.join(cells)}  {order_us:8.1f}")


def on_cluster() -> None:
    """Print a table of what workers hold."""
    from dask._task_spec import convert_legacy_graph
    from dask.order import order

    from .order_on_cluster import peaks, tree

    print("results held at most      tasks  on " + " / ".join(f"{n} workers" for n in (4, 16)))
    graphs = {"a tree of 1024 leaves": tree(1024, 8)}
    graphs.update((name, optimized(collection)) for name, collection in collections().items())
    for name, (dsk, keys) in graphs.items():
        priorities = order(convert_legacy_graph(dsk))
        cells = []
        for n_workers in (4, 16):
            none, own, dask = peaks(dsk, keys, priorities, n_workers)
            cells.append(f"no ranks {none:5}, as submitted {own:5}, dask.order {dask:5}")
        print(f"{name:24} {len(dsk):6}  {' / '.join(cells)}", flush=True)


if __name__ == "__main__":
    with warnings.catch_warnings():
        # dask warns that some chunks are small, which is intended here.
        warnings.simplefilter("ignore")
        parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_order")
        parser.add_argument("--cluster", action="store_true", help="by the scheduler's core")
        if parser.parse_args().cluster:
            on_cluster()
        else:
            main()
