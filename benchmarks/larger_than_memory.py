"""Data larger than the memory of the workers: it goes to disk and comes back.

`python -m benchmarks.larger_than_memory` starts workers with a limit of 400 MiB for each case, and
prints how long it took, how it ended, how many processes of workers were killed, and the most that
was on disk at a time. It fails if a case does not end right, or a worker was killed.

- submit: 15 results of 64 MiB are held on 2 workers, and then read.
- persist: the same as dask arrays.
- map-reduce: the intermediates are 5 times the memory of all workers.
- random access: of a persisted data set 3 times the memory of all workers.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import weft

from .framework import machine
from .framework.driving import ROOT

MIB: Final = 1 << 20
LIMIT: Final = 400 * MIB
#: Each part of a case has an end within this time, seconds.
LIMIT_S: Final = 600.0


@dataclass
class Sizes:
    """How large the cases are."""

    limit: int = LIMIT
    nbytes: int = 64 * MIB
    n_workers: int = 2
    n_kept: int = 15
    #: in units of the memory of all workers
    reduced: float = 5.0
    persisted: float = 3.0
    n_accesses: int = 60

    def blocks(self, part: float) -> int:
        """Return how many blocks are so much of the memory of all workers."""
        return int(part * self.n_workers * self.limit / self.nbytes) + 1


#: As many blocks of a size that a small machine writes in a few seconds.
QUICK: Final = Sizes(limit=160 * MIB, nbytes=8 * MIB, n_kept=30, reduced=2, persisted=2)


def block(i: int, nbytes: int) -> Any:
    """Return an array whose pages all differ, and whose first element is its number."""
    import numpy as np

    array = np.frombuffer(bytearray(os.urandom(nbytes)), "u8")
    array[0] = i
    return array


def first(array: Any) -> int:
    """Return the number of a block."""
    return int(array[0])


def total(array: Any) -> int:
    """Read all of a block."""
    return first(array) if array.max() else -1


def combine(*arrays: Any) -> int:
    """Reduce some blocks."""
    return sum(map(total, arrays))


def submit(client: weft.Client, sizes: Sizes) -> bool:
    """Hold results, and read each."""
    futures = client.map(block, range(sizes.n_kept), nbytes=sizes.nbytes, pure=False)
    weft.wait(futures, timeout=LIMIT_S)
    found = client.gather(client.map(total, futures, pure=False), timeout=LIMIT_S)
    return bool(found == list(range(sizes.n_kept)))


def persist(client: weft.Client, sizes: Sizes) -> bool:
    """Hold the parts of a dask collection, and read each."""
    import dask

    parts = [dask.delayed(block)(i, sizes.nbytes) for i in range(sizes.n_kept)]
    parts = dask.persist(*parts)
    found = dask.compute(*[dask.delayed(total)(part) for part in parts])
    return bool(list(found) == list(range(sizes.n_kept)))


def map_reduce(client: weft.Client, sizes: Sizes) -> bool:
    """Have every two blocks combined when all are there."""
    n = sizes.blocks(sizes.reduced) // 2 * 2
    blocks = client.map(block, range(n), nbytes=sizes.nbytes, pure=False)
    weft.wait(blocks, timeout=LIMIT_S)
    # The halves are far from each other, and some at other workers.
    pairs = [client.submit(combine, blocks[i], blocks[i + n // 2]) for i in range(n // 2)]
    return bool(client.submit(sum, pairs).result(LIMIT_S) == sum(range(n)))


def random_access(client: weft.Client, sizes: Sizes) -> bool:
    """Read blocks in any order, each more than once."""
    rng = random.Random(1)
    n = sizes.blocks(sizes.persisted)
    blocks = client.map(block, range(n), nbytes=sizes.nbytes, pure=False)
    weft.wait(blocks, timeout=LIMIT_S)
    is_right = True
    for _ in range(sizes.n_accesses):
        i = rng.randrange(n)
        is_right &= client.submit(first, blocks[i], pure=False).result(LIMIT_S) == i
    return is_right


CASES: Final[dict[str, Callable[[weft.Client, Sizes], bool]]] = {
    "submit": submit,
    "persist": persist,
    "map-reduce": map_reduce,
    "random access": random_access,
}


class Disk:
    """Looks how much there is in a folder."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self.most = 0

    def __enter__(self) -> Disk:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._is_over.wait(0.1):
            nbytes = 0
            for path in self._folder.glob("*/*.spill/*"):
                with contextlib.suppress(FileNotFoundError):
                    nbytes += path.stat().st_size
            self.most = max(self.most, nbytes)


def play(name: str, sizes: Sizes) -> bool:
    """Play a case, print its row, and return whether it has ended right."""
    with (
        tempfile.TemporaryDirectory() as folder,
        weft.LocalCluster(
            n_workers=sizes.n_workers,
            threads_per_worker=1,
            memory_limit=sizes.limit,
            local_directory=folder,
        ) as cluster,
        weft.Client(cluster) as client,
        Disk(folder) as disk,
    ):
        start = time.perf_counter()
        try:
            outcome = "right" if CASES[name](client, sizes) else "WRONG"
        except Exception as error:
            outcome = f"{type(error).__name__}: {error}"[:60]
        took_s = time.perf_counter() - start
        events = [event["event"] for _, event in client.get_events("scheduler")]
        n_killed = events.count("worker-lost")
    print(f"{name:<14} {took_s:7.1f} s  {outcome:<6} {n_killed:6} {disk.most / MIB:11.0f}")
    return outcome == "right" and not n_killed


def main(arguments: list[str] | None = None) -> int:
    """Play the cases; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.larger_than_memory", description=__doc__
    )
    parser.add_argument("--only", choices=CASES, action="append", help="play this case only")
    parser.add_argument("--quick", action="store_true", help="small sizes")
    given = parser.parse_args(arguments)
    sizes = QUICK if given.quick else Sizes()
    print(machine.headline("Data larger than memory", machine.describe(ROOT), {}))
    print(
        f"{sizes.n_workers} workers of {sizes.limit // MIB} MiB, blocks of "
        f"{sizes.nbytes // MIB} MiB\n{'':<24}  {'':<6} killed MiB on disk"
    )
    played = [play(name, sizes) for name in given.only or CASES]
    return 0 if all(played) else 1


if __name__ == "__main__":
    sys.exit(main())
