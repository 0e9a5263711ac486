"""How long a small call takes beside the burden of another client or of a hostile peer.

`python -m benchmarks.fairness` times `submit(inc, i).result()` on an idle cluster and then while a
second process burdens it (`disturbing.py`), so that neither client waits for the interpreter lock
of the other. At least 200 calls are made, and more until the burden is over. A call that takes
longer than `--limit` ends its row.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import queue
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import weft
from weft.protocol.errors import WeftError

from .disturbing import AMOUNT
from .framework import machine
from .framework.driving import ROOT
from .tasks import inc

N_WORKERS: Final = 2
N_CALLS: Final = 200
#: Users pause between calls; with pauses, the calls are also spread over the whole burden.
PAUSE_S: Final = 0.005


@dataclass(frozen=True)
class Situation:
    """One burden: its title for display, its kind in `disturbing`, and its size."""

    title: str
    kind: str
    n: int


SITUATIONS: Final = (
    Situation("map of {n} tiny tasks", "map", 1_000_000),
    Situation("{n} unrunnable tasks", "unrunnable", 500_000),
    Situation("{n} tasks of 2 ms, each with resources of its own", "amounts", 2_000),
    Situation("release of {n} futures", "release", 1_000_000),
    Situation("{n} x ReplicasAdded of 100 000 unknown attempts", "replicas", 46),
    Situation("{n} x WantKeys of 100 000 unknown keys", "keys", 76),
)


class Disturber:
    """A process of `disturbing`."""

    def __init__(self, cluster: weft.LocalCluster, kind: str, n: int) -> None:
        security = cluster.security
        assert security.cluster_id is not None
        order = {
            "address": cluster.scheduler_address,
            "security": security.to_plain(),
            "kind": kind,
            "n": n,
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.disturbing"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._words: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.send(json.dumps(order))

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._words.put(line.strip())
        self._words.put("ended")

    def send(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()

    def expect(self, word: str, timeout_s: float) -> None:
        """Wait for a word of the process."""
        sent = self._words.get(timeout=timeout_s)
        if sent != word:
            raise RuntimeError(f"the disturbing process sent {sent!r} instead of {word!r}")

    def has_sent(self, word: str) -> bool:
        """Return whether the process has sent another word; it must be this one."""
        try:
            self.expect(word, 0.0)
        except queue.Empty:
            return False
        return True

    def close(self) -> None:
        """End the process: it stops when its standard input closes."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()


@dataclass
class Row:
    """The calls of one situation, seconds each, and how long the burden lasted."""

    title: str
    calls: list[float]
    lasted_s: float
    note: str = ""

    def show(self, idle: float) -> str:
        """Return a row of the table."""
        if not self.calls:
            return f"| {self.title} | - | - | - | 0 | {self.note} |"
        median, worst = statistics.median(self.calls), max(self.calls)
        cells = (
            f"{median * 1e3:.2f}",
            f"{median / idle:.1f}",
            f"{worst * 1e3:.1f}",
            str(len(self.calls)),
            f"{self.lasted_s:.1f} {self.note}".strip(),
        )
        return f"| {self.title} | " + " | ".join(cells) + " |"


def calls(client: weft.Client, workers: list[str] | None, limit_s: float) -> Iterator[float]:
    """Make one small call after another; yield the seconds that each took."""
    i = 0
    while True:
        start = time.perf_counter()
        result = client.submit(inc, i, pure=False, workers=workers).result(timeout=limit_s)
        took = time.perf_counter() - start
        assert result == i + 1
        yield took
        i += 1
        time.sleep(PAUSE_S)


def measure_idle(client: weft.Client, workers: list[str] | None, n: int) -> list[float]:
    """Time n calls without a burden."""
    made = calls(client, workers, 60.0)
    for _ in range(20):
        next(made)
    return [next(made) for _ in range(n)]


def measure(situation: Situation, n: int, n_calls: int, limit_s: float) -> tuple[Row, Row]:
    """Time the calls on a cluster of their own: idle, then beside the burden."""
    title = situation.title.format(n=f"{n:_}".replace("_", " "))
    with (
        weft.LocalCluster(
            n_workers=N_WORKERS, threads_per_worker=1, resources={"memory": 2.0 * AMOUNT}
        ) as cluster,
        weft.Client(cluster) as client,
    ):
        client.wait_for_workers(N_WORKERS)
        # A hostile worker runs no task, so the calls name the other workers.
        info: dict[str, Any] = client.scheduler_info()
        workers = None
        if situation.kind == "replicas":
            workers = [worker["name"] for worker in info["workers"].values()]
        idle = Row(title, measure_idle(client, workers, n_calls), 0.0)
        disturber = Disturber(cluster, situation.kind, n)
        try:
            disturber.expect("ready", limit_s)
            disturber.send("go")
            start = time.perf_counter()
            row = Row(title, [], 0.0)
            made = calls(client, workers, limit_s)
            try:
                while time.perf_counter() - start < limit_s:
                    row.calls.append(next(made))
                    if not row.lasted_s and disturber.has_sent("done"):
                        row.lasted_s = time.perf_counter() - start
                    if row.lasted_s and len(row.calls) >= n_calls:
                        break
                else:
                    row.note = f"(not over after {limit_s:g} s)"
            except (WeftError, TimeoutError) as error:
                row.note = f"a call failed: {type(error).__name__}: {error}"
        finally:
            disturber.close()
    return idle, row


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.fairness", description=__doc__.split("\n\n", maxsplit=1)[0]
    )
    kinds = [situation.kind for situation in SITUATIONS]
    parser.add_argument("--only", nargs="+", choices=kinds, default=kinds, metavar="KIND")
    parser.add_argument("--quick", action="store_true", help="small burdens: does it still run?")
    parser.add_argument(
        "--limit", type=float, default=90.0, metavar="SECONDS", help="for one burden (90)"
    )
    options = parser.parse_args()
    n_calls = 20 if options.quick else N_CALLS
    facts = machine.describe(ROOT)
    print(machine.headline("small calls beside a burden", facts, {"weft": weft.__version__}))
    print("| beside | median, ms | x idle | worst, ms | calls | lasted, s |")
    print("|:--|--:|--:|--:|--:|--:|")
    for situation in SITUATIONS:
        if situation.kind not in options.only:
            continue
        n = max(situation.n // 100, 1) if options.quick else situation.n
        idle, row = measure(situation, n, n_calls, options.limit)
        median = statistics.median(idle.calls)
        idle.title = "nothing (idle)"
        print(idle.show(median))
        print(row.show(median), flush=True)


if __name__ == "__main__":
    main()
