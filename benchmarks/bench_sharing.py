"""One float64 array from this process to another: through shared memory, and through a pipe.

    python -m benchmarks.bench_sharing --sizes 65536 1048576 67108864 --repeat 20

The time runs from `pack` (or `send`) here until the other process has received the array, read one
number of each 4 KiB of it, dropped it, and answered with a few bytes. Each column is the median of
all repetitions:

- `pack`: with `discard` after it, and `unpack`: with the end of the array; in one process;
- `shared`: that time through `weft.graphs.processes.sharing`, the file removed in the end.
  Arrays below its `SHARED_NBYTES` go inside the message, and take the time of `pipe`;
- `pipe`: that time by `Connection.send` of the standard library, over a socketpair;
- `floor`: that time without an array.

A process pool sends a result that another task needs twice through pipes, to the parent and from
there. Through shared memory it goes once.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from weft.graphs.processes.sharing import SharedDirectory, discard, pack, unpack

SIZES = (1024, 64 * 1024, 128 * 1024, 256 * 1024, 1024**2, 64 * 1024**2)

_PAGE = 4096 // 8


@dataclass(slots=True)
class Row:
    """Seconds for one array of `nbytes`."""

    nbytes: int
    pack_s: float
    unpack_s: float
    shared_s: float
    pipe_s: float
    floor_s: float


def _receive(connection: Connection, directory: str) -> None:
    """Run the other process: answer each (is packed, value) after the value was read."""
    while (message := connection.recv()) is not None:
        is_packed, value = message
        if is_packed:
            value = unpack(value, directory)
        checksum = 0.0 if value is None else float(value[::_PAGE].sum())
        del value, message
        connection.send(checksum)


def run(*, sizes: list[int], repeat: int) -> list[Row]:
    """Measure arrays of `sizes` bytes, each `repeat` times."""
    context = multiprocessing.get_context("spawn")
    with SharedDirectory.create() as directory:
        ours, theirs = context.Pipe()
        process = context.Process(target=_receive, args=(theirs, directory.path))
        process.start()
        theirs.close()
        try:
            return [_measure(nbytes, repeat, ours, directory.path) for nbytes in sizes]
        finally:
            ours.send(None)
            process.join()
            process.close()
            ours.close()


def _measure(nbytes: int, repeat: int, connection: Connection, directory: str) -> Row:
    import numpy as np

    array = np.arange(nbytes // 8, dtype=float)
    expected = float(array[::_PAGE].sum())

    def ask(message: tuple[bool, Any], expected: float) -> None:
        connection.send(message)
        if connection.recv() != expected:
            raise RuntimeError(f"an array of {nbytes} bytes arrived with other numbers")

    def share() -> None:
        packed = pack(array, directory)
        ask((True, packed), expected)
        discard(packed, directory)

    def pack_and_discard() -> None:
        discard(pack(array, directory), directory)

    packed = pack(array, directory)
    row = Row(
        nbytes,
        pack_s=_median(pack_and_discard, repeat),
        unpack_s=_median(lambda: unpack(packed, directory), repeat),
        shared_s=_median(share, repeat),
        pipe_s=_median(lambda: ask((False, array), expected), repeat),
        floor_s=_median(lambda: ask((False, None), 0.0), repeat),
    )
    discard(packed, directory)
    return row


def _median(function: Callable[[], object], repeat: int) -> float:
    function()
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_sharing")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, metavar="BYTES")
    parser.add_argument("--repeat", type=int, default=21, metavar="N")
    options = parser.parse_args()
    print("|     bytes | pack µs | unpack µs | shared µs |   pipe µs | floor µs |", end="")
    print(" shared MB/s | pipe MB/s |")
    print("|---:|---:|---:|---:|---:|---:|---:|---:|")
    for row in run(sizes=options.sizes, repeat=options.repeat):
        figures = (row.pack_s, row.unpack_s, row.shared_s, row.pipe_s, row.floor_s)
        cells = " | ".join(f"{figure * 1e6:9,.1f}" for figure in figures)
        rates = " | ".join(f"{row.nbytes / s / 1e6:9,.0f}" for s in (row.shared_s, row.pipe_s))
        print(f"| {row.nbytes:9} | {cells} | {rates} |", flush=True)


if __name__ == "__main__":
    main()
