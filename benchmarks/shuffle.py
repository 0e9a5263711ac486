"""`python -m benchmarks.shuffle`: shuffles of data frames, and rechunks, beside dask's own p2p.

They run in turns in one process, each with a new cluster of two workers with one thread: weft with
the shuffle of `client/dask/shuffles.py`, weft with dask's own tasks ("tasks"), and dask.distributed
with p2p, whose scheduler is in its client's process, as by default. The memory of weft's scheduler
is the most that its process had during the run, less what it had before, for each partition.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import math
import os
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import psutil

from .framework import machine
from .framework.driving import ROOT
from .framework.resident import resident_bytes

#: (partitions, rows of each)
SIZES = ((4, 20_000), (60, 20_000), (300, 4_000), (1000, 2_000))


def frame_of(i: int, n_rows: int) -> pd.DataFrame:
    """Return a partition of 24 bytes a row."""
    rng = np.random.default_rng(i)
    return pd.DataFrame(
        {
            "k": rng.integers(0, 1 << 40, n_rows),
            "x": rng.random(n_rows),
            "y": rng.integers(0, 100, n_rows),
        }
    )


def shuffled(n: int, n_rows: int) -> Any:
    """Return a shuffled frame that is not computed yet."""
    import dask.dataframe as dd

    meta = frame_of(0, 1).iloc[:0]
    frame = dd.from_map(frame_of, range(n), n_rows=n_rows, meta=meta, enforce_metadata=False)
    return frame.shuffle("k")


def sum_of(part: Any) -> Any:
    """Return what is computed of each partition: the partitions stay where they are."""
    return pd.DataFrame({"n": [len(part)], "y": [int(part.y.sum())]})


def run_shuffle(n: int, n_rows: int) -> tuple[float, int]:
    """Return seconds and a checksum."""
    start = time.perf_counter()
    meta = pd.DataFrame({"n": [0], "y": [0]}).iloc[:0]
    sums = shuffled(n, n_rows).map_partitions(sum_of, meta=meta).compute()
    assert int(sums.n.sum()) == n * n_rows
    return time.perf_counter() - start, int(sums.y.sum())


def run_rechunk(n: int, n_rows: int) -> tuple[float, int]:
    """Rechunk rows to columns."""
    import dask.array as da

    start = time.perf_counter()
    side = n * 8
    x = da.ones((side, side), chunks=(8, side), dtype="f4") + np.float32(n_rows)
    total = x.rechunk((side, 8)).map_blocks(_total, chunks=(1, 1), dtype="f8").sum().compute()
    return time.perf_counter() - start, int(total)


def _total(block: Any) -> Any:
    return np.array([[float(block.sum(dtype="f8"))]])


WORK: dict[str, Callable[[int, int], tuple[float, int]]] = {
    "shuffle": run_shuffle,
    "rechunk": run_rechunk,
}


# --- Systems --------------------------------------------------------------------------------------


#: Returns the processes of the workers.
Pids = Callable[[], set[int]]


@contextlib.contextmanager
def weft_with(min_pairs: int | None, options: dict[str, Any]) -> Iterator[Pids]:
    """Weft; None = dask's tasks in every case."""
    import weft
    from weft.client.dask import shuffles

    before = shuffles.MIN_PAIRS
    shuffles.MIN_PAIRS = sys.maxsize if min_pairs is None else min_pairs
    try:
        with weft.Client(n_workers=2, threads_per_worker=1, **options) as client:
            client.wait_for_workers(2)
            yield lambda: set(client.run(os.getpid).values())
    finally:
        shuffles.MIN_PAIRS = before


@contextlib.contextmanager
def dask_p2p(options: dict[str, Any]) -> Iterator[Pids]:
    """dask.distributed with p2p."""
    import dask
    import distributed

    settings = {"dataframe.shuffle.method": "p2p", "array.rechunk.method": "p2p"}
    with (
        dask.config.set(settings),
        distributed.Client(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, **options
        ) as client,
    ):
        yield lambda: set(client.run(os.getpid).values())


SYSTEMS: dict[str, Callable[[dict[str, Any]], contextlib.AbstractContextManager[Pids]]] = {
    "weft": lambda options: weft_with(0, options),
    "tasks": lambda options: weft_with(None, options),
    "p2p": dask_p2p,
}


