"""The start and the end of `weft worker`, and its exit codes."""

from __future__ import annotations

import json
import os
import signal
import socket
import time

import psutil
import pytest

import weft
from tests.deploy.daemons import Daemon, daemon, file_of, gone, run, scheduler
from tests.leaks import wait_until
from weft.protocol.host.exits import EXIT_NO_SCHEDULER, EXIT_REFUSED
from weft.worker.family.repeated_signals import REPEAT_S

pytestmark = pytest.mark.slow

#: A `weft worker` that claims to be of another Python.
OF_ANOTHER_PYTHON = """
import platform, sys
platform.python_version = lambda: "3.99.1"
from weft.deploy.cli.command import main
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
        (["tcp://127.0.0.1:1"], ["no process listens at tcp://127.0.0.1:1", "no token"]),
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


# --- Leaving --------------------------------------------------------------------------------------


def held(folder: str) -> str:
    """Run until the test ends it; note each start."""
    import time
    from pathlib import Path

    with open(Path(folder, "starts"), "a") as file:
        file.write("x")
    while not Path(folder, "go").exists():
        time.sleep(0.01)  # workload
    return "done"


def starts(folder) -> str:
    path = folder / "starts"
    return path.read_text() if path.exists() else ""


def worker_processes(started: Daemon) -> list[psutil.Process]:
    """The processes of a `weft worker` that run tasks: the supervisor was forked first."""
    _, supervisor, *workers = sorted(started.family(), key=lambda p: (p.create_time(), p.pid))
    assert supervisor not in workers
    return workers


def test_a_worker_that_gets_sigterm_finishes_its_running_tasks_and_starts_no_other(tmp_path):
    one = ("worker", "--nworkers", "1", "--nthreads", "1", "--grace-period", "60")
    with (
        scheduler(folder=tmp_path) as started,
        daemon(*one, "--name", "old", folder=tmp_path) as old,
        weft.Client(connection_file=file_of(started)) as client,
    ):
        old.wait_for("registered")
        running = client.submit(held, str(tmp_path))
        queued = client.map(abs, range(-20, 0))
        wait_until(lambda: starts(tmp_path), 30, "the task's start")
        old.process.send_signal(signal.SIGTERM)
        old.wait_for("leaves when its tasks have ended")
        with daemon(*one, "--name", "new", folder=tmp_path):
            assert client.gather(queued, timeout=30) == list(range(20, 0, -1))
            assert old.process.poll() is None
            assert not running.done()
            (tmp_path / "go").touch()
            assert running.result(timeout=30) == "done"
            assert old.process.wait(30) == 0
        assert starts(tmp_path) == "x"
        assert "is leaving (its supervisor stops: SIGTERM)" in started.err
        assert " WARNING: " not in started.err + old.err


def noted(folder: str, name: str, n: int) -> bytes:
    """Note one call; "runs" waits until the test lets it go on."""
    with open(f"{folder}/{name}", "a") as file:
        file.write("x")
    while name == "runs" and not os.path.exists(f"{folder}/go"):
        time.sleep(0.01)  # workload
    return b"a" * n


@pytest.mark.parametrize("is_late", [False, True])
def test_a_worker_that_gets_sigterm_gives_away_what_only_it_has_or_says_what_is_lost(
    tmp_path, is_late
):
    one = ("worker", "--nworkers", "1", "--nthreads", "1", "--grace-period")
    with (
        scheduler(folder=tmp_path) as started,
        daemon(*one, "0.1" if is_late else "60", "--name", "old", folder=tmp_path) as old,
        weft.Client(connection_file=file_of(started)) as client,
    ):
        old.wait_for("registered")
        persisted = client.submit(noted, str(tmp_path), "persisted", 200_000)
        weft.wait([persisted])
        running = client.submit(noted, str(tmp_path), "runs", 200_000)
        wait_until((tmp_path / "runs").exists, 30, "the task's start")
        if is_late:
            old.process.send_signal(signal.SIGTERM)
            assert old.process.wait(60) == 0
        with daemon(*one, "60", "--name", "new", folder=tmp_path) as new:
            new.wait_for("registered")
            if not is_late:
                old.process.send_signal(signal.SIGTERM)
                old.wait_for("leaves when its tasks have ended")
            (tmp_path / "go").touch()
            assert [len(x) for x in client.gather([running, persisted])] == [200_000] * 2
            assert old.process.wait(60) == 0
            calls = [(tmp_path / name).read_text() for name in ("runs", "persisted")]
            ends = [attempt.end for future in (running, persisted) for attempt in future.attempts()]
            new.stop(signal.SIGINT)  # after SIGTERM it would wait for another one to join
        if is_late:
            assert calls == ["xx", "xx"]
            started.wait_for(
                "WARNING: worker old had to leave before all was moved (its supervisor stops: "
                "SIGTERM, and its grace period of 0.1 s is over): 1 result (195 KiB), 'noted-"
            )
            assert ends == [
                "did not end before its worker had to leave (its supervisor stops: SIGTERM, and "
                "its grace period of 0.1 s is over)",
                "finished",
                "finished; its worker left, and its result with it",
                "finished",
            ]
        else:
            assert calls == ["x", "x"]
            assert ends == ["finished", "finished"]
            started.wait_for("2 results (391 KiB) have moved; nothing that is needed is lost")
            assert " WARNING: " not in started.err + old.err


@pytest.mark.parametrize("again", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_a_worker_that_finishes_its_tasks(again, tmp_path):
    one = ("worker", "--nworkers", "1", "--nthreads", "1", "--grace-period", "600")
    with (
        scheduler(folder=tmp_path) as started,
        daemon(*one, folder=tmp_path) as worker,
        weft.Client(connection_file=file_of(started)) as client,
    ):
        worker.wait_for("registered")
        future = client.submit(held, str(tmp_path))
        wait_until(lambda: starts(tmp_path), 30, "the task's start")
        family = worker.family()
        worker.process.send_signal(signal.SIGTERM)
        worker.wait_for("leaves when its tasks have ended")
        until = time.monotonic() + REPEAT_S  # before, SIGTERM would be the same request
        wait_until(lambda: time.monotonic() > until, 30, "the time after which it counts again")
        assert worker.stop(again) == 0
        assert gone(family)
        (tmp_path / "go").touch()
        with daemon(*one, folder=tmp_path):
            assert future.result(timeout=30) == "done"


def test_a_signal_to_all_processes_of_a_worker_is_one_request(tmp_path):
    one = ("worker", "--nworkers", "1", "--nthreads", "1", "--grace-period", "600")
    with (
        scheduler(folder=tmp_path) as started,
        daemon(*one, folder=tmp_path) as worker,
        weft.Client(connection_file=file_of(started)) as client,
    ):
        worker.wait_for("registered")
        future = client.submit(held, str(tmp_path))
        wait_until(lambda: starts(tmp_path), 30, "the task's start")
        for _ in range(2):
            for process in worker.family():
                process.send_signal(signal.SIGTERM)
        worker.wait_for("leaves when its tasks have ended")
        for process in worker.family():
            process.send_signal(signal.SIGTERM)
        (tmp_path / "go").touch()
        assert future.result(timeout=30) == "done"
        assert worker.process.wait(30) == 0
        assert starts(tmp_path) == "x"
        assert " WARNING: " not in worker.err


def test_running_tasks_are_ended_after_the_grace_period(tmp_path):
    with (
        scheduler(folder=tmp_path) as started,
        daemon("worker", "--nworkers", "1", "--grace-period", "0.1", folder=tmp_path) as worker,
        weft.Client(connection_file=file_of(started)) as client,
    ):
        worker.wait_for("registered")
        future = client.submit(held, str(tmp_path))
        wait_until(lambda: starts(tmp_path), 30, "the task's start")
        assert worker.stop() == 0
        assert "its grace period of 0.1 s is over" in worker.err
        future.cancel()


def test_one_worker_process_that_gets_sigterm_leaves_in_the_same_way(tmp_path):
    arguments = ("worker", "--nworkers", "2", "--nthreads", "1", "--grace-period", "60")
    with (
        scheduler(folder=tmp_path) as started,
        daemon(*arguments, "--name", "w", folder=tmp_path) as workers,
        weft.Client(connection_file=file_of(started)) as client,
    ):
        workers.wait_for("registered", 2)
        future = client.submit(held, str(tmp_path), workers="w-0")
        wait_until(lambda: starts(tmp_path), 30, "the task's start")
        pid = client.submit(os.getpid, workers="w-1").result(timeout=30)
        (process,) = [p for p in worker_processes(workers) if p.pid != pid]
        process.terminate()
        workers.wait_for("leaves when its tasks have ended")
        (tmp_path / "go").touch()
        assert future.result(timeout=30) == "done"
        workers.wait_for("worker w-0 ends on request")
        assert client.submit(abs, -1).result(timeout=30) == 1


# --- A supervisor that is killed ------------------------------------------------------------------


def test_workers_end_with_a_supervisor_that_is_killed(tmp_path):
    with (
        scheduler(folder=tmp_path) as started,
        daemon("worker", "--nworkers", "2", "--nthreads", "1", folder=tmp_path) as workers,
        weft.Client(connection_file=file_of(started)) as client,
    ):
        workers.wait_for("registered", 2)
        family = workers.family()
        future = client.submit(held, str(tmp_path))
        wait_until(lambda: starts(tmp_path), 30, "the task's start")
        (supervisor,) = [p for p in family[1:] if p not in worker_processes(workers)]
        supervisor.kill()
        # Service managers start it again, since it ends with the code of a killed process.
        assert workers.process.wait(30) == 128 + signal.SIGKILL
        assert gone(family)
        future.cancel()
