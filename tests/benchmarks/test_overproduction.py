"""The benchmark of results that are made faster than they are read runs, and sees what is held."""

from __future__ import annotations

import subprocess
import sys

import pytest

from benchmarks.framework.driving import ROOT


@pytest.mark.slow
def test_the_bytes_that_workers_hold_are_seen_with_and_without_a_limit() -> None:
    command = [sys.executable, "-m", "benchmarks.overproduction", "--only", "one graph"]
    done = subprocess.run(
        [*command, "--roots", "100", "--mb", "1", "--turns", "1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.stderr  # the exit code says whether the goal is met
    rows = [line.split(" | ") for line in done.stdout.splitlines() if line.startswith("| one")]
    assert [row[1] for row in rows] == ["none", "400MiB", "ratio of the medians"]
    assert all(row[4].endswith(" MB") and row[4] != "0 MB" for row in rows[:2])
    assert all(row[-1] == "0 |" for row in rows[:2]), "no process was killed"
