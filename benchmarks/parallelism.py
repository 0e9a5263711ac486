"""How much pure Python runs in parallel on this interpreter: threads, interpreters, processes.

    python -m benchmarks.parallelism --ms 5 --tasks 48 --repeat 15

The first table: tasks that compute for some ms and never wait, and the speed-up of 1, 2 and
4 workers over the same calls in a bare loop. The second one: a graph of 10 000 tiny tasks in chains
of five, microseconds per task. Each graph is run once before it is measured, so pools are warm.

The fastest run is shown, because other work of the machine can only make runs slower, and behind it
how much longer the median took. A build without GIL runs without it only if no extension module
enables it again: the first line states which of the two was measured.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from operator import add
from pathlib import Path
from typing import Any

import weft

CHAIN = 5
#: A context with this number of workers; it yields `get(graph, keys)` on them.
_Engine = Callable[[int], AbstractContextManager[Callable[[Any, Any], Any]]]


def burn(n_steps: int) -> int:
    """Compute, and hold the interpreter lock."""
    value = 1
    for i in range(n_steps):
        # Numbers up to 256 are never counted. Python 3.13 counts the references to a larger one,
        # where all threads use the same: that alone makes four of them slower than one.
        value = (value * 31 + i) % 251
    return value


def steps_of(seconds: float) -> int:
    """Return the number of steps that take this time here."""
    n_steps = 1000
    while True:
        began_s = time.perf_counter()
        burn(n_steps)
        took_s = time.perf_counter() - began_s
        if took_s > 0.02:
            return max(round(n_steps * seconds / took_s), 1)
        n_steps *= 4


# --- Engines --------------------------------------------------------------------------------------


@contextmanager
def threads(n_workers: int) -> Iterator[Callable[[Any, Any], Any]]:
    """weft.threaded."""
    yield lambda graph, keys: weft.threaded.get(graph, keys, num_workers=n_workers)
    weft.threaded.shutdown()


@contextmanager
def interpreters(n_workers: int) -> Iterator[Callable[[Any, Any], Any]]:
    """Interpreters of this process, with a lock each."""
    kind: Any = getattr(concurrent.futures, "InterpreterPoolExecutor")  # noqa: B009 - 3.14
    with kind(n_workers) as pool:
        yield lambda graph, keys: weft.get(graph, keys, executor=pool)


@contextmanager
def processes(n_workers: int) -> Iterator[Callable[[Any, Any], Any]]:
    """weft.multiprocessing."""
    yield lambda graph, keys: weft.multiprocessing.get(graph, keys, num_workers=n_workers)
    weft.multiprocessing.shutdown()


def engines() -> dict[str, _Engine]:
    """Return the engines that this interpreter has, by name."""
    found: dict[str, _Engine] = {"weft.threaded": threads, "weft.multiprocessing": processes}
    if hasattr(concurrent.futures, "InterpreterPoolExecutor"):
        found["InterpreterPoolExecutor"] = interpreters
    return found


# --- Measuring ------------------------------------------------------------------------------------


def measure(run: Callable[[], Any], expected: Any, repeat: int) -> tuple[float, float]:
    """Return the least seconds that `run` takes, and how far the median lies above it."""
    taken_s = []
    for i in range(repeat + 1):
        began_s = time.perf_counter()
        result = run()
        if i:
            taken_s.append(time.perf_counter() - began_s)
        if result != expected:
            raise AssertionError("the result differs from that of the bare loop")
    least_s = min(taken_s)
    return least_s, statistics.median(taken_s) / least_s - 1


def parallel(n_tasks: int, milliseconds: float, counts: list[int], repeat: int) -> list[list[str]]:
    """Measure tasks that hold the interpreter lock."""
    n_steps = steps_of(milliseconds / 1000)
    graph = {("burn", i): (burn, n_steps) for i in range(n_tasks)}
    keys = list(graph)
    expected = (burn(n_steps),) * n_tasks
    bare_s, spread = measure(
        lambda: tuple([burn(n_steps) for _ in range(n_tasks)]), expected, repeat
    )
    rows = [["bare loop", _seconds(bare_s, spread), *[""] * (len(counts) - 1)]]
    for name, engine in engines().items():
        row = [name]
        for n_workers in counts:
            with engine(n_workers) as get:
                took_s, spread = measure(lambda get=get: get(graph, keys), expected, repeat)  # type: ignore[misc]
            row.append(f"{_seconds(took_s, spread)} ({bare_s / took_s:.2f}x)")
        rows.append(row)
    return rows


def overhead(n_tasks: int, counts: list[int], repeat: int) -> list[list[str]]:
    """Measure tiny tasks, in chains."""
    graph: dict[Any, Any] = {}
    for i in range(n_tasks // CHAIN):
        graph[i, 0] = (add, i, 1)
        for j in range(1, CHAIN):
            graph[i, j] = (add, (i, j - 1), 1)
    keys = [(i, CHAIN - 1) for i in range(n_tasks // CHAIN)]
    expected = tuple([i + CHAIN for i in range(n_tasks // CHAIN)])
    rows = []
    inline_s, spread = measure(lambda: weft.get(graph, keys), expected, repeat)
    rows.append(["weft.get", _micros(inline_s / len(graph), spread), *[""] * (len(counts) - 1)])
    for name, engine in engines().items():
        row = [name]
        for n_workers in counts:
            with engine(n_workers) as get:
                took_s, spread = measure(lambda get=get: get(graph, keys), expected, repeat)  # type: ignore[misc]
            row.append(_micros(took_s / len(graph), spread))
        rows.append(row)
    return rows


def _seconds(value: float, spread: float) -> str:
    return f"{value:.3g} s +{spread:.0%}"


def _micros(value: float, spread: float) -> str:
    return f"{value * 1e6:.3g} µs +{spread:.0%}"


def _table(title: str, counts: list[int], rows: list[list[str]]) -> str:
    plural = {1: "1 worker"}
    head = [title, *[plural.get(n, f"{n} workers") for n in counts]]
    lines = [head, [":--", *["--:"] * len(counts)], *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.parallelism")
    parser.add_argument("--ms", type=float, default=5.0, help="per task of the first table (5)")
    parser.add_argument("--tasks", type=int, default=48, help="tasks of the first table (48)")
    parser.add_argument("--tiny", type=int, default=10_000, help="tasks of the second (10 000)")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--repeat", type=int, default=15)
    options = parser.parse_args(arguments)
    # Not at the top, which is imported where tasks run: not every interpreter can import psutil.
    from .framework import machine

    facts = machine.describe(Path(__file__).resolve().parents[1])
    is_locked = getattr(sys, "_is_gil_enabled", lambda: True)()
    title = f"pure Python in parallel, {'with' if is_locked else 'without'} GIL"
    print(machine.headline(title, facts, {"weft": weft.__version__}) + "\n")
    title = f"{options.tasks} tasks of {options.ms:g} ms"
    rows = parallel(options.tasks, options.ms, options.workers, options.repeat)
    print(_table(title, options.workers, rows) + "\n")
    rows = overhead(options.tiny, options.workers, options.repeat)
    print(_table(f"{options.tiny} tiny tasks, time per task", options.workers, rows))


if __name__ == "__main__":
    main()
