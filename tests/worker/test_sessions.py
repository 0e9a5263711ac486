"""A worker's sessions with its scheduler, and readers that do not read."""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import logging
import os
import socket

import psutil
import pytest

from tests.worker.server_kit import Asker, Ref, ask, inc
from weft.protocol.errors import (
    CommClosed,
    ConfigError,
    InternalError,
    NotAdmitted,
    StuckPeer,
    WrongCluster,
    WrongToken,
)
from weft.protocol.trust.security import Security, new_cluster_id
from weft.protocol.values.exceptions import unpack_exception
from weft.protocol.wire.messages import (
    AttemptsErred,
    AttemptsFinished,
    AttemptsReturned,
    Bye,
    DropAttempts,
    GetData,
    Heartbeat,
    KeysData,
    KeysMissing,
    ReturnAttempts,
    Welcome,
    WorkerStatus,
)
from weft.protocol.wire.session import Outage
from weft.worker.config import WorkerConfig
from weft.worker.core.events import WorkerEnding
from weft.worker.policy import WorkerPolicy
from weft.worker.server import WorkerServer

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


async def test_a_worker_that_cannot_be_measured_still_sends_heartbeats(cluster, monkeypatch):
    def exhausted() -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(psutil, "Process", exhausted)
    monkeypatch.setattr("weft.worker.measuring.status.taken_nbytes", lambda: 0)
    await cluster.start()
    await cluster.scheduler.until(lambda: len(cluster.scheduler.of(Heartbeat)) >= 3)
    assert cluster.scheduler.of(WorkerStatus)[0].resident_nbytes == 0


async def test_a_silent_scheduler_is_abandoned(cluster, monkeypatch, caplog):
    monkeypatch.setattr("weft.protocol.wire.session.MISSED_HEARTBEATS", 3)
    scheduler = cluster.scheduler
    scheduler.is_mute = True
    await cluster.start()
    await scheduler.until(lambda: len(scheduler.registrations) == 2)
    scheduler.is_mute = False
    (warning,) = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert "the scheduler is gone: it was silent" in warning.getMessage()


async def test_messages_of_an_old_connection_do_not_reach_the_next_session(cluster):
    scheduler = cluster.scheduler
    worker = await cluster.start()
    old = worker._runner._handler
    scheduler.send(worker, Bye(reason="for a moment"))
    await scheduler.until(lambda: len(scheduler.registrations) == 2)
    await asyncio.wait_for(worker.registered.wait(), 20)
    assert old is not worker._runner._handler
    scheduler.send(worker, scheduler.task(inc, 1, key="x"))
    old.on_messages(scheduler.connections[worker.config.worker_id], [Bye(reason="too late")])
    assert await scheduler.until_done(1) == {1: 2}
    assert len(scheduler.registrations) == 2


def is_heartbeat(what):
    return isinstance(what, list) and isinstance(what[0], Heartbeat)


async def test_the_shell_does_before_then_sends_then_does_after(cluster, monkeypatch):
    scheduler = cluster.scheduler
    worker = await cluster.start()
    scheduler.send(worker, scheduler.task(inc, 1, key="x"))
    await scheduler.until_done(1)
    order = []

    def note(owner, method):
        do = getattr(owner, method)
        monkeypatch.setattr(owner, method, lambda arg: (order.append(arg), do(arg))[1])

    note(worker.executor.store, "drop")
    note(worker._connection, "send")
    note(worker._peers, "do")
    fetching = scheduler.task(inc, Ref("y"), key="z")
    scheduler.located(fetching, "y", 99, "inproc://none")
    scheduler.send(worker, fetching, DropAttempts(attempts=[1]), ReturnAttempts(count=0))
    await scheduler.until(lambda: scheduler.of(KeysMissing))
    dropped, sent, fetch, *_ = (what for what in order if not is_heartbeat(what))
    assert dropped == [1]
    assert sent == [AttemptsReturned(attempts=[])]
    assert fetch.keys == ["y"]
    state = worker.executor.state
    assert not any((state.before, state.to_scheduler, state.after))


@pytest.mark.parametrize("where", ["handle", "drain"])
async def test_a_bug_in_the_core_ends_the_worker_instead_of_leaving_it_stuck(
    cluster, monkeypatch, caplog, where
):
    scheduler = cluster.scheduler
    worker = await cluster.start()

    def fail(*args):
        raise KeyError("a bug")

    monkeypatch.setattr(worker.executor, where, fail)
    if where == "handle":
        scheduler.send(worker, scheduler.task(inc, 1, key="x"))
    else:
        worker._wake()
    with pytest.raises(InternalError, match="a bug"):
        await asyncio.wait_for(asyncio.shield(cluster.runs[0]), 20)
    monkeypatch.undo()
    worker.executor.handle(WorkerEnding())
    assert "a bug of weft ends" in caplog.text
    await scheduler.until(lambda: not scheduler.connections)


async def test_peers_find_each_other_in_the_cluster_of_a_replaced_scheduler(cluster):
    scheduler = cluster.scheduler
    unpinned = dataclasses.replace(scheduler.security, cluster_id=None)
    a = await cluster.start(security=unpinned)
    b = await cluster.start(security=unpinned)
    address = scheduler.listener.address
    scheduler.security = dataclasses.replace(unpinned, cluster_id=new_cluster_id())
    await scheduler.stop()
    await scheduler.start(address)
    await scheduler.until(lambda: len(scheduler.registrations) == 4)
    scheduler.send(a, scheduler.task(inc, 1, key="x", wanted=0))
    await scheduler.until_done(1)
    task = scheduler.task(inc, Ref("x"), key="y")
    scheduler.send(b, scheduler.located(task, "x", 1, a.address))
    await scheduler.until(lambda: scheduler.of(KeysMissing) or len(scheduler.results()) == 2)
    assert scheduler.results()[2] == 3


