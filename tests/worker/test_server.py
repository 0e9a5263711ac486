"""Whole workers over real transports, with the test as their scheduler."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import threading

import numpy as np
import pytest

from tests.worker.server_kit import EPOCH, Ref, Scheduler, inc, running
from weft.protocol.errors import (
    CommError,
    ConfigError,
    ConnectRefused,
    HandshakeError,
    WrongToken,
)
from weft.protocol.net.transport import connect
from weft.protocol.trust.security import Security, generate_certificate
from weft.protocol.wire.message import Message
from weft.protocol.wire.messages import (
    Bye,
    GetData,
    Heartbeat,
    InventoryKept,
    ReplicasAdded,
    Stop,
    WorkerStatus,
)
from weft.protocol.wire.roles import Role
from weft.worker.config import WorkerConfig
from weft.worker.server import WorkerServer


def total(array):
    return float(array.sum())


# --- Everything, over each transport --------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["tcp", "tls", "unix", "inproc"])
async def test_tasks_run_and_data_moves_between_workers(scheme, security, tmp_path):
    address = {"unix": f"unix://{tmp_path}/s", "inproc": "inproc://s"}.get(
        scheme, f"{scheme}://127.0.0.1:0"
    )
    if scheme == "tls":
        certificate, key = generate_certificate(security.cluster_id)
        security = dataclasses.replace(security, certificate_pem=certificate, private_key_pem=key)
    async with running(address, security, tmp_path) as cluster:
        scheduler = cluster.scheduler
        # A worker has no key of the cluster's certificate, and learns the cluster's id.
        own = dataclasses.replace(security, private_key_pem=None, cluster_id=None)
        a = await cluster.start(name="a", security=own)
        b = await cluster.start(name="b", nthreads=2, security=own)
        assert a.address.startswith(f"{scheme}://")
        scheduler.send(a, scheduler.task(inc, 1, key="x"))
        scheduler.send(a, scheduler.task(np.ones, 300_000, key="big"))
        assert await scheduler.until_done(2) == {1: 2, 2: None}
        scheduler.send(
            b, scheduler.located(scheduler.task(total, Ref("big"), key="t"), "big", 2, a.address)
        )
        assert (await scheduler.until_done(3))[3] == 300_000.0
        assert scheduler.of(ReplicasAdded) == [ReplicasAdded(attempts=[2], keys=["big"])]
        assert isinstance(b.executor.store.load(2), np.ndarray)


# --- Registration ---------------------------------------------------------------------------------


async def test_a_worker_registers_with_its_properties_and_sends_heartbeats(cluster):
    worker = await cluster.start(
        name="w", nthreads=3, memory_limit=1 << 30, resources={"gpu": 1.0}, supervisor_id="s1"
    )
    (said,) = cluster.scheduler.registrations
    assert said.worker_id == worker.config.worker_id
    assert (said.name, said.nthreads, said.memory_limit) == ("w", 3, 1 << 30)
    assert (said.session, said.last_epoch, said.address) == (1, 0, worker.address)
    offered = {"gpu": 1.0, "cores": 3.0, "memory": float(1 << 30), "places without cores": 100.0}
    assert (said.resources, said.supervisor_id) == (offered, "s1")
    await cluster.scheduler.until(lambda: len(cluster.scheduler.of(Heartbeat)) >= 2)
    status = cluster.scheduler.of(WorkerStatus)[0]
    assert (status.state, status.nthreads, status.managed_nbytes) == ("running", 3, 0)
    assert status.resident_nbytes > 0


async def test_a_refused_worker_does_not_try_again(cluster):
    cluster.scheduler.refuses = "wrong version of weft"
    cluster.add()
    with pytest.raises(HandshakeError, match="wrong version of weft"):
        await cluster.runs[0]


async def test_a_wrong_token_ends_the_worker(cluster):
    cluster.add(security=Security(token=b"0123456789abcdefgh"))
    with pytest.raises(WrongToken):
        await cluster.runs[0]


async def test_without_reconnect_a_missing_scheduler_is_an_error(security, tmp_path):
    worker = WorkerServer(
        WorkerConfig(scheduler=f"unix://{tmp_path}/none", security=security, reconnect=False)
    )
    with pytest.raises(ConnectRefused):
        await worker.run()


async def test_a_worker_waits_for_a_scheduler_that_is_not_there_yet(security, tmp_path):
    address = f"unix://{tmp_path}/s"
    worker = WorkerServer(WorkerConfig(scheduler=address, security=security))
    run = asyncio.get_running_loop().create_task(worker.run())
    scheduler = Scheduler(security)
    await asyncio.sleep(0)
    await scheduler.start(address)
    await asyncio.wait_for(worker.registered.wait(), 20)
    worker.stop("done")
    await run
    await scheduler.stop()


async def test_find_is_called_at_each_attempt(cluster, security, tmp_path):
    asked = []

    def find():
        asked.append(1)
        addresses = [f"unix://{tmp_path}/none", cluster.scheduler.listener.address]
        return (addresses[: len(asked)], security)

    await cluster.start(scheduler="", find=find)
    assert len(asked) == 2


async def test_a_file_that_is_older_than_the_scheduler_is_read_again(cluster, security):
    asked = []

    def find():
        asked.append(1)
        found = [
            Security(security.token, b"the one before it"[:16]),
            Security(token=b"0123456789abcdefgh"),
            security,
        ]
        return [cluster.scheduler.listener.address], found[len(asked) - 1]

    await cluster.start(scheduler="", find=find)
    assert len(asked) == 3


# --- Ends -----------------------------------------------------------------------------------------


async def test_stop_from_the_scheduler_ends_the_worker(cluster, caplog):
    worker = await cluster.start()
    with caplog.at_level(logging.INFO, "weft.worker"):
        cluster.scheduler.send(worker, Stop(reason="scaled down"))
        await asyncio.wait_for(cluster.runs[0], 20)
    assert "scaled down" in caplog.text
    assert not [record for record in caplog.records if record.levelno > logging.INFO]
    await cluster.scheduler.until(lambda: cluster.scheduler.of(Bye))
    with pytest.raises(CommError):
        await connect(
            worker.address,
            role=Role.PEER,
            server_role=Role.WORKER_DATA,
            security=cluster.scheduler.security,
            handler=cluster.scheduler,
        )


async def test_without_reconnect_the_end_of_the_scheduler_is_the_end(cluster):
    worker = await cluster.start(reconnect=False)
    cluster.scheduler.connections[worker.config.worker_id].abort()
    await asyncio.wait_for(cluster.runs[0], 20)


async def test_a_worker_that_finds_its_scheduler_again_has_kept_everything(cluster):
    scheduler = cluster.scheduler
    worker = await cluster.start()
    scheduler.send(worker, scheduler.task(inc, 1, key="x"))
    await scheduler.until_done(1)
    scheduler.connections[worker.config.worker_id].abort()
    await scheduler.until(lambda: len(scheduler.registrations) == 2)
    again = scheduler.registrations[1]
    assert (again.session, again.last_epoch) == (2, EPOCH)
    assert [said.is_unused for said in scheduler.registrations] == [True, False]
    assert again.address == scheduler.registrations[0].address
    await asyncio.wait_for(worker.registered.wait(), 20)
    assert len(worker.executor.store) == 1
    await scheduler.until(lambda: scheduler.of(InventoryKept))
    (kept,) = scheduler.of(InventoryKept)
    assert isinstance(kept, InventoryKept)
    assert kept.keys == ["x"]
    scheduler.send(worker, scheduler.task(inc, 5, key="x"))
    assert (await scheduler.until_done(2))[2] == 6


async def test_a_worker_whose_scheduler_does_not_come_back_ends_after_its_lease(cluster, caplog):
    await cluster.start(orphan_lease_s=0.3)
    await cluster.scheduler.stop()
    for connection in list(cluster.scheduler.connections.values()):
        connection.abort()
    await asyncio.wait_for(asyncio.shield(cluster.runs[0]), 20)
    assert "no scheduler has come back within 0.3 s" in caplog.text
    await cluster.scheduler.start("tcp://127.0.0.1:0")


def refuted_by_the_boundary(scheduler: Scheduler) -> Message:
    bad = scheduler.task(inc, 1, key="x")
    bad.function_of = [3]
    return bad


def refuted_by_the_core(scheduler: Scheduler) -> Message:
    bad = scheduler.task(inc, 1, key="x")
    bad.args = [None]
    return bad


def refuted_by_the_shell(scheduler: Scheduler) -> Message:
    return GetData(request=1, keys=["x"])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (refuted_by_the_boundary, "function_of points beyond its table"),
        (refuted_by_the_core, "tasks without arguments"),
        (refuted_by_the_shell, "does not handle GetData"),
    ],
)
async def test_an_invalid_message_of_the_scheduler_ends_the_session_only(
    cluster, caplog, make, words
):
    scheduler = cluster.scheduler
    worker = await cluster.start()
    scheduler.send(worker, make(scheduler))
    await scheduler.until(lambda: len(scheduler.registrations) == 2)
    (warning,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert "invalid message" in warning.getMessage()
    assert words in warning.getMessage()
    await asyncio.wait_for(worker.registered.wait(), 20)
    scheduler.send(worker, scheduler.task(inc, 1, key="x"))
    assert 2 in (await scheduler.until_done(1)).values()


#: For documentation (RFC 5737), and so of no machine.
NOBODYS = "tcp://203.0.113.1:0"


async def test_a_data_port_that_cannot_be_opened_is_not_tried_again(cluster):
    worker = cluster.add(listen_address=NOBODYS)
    with pytest.raises(ConfigError, match=r"data port.* cannot listen: .*203\.0\.113\.1.*--host"):
        await asyncio.wait_for(cluster.runs[0], 20)
    assert not worker.registered.is_set()
    assert cluster.scheduler.registrations == []


ENTERED, LEAVE = threading.Event(), threading.Event()


def hang():
    ENTERED.set()
    assert LEAVE.wait(20)


async def test_a_task_that_does_not_end_does_not_hold_up_the_stop(cluster):
    scheduler = cluster.scheduler
    worker = await cluster.start(stop_timeout_s=0.0)
    scheduler.send(worker, scheduler.task(hang, key="x"))
    assert await asyncio.get_running_loop().run_in_executor(None, ENTERED.wait, 20)
    worker.stop("enough")
    await asyncio.wait_for(cluster.runs[0], 20)
    LEAVE.set()
    assert worker.executor.join(20)
