"""Measures what it costs that a call runs in a child process of its worker (`--isolate`).

Maps of a call that does nothing, on a worker of one thread, in turns with and without isolation.
"""

from __future__ import annotations

import argparse
import statistics
import time
from contextlib import ExitStack

import weft

from .framework import machine
from .framework.driving import ROOT
from .tasks import inc


def us_per_call(client: weft.Client, n: int) -> float:
    """Map over n values; return the microseconds for each."""
    start = time.perf_counter()
    weft.wait(client.map(inc, range(n), pure=False))
    return (time.perf_counter() - start) / n * 1e6


def main() -> None:
    """Print a line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.isolated", description=__doc__.split("\n\n", maxsplit=1)[0]
    )
    parser.add_argument("--quick", action="store_true", help="few calls: does it still run?")
    n, n_rounds = (100, 1) if parser.parse_args().quick else (5000, 7)
    facts = machine.describe(ROOT)
    print(machine.headline("isolated calls", facts, {"weft": weft.__version__}))
    with ExitStack() as stack:
        clients = {}
        for isolate in (False, True):
            cluster = stack.enter_context(
                weft.LocalCluster(n_workers=1, threads_per_worker=1, isolate=isolate)
            )
            clients[isolate] = stack.enter_context(weft.Client(cluster))
        found: dict[bool, list[float]] = {False: [], True: []}
        for client in clients.values():
            us_per_call(client, n // 4)
        for _ in range(n_rounds):
            for isolate, client in clients.items():
                found[isolate].append(us_per_call(client, n))
    plain, isolated = (statistics.median(found[isolate]) for isolate in (False, True))
    print(f"us for each call: {isolated:.0f}, {min(found[True]):.0f} to {max(found[True]):.0f};")
    print(f"in a thread {plain:.0f}, {min(found[False]):.0f} to {max(found[False]):.0f}")


if __name__ == "__main__":
    main()
