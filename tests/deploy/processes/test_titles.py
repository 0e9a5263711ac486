"""The titles of weft's processes in `ps` and `top`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

import weft

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="titles are set on Linux")

LONG = """
from weft.deploy.processes.titles import set_title
set_title("x" * 5000)
print(open("/proc/self/cmdline").read().strip("\\0"), open("/proc/self/comm").read().strip())
import os
print(os.environ["AFTER"])
"""


def title(process: psutil.Process) -> str:
    return Path(f"/proc/{process.pid}/cmdline").read_text().strip("\0")


@pytest.mark.slow
def test_each_process_of_a_cluster_is_listed_by_its_role():
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    with weft.Client(n_workers=2, dashboard_address="127.0.0.1:0") as client:
        client.wait_for_workers(2)
        children = psutil.Process().children(recursive=True)
        family = [child for child in children if child.pid not in before]
        name = client.cluster.name
        assert sorted(map(title, family)) == [
            "weft http",
            "weft scheduler",
            "weft spawner",
            "weft supervisor",
            f"weft worker {name}-0",
            f"weft worker {name}-1",
        ]
        assert {Path(f"/proc/{child.pid}/comm").read_text().strip() for child in family} == {
            *("weft http", "weft scheduler", "weft spawner", "weft supervisor"),
            "weft worker loc",
        }


@pytest.mark.slow
def test_a_task_finds_nothing_of_the_program_text_that_its_process_was_started_with():
    def look():
        return sys.stdin.read(), sys.argv[1:], hasattr(sys.modules["__main__"], "__file__")

    with weft.Client(n_workers=1) as client:
        assert client.submit(look).result() == ("", [], False)


@pytest.mark.slow
def test_a_title_that_is_too_long_is_cut_off_and_leaves_the_environment_alone():
    done = subprocess.run(
        [sys.executable, "-c", LONG],
        env={**os.environ, "AFTER": "untouched"},
        capture_output=True,
        text=True,
        check=True,
    )
    shown, environment = done.stdout.splitlines()
    cmdline, comm = shown.split()
    assert cmdline == "x" * (len(f"{sys.executable}\0-c\0{LONG}\0") - 1)
    assert (comm, environment) == ("x" * 15, "untouched")
