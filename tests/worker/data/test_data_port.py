"""The data port: what is sent from it, and what is fetched from peers."""

from __future__ import annotations

import asyncio
import threading

import numpy as np
import pytest

from tests.worker.server_kit import Ref, ask, inc
from weft.protocol.errors import (
    UnpicklableResult,
)
from weft.protocol.net.connection import Connection
from weft.protocol.net.data_connection import DataConnections
from weft.protocol.net.transport import Listener
from weft.protocol.values.serialize import loads
from weft.protocol.wire.message import Message
from weft.protocol.wire.messages import (
    DataTaken,
    DropAttempts,
    FetchKeys,
    GetData,
    HoldersGone,
    KeysData,
    KeysMissing,
    Stop,
)
from weft.protocol.wire.roles import Role
from weft.worker.core.events import Fetch
from weft.worker.data.core.sending import LARGE_BYTES
from weft.worker.data.peers import Peers
from weft.worker.data.store import Store
from weft.worker.slots.activity import Transfers


def make_lock():
    return threading.Lock()


async def test_the_data_port_sends_values_that_are_here_and_lists_missing_keys(cluster, security):
    scheduler = cluster.scheduler
    worker = await cluster.start()
    scheduler.send(
        worker,
        scheduler.task(inc, 1, key="x", wanted=0),
        scheduler.task(make_lock, key="lock", wanted=0),
        scheduler.task(np.arange, 100_000, key="big", wanted=0),
    )
    await scheduler.until_done(3)
    asker, connection = await ask(
        worker,
        security,
        GetData(request=1, keys=["x", "y", "lock"]),
        GetData(request=2, keys=["big"]),
    )
    first = await asyncio.wait_for(asker.answers.get(), 20)
    assert (first.request, first.keys, first.missing) == (1, ["x", "lock"], ["y"])
    assert loads(first.results[0]) == 2
    with pytest.raises(UnpicklableResult, match=r"_thread\.lock"):
        loads(first.results[1])
    second = await asyncio.wait_for(asker.answers.get(), 20)
    assert second.request == 2
    assert loads(second.results[0]).sum() == 100_000 * 99_999 // 2
    connection.close()
    await asyncio.wait_for(asker.closed.wait(), 20)


async def test_the_scheduler_may_fetch_for_a_client(cluster):
    scheduler = cluster.scheduler
    worker = await cluster.start()
    scheduler.send(worker, scheduler.task(inc, 1, key="x", wanted=0))
    await scheduler.until_done(1)
    scheduler.send(worker, FetchKeys(request=5, keys=["x", "y"]))
    await scheduler.until(lambda: scheduler.of(KeysData))
    (answer,) = scheduler.of(KeysData)
    assert (answer.request, answer.keys, answer.missing) == (5, ["x"], ["y"])
    assert loads(answer.results[0]) == 2


async def test_other_messages_at_the_data_port_close_only_that_connection(cluster, security):
    worker = await cluster.start()
    asker, _ = await ask(worker, security, Stop(reason="no"))
    await asyncio.wait_for(asker.closed.wait(), 20)
    assert worker.registered.is_set()


async def test_a_peer_out_of_reach_is_reported_and_the_next_holder_asked(cluster, tmp_path):
    scheduler = cluster.scheduler
    a = await cluster.start(name="a")
    b = await cluster.start(name="b")
    scheduler.send(a, scheduler.task(inc, 1, key="x", wanted=0))
    await scheduler.until_done(1)
    nobody = f"unix://{tmp_path}/nobody"
    task = scheduler.task(inc, Ref("x"), key="y")
    scheduler.send(b, scheduler.located(task, "x", 1, nobody, a.address))
    assert (await scheduler.until_done(2))[2] == 3
    (missing,) = scheduler.of(KeysMissing)
    assert missing == KeysMissing(keys=["x"], holder=nobody, unreachable=True, attempts=[1])


async def test_a_key_that_a_peer_does_not_have_is_reported(cluster):
    scheduler = cluster.scheduler
    a = await cluster.start(name="a")
    b = await cluster.start(name="b")
    task = scheduler.task(inc, Ref("x"), key="y")
    scheduler.send(b, scheduler.located(task, "x", 99, a.address))
    await scheduler.until(lambda: scheduler.of(KeysMissing))
    assert scheduler.of(KeysMissing) == [KeysMissing(keys=["x"], holder=a.address, attempts=[99])]
    scheduler.send(b, DropAttempts(attempts=[1]))


