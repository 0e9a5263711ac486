"""Large arguments on real clusters: they are sent once, kept and recovered."""

from __future__ import annotations

import asyncio
import os
import signal

import numpy as np
import pytest

import weft
from weft.deploy.local.cluster import LocalCluster
from weft.protocol.net.transport import connect
from weft.protocol.wire.handshake import Role
from weft.protocol.wire.messages import GetMetrics

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
        connection = client._engine.link._connection
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
            assert NBYTES < connection.bytes_out - before < 1.1 * NBYTES
            # The counters are read a few times per second.
            wait_until(lambda: metrics_of(cluster)["bytes_total"]["out"] > NBYTES)
            # Twice, if it was asked back before it began.
            assert metrics_of(cluster)["bytes_total"]["out"] < 2.1 * NBYTES
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
        assert metrics["bytes_total"]["out"] < 2.1 * NBYTES


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
        connection = client._engine.link._connection
        futures = [client.submit(die_once, x, str(tmp_path / str(i))) for i in range(2)]
        assert client.gather(futures, timeout=60) == [NBYTES / 8] * 2
        # The scheduler still had it.
        assert connection.bytes_out < 1.1 * NBYTES
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
