"""How `weft worker` begins, ends, and with which exit code."""

from __future__ import annotations

import json
import signal
import socket

import pytest

import weft
from tests.deploy.daemons import daemon, file_of, gone, run, scheduler
from weft.worker.exits import EXIT_NO_SCHEDULER, EXIT_REFUSED

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


# --- Before there is a scheduler ------------------------------------------------------------------


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@pytest.mark.parametrize("where", ["found", "address", "file", "environment"])
def test_a_worker_may_be_started_before_its_scheduler(where, tmp_path):
    port, file = free_port(), tmp_path / "later" / "cluster.json"
    named = ["--connection-file", str(file)]
    worker_arguments = {"address": [f"tcp://127.0.0.1:{port}"], "file": named}.get(where, [])
    env = {"WEFT_CONNECTION_FILE": str(file)} if where == "environment" else {}
    scheduler_arguments = named if where in ("file", "environment") else []
    with daemon("worker", *worker_arguments, "--nworkers", "1", folder=tmp_path, **env) as worker:
        worker.wait_for("waiting for a scheduler for 60 s")
        with scheduler(*scheduler_arguments, "--port", str(port), folder=tmp_path):
            worker.wait_for("registered")
            assert worker.err.count(" WARNING: ") == 1
            assert worker.stop() == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["no running scheduler was found", "weft scheduler", "--connection-file"]),
        (["--connection-file", "missing/c.json"], ["there is no connection file missing/c.json"]),
        (["tcp://127.0.0.1:1"], ["nobody listens at tcp://127.0.0.1:1", "no token"]),
        (["tcp://no.such.invalid:1"], ["the name no.such.invalid does not resolve", "no token"]),
    ],
)
def test_a_scheduler_that_does_not_come_in_time_is_an_error_of_its_own(arguments, words, tmp_path):
    done = run("worker", *arguments, "--connect-timeout", "0.2", folder=tmp_path)
    assert (done.returncode, done.stdout) == (EXIT_NO_SCHEDULER, "")
    waits, error = done.stderr.splitlines()
    assert "waiting for a scheduler for 0.2 s" in waits
    assert error.startswith("weft worker: no scheduler was found within 0.2 s: ")
    assert [word for word in words if word not in done.stderr] == []


def test_a_scheduler_whose_token_is_not_here_is_not_waited_for(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as there:
        address = f"tcp://127.0.0.1:{there.getsockname()[1]}"
        done = run("worker", address, folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"weft: no token was found for {address}; ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_worker_that_waits_ends_at_a_signal(number, code, tmp_path):
    with daemon("worker", folder=tmp_path) as worker:
        worker.wait_for("waiting for a scheduler")
        assert worker.stop(number) == code
        assert "Traceback" not in worker.err
