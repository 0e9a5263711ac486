"""`weft doctor` finds faults that are planted in a cluster of real processes.

All processes are on one machine, so also under one host name. What cannot be planted here without
other rights (another clock, Python or weft) is put in its place in the process that has the fault.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.deploy.daemons import ROOT, Daemon, daemon, file_of, run, scheduler
from tests.leaks import wait_until
from weft.client import Client

pytestmark = pytest.mark.slow

LIMIT = 400 << 20
CLOCK = "import time\nreal = time.time\ntime.time = lambda: real() + 90\n"
PYTHON = "import platform\nplatform.python_version = lambda: '3.99.1'\n"


def doctor(folder: Path, *options: str) -> list[dict[str, str]]:
    """Run it; return the checks that are not all right."""
    done = run("doctor", "--json", *options, folder=folder)
    assert done.stderr == ""
    found = json.loads(done.stdout)["checks"]
    return [check for check in found if check["level"] != "ok"]


def named(checks: list[dict[str, str]], name: str) -> list[dict[str, str]]:
    return [check for check in checks if check["name"] == name]


def short_of_memory(folder: Path) -> list[dict[str, str]]:
    """A loaded machine may add other lines of the health."""
    return [check for check in named(doctor(folder), "health") if "of the memory" in check["text"]]


def worker(folder: Path, name: str, *options: str, **env: str) -> Any:
    given = ("--name", name, "--nworkers", "1", "--nthreads", "1", *options)
    if "--memory-limit" not in given:
        given += ("--memory-limit", str(LIMIT))
    return daemon("worker", *given, folder=folder, **env)


def site(folder: Path, code: str) -> dict[str, str]:
    """Return an environment in which each Python runs some code at its start."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(code)
    return {"PYTHONPATH": f"{folder}:{ROOT}"}


def joined(started: Daemon) -> None:
    started.wait_for("registered")


def fill(limit: int) -> bytes:
    """Return what lets this process use 87 % of a limit, between the warning and the restart."""
    return b"x" * int(0.87 * limit - psutil.Process().memory_info().rss)


def test_a_clock_a_release_a_port_and_limits_that_are_wrong_are_found_on_one_machine(tmp_path):
    half = str(psutil.virtual_memory().total * 2 // 3)
    other = tmp_path / "other" / "weft-9.9.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: weft\nVersion: 9.9\n")
    with (
        scheduler(folder=tmp_path),
        worker(tmp_path, "good") as good,
        worker(tmp_path, "late", **site(tmp_path / "late", CLOCK)) as late,
        worker(tmp_path, "newer", PYTHONPATH=f"{other.parent}:{ROOT}") as newer,
        worker(
            tmp_path, "lost", "--contact-address", "127.0.0.2", "--listen-address", "127.0.0.1"
        ) as lost,
        worker(tmp_path, "large", "--memory-limit", half) as large,
        worker(tmp_path, "larger", "--memory-limit", half) as larger,
    ):
        for started in (good, late, newer, lost, large, larger):
            joined(started)
        checks = doctor(tmp_path)

        (clock,) = named(checks, "clock")
        assert clock["level"] == "warning"
        # Measured over a line, so 89.999 s is as right as 90.001 s.
        late_s, error_s = re.fullmatch(
            r"worker late: ([\d.]+) s ahead of this machine's \(± ([\d.]+) s\), .*", clock["text"]
        ).groups()
        assert abs(float(late_s) - 90) <= float(error_s) + 0.001  # both are rounded
        assert "NTP" in clock["advice"]

        (packages,) = named(checks, "packages")
        assert packages["level"] == "warning"
        assert packages["text"].startswith("weft: ")
        assert "; 9.9+g" in packages["text"] or "; 9.9 on" in packages["text"]
        assert packages["text"].endswith(" on newer")

        (reach,) = named(checks, "reach")
        assert reach["level"] == "failed"
        who, _, what = reach["text"].partition(" not reach ")
        assert " on " in who
        assert what.startswith("lost on ")
        assert " at tcp://127.0.0.2:" in what
        assert what.endswith(": no process listens there")
        assert "--contact-address" in reach["advice"]

        (limits,) = named(checks, "limits")
        assert limits["text"].startswith("6 workers may use ")
        assert "lower --memory-limit" in limits["advice"]


def test_a_worker_of_another_python_and_one_short_of_memory_are_found_until_that_is_over(tmp_path):
    with (
        scheduler(folder=tmp_path) as started,
        worker(tmp_path, "full", "--max-spill", "0") as full,
    ):
        joined(full)
        with worker(tmp_path, "odd", **site(tmp_path / "odd", PYTHON)) as odd:
            assert odd.process.wait(30) == 77
        (refused,) = named(doctor(tmp_path), "workers")
        assert refused["text"].startswith("odd on ")
        assert " was refused: Python 3.99, the cluster has 3." in refused["text"]
        assert refused["advice"] == "start that worker as the others are"
        status = run("status", folder=tmp_path)
        assert status.returncode == 1
        assert "Start it as the others are; 'weft info' names it" in status.stdout

        with Client(connection_file=str(file_of(started)), set_as_default=False) as client:
            kept = client.submit(fill, LIMIT)
            kept.exception(60)
            (memory,) = wait_until(lambda: short_of_memory(tmp_path), 30, "a warning")
            assert memory["level"] == "warning"
            assert memory["text"].startswith("1 worker uses more than 80% of the memory (full 8")
            assert memory["advice"].startswith("release results")
            kept.release()
            wait_until(lambda: not short_of_memory(tmp_path), 30, "its end")
        # The worker that was refused is started again, as the others are.
        with worker(tmp_path, "odd") as odd:
            joined(odd)
            assert not named(doctor(tmp_path), "workers")
            assert "refused" not in run("status", folder=tmp_path).stdout