class SchedulerMemory:
    """The most memory of weft's scheduler while it is watched, above that at the beginning."""

    def __init__(self) -> None:
        children = psutil.Process().children(recursive=True)
        found = [child.pid for child in children if child.name() == "weft scheduler"]
        self._pid = found[0] if found else 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._before = self._most = resident_bytes(self._pid) if self._pid else 0

    def __enter__(self) -> SchedulerMemory:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while self._pid and not self._over.wait(0.05):
            self._most = max(self._most, resident_bytes(self._pid))

    @property
    def grown(self) -> int:
        """Bytes."""
        return self._most - self._before


class Run(NamedTuple):
    """The cost of one run; `seconds` is infinite, and there is no checksum, if it has failed."""

    seconds: float
    checksum: int | None
    #: bytes of weft's scheduler
    grown: int
    n_killed: int


def run(
    work: str, name: str, n: int, n_rows: int, limit: int, kill_at_s: float | None = None
) -> Run:
    """Run one work on one system, with a limit of each worker's memory if that is not 0."""
    with tempfile.TemporaryDirectory() as folder:
        options = {"memory_limit": limit, "local_directory": folder} if limit else {}
        with SYSTEMS[name](options) as pids:
            WORK[work](4, 100)  # modules are imported, connections open
            before = pids()
            with SchedulerMemory() as memory, killing(min(before), kill_at_s):
                try:
                    seconds, checksum = WORK[work](n, n_rows)
                except Exception as error:
                    print(f"{name} has failed: {type(error).__name__}: {error}"[:200])
                    seconds, checksum = math.inf, None
            n_killed = len(before - pids())
    gc.collect()
    return Run(seconds, checksum, memory.grown, n_killed)


@contextlib.contextmanager
def killing(pid: int, at_s: float | None) -> Iterator[None]:
    """Kill a process after so many seconds, if work goes on then; None = do not."""
    timer = threading.Timer(at_s or 0, os.kill, (pid, signal.SIGKILL))
    if at_s is not None:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


def main() -> None:
    """Run and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", choices=WORK, default="shuffle")
    parser.add_argument("--sizes", type=int, nargs="*", default=[n for n, _ in SIZES])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--systems", choices=SYSTEMS, nargs="*", default=["weft", "p2p"])
    parser.add_argument("--rows", type=int, help="of each partition")
    parser.add_argument("--memory-limit", type=int, metavar="MIB", help="of each worker")
    parser.add_argument(
        "--kill", action="store_true", help="and run each again, with a worker killed at half time"
    )
    options = parser.parse_args()
    rows_of = dict(SIZES)
    limit = (options.memory_limit or 0) << 20

    print(machine.headline("shuffles", machine.describe(ROOT), {}), flush=True)
    for n in options.sizes:
        n_rows = options.rows or rows_of.get(n, 4_000)
        runs: dict[str, list[Run]] = {}
        for _ in range(options.rounds):
            for name in options.systems:
                whole = run(options.work, name, n, n_rows, limit)
                runs.setdefault(name, []).append(whole)
                if options.kill:
                    rest = run(options.work, name, n, n_rows, limit, kill_at_s=whole.seconds / 2)
                    runs.setdefault(f"{name}, one killed", []).append(rest)
        found = {one.checksum for some in runs.values() for one in some} - {None}
        assert len(found) == 1, found
        medians = {name: _median(one.seconds for one in some) for name, some in runs.items()}
        text = "  ".join(f"{name} {m:.2f} s" for name, m in medians.items())
        if {"weft", "p2p"} <= medians.keys():
            pairs = zip(runs["weft"], runs["p2p"], strict=True)
            text += f"  weft/p2p {_median(a.seconds / b.seconds for a, b in pairs):.2f}"
        if "weft" in runs:
            grown = _median(one.grown for one in runs["weft"])
            text += f"  scheduler {grown / n:.0f} B a partition"
        if limit or options.kill:
            killed = [f"{name} {sum(one.n_killed for one in some)}" for name, some in runs.items()]
            text += "  killed: " + ", ".join(killed)
        load = os.getloadavg()[0]
        print(f"{options.work} {n} x {n_rows} rows: {text}  (load {load:.0f})", flush=True)


def _median(values: Iterable[float]) -> float:
    return statistics.median(list(values))


if __name__ == "__main__":
    main()
