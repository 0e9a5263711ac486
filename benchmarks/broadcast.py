"""One large result that many workers read at the same time, in virtual time.

    python -m benchmarks.broadcast --workers 8 --mb 100

A worker has the result; one task at each of the others reads it. The time until all of them have
ended is compared with that of one copy. All links have the same bandwidth.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from .virtual.cluster import VirtualCluster, Workload


def measure(n_readers: int, nbytes: int, bytes_per_s: float) -> float:
    """Return the time until all readers have a copy, in units of that which one copy takes."""
    readers = {f"read-{i}": ["large"] for i in range(n_readers)}
    places = {key: 1 + i for i, key in enumerate(readers)}
    workload = Workload({"large": [], **readers}, {}, {"large": nbytes}, {"large": 0, **places})
    cluster = VirtualCluster(workload, 1 + n_readers, bytes_per_s)
    cluster.submit(["large"])
    cluster.finish(1)
    before = cluster.now
    cluster.submit([*readers])
    cluster.finish(1 + n_readers)
    return (cluster.now - before) / (nbytes / bytes_per_s)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.broadcast")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 3, 7, 8, 31], metavar="N")
    parser.add_argument("--mb", type=float, default=100.0)
    parser.add_argument("--gbit", type=float, default=10.0, help="of each link, per second")
    options = parser.parse_args(arguments)
    for n in options.workers:
        times = measure(n, int(options.mb * 1e6), options.gbit / 8 * 1e9)
        print(f"{options.mb:g} MB to {n} workers: {times:.2f} times one copy", flush=True)


if __name__ == "__main__":
    main()
