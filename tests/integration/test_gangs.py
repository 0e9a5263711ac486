"""Gangs with real workers: all meet, or all end."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator

import pytest

import weft
from tests.deploy.cli.test_restarts import real_pid, restarted
from tests.deploy.daemons import file_of

from .test_detached_jobs import cluster
from .test_scheduler_restarts import locked

pytestmark = [pytest.mark.slow, pytest.mark.shares_resources]


@pytest.fixture(params=[False, True], ids=["threads", "processes"])
def client(request: pytest.FixtureRequest) -> Iterator[weft.Client]:
    with weft.Client(n_workers=2, threads_per_worker=2, processes=request.param) as client:
        yield client


@pytest.fixture
def processes() -> Iterator[weft.Client]:
    with weft.Client(n_workers=2, threads_per_worker=1) as client:
        yield client


def meet(gang: weft.Gang) -> list[socket.socket]:
    """Let all members have a connection, by way of rank 0, which returns one to each other."""
    place = weft.Variable(gang.name)
    if gang.rank:
        host, port = place.get(timeout=60)
        connection = socket.create_connection((host, port), timeout=60)
        assert connection.recv(2) == b"go", "rank 0 sends this when all are connected"
        return [connection]
    with socket.create_server((gang.hosts[0], 0)) as server:
        place.set(server.getsockname()[:2])
        connections = [server.accept()[0] for _ in range(gang.size - 1)]
    for connection in connections:
        connection.sendall(b"go")
    return connections


def barrier(_: object) -> tuple[int, str]:
    gang = weft.get_gang()
    for connection in meet(gang):
        connection.close()
    return gang.rank, weft.get_worker().name


def note(folder: str, name: str) -> int:
    """Note an attempt; return how many were noted before."""
    path = os.path.join(folder, name)
    with open(path, "a") as file:
        file.write("x")
    return os.path.getsize(path) - 1


def die_once(folder: str) -> tuple[int, int]:
    """Meet, and let rank 1 die in the first run; the others wait for what it will not send."""
    gang = weft.get_gang()
    n_before = note(folder, str(gang.rank))
    connections = meet(gang)
    if gang.rank == 1 and not n_before:
        os.kill(os.getpid(), signal.SIGKILL)
    if gang.rank == 1:
        connections[0].sendall(b"done")
    elif not connections[0].recv(4):
        raise ConnectionError("rank 1 is gone")
    for connection in connections:
        connection.close()
    return gang.rank, n_before


def fail_or_run_for_ever(folder: str) -> None:
    gang = weft.get_gang()
    try:
        for connection in meet(gang):
            with connection:
                if gang.rank == 1:
                    connection.recv(1)  # until rank 0 has closed it, and may be interrupted
        if gang.rank == 1:
            raise ValueError("no data for rank 1")
        while True:
            time.sleep(0.001)  # workload
    except weft.TaskInterrupted:
        note(folder, "interrupted")
        raise


def test_all_run_at_the_same_time(client):
    found = client.gather(client.submit_gang(barrier, 4, 0))
    assert [rank for rank, _ in found] == [0, 1, 2, 3]
    assert len({name for _, name in found}) == 2


def test_a_gang_begins_while_short_calls_fill_all_workers(client):
    calls = client.map(time.sleep, [0.01] * 1000, pure=False)  # workload
    found = client.gather(client.submit_gang(barrier, 4, 0))
    assert [rank for rank, _ in found] == [0, 1, 2, 3]
    client.cancel(calls)


def test_gangs_that_need_each_others_places_all_run(client):
    futures = [future for _ in range(5) for future in client.submit_gang(barrier, 3, 0)]
    assert [rank for rank, _ in client.gather(futures)] == [0, 1, 2] * 5


def test_the_failure_of_one_ends_all(client, tmp_path):
    first, second = client.submit_gang(fail_or_run_for_ever, 2, str(tmp_path))
    with pytest.raises(ValueError, match="no data for rank 1"):
        second.result(60)
    with pytest.raises(weft.GangEnded, match="rank 1 of 2, failed first: ValueError: no d") as e:
        first.result(60)
    assert isinstance(e.value.__cause__, ValueError)
    client.submit_gang(barrier, 4, 0)[0].result(60)  # no thread is held any more
    assert os.path.exists(tmp_path / "interrupted")


def test_the_cancellation_of_one_ends_all(client):
    gate = weft.Event("cancel-gate", client=client)
    before = client.submit(gate.wait)
    futures = client.submit_gang(barrier, 4, 0, after={"ended": before})
    futures[3].cancel()
    for future in futures:
        with pytest.raises(weft.TaskCancelled):
            future.result(60)
    gate.set()
    before.result(60)


def test_a_killed_worker_ends_all_and_they_run_again(processes, tmp_path):
    futures = processes.submit_gang(die_once, 2, str(tmp_path))
    assert processes.gather(futures) == [(0, 1), (1, 1)]
    ends = [attempt.end for attempt in futures[1].attempts()]
    assert "the worker died" in ends[0]
    assert ends[1] == "finished"


def test_coroutine_functions_meet_too(client):
    async def rank() -> int:
        return weft.get_gang().rank

    assert client.gather(client.submit_gang(rank, 3)) == [0, 1, 2]


def test_inputs_are_read_by_all(client):
    data = client.submit(list, "abc")

    def pick(values: list[str]) -> str:
        return values[weft.get_gang().rank]

    assert client.gather(client.submit_gang(pick, 3, data)) == ["a", "b", "c"]


def test_bad_sizes_are_refused_at_once(client):
    for n in (0, -1, 1.5, True, "2", 1025):
        with pytest.raises(weft.InvalidAmount, match="is not a number of calls from 1 to 1024"):
            client.submit_gang(barrier, n, 0)
    with pytest.raises(weft.InvalidAmount):
        client.submit_gang(barrier, 2, 0, cores=-1)


def test_a_gang_that_no_workers_hold_fails_if_it_is_not_to_wait(client):
    futures = client.submit_gang(barrier, 5, 0, no_worker_timeout=0)
    with pytest.raises(weft.NoWorker, match="cannot run all 5 tasks of a gang"):
        futures[0].result(60)


def test_a_gang_is_explained(client):
    gate, begun = weft.Event("gang-gate", client=client), weft.Queue("begun", client=client)
    busy = client.map(lambda _: (begun.put(0), gate.wait()), range(2), cores=2, pure=False)
    for _ in busy:
        begun.get(timeout=60)
    futures = client.submit_gang(barrier, 3, 0)
    text = str(futures[2].explain())
    assert "3 places at one moment, for all of its gang" in text
    gate.set()
    client.gather([*busy, *futures])


def test_a_gang_is_released_with_its_last_future(client):
    gate = weft.Event("never-set", client=client)
    futures = client.submit_gang(lambda: gate.wait(), 2)
    keys = [future.key for future in futures]
    del futures[0]
    assert {*keys} <= {*client.futures}
    futures.clear()
    client.submit(abs, -1).result(60)
    assert not {*keys} & {*client.futures}


def test_a_gang_runs_on_for_a_reader_of_one_result(client):
    gate = weft.Event("set-when-released", client=client)
    futures = client.submit_gang(lambda: (gate.wait(), weft.get_gang().rank)[1], 2)
    read = client.submit(lambda rank: rank + 10, futures[1])
    futures.clear()
    client.submit(abs, -1).result(60)  # the scheduler has read that they are gone
    gate.set()
    assert read.result(60) == 11


def test_outside_of_a_gang_there_is_none(client):
    with pytest.raises(weft.NotInTask, match="in a task that submit_gang has made"):
        client.submit(weft.get_gang).result(60)
    with pytest.raises(weft.NotInTask):
        weft.get_gang()


def hold(gate: str, folder: str) -> int:
    """Run until a file is unlocked."""
    from fcntl import LOCK_EX, flock

    rank = weft.get_gang().rank
    note(folder, str(rank))
    with open(gate) as file:
        flock(file, LOCK_EX)
    return rank


@pytest.mark.parametrize("detached", [False, True])
def test_a_gang_goes_on_when_its_scheduler_is_killed(tmp_path, wait_until, detached):
    gate, notes = tmp_path / "gate", tmp_path / "notes"
    notes.mkdir()
    with (
        cluster(tmp_path) as started,
        weft.Client(connection_file=file_of(started)) as client,
    ):
        client.wait_for_workers(2, timeout=60)
        with locked(gate):
            futures = client.submit_gang(hold, 2, str(gate), str(notes), detached=detached)
            wait_until(lambda: len([*notes.iterdir()]) == 2, 60)
            restarted(started, real_pid(started))
        assert [future.result(60) for future in futures] == [0, 1]
    # Once each; on a busy machine a worker may be back too late, and then the whole runs again.
    first, second = (path.read_text() for path in notes.iterdir())
    assert first == second
    assert first == "x" or (detached and first == "xx")