@pytest.mark.parametrize("peer", ["goes away", "is silent, and lost to the scheduler"])
async def test_a_peer_that_is_lost_before_its_answer_is_reported(cluster, security, peer):
    scheduler = cluster.scheduler
    b = await cluster.start(name="b")
    closed = asyncio.Event()

    class Silent:
        """Accepts connections, reads, and never answers."""

        def on_messages(self, connection: Connection, messages: list[Message]) -> None:
            if peer == "goes away":
                connection.abort()
            else:
                scheduler.send(b, HoldersGone(addresses=[listener.address]))

        def on_writable(self, connection: Connection) -> None:
            pass

        def on_closed(self, connection: Connection, error: object) -> None:
            closed.set()

    listener = await Listener(
        "tcp://127.0.0.1:0",
        role=Role.WORKER_DATA,
        accepted_roles={Role.PEER},
        security=security,
        on_connection=lambda connection: Silent(),
    ).start()
    task = scheduler.task(inc, Ref("x"), key="y")
    scheduler.send(b, scheduler.located(task, "x", 99, listener.address))
    await scheduler.until(lambda: scheduler.of(KeysMissing))
    (missing,) = scheduler.of(KeysMissing)
    assert missing == KeysMissing(
        keys=["x"], holder=listener.address, unreachable=True, attempts=[99]
    )
    if peer != "goes away":
        await asyncio.wait_for(closed.wait(), 20)
    await listener.close()


async def test_readers_of_a_large_value_get_it_in_turns_or_from_a_reader_that_has_it(
    cluster, security
):
    scheduler = cluster.scheduler
    worker = await cluster.start()
    scheduler.send(worker, scheduler.task(bytes, LARGE_BYTES, key="big", wanted=0))
    await scheduler.until_done(1)

    async def read(n: int):
        request = GetData(request=n, keys=["big"], address=f"tcp://reader-{n}:1")
        return await ask(worker, security, request)

    async def answer(reader) -> KeysData:
        return await asyncio.wait_for(reader.answers.get(), 20)

    first, its_connection = await read(1)
    got = await answer(first)
    assert (got.keys, got.acknowledge, got.elsewhere) == (["big"], True, "")
    others = {n: await read(n) for n in (2, 3, 4, 5)}
    # A small answer is not held up, and comes after the requests before it were taken.
    small, _ = await ask(worker, security, GetData(request=9, keys=["unknown"]))
    assert (await answer(small)).missing == ["unknown"]
    assert all(reader.answers.empty() for reader, _ in others.values())
    its_connection.send([DataTaken(request=1)])
    for n in (4, 5):
        passed = await answer(others[n][0])
        assert (passed.request, passed.keys, passed.missing) == (n, [], [])
        assert passed.elsewhere == "tcp://reader-1:1"
    second = await answer(others[2][0])
    assert (second.keys, second.acknowledge) == (["big"], True)
    assert second.waited_us > 0
    others[2][1].close()
    third = await answer(others[3][0])
    assert third.keys == ["big"]
    # Those that were passed on, and come back, are answered when nobody else is.
    others[3][1].send([DataTaken(request=3)])
    others[4][1].send([GetData(request=6, keys=["big"])])
    assert (await answer(others[4][0])).keys == ["big"]


@pytest.mark.parametrize(
    ("holder", "nbytes", "is_named"),
    [
        ("tcp://10.0.0.2:5", LARGE_BYTES, True),
        ("tcp://10.0.0.2:5", LARGE_BYTES - 1, False),
        ("tcp://10.0.0.1:6", LARGE_BYTES, False),
        ("unix:///tmp/worker.sock", LARGE_BYTES, False),
    ],
)
def test_a_reader_of_much_data_from_another_host_names_its_port(
    security, monkeypatch, holder, nbytes, is_named
):
    asked = []
    monkeypatch.setattr(
        DataConnections, "ask", lambda self, address, message: asked.append(message)
    )
    own = "tcp://10.0.0.1:5"
    peers = Peers(security, own, Store(0), Transfers(), lambda event: None, print)
    peers.do(Fetch(holder, 1, ["x"], [9], nbytes))
    assert asked == [GetData(request=1, keys=["x"], address=own if is_named else "")]
