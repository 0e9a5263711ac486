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
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

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


@contextlib.contextmanager
def weft_with(min_pairs: int | None) -> Iterator[None]:
    """Weft; None = dask's tasks in every case."""
    import weft
    from weft.client.dask import shuffles

    before = shuffles.MIN_PAIRS
    shuffles.MIN_PAIRS = sys.maxsize if min_pairs is None else min_pairs
    try:
        with weft.Client(n_workers=2, threads_per_worker=1) as client:
            client.wait_for_workers(2)
            yield
    finally:
        shuffles.MIN_PAIRS = before


@contextlib.contextmanager
def dask_p2p() -> Iterator[None]:
    """dask.distributed with p2p."""
    import dask
    import distributed

    settings = {"dataframe.shuffle.method": "p2p", "array.rechunk.method": "p2p"}
    with (
        dask.config.set(settings),
        distributed.Client(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ),
    ):
        yield


SYSTEMS: dict[str, Callable[[], contextlib.AbstractContextManager[None]]] = {
    "weft": lambda: weft_with(0),
    "tasks": lambda: weft_with(None),
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


def main() -> None:
    """Run and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", choices=WORK, default="shuffle")
    parser.add_argument("--sizes", type=int, nargs="*", default=[n for n, _ in SIZES])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--systems", choices=SYSTEMS, nargs="*", default=["weft", "p2p"])
    options = parser.parse_args()
    rows_of = dict(SIZES)
    print(machine.headline("shuffles", machine.describe(ROOT), {}), flush=True)
    for n in options.sizes:
        n_rows = rows_of.get(n, 4_000)
        seconds: dict[str, list[float]] = {name: [] for name in options.systems}
        sums = set()
        grown = []
        for _ in range(options.rounds):
            for name in options.systems:
                with SYSTEMS[name]():
                    WORK[options.work](4, 100)  # modules are imported, connections open
                    with SchedulerMemory() as memory:
                        took, checksum = WORK[options.work](n, n_rows)
                seconds[name].append(took)
                if name == "weft":
                    grown.append(memory.grown)
                sums.add(checksum)
                gc.collect()
        assert len(sums) == 1, sums
        medians = {name: statistics.median(some) for name, some in seconds.items()}
        text = "  ".join(f"{name} {m:.2f} s" for name, m in medians.items())
        if {"weft", "p2p"} <= medians.keys():
            ratios = [a / b for a, b in zip(seconds["weft"], seconds["p2p"], strict=True)]
            text += f"  weft/p2p {statistics.median(ratios):.2f}"
        if grown:
            text += f"  scheduler {statistics.median(grown) / n:.0f} B a partition"
        load = os.getloadavg()[0]
        print(f"{options.work} {n} x {n_rows} rows: {text}  (load {load:.0f})", flush=True)


if __name__ == "__main__":
    main()
