"""Cases at the edges of an outage of the scheduler, with real processes.

The table in tests/README.md lists all of them, with their tests.
"""

from __future__ import annotations

from collections import Counter

import pytest

import weft
from tests.deploy.cli.test_restarts import real_pid, restarted
from tests.deploy.daemons import daemon, file_of, scheduler
from tests.integration.test_growth import EARLIER, LATER, WORKER
from weft.protocol.errors import CommClosed

pytestmark = pytest.mark.slow

#: Results of this many bytes stay with the workers.
LARGE = 300_000

#: A scheduler with a bug: it fails whenever it reads of a function of this name.
BUGGY = """
import sys
from weft.scheduler.core.requests import submission
from weft.deploy.cli.command import main

functions = submission._functions

def failing(state, message):
    if "poison" in message.function_names:
        raise RuntimeError("a bug")
    return functions(state, message)

submission._functions = failing
main(["scheduler", "--port", "0", "--no-dashboard", *sys.argv[1:]])
"""


def note(path, name):
    with open(path, "a") as file:
        file.write(f"{name}\n")


def large(path, i):
    note(path, f"large {i}")
    return bytes([i]) * LARGE


def length(path, data, i):
    note(path, f"length {i}")
    return len(data)


def poison():
    return 1


def test_a_message_that_kills_each_scheduler_ends_its_client_and_not_the_cluster(tmp_path):
    with (
        daemon(folder=tmp_path, code=BUGGY) as started,
        daemon("worker", "--nworkers", "1", folder=tmp_path),
    ):
        started.wait_for("connect ")
        path = tmp_path / "calls"
        with weft.Client(connection_file=file_of(started), reconnect_timeout=120) as other:
            kept = other.submit(large, str(path), 1)
            weft.wait([kept], timeout=60)
            with weft.Client(connection_file=file_of(started), reconnect_timeout=3) as client:
                future = client.submit(poison)
                with pytest.raises(CommClosed, match="ended soon after this client had come back"):
                    future.result(120)
            assert started.err.count("it is started again") >= 2
            assert started.err.count("RuntimeError: a bug") >= 2
            assert other.submit(length, str(path), kept, 1).result(120) == LARGE
        assert path.read_text().split("\n") == ["large 1", "length 1", ""]


def test_a_scheduler_that_dies_while_it_recovers_loses_nothing(tmp_path):
    path, n = tmp_path / "calls", 20
    with (
        scheduler(folder=tmp_path) as started,
        daemon("worker", "--nworkers", "2", "--nthreads", "1", folder=tmp_path),
        weft.Client(connection_file=file_of(started)) as client,
    ):
        larges = client.map(large, [str(path)] * n, range(n))
        weft.wait(larges, timeout=60)
        pid = real_pid(started)
        for _ in range(3):
            pid = restarted(started, pid)  # it waits for its peers for half a second at least
        lengths = client.map(length, [str(path)] * n, larges, range(n))
        assert client.gather(lengths, timeout=120) == [LARGE] * n
        assert client.gather(larges, timeout=120) == [bytes([i]) * LARGE for i in range(n)]
    assert {name: k for name, k in Counter(path.read_text().split("\n")).items() if k > 1} == {}


def test_a_copy_is_as_good_as_the_result_if_its_call_has_a_name(tmp_path):
    path = tmp_path / "calls"
    with (
        scheduler(folder=tmp_path) as started,
        daemon("worker", "--nworkers", "1", "--name", "other", folder=tmp_path),
        daemon("worker", "--nworkers", "1", "--name", "first", folder=tmp_path) as first,
        weft.Client(connection_file=file_of(started)) as client,
    ):
        client.wait_for_workers(2, timeout=60)
        named = client.submit(large, str(path), 1, key="named", workers="first")
        copied = client.submit(length, str(path), named, 1, workers="other")
        weft.wait([copied], timeout=60)
        for process in first.family():
            process.kill()
        first.process.wait(30)
        restarted(started, real_pid(started))
        again = client.submit(length, str(path), named, 2, workers="other")
        assert again.result(120) == LARGE
    assert path.read_text().split("\n") == ["large 1", "length 1", "length 2", ""]


@pytest.mark.parametrize("release", [EARLIER, LATER], ids=["earlier", "later"])
def test_a_worker_of_another_version_comes_back_to_the_next_scheduler_with_its_results(
    tmp_path, release
):
    path = tmp_path / "calls"
    with (
        scheduler(folder=tmp_path) as started,
        daemon(folder=tmp_path, code=release + WORKER) as workers,
        weft.Client(connection_file=file_of(started)) as client,
    ):
        workers.wait_for("registered")
        larges = client.map(large, [str(path)] * 3, [1, 2, 3])
        weft.wait(larges, timeout=60)
        restarted(started, real_pid(started))
        lengths = client.map(length, [str(path)] * 3, larges, [1, 2, 3])
        assert client.gather(lengths, timeout=120) == [LARGE] * 3
        for process in (started, workers):
            assert "ERROR" not in process.err, process.err
            assert "invalid message" not in process.err, process.err
    assert {name: k for name, k in Counter(path.read_text().split("\n")).items() if k > 1} == {}
