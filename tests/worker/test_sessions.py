"""A worker's sessions with its scheduler, and readers that do not read: what goes wrong when."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket

import psutil
import pytest

from tests.worker.test_server import (  # noqa: F401 - fixtures
    Asker,
    ask,
    cluster,
    inc,
    security,
)
from weft.protocol.errors import StuckPeer
from weft.protocol.net.liveness import Silence
from weft.protocol.trust.security import Security
from weft.protocol.wire.messages import AttemptsFinished, Bye, GetData, Heartbeat, KeysData, Welcome
from weft.worker import serving
from weft.worker.config import WorkerConfig
from weft.worker.server import WorkerServer

# ruff: noqa: F811 - fixtures are named as what they give

TOKEN = Security(b"a token for tests only")


async def test_a_stop_does_not_wait_for_a_scheduler_that_does_not_answer():
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        address = f"tcp://127.0.0.1:{deaf.getsockname()[1]}"
        worker = WorkerServer(WorkerConfig(scheduler=address, security=TOKEN))
        run = asyncio.get_running_loop().create_task(worker.run())
        accepted, _ = await asyncio.get_running_loop().run_in_executor(None, deaf.accept)
        with accepted:
            worker.stop("enough")
            await asyncio.wait_for(run, 5)
    await asyncio.get_running_loop().shutdown_default_executor()


async def test_a_stop_in_the_middle_of_a_handshake_is_no_warning_to_the_scheduler(cluster, caplog):
    worker = cluster.add()
    listener = cluster.scheduler.listener
    while not any(c.bytes_in for c in listener._unauthenticated):
        assert not cluster.scheduler.registrations
        await asyncio.sleep(0)
    worker.stop("enough")
    await asyncio.wait_for(cluster.runs[0], 20)
    assert [r for r in caplog.records if r.levelno >= logging.WARNING] == []
    assert cluster.scheduler.registrations == []


async def test_a_worker_that_cannot_be_measured_still_says_that_it_lives(cluster, monkeypatch):
    def exhausted() -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(psutil, "Process", exhausted)
    await cluster.start()
    await cluster.scheduler.until(lambda: len(cluster.scheduler.of(Heartbeat)) >= 3)
    assert "rss" not in cluster.scheduler.of(Heartbeat)[0].facts


async def test_a_scheduler_that_says_nothing_any_more_is_left(cluster, monkeypatch, caplog):
    monkeypatch.setattr("weft.worker.server.Silence", lambda: Silence(3))
    scheduler = cluster.scheduler
    scheduler.is_mute = True
    await cluster.start()
    await scheduler.until(lambda: len(scheduler.registrations) == 2)
    scheduler.is_mute = False
    (warning,) = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert "the scheduler is gone: it was silent" in warning.getMessage()


@pytest.mark.parametrize(
    ("sound_s", "soon_for_s", "limits"),
    [
        (0.0, 30.0, [0.1] * 4),
        (1e9, 30.0, [0.1, 0.2, 0.4, 0.5]),  # it may be started again at once
        (1e9, 0.0, [0.1, 0.2, 0.4, 0.8]),
    ],
)
async def test_only_after_a_session_that_lasted_is_the_next_one_begun_at_once(
    cluster, monkeypatch, sound_s, soon_for_s, limits
):
    monkeypatch.setattr("weft.worker.server._SOUND_SESSION_S", sound_s)
    monkeypatch.setattr("weft.worker.server._SOON_FOR_S", soon_for_s)
    asked = []
    worker = cluster.add()
    monkeypatch.setattr(worker._rng, "uniform", lambda _, limit: asked.append(limit) or 0.0)
    scheduler = cluster.scheduler
    for n in range(1, 6):
        await scheduler.until(lambda n=n: len(scheduler.registrations) == n)
        await asyncio.wait_for(worker.registered.wait(), 20)
        if n < 5:
            scheduler.connections[worker.config.worker_id].abort()
            await scheduler.until(lambda: not scheduler.connections)
    assert asked == limits


async def test_the_end_of_an_old_connection_is_not_the_end_of_the_next_session(cluster):
    scheduler = cluster.scheduler
    worker = await cluster.start()
    old = worker._current
    scheduler.send(worker, Bye(reason="for a moment"))
    await scheduler.until(lambda: len(scheduler.registrations) == 2)
    await asyncio.wait_for(worker.registered.wait(), 20)
    assert old is not worker._current
    scheduler.send(worker, scheduler.task(inc, 1, key="x"))
    old.on_messages(scheduler.connections[worker.config.worker_id], [Bye(reason="too late")])
    assert await scheduler.until_done(1) == {1: 2}
    assert len(scheduler.registrations) == 2


async def test_a_second_welcome_is_nonsense(cluster, caplog):
    scheduler = cluster.scheduler
    worker = await cluster.start()
    again = Welcome(epoch=7, session=9, heartbeat_ms=50, lease_ms=1000, facts={})
    scheduler.send(worker, again)
    await scheduler.until(lambda: len(scheduler.registrations) == 2)
    assert "cannot take Welcome" in caplog.text


async def test_what_cannot_be_sent_ends_the_session_instead_of_being_lost(
    cluster, monkeypatch, caplog
):
    """The attempt would never be heard of again, and the scheduler would wait for ever."""
    scheduler = cluster.scheduler
    worker = await cluster.start()
    drain = worker.executor.drain

    def drain_worse(writable=True):
        messages, fetches = drain(writable)
        for message in messages:
            if isinstance(message, AttemptsFinished):
                message.results = [object()]
        return messages, fetches

    monkeypatch.setattr(worker.executor, "drain", drain_worse)
    scheduler.send(worker, scheduler.task(inc, 1, key="x"))
    await scheduler.until(lambda: len(scheduler.registrations) == 2)
    assert "cannot tell the scheduler" in caplog.text


# --- Readers --------------------------------------------------------------------------------------


class Reader(Asker):
    def __init__(self) -> None:
        super().__init__()
        self.error: object = None


async def a_worker_with_data(cluster, n_bytes):
    worker = await cluster.start()
    scheduler = cluster.scheduler
    scheduler.send(worker, scheduler.task(os.urandom, n_bytes, key="big", wanted=0))
    scheduler.send(worker, scheduler.task(inc, 1, key="small", wanted=0))
    await scheduler.until_done(2)
    return worker


async def test_who_reads_late_gets_everything_in_order(cluster, security):
    worker = await a_worker_with_data(cluster, 4 << 20)
    asker, connection = await ask(worker, security)
    connection._transport.pause_reading()
    requests = [GetData(request=i, keys=["big" if i % 2 else "small"]) for i in range(20)]
    connection.send(requests)
    (server_side,) = worker._listener.connections
    while server_side.frames_in == 0 or server_side.writable:  # noqa: ASYNC110 - tells nobody
        await asyncio.sleep(0)
    # Some answers are on the way; the others were not even made.
    for _ in range(10):
        await asyncio.sleep(0)
    assert server_side.bytes_out < 12 << 20
    assert worker._server._readers[server_side].requests
    connection._transport.resume_reading()
    answers = [await asyncio.wait_for(asker.answers.get(), 20) for _ in range(20)]
    assert [answer.request for answer in answers] == list(range(20))
    assert all(isinstance(answer, KeysData) and not answer.missing for answer in answers)
    assert worker._server._readers == {}
    connection.close()
    await asyncio.wait_for(asker.closed.wait(), 20)


def test_requests_of_64_mib_may_wait_for_a_reader():
    assert serving._MAX_WAITING_BYTES == 64 << 20


async def test_who_asks_and_never_reads_is_cut_off_with_one_line(
    cluster, security, monkeypatch, caplog
):
    monkeypatch.setattr("weft.worker.serving._MAX_WAITING_BYTES", 10_000)
    worker = await a_worker_with_data(cluster, 8 << 20)
    healthy, other = await ask(worker, security)
    asker, connection = await ask(worker, security)
    connection._transport.pause_reading()
    server_side = list(worker._listener.connections)[-1]
    # One is answered as far as the socket takes it, some 75 may wait.
    for _ in range(5000):
        if server_side.closed:
            break
        connection.send([GetData(request=1, keys=["big"])])
        await asyncio.sleep(0)
    assert server_side.closed, "5000 requests wait for who does not read"
    (warning,) = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert "it asks and does not read" in warning.getMessage()
    assert isinstance(server_side._error, StuckPeer)
    assert server_side.bytes_out < 40 << 20
    other.send([GetData(request=2, keys=["small"])])
    assert (await asyncio.wait_for(healthy.answers.get(), 20)).request == 2
    connection._transport.resume_reading()
    await asyncio.wait_for(asker.closed.wait(), 20)
    other.close()
    await asyncio.wait_for(healthy.closed.wait(), 20)
    assert worker._server._readers == {}
