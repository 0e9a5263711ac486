"""Processes that live and send nothing: suspended ones, and one that cannot send."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

import weft
from tests.deploy.daemons import Daemon, daemon, file_of, scheduler
from tests.leaks import wait_until
from weft.protocol.values.parts import index_of_parts, read_parts

pytestmark = pytest.mark.slow

#: The shortest liveness time-out there is, seconds.
#: The process is that of the scheduler itself, which is suspended.
TIMEOUT = ("--liveness-timeout", "1", "--no-restart")


@contextmanager
def suspended(process: psutil.Process) -> Iterator[None]:
    process.suspend()
    try:
        yield
    finally:
        process.resume()


@contextmanager
def running(folder: Path, n_workers: int = 2) -> Iterator[tuple[Daemon, Daemon, weft.Client]]:
    with scheduler(*TIMEOUT, folder=folder) as master:
        file = file_of(master)
        options = ("--nworkers", str(n_workers), "--nthreads", "1", "--connection-file", str(file))
        with (
            daemon("worker", *options, folder=folder) as workers,
            weft.Client(connection_file=file) as client,
        ):
            client.wait_for_workers(n_workers, timeout=30)
            yield master, workers, client


def processes_of(workers: Daemon) -> tuple[psutil.Process, list[psutil.Process]]:
    """The supervisor, and the workers."""
    family = sorted(psutil.Process(workers.process.pid).children(), key=lambda p: p.create_time())
    return family[0], family[1:]


def test_the_work_of_a_suspended_worker_is_done_elsewhere_and_it_comes_back(tmp_path):
    with running(tmp_path) as (master, workers, client):
        _, (victim, _) = processes_of(workers)
        with suspended(victim):
            pids = client.gather(client.map(lambda i: os.getpid(), range(100)), timeout=60)
            master.wait_for("and its supervisor were silent for 1 s")
            assert victim.pid not in pids
            (there,) = client.scheduler_info()["workers"].values()
            assert there["n_processing"] == 0
        client.wait_for_workers(2, timeout=30)
        assert processes_of(workers)[1][0] == victim


def read_part(index, number, folder):
    """Read a part of all, note both that this begins and that it is done, and wait for the test."""
    with (folder / f"{number}-{os.getpid()}").open("a") as file:
        file.write("x")
    found = sum(sum(parts) for _, parts in read_parts(index, [number]))
    (folder / f"read-{os.getpid()}").touch()
    with (folder / "gate").open():
        return found


def test_unstarted_readers_of_parts_of_a_suspended_worker_are_given_back(tmp_path):
    """Else each of them would wait for its answer, one after the other."""
    inputs = {f"a{i}": (range, 10) for i in range(8)}
    readers = {f"r{i}": (read_part, "index", i, tmp_path) for i in range(10)}
    graph = {**inputs, "index": (index_of_parts, [*inputs]), **readers}
    os.mkfifo(tmp_path / "gate")

    def started() -> dict[str, str]:
        return {path.name: path.read_text() for path in tmp_path.glob("[0-9]*-*")}

    with running(tmp_path) as (master, _, client):
        result = client.get(graph, [*readers], sync=False)
        # A reader that has read holds its worker's seat, so none begins after it. One that waits
        # for its parts gives the seat up: more than one may have begun.
        wait_until(lambda: len(list(tmp_path.glob("read-*"))) == 2, 30)
        there = client.scheduler_info()["workers"]
        asleep, awake = sorted(there, key=lambda address: there[address]["n_processing"])
        assert there[awake]["n_processing"] > 1
        before = started()
        keys = {f"r{name.split('-')[0]}" for name in before}
        with suspended(psutil.Process(there[asleep]["pid"])):
            master.wait_for("and its supervisor were silent for 1 s")
            wait_until(lambda: not ({*readers} - keys) & {*client.processing()[awake]}, 30)
            gate = os.open(tmp_path / "gate", os.O_RDWR)
            try:
                assert client.gather(result, timeout=60) == [8 * i for i in range(10)]
            finally:
                os.close(gate)
        # Each of the others began once in a process, when its parts were there again.
        assert {n for name, n in started().items() if name not in before} == {"x"}


def test_workers_are_none_the_worse_for_a_supervisor_that_is_suspended(tmp_path):
    with running(tmp_path) as (master, workers, client):
        supervisor, before = processes_of(workers)
        with suspended(supervisor):
            master.wait_for("the supervisor was silent for 1 s")
            assert client.gather(client.map(abs, range(-9, 0)), timeout=30) == [*range(9, 0, -1)]
        workers.wait_for("the scheduler is back")
        assert processes_of(workers)[1] == before
        before[0].kill()  # which it reports again
        master.wait_for("killed by SIGKILL")
        client.wait_for_workers(2, timeout=30)


def test_a_suspended_scheduler_is_noticed_and_found_again(tmp_path):
    with running(tmp_path) as (master, workers, client):
        future = client.submit(abs, -1)
        assert future.result(timeout=30) == 1
        with suspended(psutil.Process(master.process.pid)):
            workers.wait_for("the scheduler is gone: it was silent for 1 s")
            pending = client.submit(abs, -2)
            wait_until(lambda: client._engine.link.connection is None, 30)
        assert pending.result(timeout=60) == 2
        workers.wait_for("the scheduler is back")
        client.wait_for_workers(2, timeout=30)
        assert "Traceback" not in master.err + workers.err


def test_a_scheduler_that_stays_suspended_fails_pending_futures(tmp_path):
    with (
        scheduler(*TIMEOUT, folder=tmp_path) as master,
        weft.Client(connection_file=file_of(master), reconnect_timeout=1.0) as client,
    ):
        pending = client.submit(abs, -1)
        with (
            suspended(psutil.Process(master.process.pid)),
            pytest.raises(weft.CommClosed, match="it was silent for 1 s"),
        ):
            pending.result(timeout=60)


def test_a_worker_whose_task_holds_the_interpreter_lock_is_not_taken_for_dead(tmp_path):
    def hold(path):
        import ctypes

        with open(path, "a") as file:
            file.write("once\n")
        ctypes.PyDLL(None).usleep(4_000_000)  # workload: four times what silence may last
        return "done"

    with running(tmp_path) as (master, workers, client):
        held = client.map(hold, [str(tmp_path / name) for name in ("a", "b")])
        assert client.gather(held, timeout=60) == ["done", "done"]
        for name in ("a", "b"):
            assert (tmp_path / name).read_text() == "once\n"
        assert "silent" not in master.err + workers.err


def test_a_suspended_client_keeps_what_it_wants(tmp_path):
    code = """
import signal, sys, weft
client = weft.Client(connection_file=sys.argv[1])
kept = client.submit(bytes, 10**6)
weft.wait([kept])
print("there", flush=True)
signal.pause()
"""
    with (
        running(tmp_path) as (master, _, client),
        daemon(str(file_of(master)), folder=tmp_path, code=code) as other,
    ):
        other.wait_for("there")
        with suspended(psutil.Process(other.process.pid)):
            client.submit(_sleep).result(timeout=30)
            wait_until(lambda: client.scheduler_info()["tasks"]["memory"] == 1)


def _sleep():
    import time

    time.sleep(2)  # workload: twice what silence may last
