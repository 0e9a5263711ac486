"""Runs weft's workloads and counts the Python bytecodes of the client and of the scheduler.

`bytecodes.py` starts this file as a script, in any checkout: it imports nothing of the benchmarks.

    python bytecode_counts.py run CASE:N ...        print {case: {role: {function: [n, calls]}}}
    python bytecode_counts.py traced FILE ARGS ...  `weft ARGS`, counting between two signals

A traced process is some fifty times slower, so batches may be cut in other places than without.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import psutil

#: Seconds until a process must have done what it was asked for.
LIMIT_S = 120.0

Counts = dict[str, list[int]]


class BytecodeCounter:
    """Counts bytecodes and calls by function in all threads that begin after `install`."""

    def __init__(self) -> None:
        self._executed: Counter[CodeType] = Counter()
        self._calls: Counter[CodeType] = Counter()
        self._counts = False

    def install(self) -> None:
        """Trace this thread and those that it starts, without counting yet."""
        threading.settrace(self._trace)
        sys.settrace(self._trace)

    def begin(self) -> None:
        """Count from zero."""
        self._executed.clear()
        self._calls.clear()
        self._counts = True

    def end(self) -> Counts:
        """Count no longer; return `{file:function: [bytecodes, calls]}`."""
        self._counts = False
        found: Counts = {}
        for code, n in list(self._executed.items()):
            path = os.path.relpath(code.co_filename)
            if path.startswith(".."):
                path = os.path.basename(path)
            name = f"{path}:{getattr(code, 'co_qualname', code.co_name)}"
            counted = found.setdefault(name, [0, 0])
            counted[0] += n
            counted[1] += self._calls[code]
        return found

    def _trace(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "call":
            frame.f_trace_opcodes = True
            frame.f_trace_lines = False
            if self._counts:
                self._calls[frame.f_code] += 1
        elif event == "opcode" and self._counts:
            self._executed[frame.f_code] += 1
        return self._trace


def run_traced(file: str, arguments: list[str]) -> None:
    """Run a command of weft; count from SIGUSR1 to SIGUSR2, and write the counts to the file.

    An empty file with the suffix `.begun` is there once the counting has begun.
    """
    counter = BytecodeCounter()
    path = Path(file)

    def begin(number: int, frame: object) -> None:
        counter.begin()
        path.with_suffix(".begun").touch()

    def end(number: int, frame: object) -> None:
        part = path.with_suffix(".part")
        part.write_text(json.dumps(counter.end()))
        part.replace(path)

    signal.signal(signal.SIGUSR1, begin)
    signal.signal(signal.SIGUSR2, end)
    counter.install()
    sys.argv = ["weft", *arguments]
    from weft.__main__ import main

    main()


def inc(x: int) -> int:
    return x + 1


def add(a: int, b: int) -> int:
    return a + b


def add3(a: int, b: int, c: int) -> int:
    return a + b + c


def run_case(client: Any, case: str, n: int, first: int) -> None:
    """Run one workload of about n tasks, whose arguments are `first` and the next numbers."""
    numbers = range(first, first + n)
    if case == "map":
        client.gather(client.map(inc, numbers))
    elif case == "submits":
        client.gather([client.submit(inc, i) for i in numbers])
    elif case == "round-trip":
        for i in numbers:
            client.submit(inc, i).result()
    elif case == "chain":
        future = client.submit(inc, first)
        for _ in range(n - 1):
            future = client.submit(inc, future)
        future.result()
    elif case == "tree":
        layer = client.map(inc, numbers[: n // 2])
        while len(layer) > 1:
            layer = client.map(add, layer[::2], layer[1::2])
        layer[0].result()
    elif case == "neighbours":
        ring = client.map(inc, numbers[: n // 2])
        client.gather(client.map(add3, ring[-1:] + ring[:-1], ring, ring[1:] + ring[:1]))
    elif case == "as-completed":
        import weft

        for future in weft.as_completed(client.map(inc, numbers)):
            future.result()
    else:
        raise ValueError(f"no case {case!r}")


class CountedCluster:
    """A scheduler that counts, a worker, and a client in this process, which counts as well."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._counts = folder / "counts.json"
        self._counter = BytecodeCounter()
        self._processes: list[subprocess.Popen[bytes]] = []
        self.client: Any = None
        #: Of the next run: a call with arguments that were used before might be known still.
        self._first = 0

    def open(self) -> None:
        """Start all three."""
        file = self._folder / "cluster.json"
        state = self._folder / "state"
        here = [sys.executable, os.path.abspath(__file__), "traced", str(self._counts)]
        options = ["--connection-file", str(file)]
        self._start(
            [*here, "scheduler", "--no-restart", "--port", "0", f"--state-dir={state}"], options
        )
        self._await(file)
        self._start([sys.executable, "-m", "weft", "worker", "--nthreads", "2"], options)
        self._counter.install()
        import weft

        self.client = weft.Client(connection_file=str(file))
        self.client.wait_for_workers(1)

    def count(self, case: str, n: int) -> dict[str, Counts]:
        """Return the counts of both roles for one run, after a smaller one to warm up."""
        self._run(case, 64)
        scheduler = self._processes[0]
        self._counts.unlink(missing_ok=True)
        self._counts.with_suffix(".begun").unlink(missing_ok=True)
        scheduler.send_signal(signal.SIGUSR1)
        self._await(self._counts.with_suffix(".begun"))
        self._counter.begin()
        self._run(case, n)
        mine = self._counter.end()
        scheduler.send_signal(signal.SIGUSR2)
        self._await(self._counts)
        return {"client": mine, "scheduler": json.loads(self._counts.read_text())}

    def close(self) -> None:
        """End what was started, and wait for it.

        A signal may have come while a process was being started, which is in no list then.
        """
        sys.settrace(None)
        if self.client is not None:
            self.client.close()
        started = psutil.Process().children()
        for process in reversed(started):
            process.terminate()
        for process in psutil.wait_procs(started, timeout=30)[1]:
            process.kill()
            process.wait()

    def _run(self, case: str, n: int) -> None:
        run_case(self.client, case, n, self._first)
        self._first += n

    def _start(self, command: list[str], options: list[str]) -> None:
        # Sets and dicts have the same order in each run.
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        with open(self._folder / f"log{len(self._processes)}", "wb") as log:
            self._processes.append(
                subprocess.Popen([*command, *options], env=environment, stdout=log, stderr=log)
            )

    def _await(self, path: Path) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not path.exists():
            if self._processes[0].poll() is not None or time.monotonic() > deadline:
                text = (self._folder / "log0").read_text()
                sys.exit(f"the traced scheduler did not write {path.name}:\n{text[-2000:]}")
            time.sleep(0.01)


def run(cases: list[str]) -> None:
    """Print the counts of all cases, as JSON. SIGTERM ends what was started as well."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    with tempfile.TemporaryDirectory(prefix="weft-bytecodes-") as folder:
        cluster = CountedCluster(Path(folder))
        try:
            cluster.open()
            found = {}
            for case in cases:
                name, _, n = case.partition(":")
                found[name] = cluster.count(name, int(n))
        finally:
            cluster.close()
    print(json.dumps(found))


if __name__ == "__main__":
    if sys.argv[1] == "run":
        run(sys.argv[2:])
    else:
        run_traced(sys.argv[2], sys.argv[3:])
