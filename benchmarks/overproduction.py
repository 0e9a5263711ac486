"""Results that are made faster than they are read: how many bytes the workers hold at most.

    python -m benchmarks.overproduction --roots 10000 --mb 5

Each root makes a block, and one consumer reads it; nobody else wants it. So a schedule exists in
which each thread holds one block. The bytes of all results are summed up by the scheduler's core
after each event, so no peak is missed. The same work on workers without a memory limit runs in
turns with it: where there is no limit, nothing holds tasks back. Each row: the seconds, the most
bytes held before and from the 50th result on, and the goal for the latter, which is twice the
threads times the size of a block; and the processes that were killed.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import psutil

import weft

from .clusters.systems import Weft
from .framework import machine
from .framework.driving import ROOT, child_environment

MB: Final = 1_000_000
N_WORKERS: Final = 2
#: Small calls that come first; and from this result after them on the most bytes count.
N_WARM: Final = 1000
N_EARLY: Final = 50
START_S: Final = 30.0
#: Memory of the workers' processes is looked at so often.
LOOK_S: Final = 0.02


def block(i: int, nbytes: int, pause_s: float) -> bytes:
    """Make a block."""
    if pause_s:
        time.sleep(pause_s)
    return bytes([i % 256]) * nbytes


def read(data: bytes, pause_s: float) -> int:
    """Read one byte of each page of a block."""
    if pause_s:
        time.sleep(pause_s)
    return sum(data[:: 64 << 10]) & 0xFF


# -- the scheduler's process -----------------------------------------------------------------------
class Most:
    """The most bytes that workers hold."""

    def __init__(self) -> None:
        self.early = self.later = 0


def run_scheduler(path: str, arguments: list[str]) -> None:
    """Run `weft scheduler` with a feature more, which writes what it has seen to a file."""
    from weft.deploy.cli.command import main as run_command
    from weft.scheduler import configuring
    from weft.scheduler.core.feature import Feature
    from weft.scheduler.core.state import SchedulerState

    most = Most()

    def begin(state: SchedulerState) -> None:
        state.busy[Most] = None

    def look(state: SchedulerState) -> None:
        nbytes = sum(ws.nbytes for ws in state.workers.values())
        if state.counters.tasks_completed < N_WARM + N_EARLY:
            most.early = max(most.early, nbytes)
        elif nbytes > most.later:
            most.later = nbytes

    def write(state: SchedulerState) -> None:
        found = {
            "early": most.early,
            "later": most.later,
            "n_lost": state.counters.workers_lost,
            "n_set_aside": state.counters.tasks_returned,
        }
        Path(path).write_text(json.dumps(found), encoding="utf-8")

    watch = Feature(
        name="held bytes",
        settling=((Most, look),),
        started=(begin,),
        finishing=(write,),
    )
    configuring.FEATURES = (*configuring.FEATURES, watch)  # type: ignore[misc]
    run_command(["scheduler", *arguments])


class Cluster:
    """Such a scheduler, and the workers of one `weft worker`."""

    def __init__(self, nthreads: int, limit: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="weft-bench-"))
        self.file = self.folder / "cluster.json"
        self.found = self.folder / "found.json"
        scheduler = (
            *("-m", "benchmarks.overproduction", "--scheduler", str(self.found)),
            *("--port", "0", "--no-dashboard", "--log-level", "warning", "--no-restart"),
            *("--connection-file", str(self.file), "--state-dir", str(self.folder / "state")),
        )
        worker = (
            *("-m", "weft", "worker", "--connection-file", str(self.file)),
            *("--nworkers", str(N_WORKERS), "--nthreads", str(nthreads)),
            *("--memory-limit", limit, "--log-level", "warning"),
        )
        self._scheduler = self._start(scheduler)
        until = time.monotonic() + START_S
        while not self.file.exists():
            if time.monotonic() > until or self._scheduler.poll() is not None:
                raise RuntimeError("the scheduler did not start")
            time.sleep(0.02)
        self._workers = self._start(worker)

    def _start(self, arguments: tuple[str, ...]) -> subprocess.Popen[bytes]:
        environment = {**child_environment(), "XDG_RUNTIME_DIR": str(self.folder)}
        return subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env=environment,
        )

    def resident_nbytes(self) -> int:
        """Return the memory of the largest worker."""
        try:
            family = psutil.Process(self._workers.pid).children(recursive=True)
            return max((child.memory_info().rss for child in family), default=0)
        except psutil.NoSuchProcess:
            return 0

    def close(self) -> dict[str, Any]:
        """End all; return what the scheduler has seen."""
        for process in (self._workers, self._scheduler):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(START_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        found = json.loads(self.found.read_text(encoding="utf-8"))
        shutil.rmtree(self.folder, ignore_errors=True)
        return dict(found)


# -- the work --------------------------------------------------------------------------------------
def map_twice(client: weft.Client, options: argparse.Namespace) -> int:
    """Submit all roots, and then all consumers."""
    n, nbytes = options.roots, int(options.mb * MB)
    blocks = client.map(block, range(n), [nbytes] * n, [options.root_ms / 1000] * n, pure=False)
    sums = client.map(read, blocks, [options.read_ms / 1000] * n, pure=False)
    del blocks
    return sum(client.gather(sums))


def one_graph(client: weft.Client, options: argparse.Namespace) -> int:
    """Submit all in one graph."""
    n, nbytes = options.roots, int(options.mb * MB)
    root_s, read_s = options.root_ms / 1000, options.read_ms / 1000
    graph: dict[Any, Any] = {("block", i): (block, i, nbytes, root_s) for i in range(n)}
    graph |= {("sum", i): (read, ("block", i), read_s) for i in range(n)}
    return sum(client.get(graph, [("sum", i) for i in range(n)]))


CASES: Final[dict[str, Callable[[weft.Client, argparse.Namespace], int]]] = {
    "two maps": map_twice,
    "one graph": one_graph,
}


def play(name: str, limit: str, options: argparse.Namespace) -> dict[str, Any]:
    """Run one case on a new cluster; return what was seen."""
    cluster = Cluster(options.threads, limit)
    done = threading.Event()
    resident = [0]

    def look() -> None:
        while not done.wait(LOOK_S):
            resident[0] = max(resident[0], cluster.resident_nbytes())

    looking = threading.Thread(target=look)
    try:
        with weft.Client(connection_file=str(cluster.file)) as client:
            client.wait_for_workers(N_WORKERS)
            client.gather(client.map(abs, range(N_WARM), pure=False))
            looking.start()
            began = time.perf_counter()
            total = CASES[name](client, options)
            took_s = time.perf_counter() - began
    finally:
        done.set()
        if looking.ident:
            looking.join()
        found = cluster.close()
    size = len(bytes(int(options.mb * MB))[:: 64 << 10])
    assert total == sum((size * (i % 256)) & 0xFF for i in range(options.roots)), total
    return {**found, "took_s": took_s, "resident": resident[0]}


def main(arguments: list[str] | None = None) -> int:
    """Play the cases that are asked for, with and without a limit in turns."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["--scheduler"]:
        run_scheduler(arguments[1], arguments[2:])
        return 0
    parser = argparse.ArgumentParser(prog="python -m benchmarks.overproduction")
    parser.description = __doc__
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--roots", type=int, default=10_000)
    parser.add_argument("--mb", type=float, default=5.0, help="size of a block")
    parser.add_argument("--threads", type=int, default=1, help="of each of two workers")
    parser.add_argument("--limit", default="400MiB", help="memory of a worker")
    parser.add_argument("--root-ms", type=float, default=0.0, help="pause before a block is made")
    parser.add_argument("--read-ms", type=float, default=0.0, help="pause before a block is read")
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args(arguments)
    print(machine.headline("overproduction", machine.describe(ROOT), Weft.version()))
    print("| case | limit | s | most held early | most held later | goal | process | killed |")
    print("|:--|:--|--:|--:|--:|--:|--:|--:|")
    goal = 2 * N_WORKERS * options.threads * options.mb
    is_well = True
    for name in options.only:
        times: dict[str, list[float]] = {options.limit: [], "none": []}
        for turn in range(options.turns):
            for limit in (options.limit, "none") if turn % 2 else ("none", options.limit):
                found = play(name, limit, options)
                times[limit].append(found["took_s"])
                later = found["later"] / MB
                if limit != "none":
                    is_well = is_well and later <= goal and not found["n_lost"]
                print(
                    f"| {name} | {limit} | {found['took_s']:.2f} | {found['early'] / MB:.0f} MB "
                    f"| {later:.0f} MB | {goal:.0f} MB | {found['resident'] / MB:.0f} MB "
                    f"| {found['n_lost']} |",
                    flush=True,
                )
        ratio = statistics.median(times[options.limit]) / statistics.median(times["none"])
        print(f"| {name} | ratio of the medians | {ratio:.2f} | | | | | |", flush=True)
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main())
