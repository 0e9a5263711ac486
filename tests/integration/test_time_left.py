"""Workers with a lifetime, and tasks with time limits, on real processes."""

from __future__ import annotations

import time
from pathlib import Path

import weft
from tests.deploy.daemons import daemon, file_of, scheduler


def _where() -> str:
    return weft.get_worker().name


def _wait_for(path: str) -> str:
    while not Path(path).exists():
        time.sleep(0.01)  # workload
    return weft.get_worker().name


def test_a_call_with_a_time_limit_goes_to_a_worker_that_has_time_for_it(tmp_path, wait_until):
    one = ("worker", "--nworkers", "1", "--nthreads", "1")
    ending = ("--lifetime", "100s", "--grace-period", "10s")
    with (
        scheduler(folder=tmp_path) as master,
        daemon(*one, "--name", "soon", *ending, folder=tmp_path),
        daemon(*one, "--name", "late", "--lifetime", "2h", folder=tmp_path),
        weft.Client(connection_file=file_of(master)) as client,
    ):
        client.wait_for_workers(2, timeout=60)
        calls = [client.submit(_where, timeout="1h", pure=False) for _ in range(20)]
        assert {*client.gather(calls)} == {"late"}
        short = client.submit(_where, timeout="10s", workers="soon")
        assert short.result(timeout=60) == "soon"
        # It waits for that worker, although the other one is idle.
        path = tmp_path / "go on"
        busy = client.submit(_wait_for, str(path), timeout="1h")
        waits = client.submit(_where, timeout="1h", pure=False)
        wait_until(lambda: "worker soon has" in str(waits.explain()))
        assert "left, and the task may take 1 h" not in str(busy.explain()).split("worker late")[-1]
        assert "left, and the task may take 60 min" in str(waits.explain())
        path.touch()
        assert {busy.result(timeout=60), waits.result(timeout=60)} == {"late"}
        # Nobody has a day.
        assert client.submit(_where, timeout="24h", pure=False).result(timeout=60) in (
            "soon",
            "late",
        )
