"""One array read by all processes of a host: how long it takes, and how often it is in memory.

    python -m benchmarks.one_host --mb 800 --readers 4

Each system starts workers with one thread, a process each: one that makes an array, and the
readers. The array is that result, an argument, or scattered; then each reader has one task that
reads a number of every page and keeps the array. `gather` reads the result in the client, `spilled`
(weft only) is a result that was written to disk before. The time runs from the call until all have
it. The copies are the proportional set sizes of all processes, with all arrays still kept, less
those before, by the size of the array; the array that the client itself passes is one of them.

The rows of both systems are of one run, in turns, and each has its median.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import psutil

from .framework import machine
from .framework.driving import ROOT

CASES: Final = ("result", "argument", "scatter", "gather", "spilled")
_PAGE_FLOATS: Final = 4096 // 8
#: Arrays that are made to fill the memory of a worker.
MAX_OTHERS: Final = 4
#: A wait has an end within this time, seconds.
LIMIT_S: Final = 120.0
_KEPT: list[Any] = []


def make(n: int, seed: int) -> Any:
    """Return an array whose pages differ."""
    import numpy as np

    return np.arange(seed, seed + n, dtype=float)


def keep(array: Any) -> float:
    """Read every page of an array, and keep it."""
    _KEPT.append(array)
    return float(array[::_PAGE_FLOATS].sum())


def let_go() -> None:
    """Keep nothing."""
    _KEPT.clear()
    gc.collect()


def _proportional_nbytes() -> int:
    """Return the memory of this process and all below it; what is shared counts once."""
    total = 0
    me = psutil.Process()
    for process in [me, *me.children(recursive=True)]:
        with contextlib.suppress(OSError, StopIteration):
            lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text(encoding="ascii")
            total += next(
                int(line.split()[1]) << 10 for line in lines.splitlines() if line[:4] == "Pss:"
            )
    return total


class System:
    """A client with one single-thread worker for each reader."""

    def __init__(self, client: Any, workers: list[str], folder: str) -> None:
        self.client = client
        self.workers = workers
        self.folder = Path(folder)

    def keep_at(self, workers: list[str], array: Any) -> list[Any]:
        """Submit a task for each of these workers that keeps the array."""
        submit = self.client.submit
        return [submit(keep, array, workers=[name], pure=False) for name in workers]


@contextlib.contextmanager
def _weft(n: int, folder: str, limit: int | None) -> Iterator[System]:
    import weft

    with (
        weft.LocalCluster(
            n_workers=n, threads_per_worker=1, memory_limit=limit, local_directory=folder
        ) as cluster,
        weft.Client(cluster) as client,
    ):
        client.wait_for_workers(n)
        yield System(client, sorted(client.scheduler_info()["workers"]), folder)


@contextlib.contextmanager
def _dask(n: int, folder: str, limit: int | None) -> Iterator[System]:
    import dask
    from distributed import Client, LocalCluster

    assert limit is None
    with (
        dask.config.set({"distributed.admin.large-graph-warning-threshold": 1 << 40}),
        LocalCluster(
            n_workers=n,
            threads_per_worker=1,
            memory_limit=0,
            local_directory=folder,
            dashboard_address=None,
        ) as cluster,
        Client(cluster) as client,
    ):
        yield System(client, sorted(client.scheduler_info(n_workers=-1)["workers"]), folder)


SYSTEMS: Final = {"weft": _weft, "dask": _dask}


def measure(system: System, case: str, nbytes: int, seed: int) -> tuple[float, float]:
    """Return the seconds until all have the array, and how often it is in memory then."""
    client = system.client
    n = nbytes // 8
    # What is imported and connected at first use is neither time nor memory of an array.
    small = client.submit(make, 1 << 16, seed, workers=[system.workers[0]], pure=False)
    client.gather([small, *system.keep_at(system.workers, small)])
    client.gather(system.keep_at(system.workers, make(1 << 18, seed)))
    del small
    client.run(let_go)
    let_go()
    before = _proportional_nbytes()
    expected = float(make(n, seed)[::_PAGE_FLOATS].sum())
    held: list[Any] = []
    if case in ("argument", "scatter"):
        held.append(make(n, seed))
    else:
        made = client.submit(make, n, seed, workers=[system.workers[0]], pure=False)
        client.submit(type, made, workers=[system.workers[0]], pure=False).result()
        held.append(made)
    if case == "spilled":
        held += _spill(system, n)
        before = _proportional_nbytes()  # with all arrays but the one that was written
    start = time.perf_counter()
    if case == "gather":
        held.append(held[0].result())
        sums = [float(held[-1][::_PAGE_FLOATS].sum())]
    else:
        source = client.scatter(held[0]) if case == "scatter" else held[0]
        held.append(source)
        futures = system.keep_at(system.workers[1:], source)
        held.append(futures)
        sums = client.gather(futures)
    seconds = time.perf_counter() - start
    if set(sums) != {expected}:
        raise RuntimeError(f"{case}: an array arrived with other numbers")
    copies = (_proportional_nbytes() - before) / nbytes
    held.clear()
    client.run(let_go)
    return seconds, copies


def _spill(system: System, n: int) -> list[Any]:
    """Make the first worker write its array to disk, for other ones; return these."""
    others: list[Any] = []
    deadline = time.monotonic() + LIMIT_S
    while not any(path.stat().st_size >= n * 8 for path in system.folder.glob("**/*.spill/*")):
        if time.monotonic() > deadline:
            raise RuntimeError("nothing was written to disk")
        if len(others) < MAX_OTHERS:
            others.append(system.client.submit(make, n, 1, workers=[system.workers[0]], pure=False))
        time.sleep(1.0)
    return others


def main(arguments: list[str] | None = None) -> int:
    """Measure, print the table, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.one_host", description=__doc__)
    parser.add_argument("--mb", type=int, default=800, help="size of the array")
    parser.add_argument("--readers", type=int, default=4, help="number of workers")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", choices=CASES, action="append", help="measure this case only")
    parser.add_argument("--no-dask", action="store_true")
    given = parser.parse_args(arguments)
    nbytes = given.mb * 1_000_000
    names = ["weft"] if given.no_dask else list(SYSTEMS)
    print(machine.headline("One array on one host", machine.describe(ROOT), {}))
    print(f"{given.mb} MB, {given.readers} workers, median of {given.repeat}")
    print("| case | " + " | ".join(f"{name} s | copies" for name in names) + " | ratio |")
    print("|---|" + "---:|---:|" * len(names) + "---:|")
    for case in given.only or CASES:
        of_system: dict[str, list[tuple[float, float]]] = {}
        for seed in range(given.repeat):
            for name in names:
                if case != "spilled" or name == "weft":
                    of_system.setdefault(name, []).append(
                        _measured(name, case, nbytes, given.readers, seed)
                    )
        cells, medians = [], []
        for name in names:
            rows = of_system.get(name)
            if rows is None:
                cells.append("- | -")
                continue
            seconds, copies = (statistics.median(column) for column in zip(*rows, strict=True))
            medians.append(seconds)
            cells.append(f"{seconds:.3f} | {copies:.2f}")
        ratio = f"{medians[0] / medians[1]:.3f}" if len(medians) > 1 else "-"
        print(f"| {case} | " + " | ".join(cells) + f" | {ratio} |", flush=True)
    return 0


def _measured(name: str, case: str, nbytes: int, readers: int, seed: int) -> tuple[float, float]:
    limit = int(nbytes * 2.2) + (200 << 20) if case == "spilled" else None
    with (
        tempfile.TemporaryDirectory() as folder,
        SYSTEMS[name](readers + 1, folder, limit) as system,
    ):
        return measure(system, case, nbytes, seed)


if __name__ == "__main__":
    sys.exit(main())
