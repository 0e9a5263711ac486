"""All lines to the scheduler are reset while a program runs: real processes behind a TCP proxy."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest

import weft
from benchmarks.proxy import Proxy
from tests.deploy.daemons import address_of, daemon, file_of, scheduler

pytestmark = pytest.mark.slow

#: Results of this many bytes stay with the workers.
LARGE = 100_000


def noted(path: str, i: int) -> bytes:
    with open(path, "a") as file:
        file.write(f"{i}\n")
    time.sleep(0.01)  # workload
    return bytes([i % 256]) * (LARGE if i % 2 else 8)


def test_no_call_runs_again_when_all_lines_are_reset(tmp_path: Path) -> None:
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
