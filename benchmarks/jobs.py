"""What conditions, times and the journal cost: rates of jobs beside those of plain calls.

    python -m benchmarks.jobs --n 100000 --waiting 1000000

Starts a cluster of two workers with a journal, and runs the kinds of calls in turns, so that a
drift of the machine's speed affects all. `--waiting` jobs that cannot run for an hour are submitted
before the last row, plain calls beside them.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import weft

from .framework import machine
from .framework.driving import ROOT

Kind = Callable[[weft.Client, int], list[weft.Future[int]]]


def _plain(client: weft.Client, n: int) -> list[weft.Future[int]]:
    return client.map(abs, range(n), pure=False)


def _after(client: weft.Client, n: int) -> list[weft.Future[int]]:
    """Each waits for the end of one that has not run yet."""
    first = client.submit(abs, -1, start_after="50 ms")
    return client.map(abs, range(n), after={"done": first})


def _detached(client: weft.Client, n: int) -> list[weft.Future[int]]:
    return client.map(abs, range(n), detached=True)


KINDS: dict[str, Kind] = {"plain": _plain, "after=": _after, "detached=": _detached}


def rate(client: weft.Client, kind: Kind, n: int) -> float:
    """Return calls per second, from the first submission to the last result."""
    began = time.perf_counter()
    futures = kind(client, n)
    client.gather(futures)
    seconds = time.perf_counter() - began
    del futures
    client.wait_recorded()
    return n / seconds


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=100_000, help="calls of one run (100 000)")
    parser.add_argument("--repeat", type=int, default=5, help="runs of each kind (5)")
    parser.add_argument("--waiting", type=int, default=0, help="jobs that cannot run (none)")
    options = parser.parse_args()
    print(machine.headline("weft, jobs", machine.describe(ROOT), {}))
    found: dict[str, list[float]] = {name: [] for name in KINDS}
    with (
        tempfile.TemporaryDirectory() as folder,
        weft.LocalCluster(2, 1, journal=Path(folder) / "jobs.sqlite") as cluster,
        weft.Client(cluster) as client,
    ):
        rate(client, _plain, 2_000)
        for _ in range(options.repeat):
            for name, kind in KINDS.items():
                found[name].append(rate(client, kind, options.n))
        began = time.perf_counter()
        for _ in range(100):
            client.submit(abs, 1, detached=True)
        one_ms = (time.perf_counter() - began) * 10
        if options.waiting:
            with weft.Client(cluster, set_as_default=False) as other:
                waiting = other.map(abs, range(options.waiting), start_after="1 h")
                other.wait_recorded()  # the scheduler has read them
                name = f"plain, beside {options.waiting} that wait"
                found[name] = [rate(client, _plain, options.n) for _ in range(options.repeat)]
                del waiting
    plain = statistics.median(found["plain"])
    print(f"\n| calls of {options.n} | per second | of plain |\n|:--|--:|--:|")
    for name, rates in found.items():
        median = statistics.median(rates)
        print(f"| {name} | {median:,.0f} | {median / plain:.2f} |")
    print(f"\nsubmit(detached=True), one after the other: {one_ms:.2f} ms each")


if __name__ == "__main__":
    main()
