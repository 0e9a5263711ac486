"""All connections to the scheduler are reset while a program runs: processes behind a TCP proxy."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

import weft
from benchmarks.proxy import Proxy
from tests.deploy.daemons import address_of, daemon, file_of, scheduler
from tests.leaks import wait_until

pytestmark = pytest.mark.slow

#: Results of this many bytes stay with the workers.
LARGE = 100_000


def noted(path: str, i: int) -> bytes:
    with open(path, "a") as file:
        file.write(f"{i}\n")
    time.sleep(0.01)  # workload
    return bytes([i % 256]) * (LARGE if i % 2 else 8)


def test_no_call_runs_again_when_all_connections_are_reset(tmp_path: Path) -> None:
    path = tmp_path / "calls"
    n = 300
    with scheduler(folder=tmp_path) as started:
        proxy = Proxy(int(address_of(started).rsplit(":", 1)[1]))
        try:
            behind = f"tcp://127.0.0.1:{proxy.port_for('workers')}"
            address = f"tcp://127.0.0.1:{proxy.port_for('client')}"
            file = str(file_of(started))
            options = ("--connection-file", file, "--nworkers", "2", "--nthreads", "1")
            with (
                daemon("worker", behind, *options, folder=tmp_path),
                weft.Client(address, connection_file=file) as client,
            ):
                client.wait_for_workers(2, timeout=60)
                futures = client.map(noted, [str(path)] * n, range(n))
                for share in (10, 3):
                    weft.wait(futures[: n // share], timeout=60)
                    assert proxy.reset("workers") >= 2
                    assert proxy.reset("client") == 1
                results = client.gather(futures, timeout=120)
                assert [len(result) for result in results] == [8, LARGE] * (n // 2)
        finally:
            proxy.close()
    calls = Counter(path.read_text().split())
    assert calls == {str(i): 1 for i in range(n)}


def waiting(path: str, name: str) -> bytes:
    """Note a call; one that is called "runs" waits until the test lets it go on."""
    with open(f"{path}/{name}", "a") as file:
        file.write("x")
    while name == "runs" and not os.path.exists(f"{path}/go"):
        time.sleep(0.01)  # workload
    return b"a" * LARGE


def test_a_worker_whose_connection_is_reset_while_it_leaves_gives_all_away(tmp_path: Path) -> None:
    with scheduler(folder=tmp_path) as started:
        proxy = Proxy(int(address_of(started).rsplit(":", 1)[1]))
        file = str(file_of(started))
        options = ("--connection-file", file, "--nworkers", "1", "--nthreads", "1")
        behind = f"tcp://127.0.0.1:{proxy.port_for('old')}"
        try:
            with (
                daemon("worker", behind, *options, "--name", "old", folder=tmp_path) as old,
                weft.Client(connection_file=file) as client,
            ):
                old.wait_for("registered")
                persisted = client.submit(waiting, str(tmp_path), "persisted")
                weft.wait([persisted], timeout=60)
                running = client.submit(waiting, str(tmp_path), "runs")
                wait_until((tmp_path / "runs").exists, 60, "the task's start")
                old.process.send_signal(signal.SIGTERM)
                old.wait_for("leaves when its tasks have ended")
                started.wait_for("worker old is leaving")
                assert proxy.reset("old") >= 1
                started.wait_for("worker old is back with 1 result and 1 unfinished task")
                with daemon("worker", *options, "--name", "new", folder=tmp_path) as new:
                    new.wait_for("registered")
                    (tmp_path / "go").touch()
                    values = client.gather([running, persisted], timeout=60)
                    assert [len(value) for value in values] == [LARGE] * 2
                    assert old.process.wait(60) == 0
                    ends = [a.end for one in (running, persisted) for a in one.attempts()]
                    new.stop(signal.SIGINT)
        finally:
            proxy.close()
        started.wait_for("nothing that is needed is lost")
    assert [(tmp_path / name).read_text() for name in ("runs", "persisted")] == ["x", "x"]
    assert ends == ["finished", "finished"]


def counted(path: str, i: int) -> int:
    """Note a call, and wait until the test lets it go on."""
    with open(f"{path}/calls", "a") as file:
        file.write(f"{i}\n")
    while not os.path.exists(f"{path}/go"):
        time.sleep(0.01)  # workload
    return 1 // i


def test_a_client_that_was_away_for_long_gets_its_jobs_which_run_once(tmp_path: Path) -> None:
    with scheduler("--client-lease", "0.2", folder=tmp_path) as started:
        proxy = Proxy(int(address_of(started).rsplit(":", 1)[1]))
        address = f"tcp://127.0.0.1:{proxy.port_for('client')}"
        file = str(file_of(started))
        try:
            with (
                daemon("worker", "--nworkers", "1", "--nthreads", "3", folder=tmp_path) as workers,
                weft.Client(address, connection_file=file) as client,
                weft.Client(connection_file=file) as other,
            ):
                workers.wait_for("registered")
                jobs = client.map(counted, [str(tmp_path)] * 3, range(3), detached=True)
                wait_until(lambda: len(calls_in(tmp_path)) == 3, 60, "the start of all")
                assert proxy.refuse("client", 3600.0) == 1
                started.wait_for("did not come back: its futures are released")
                (tmp_path / "go").touch()
                wait_until(lambda: not other.jobs(state="pending"), 60, "the end of all")
                proxy.heal()
                assert isinstance(jobs[0].exception(timeout=60), ZeroDivisionError)
                assert client.gather(jobs[1:], timeout=60) == [1, 0]
        finally:
            proxy.close()
    assert sorted(calls_in(tmp_path)) == ["0", "1", "2"]


def calls_in(folder: Path) -> list[str]:
    return (folder / "calls").read_text().split() if (folder / "calls").exists() else []