def is_final(error, *, since=None, now=0.0, **options):
    outage = Outage(0.0, None, foreign_since=since)
    return WorkerPolicy(**options).is_final(error, outage, now)


def test_a_scheduler_that_may_be_restarted_halfway_is_waited_for():
    assert not is_final(WrongToken(), since=1.0, now=10.9, is_found_anew=True)
    assert is_final(WrongCluster("other"), since=1.0, now=11.0, is_found_anew=True)
    assert is_final(WrongToken(), since=1.0, now=1.0)


def test_only_an_absent_scheduler_is_waited_for_and_only_with_reconnect():
    assert not is_final(CommClosed("gone"))
    assert is_final(CommClosed("gone"), reconnect=False)
    assert is_final(NotAdmitted("another Python"))
    assert is_final(ConfigError("no data port"))


async def test_a_second_welcome_is_an_invalid_message(cluster, caplog):
    scheduler = cluster.scheduler
    worker = await cluster.start()
    again = Welcome(epoch=7, session=9, heartbeat_ms=50, facts={})
    scheduler.send(worker, again)
    await scheduler.until(lambda: len(scheduler.registrations) == 2)
    assert "does not handle Welcome" in caplog.text


def send_worse(worker, monkeypatch, spoil):
    """Let the worker change each message that it sends by `spoil(message)`."""
    drain = worker.executor.drain

    def drain_worse(writable=True):
        messages, fetches = drain(writable)
        for message in messages:
            spoil(message)
        return messages, fetches

    send = worker.executor._send

    def send_worse(messages):
        for message in messages:
            spoil(message)
        return send(messages)

    monkeypatch.setattr(worker.executor, "drain", drain_worse)
    monkeypatch.setattr(worker.executor, "_send", send_worse)


def fail_with(text):
    raise ValueError(text)


async def test_a_task_whose_report_cannot_be_sent_fails_alone(cluster, monkeypatch, caplog):
    """If the session ended instead, the task would run again, and its report would end the next."""
    scheduler = cluster.scheduler
    worker = await cluster.start()
    tasks = [scheduler.task(inc, n, key=f"x{n}") for n in range(4)]
    (spoiled,) = tasks[2].attempts

    def spoil(message):
        if isinstance(message, AttemptsFinished) and spoiled in message.attempts:
            message.results[message.attempts.index(spoiled)] = object()
        elif isinstance(message, AttemptsErred):
            message.failures = [["exception", failure[1], "\udc80"] for failure in message.failures]

    send_worse(worker, monkeypatch, spoil)
    scheduler.send(worker, *tasks, scheduler.task(fail_with, "text", key="bad"))
    await scheduler.until(
        lambda: (
            len(scheduler.results()) == 3
            and sum(len(message.attempts) for message in scheduler.of(AttemptsErred)) == 2
        )
    )
    failures = [f for message in scheduler.of(AttemptsErred) for f in message.failures]
    errors = {key: unpack_exception(packed) for _kind, key, *packed in failures}
    assert errors.keys() == {"x2", "bad"}
    for key, error in errors.items():
        assert isinstance(error, InternalError)
        assert f"the report of task {key!r} cannot be sent to the scheduler" in str(error)
    assert len(scheduler.registrations) == 1
    kept = [row[0] for row in worker.executor.lookup(["x0", "x1", "x2", "x3"])]
    assert kept == ["x0", "x1", "x3"]
    assert len(worker.executor.store) == 3
    assert "the report of task 'x2' cannot be sent" in caplog.text


async def test_other_messages_that_cannot_be_sent_end_the_session_instead_of_being_lost(
    cluster, monkeypatch, caplog
):
    """The scheduler would wait for ever for what they report."""
    scheduler = cluster.scheduler
    worker = await cluster.start()

    def spoil(message):
        if isinstance(message, AttemptsReturned):
            message.attempts = [object()]

    send_worse(worker, monkeypatch, spoil)
    scheduler.send(worker, ReturnAttempts(count=1))
    await scheduler.until(lambda: len(scheduler.registrations) == 2)
    assert "cannot send reports to the scheduler" in caplog.text


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


async def test_a_late_reader_gets_everything_in_order(cluster, security):
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


async def test_a_peer_that_asks_and_never_reads_is_cut_off_with_one_line(
    cluster, security, monkeypatch, caplog
):
    monkeypatch.setattr("weft.worker.data.serving._MAX_WAITING_BYTES", 10_000)
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
    assert "it sends requests and does not read" in warning.getMessage()
    assert isinstance(server_side._error, StuckPeer)
    assert server_side.bytes_out < 40 << 20
    other.send([GetData(request=2, keys=["small"])])
    assert (await asyncio.wait_for(healthy.answers.get(), 20)).request == 2
    connection._transport.resume_reading()
    await asyncio.wait_for(asker.closed.wait(), 20)
    other.close()
    await asyncio.wait_for(healthy.closed.wait(), 20)
    assert worker._server._readers == {}
