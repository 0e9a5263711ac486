"""A program goes on while its scheduler is killed and started again: real processes."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import LOCK_EX, flock
from pathlib import Path

import pytest

import weft
from tests.deploy.cli.test_restarts import real_pid, restarted
from tests.deploy.daemons import Daemon, daemon, file_of, scheduler

pytestmark = pytest.mark.slow

#: Results of this many bytes stay with the workers.
LARGE = 300_000


@contextmanager
def running(folder: Path) -> Iterator[tuple[Daemon, weft.Client]]:
    """A scheduler, two workers of one thread, and a client."""
    with (
        scheduler(folder=folder) as started,
        daemon("worker", "--nworkers", "2", "--nthreads", "1", folder=folder),
        weft.Client(connection_file=file_of(started)) as client,
    ):
        client.wait_for_workers(2, timeout=60)
        yield started, client


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold up the calls of `gated` until the end of the block."""
    with path.open("w") as file:
        flock(file, LOCK_EX)
        yield


def note(path, name):
    with open(path, "a") as file:
        file.write(f"{name}\n")


def small(path, i):
    note(path, f"small {i}")
    return i


def large(path, i):
    note(path, f"large {i}")
    return bytes([i % 256]) * LARGE


def gated(path, gate, data, number):
    import fcntl

    note(path, f"gated {number}")
    with open(gate) as file:
        fcntl.flock(file, fcntl.LOCK_SH)
    return len(data) + number


def joined(path, data, number, i):
    note(path, f"joined {i}")
    return (data[0], number)


def grown(path, data, i):
    note(path, f"grown {i}")
    return data + b"."


def calls(path: Path) -> Counter[str]:
    return Counter(path.read_text().splitlines())


def test_a_program_goes_on_and_no_finished_call_runs_again(tmp_path):
    path, gate = tmp_path / "calls", tmp_path / "gate"
    n = 40
    with running(tmp_path) as (started, client):
        smalls = [client.submit(small, str(path), i) for i in range(n)]
        larges = client.map(large, [str(path)] * n, range(n))
        chain = client.submit(large, str(path), 1000)
        for i in range(5):
            chain = client.submit(grown, str(path), chain, i)
        weft.wait([*smalls, *larges, chain], timeout=60)
        assert client.gather(smalls) == [*range(n)]
        before = calls(path)
        with locked(gate):
            running_now = client.map(
                gated, [str(path)] * 2, [str(gate)] * 2, larges[:2], smalls[:2]
            )
            pending = client.map(joined, [str(path)] * n, larges, smalls, range(n))
            pid = restarted(started, real_pid(started))
            assert pid != os.getpid()
            late = client.map(joined, [str(path)] * n, larges, smalls, range(n, 2 * n))
        assert client.gather(running_now, timeout=120) == [LARGE, LARGE + 1]
        expected = [(i % 256, i) for i in range(n)]
        assert client.gather(pending, timeout=120) == expected
        assert client.gather(late, timeout=120) == expected
        # Small results that only this program holds are submitted for calls that read them.
        again = client.map(joined, [str(path)] * n, larges, smalls, range(2 * n, 3 * n))
        assert client.gather(again, timeout=120) == expected
        assert chain.result(120) == bytes([1000 % 256]) * LARGE + b"....."
        after = calls(path)
        # What had finished, and what was running, was not run again.
        assert {name: n for name, n in after.items() if n > 1} == {}
        assert before.keys() <= after.keys()


def test_small_results_outlive_the_scheduler_and_all_workers(tmp_path):
    path = tmp_path / "calls"
    n = 20
    with (
        scheduler(folder=tmp_path) as started,
        weft.Client(connection_file=file_of(started)) as client,
    ):
        with daemon("worker", "--nworkers", "1", folder=tmp_path) as workers:
            numbers = client.map(small, [str(path)] * n, range(n))
            assert client.gather(numbers, timeout=60) == [*range(n)]
            for process in workers.family():
                process.kill()
            workers.process.wait(30)
        before = calls(path)
        restarted(started, real_pid(started))
        with daemon("worker", "--nworkers", "1", folder=tmp_path):
            data = [b"."] * n
            pairs = client.map(joined, [str(path)] * n, data, numbers, range(n))
            assert client.gather(pairs, timeout=120) == [(46, i) for i in range(n)]
        after = calls(path)
        assert {name: after[name] for name in before} == dict(before)
