"""How `weft worker` begins, ends, and with which exit code."""

from __future__ import annotations

import json

import pytest

import weft
from tests.deploy.daemons import daemon, file_of, gone, run, scheduler
from weft.worker.exits import EXIT_REFUSED

pytestmark = pytest.mark.slow

#: A `weft worker` that says that it is of another Python.
OF_ANOTHER_PYTHON = """
import platform, sys
platform.python_version = lambda: "3.99.1"
from weft.deploy.cli import main
main(["worker", *sys.argv[1:]])
"""


def test_a_worker_of_another_python_ends_with_a_code_of_its_own_and_one_line(tmp_path):
    with (
        scheduler(folder=tmp_path) as started,
        daemon("worker", "--nworkers", "1", "--name", "good", folder=tmp_path) as good,
    ):
        good.wait_for("registered")
        done = run("--nworkers", "2", "--name", "odd", folder=tmp_path, code=OF_ANOTHER_PYTHON)
        assert done.returncode == EXIT_REFUSED
        (line,) = [line for line in done.stderr.splitlines() if " INFO: " not in line]
        assert "worker odd-" in line
        assert "Python 3.99 here, Python 3." in line
        described = run("info", folder=tmp_path).stdout
        assert "refused  odd-" in described
        assert "Python 3.99, the cluster has" in described
        told = json.loads(run("info", "--json", folder=tmp_path).stdout)["refused_workers"]
        names = [worker["name"] for worker in told]
        lines = [line for line in started.err.splitlines() if " WARNING: " in line]
        assert len(lines) == len(names) <= 2  # the second may have been ended before it tried
        assert all("is refused: Python 3.99, the cluster has" in line for line in lines)
        with weft.Client(connection_file=file_of(started)) as client:
            assert client.submit(abs, -1).result(timeout=30) == 1
        family = good.family()
        assert good.stop() == 0
        assert gone(family)
