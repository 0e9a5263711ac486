"""The cost of dask's callbacks on the graph engines: the same graph without, and with each of them.

    python -m benchmarks.bench_callbacks --tasks 5000 20000 --repeat 3

`chains` are 16 chains of four tasks that make and pass on an array of 16 MB each; the other graphs
are independent `x + 1`. dask's process engine is given a pool that is kept, as weft keeps its own.
All figures are medians. dask has to be installed.
"""

from __future__ import annotations

import argparse
import io
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import weft

from .tasks import block, inc, last_of

N_CHAINS = 16
ARRAY_NBYTES = 16_000_000
TASKS = (5_000, 20_000)


def add_one(array: Any) -> Any:
    """Return another array."""
    return array + 1


def independent(n: int) -> tuple[dict[Any, Any], list[Any]]:
    """Return a graph of `n` tiny tasks, and all its keys."""
    return {("x", i): (inc, i) for i in range(n)}, [("x", i) for i in range(n)]


def chains(nbytes: int) -> tuple[dict[Any, Any], list[Any]]:
    """Return chains that pass arrays on, and the keys of their ends."""
    dsk: dict[Any, Any] = {}
    for i in range(N_CHAINS):
        dsk["make", i] = (block, float(i), nbytes)
        dsk["one", i] = (add_one, ("make", i))
        dsk["two", i] = (add_one, ("one", i))
        dsk["last", i] = (last_of, ("two", i))
    return dsk, [("last", i) for i in range(N_CHAINS)]


def watchers() -> dict[str, Callable[[], AbstractContextManager[Any]]]:
    """Return the contexts that install the callbacks, by name."""
    from dask.diagnostics import Profiler, ProgressBar

    return {
        "nothing": nullcontext,
        # It ends with its next look at the tables: a long interval would be most of the time.
        "ProgressBar": partial(ProgressBar, dt=0.01, out=io.StringIO()),
        "Profiler": Profiler,
    }


@contextmanager
def engines() -> Iterator[dict[str, Callable[..., Any]]]:
    """Yield the `get` functions, by name."""
    import dask.multiprocessing
    import dask.threaded

    from weft.protocol.host.machine import n_cores

    with ProcessPoolExecutor(n_cores()) as pool:
        yield {
            "weft threads": weft.threaded.get,
            "dask threads": dask.threaded.get,
            "weft processes": weft.multiprocessing.get,
            "dask processes": partial(dask.multiprocessing.get, pool=pool),
        }


def seconds(get: Callable[..., Any], dsk: Any, keys: Any, watcher: Any) -> float:
    """Return the seconds of one run."""
    with watcher():
        begin = time.perf_counter()
        get(dsk, keys)
        return time.perf_counter() - begin


def run(
    *, tasks: list[int], repeat: int, nbytes: int = ARRAY_NBYTES, peers: bool = True
) -> list[tuple[str, str, list[float]]]:
    """Return (graph, engine, median seconds with each of `watchers`) of all combinations."""
    graphs = {f"{n} tasks": independent(n) for n in tasks}
    graphs[f"chains of {nbytes // 1_000_000} MB"] = chains(nbytes)
    rows = []
    with engines() as gets:
        for name, (dsk, keys) in graphs.items():
            for engine, get in gets.items():
                if engine.startswith("dask") and not peers:
                    continue
                seconds(get, *independent(8), nullcontext)  # starts the workers
                rows.append(
                    (
                        name,
                        engine,
                        [
                            statistics.median(
                                seconds(get, dsk, keys, watcher) for _ in range(repeat)
                            )
                            for watcher in watchers().values()
                        ],
                    )
                )
    return rows


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_callbacks")
    parser.add_argument("--tasks", type=int, nargs="+", default=TASKS)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--nbytes", type=int, default=ARRAY_NBYTES, help="of each array")
    parser.add_argument("--no-peers", action="store_true", help="weft alone")
    given = parser.parse_args()
    print(f"{'ms':16} {'':16}" + "".join(f"{name:>12}" for name in watchers()))
    for graph, engine, medians in run(
        tasks=given.tasks, repeat=given.repeat, nbytes=given.nbytes, peers=not given.no_peers
    ):
        cells = "".join(f"{median * 1e3:12.1f}" for median in medians)
        print(f"{graph:16} {engine:16}{cells}")


if __name__ == "__main__":
    main()
