"""`Client.get` of graphs of 100 000 tasks on two workers: CPU time of all processes, and wall time.

    python benchmarks/bench_client_get.py
    python benchmarks/bench_client_get.py --beside ../before --pairs 5

Each graph runs once more in blocks (`weft.get(..., pool=client, chunksize="auto")`), where a
checkout has them.

With `--beside`, this file runs with the interpreter of the other checkout and with this one, each
run in a process of its own, in turns; the ratios are those of pairs. It imports nothing but weft
and dask, so it also runs with checkouts that do not have it.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

N_TASKS = 100_000
#: Behind the name of a graph.
IN_BLOCKS = ", in blocks"
#: Seconds that one run may take.
_LIMIT_S = 300.0


def increase(x: int) -> int:
    """Return the next number."""
    return x + 1


def add(x: int, y: int) -> int:
    """Return the sum."""
    return x + y


def chains(n: int) -> tuple[dict[Any, Any], list[Any], list[int]]:
    """Return chains of five tasks, their last keys and the results of these."""
    width = n // 5
    graph: dict[Any, Any] = {("x", 0, i): (increase, i) for i in range(width)}
    for j in range(1, 5):
        graph.update({("x", j, i): (increase, ("x", j - 1, i)) for i in range(width)})
    return graph, [("x", 4, i) for i in range(width)], [i + 5 for i in range(width)]


def tree(n: int) -> tuple[dict[Any, Any], list[Any], list[int]]:
    """Return leaves that are added in pairs, down to one value."""
    n_leaves = 1 << (n // 2).bit_length()
    graph: dict[Any, Any] = {("leaf", 0, i): (increase, i) for i in range(n_leaves)}
    name, level, width = "leaf", 0, n_leaves
    while width > 1:
        width //= 2
        graph.update(
            {
                ("sum", level + 1, i): (add, (name, level, 2 * i), (name, level, 2 * i + 1))
                for i in range(width)
            }
        )
        name, level = "sum", level + 1
    return graph, [(name, level, 0)], [n_leaves * (n_leaves + 1) // 2]


def nodes(n: int) -> tuple[dict[Any, Any], list[Any], list[int]]:
    """Return the chains as nodes of dask, as its collections hand them to a scheduler."""
    from dask._task_spec import convert_legacy_graph

    graph, keys, expected = chains(n)
    return dict(convert_legacy_graph(graph)), keys, expected


GRAPHS = {"chains": chains, "tree": tree, "nodes of dask": nodes}


def measure() -> dict[str, tuple[float, float]]:
    """Return {graph: (CPU, wall)}, seconds, of a run of each."""
    import psutil

    import weft

    def cpu_s() -> float:
        processes = [me, *me.children(recursive=True)]
        return sum(sum(process.cpu_times()[:2]) for process in processes)

    me = psutil.Process()
    figures = {}
    with weft.Client(n_workers=2, threads_per_worker=1) as client:
        client.wait_for_workers(2, timeout=60)
        client.get(*chains(1_000)[:2])
        ways = {"": client.get}
        in_blocks = functools.partial(weft.get, pool=client, chunksize="auto")
        with contextlib.suppress(weft.ConfigError):
            in_blocks(*chains(1_000)[:2])
            ways[IN_BLOCKS] = in_blocks
        for name, make in GRAPHS.items():
            for way, get in ways.items():
                graph, keys, expected = make(N_TASKS)
                cpu, start = cpu_s(), time.perf_counter()
                found = get(graph, keys)
                end = time.perf_counter()
                figures[name + way] = cpu_s() - cpu, end - start
                if [*found] != expected:
                    sys.exit(f"{name}{way}: wrong results")
    return figures


def measured_by(checkout: Path) -> dict[str, tuple[float, float]]:
    """Return what `measure` does in another process, with the weft of a checkout."""
    command = [checkout / ".venv" / "bin" / "python", Path(__file__).resolve(), "--once"]
    done = subprocess.run(
        command, cwd=checkout, stdout=subprocess.PIPE, text=True, timeout=_LIMIT_S, check=True
    )
    figures: dict[str, tuple[float, float]] = json.loads(done.stdout)
    return figures


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--beside", type=Path, help="a checkout with an environment in .venv")
    parser.add_argument("--pairs", type=int, default=3, help="runs of each state (3)")
    parser.add_argument("--once", action="store_true", help="print one run as JSON")
    options = parser.parse_args()
    if options.once:
        print(json.dumps(measure()))
        return
    this = Path(__file__).resolve().parent.parent
    others, these = [], []
    for _ in range(options.pairs):
        if options.beside:
            others.append(measured_by(options.beside.resolve()))
        these.append(measured_by(this))
    print("| Client.get of 100 000 tasks, s | CPU | wall | CPU, this/other (range) | wall |")
    print("|:--|--:|--:|--:|--:|")
    for name in these[0]:
        cells = [f"{statistics.median(run[name][i] for run in these):.2f}" for i in (0, 1)]
        for i in (0, 1):
            pairs = zip(others, these, strict=False)
            ratios = [b[name][i] / a[name][i] for a, b in pairs if name in a]
            if ratios:
                low, high = min(ratios), max(ratios)
                cells.append(f"{statistics.median(ratios):.2f} ({low:.2f} to {high:.2f})")
        print(f"| {name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
