"""Measures arrays of jobs before they run: the time of `weft submit`, and memory.

    python -m benchmarks.arrays --rows 10000 100000 1000000

Starts a scheduler with a journal for each case, on this machine alone, and submits `--array 1-N`
while no worker is there: with `--detach`, until the command has ended; without it, for
`--attached` seconds, since such a command waits for its runs. Shown are the seconds of the command,
the most that it had in memory, and how much more the scheduler has. `--workers N` adds a case: N
threads run `true` for each row, and the rate is shown. `--calls N` adds one in which two workers
run `abs` for each number below N, beside a detached map of a tenth as many.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

import weft

from .framework import machine
from .framework.driving import ROOT, child_environment
from .framework.resident import resident_bytes
from .where import processes_by_role

#: Seconds between two looks at a process.
_LOOK_S = 0.02
_SETTLE_S = 1.0


class Cost(NamedTuple):
    """The time and memory of one submission."""

    seconds: float
    command_mb: float
    scheduler_mb: float
    is_over: bool


@contextlib.contextmanager
def _weft(folder: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a `weft` command that goes on, with its output in a file of its own name."""
    environment = {**child_environment(), "HOME": str(folder), "XDG_RUNTIME_DIR": str(folder)}
    with open(folder / f"{words[0]}.out", "wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "weft", *words],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextlib.contextmanager
def _scheduler(folder: Path) -> Iterator[int]:
    """Start a scheduler; yield the id of the process that schedules, when it listens."""
    with _weft(folder, "scheduler", "--port", "0", "--no-dashboard") as process:
        deadline = time.monotonic() + 30
        while "connect " not in (folder / "scheduler.out").read_text():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((folder / "scheduler.out").read_text())
            time.sleep(_LOOK_S)
        children = psutil.Process(process.pid).children()  # the parent only looks after it
        yield children[0].pid if children else process.pid


def submit(folder: Path, scheduler: int, n: int, limit_s: float, *options: str) -> Cost:
    """Submit an array, and wait for the command's end, or until `limit_s` is over."""
    before = resident_bytes(scheduler)
    most = most_scheduler = 0
    began = time.monotonic()
    with _weft(folder, "submit", *options, "--array", f"1-{n}", "--", "true") as process:
        while process.poll() is None and time.monotonic() < began + limit_s:
            most = max(most, resident_bytes(process.pid))
            most_scheduler = max(most_scheduler, resident_bytes(scheduler))
            time.sleep(_LOOK_S)
        seconds = time.monotonic() - began
        is_over = process.poll() is not None
        if process.poll():
            raise RuntimeError((folder / "submit.out").read_text()[-2000:])
    time.sleep(_SETTLE_S)  # what was sent last is read
    most_scheduler = max(most_scheduler, resident_bytes(scheduler))
    return Cost(seconds, most / 1e6, (most_scheduler - before) / 1e6, is_over)


def _run(folder: Path, scheduler: int, n: int, n_threads: int, limit_s: float) -> None:
    """Run all rows of a detached array, and print the rate and the scheduler's memory."""
    words = ("worker", "--nworkers", "1", "--nthreads", str(n_threads))
    with _weft(folder, *words):
        cost = submit(folder, scheduler, n, limit_s, "--detach")
        key = (folder / "submit.out").read_text().split()[-1]
        before, began, most = resident_bytes(scheduler), time.monotonic(), 0
        with _weft(folder, "wait", key) as waiting:
            while waiting.poll() is None and time.monotonic() < began + limit_s:
                most = max(most, resident_bytes(scheduler))
                time.sleep(_LOOK_S)
            is_over = waiting.poll() is not None
        seconds = time.monotonic() - began + cost.seconds
    end = f"{n / seconds:,.0f} rows/s" if is_over else f"not over after {limit_s:g} s"
    more = cost.scheduler_mb + (most - before) / 1e6
    print(f"{n} rows of `true` on {n_threads} threads: {end}, scheduler {more:.0f} MB more")


def _call(n: int, limit_s: float) -> None:
    """Run an array of a function, and print the rate, memory, and the size of the journal."""
    with (
        tempfile.TemporaryDirectory() as folder,
        weft.LocalCluster(2, 1, journal=Path(folder) / "jobs.sqlite") as cluster,
        weft.Client(cluster) as client,
    ):
        client.gather(client.map(abs, range(2000), pure=False))
        (scheduler,) = [process.pid for process in processes_by_role()["scheduler"]]
        before, most, began = resident_bytes(scheduler), 0, time.monotonic()
        array = client.submit_array(abs, range(n))
        submitted_s = time.monotonic() - began
        while not array.done() and time.monotonic() < began + limit_s:
            most = max(most, resident_bytes(scheduler))
            time.sleep(_LOOK_S)
        seconds = time.monotonic() - began
        array.result(1)
        client.wait_recorded()
        nbytes = sum(path.stat().st_size for path in Path(folder).iterdir())
        more = (most - before) / 1e6
        print(f"{n:,} rows of a function: submitted in {submitted_s:.2f} s, {n / seconds:,.0f}/s")
        print(f"scheduler {more:.0f} MB more, journal {nbytes / 1e6:.0f} MB")
        began = time.monotonic()
        client.gather(client.map(abs, range(n // 10), detached=True))
        print(f"a detached map: {n // 10 / (time.monotonic() - began):,.0f} calls/s")


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--attached", type=float, default=10.0, help="seconds without --detach")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds of one case (300)")
    parser.add_argument("--workers", type=int, default=0, help="threads that run rows (none)")
    parser.add_argument("--run", type=int, default=2_000, help="rows of that case (2000)")
    parser.add_argument("--calls", type=int, default=0, help="rows of a function to run (none)")
    given = parser.parse_args()
    print(machine.headline("weft, arrays", machine.describe(ROOT), {}), flush=True)
    print("\n| rows | | seconds | command, MB | scheduler, MB more |\n|--:|:--|--:|--:|--:|")
    for n in given.rows:
        for options, limit_s in ((("--detach",), given.limit), ((), given.attached)):
            with tempfile.TemporaryDirectory() as text, _scheduler(Path(text)) as scheduler:
                cost = submit(Path(text), scheduler, n, limit_s, *options)
            seconds = f"{cost.seconds:.1f}" if cost.is_over else f"goes on after {limit_s:g}"
            kind = "".join(options)
            sizes = f"{cost.command_mb:.0f} | {cost.scheduler_mb:.0f}"
            print(f"| {n:,} | {kind} | {seconds} | {sizes} |", flush=True)
    if given.workers:
        with tempfile.TemporaryDirectory() as text, _scheduler(Path(text)) as scheduler:
            _run(Path(text), scheduler, given.run, given.workers, given.limit)
    if given.calls:
        _call(given.calls, given.limit)


if __name__ == "__main__":
    os.umask(0o077)
    main()
