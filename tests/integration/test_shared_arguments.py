"""Large arguments on real clusters: they are sent once, kept and recovered."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
from contextlib import contextmanager

import numpy as np
import pytest

import weft
from tests.deploy.daemons import daemon, file_of, scheduler
from weft.deploy.local.cluster import LocalCluster
from weft.protocol.errors import LocalProtocolError
from weft.protocol.net import data_connection
from weft.protocol.net.transport import connect
from weft.protocol.wire.messages import GetMetrics
from weft.protocol.wire.roles import Role

pytestmark = pytest.mark.slow

NBYTES = 16_000_000
KINDS = [
    {"processes": True},
    {"processes": True, "protocol": "tcp"},
    {"processes": False, "threads_per_worker": 2},
]


def change(x, i):
    """Change the argument, which must not affect other calls."""
    first = float(x[0])
    x[:] = i
    return first, float(x[-1]), os.getpid()


def number():
    return np.arange(NBYTES // 8, dtype=float) + 1.0


def workers_of(client):
    return client.scheduler_info()["workers"]


def tasks_of(client):
    return {state: n for state, n in client.scheduler_info()["tasks"].items() if n}


class Viewer:
    """Asks the scheduler for its counters."""

    def __init__(self):
        self._answer = asyncio.get_running_loop().create_future()

    def on_messages(self, _connection, messages):
        self._answer.set_result(messages[0].values)

    def on_writable(self, connection):
        pass

    def on_closed(self, connection, error):
        pass

    async def ask(self, cluster):
        connection = await connect(
            cluster.scheduler_address,
            role=Role.VIEWER,
            server_role=Role.SCHEDULER,
            security=cluster.security,
            handler=self,
        )
        connection.send([GetMetrics(request=1)])
        values = await asyncio.wait_for(self._answer, 30)
        connection.abort()
        return values


def metrics_of(cluster):
    async def ask():
        return await Viewer().ask(cluster)

    return asyncio.run(ask())


@pytest.mark.parametrize("how", ["submit", "map"])
@pytest.mark.parametrize("options", KINDS)
def test_an_argument_of_20_calls_is_sent_about_once(options, how, wait_until):
    with LocalCluster(n_workers=2, **options) as cluster, weft.Client(cluster) as client:
        client.wait_for_workers(2)
        x = number()
        connection = client._engine.link.connection
        before = connection.bytes_out
        if how == "submit":
            futures = [client.submit(change, x, i) for i in range(20)]
        else:
            futures = client.map(change, [x] * 20, range(20))
        results = client.gather(futures, timeout=60)
        assert [(first, last) for first, last, _ in results] == [(1.0, float(i)) for i in range(20)]
        assert (x[0], x[-1]) == (1.0, NBYTES / 8)
        # In process nothing is encoded, and so nothing is counted.
        if options["processes"]:
            assert connection.bytes_out - before < NBYTES / 10
            # It went to the worker, and not through the scheduler.
            assert sum(metrics_of(cluster)["bytes_total"]["out"].values()) < NBYTES / 10
        assert tasks_of(client) == {"memory": 21}
        assert all(w["nbytes"] < 1.1 * NBYTES for w in workers_of(client).values())
        del futures
        wait_until(lambda: not tasks_of(client))
        assert all(w["nbytes"] == 0 for w in workers_of(client).values())


def test_each_worker_gets_an_argument_once_for_restricted_calls_too(wait_until):
    with LocalCluster(n_workers=2) as cluster, weft.Client(cluster) as client:
        client.wait_for_workers(2)
        x = number()
        names = [worker["name"] for worker in workers_of(client).values()]
        futures = [client.submit(change, x, i, workers=names[i % 2]) for i in range(10)]
        pids = [pid for _, _, pid in client.gather(futures, timeout=60)]
        assert len(set(pids)) == 2
        assert pids == pids[:2] * 5
        assert all(NBYTES < w["nbytes"] < 1.1 * NBYTES for w in workers_of(client).values())
        metrics = metrics_of(cluster)
        assert metrics["tasks_finished_total"]["shared_argument"] == 1
        assert sum(metrics["bytes_total"]["out"].values()) < NBYTES / 10


def test_a_retry_gets_a_copy_of_its_own():
    def once(x):
        if x[0] != 1.0:
            raise AssertionError("somebody else has used it")
        x[:] = 0
        raise ValueError("again")

    with LocalCluster(n_workers=1) as cluster, weft.Client(cluster) as client:
        future = client.submit(once, number(), retries=3)
        assert isinstance(future.exception(60), ValueError)


def test_a_shared_argument_is_made_again_when_its_worker_dies(tmp_path, wait_until):
    def die_once(x, path):
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL))
            os.kill(os.getpid(), signal.SIGKILL)
        except FileExistsError:
            pass
        return float(x[-1])

    with LocalCluster(n_workers=1) as cluster, weft.Client(cluster) as client:
        x = number()
        connection = client._engine.link.connection
        futures = [client.submit(die_once, x, str(tmp_path / str(i))) for i in range(2)]
        assert client.gather(futures, timeout=60) == [NBYTES / 8] * 2
        # The client has put it at the next worker again.
        assert connection.bytes_out < NBYTES / 10
        del futures
        wait_until(lambda: not tasks_of(client))


async def test_an_asynchronous_client_shares_arguments_as_well():
    async with weft.Client(n_workers=1, processes=False, asynchronous=True) as client:
        x = number()
        futures = [client.submit(change, x, i) for i in range(5)]
        assert [first for first, _, _ in await client.gather(futures)] == [1.0] * 5
        info = await client.scheduler_info()
        assert info["tasks"]["memory"] == 6
        del futures


def hold(x, path):
    """Wait until the test has closed the gate's file, and return what the argument is then."""
    with open(path) as file:
        fcntl.flock(file, fcntl.LOCK_SH)
    return float(x[0]), float(x[-1])


