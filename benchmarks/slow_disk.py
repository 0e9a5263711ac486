"""Measure the scheduler's answers to others while the disk under its journal is slow.

    python -m benchmarks.slow_disk --fsync-ms 100

One client submits maps of detached calls all the time. Another one asks the scheduler a small
question every millisecond. Each case has a cluster of its own: without jobs, with jobs on the disk
as it is, and with each fsync so much longer, by a library that is compiled by `cc` and loaded
before the C library. No `cc`, no last case.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Final

import weft

from .framework import machine
from .framework.driving import ROOT

#: Detached calls of one map.
N_CALLS: Final = 500

SLOW_FSYNC: Final = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>
int fsync(int fd) {{
    usleep({us});
    return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd);
}}
int fdatasync(int fd) {{
    usleep({us});
    return ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(fd);
}}
"""


def measure(seconds: float, *, with_jobs: bool) -> dict[str, Any]:
    """Return the times of the answers, in milliseconds, and what one map took until recorded."""
    with (
        tempfile.TemporaryDirectory() as folder,
        weft.LocalCluster(2, 1, journal=Path(folder) / "jobs.sqlite") as cluster,
        weft.Client(cluster) as client,
        weft.Client(cluster, set_as_default=False) as other,
    ):
        client.gather(client.map(abs, range(1000)))
        stop = threading.Event()
        recorded_ms: list[float] = []

        def submit() -> None:
            while not stop.is_set():
                began = time.perf_counter()
                client.map(abs, range(N_CALLS), detached=True, pure=False)  # when it is recorded
                recorded_ms.append((time.perf_counter() - began) * 1000)

        submitting = threading.Thread(target=submit)
        if with_jobs:
            submitting.start()
        answers_ms = []
        end = time.perf_counter() + seconds
        while (began := time.perf_counter()) < end:
            other.scheduler_info()
            answers_ms.append((time.perf_counter() - began) * 1000)
            time.sleep(0.001)
        stop.set()
        if with_jobs:
            submitting.join()
    answers_ms.sort()
    return {
        "median": statistics.median(answers_ms),
        "p99": answers_ms[len(answers_ms) * 99 // 100],
        "worst": answers_ms[-1],
        "map": statistics.median(recorded_ms) if recorded_ms else None,
        "n_maps": len(recorded_ms),
    }


def run(case: str, seconds: float, library: Path | None) -> dict[str, Any]:
    """Measure in a process of its own, whose children are loaded with a library."""
    environment = {**os.environ, **({"LD_PRELOAD": str(library)} if library else {})}
    command = [sys.executable, "-m", "benchmarks.slow_disk", "--case", case, "--s", str(seconds)]
    ran = subprocess.run(
        command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True, timeout=300
    )
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fsync-ms", type=int, default=100, help="more for each fsync (100)")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each case (3)")
    parser.add_argument("--s", type=float, default=10.0, help="seconds of one run (10)")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        print(json.dumps(measure(options.s, with_jobs=options.case == "jobs")))
        return
    print(machine.headline("weft, slow disk", machine.describe(ROOT), {}))
    with tempfile.TemporaryDirectory() as folder:
        cases: dict[str, tuple[str, Path | None]] = {
            "no jobs": ("plain", None),
            "jobs": ("jobs", None),
        }
        if shutil.which("cc"):
            library = Path(folder) / "slow.so"
            source = Path(folder) / "slow.c"
            source.write_text(SLOW_FSYNC.format(us=options.fsync_ms * 1000))
            command = ["cc", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"]
            subprocess.run(command, check=True)
            cases[f"jobs, each fsync {options.fsync_ms} ms longer"] = ("jobs", library)
        else:
            print("no cc: the case with a slow disk is left out")
        found: dict[str, list[dict[str, Any]]] = {name: [] for name in cases}
        for _ in range(options.repeat):
            for name, (case, slow) in cases.items():
                found[name].append(run(case, options.s, slow))
    print(f"\n| case | answer, ms: median | p99 | worst | map of {N_CALLS} recorded, ms |")
    print("|:--|--:|--:|--:|--:|")
    for name, runs in found.items():
        median, p99, worst = (
            statistics.median(run[of] for run in runs) for of in ("median", "p99", "worst")
        )
        maps = [run["map"] for run in runs if run["map"] is not None]
        recorded = f"{statistics.median(maps):.0f}" if maps else ""
        print(f"| {name} | {median:.2f} | {p99:.2f} | {worst:.1f} | {recorded} |")


if __name__ == "__main__":
    main()