@contextmanager
def gate(path):
    """Hold back the calls of `hold`."""
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.mark.parametrize("pure", [True, False])
@pytest.mark.parametrize("options", KINDS)
def test_a_change_after_submit_does_not_change_the_call(options, pure):
    with LocalCluster(n_workers=1, **options) as cluster, weft.Client(cluster) as client:
        client.wait_for_workers(1)
        x = number()
        futures = []
        for i in range(3):
            x[0] = x[-1] = i
            futures.append(client.submit(change, x, 7, pure=pure))
            x[:] = -1.0
        assert [first for first, _, _ in client.gather(futures, timeout=60)] == [0.0, 1.0, 2.0]


def test_equal_calls_are_one_task_and_one_argument():
    with (
        LocalCluster(n_workers=2) as cluster,
        weft.Client(cluster) as client,
        weft.Client(cluster) as other,
    ):
        client.wait_for_workers(2)
        first = client.submit(change, number(), 1)
        again = client.submit(change, number(), 1)
        of_other = other.submit(change, number(), 1)
        assert first.key == again.key == of_other.key
        assert first.result(60) == of_other.result(60)
        finished = metrics_of(cluster)["tasks_finished_total"]
        assert (finished["change"], finished["shared_argument"]) == (1, 1)
        del first, again, of_other


def test_an_unchanged_object_is_sent_once_also_to_calls_that_are_not_pure(tmp_path):
    path = str(tmp_path / "gate")
    with LocalCluster(n_workers=1) as cluster, weft.Client(cluster) as client:
        client.wait_for_workers(1)
        x = number()
        with gate(path):
            futures = [client.submit(hold, x, path, pure=False) for _ in range(3)]
            x[0] = 5.0
            futures.append(client.submit(hold, x, path, pure=False))
        results = client.gather(futures, timeout=60)
        assert results == [(1.0, NBYTES / 8)] * 3 + [(5.0, NBYTES / 8)]
        assert metrics_of(cluster)["tasks_finished_total"]["shared_argument"] == 2


def test_a_worker_killed_after_the_put_with_calls_pending_loses_nothing(tmp_path, wait_until):
    path = str(tmp_path / "gate")
    with LocalCluster(n_workers=2) as cluster, weft.Client(cluster) as client:
        client.wait_for_workers(2)
        x = number()
        with gate(path):
            futures = [client.submit(hold, x, path, key=f"hold-{i}") for i in range(4)]
            x[:] = 0.0
            wait_until(lambda: any(w["nbytes"] for w in workers_of(client).values()))
            for pid in client.run(os.getpid).values():
                os.kill(pid, signal.SIGKILL)
        assert client.gather(futures, timeout=120) == [(1.0, NBYTES / 8)] * 4
        del futures
        wait_until(lambda: not tasks_of(client))


def test_a_worker_out_of_reach_gets_the_argument_through_the_scheduler(monkeypatch, caplog):
    def refuse(owner, address, message):
        owner._on_failed(address, message.request, "a firewall drops it")

    monkeypatch.setattr(data_connection.DataConnections, "ask", refuse)
    with LocalCluster(n_workers=1) as cluster, weft.Client(cluster) as client:
        for i in range(2):
            assert client.submit(change, number(), i).result(60)[:2] == (1.0, float(i))
    (record,) = caplog.records
    assert "cannot be sent to it (a firewall drops it)" in record.message


def test_arguments_go_to_workers_over_tls(tmp_path, caplog):
    with (
        scheduler("--protocol", "tls", folder=tmp_path) as started,
        daemon("worker", "--nworkers", "1", "--nthreads", "1", folder=tmp_path),
        weft.Client(connection_file=file_of(started)) as client,
    ):
        client.wait_for_workers(1)
        connection = client._engine.link.connection
        assert client.submit(change, number(), 3).result(60)[:2] == (1.0, 3.0)
        assert connection.bytes_out < NBYTES / 10
    assert not caplog.records


def test_an_argument_larger_than_a_worker_is_an_error_of_the_call():
    limit = 64 << 20
    with (
        LocalCluster(n_workers=1, memory_limit=limit, processes=False) as cluster,
        weft.Client(cluster) as client,
        pytest.raises(LocalProtocolError, match=f"a worker may use {limit} in all"),
    ):
        client.submit(len, bytes(limit + 1)).result(60)
