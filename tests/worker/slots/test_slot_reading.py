"""Idle slots that read the scheduler's messages on their own threads."""

from __future__ import annotations

import asyncio
import threading
from typing import ClassVar

import pytest

from tests.protocol.transport_kit import turns
from tests.worker.server_kit import Ref, inc, running
from weft.protocol.wire.messages import (
    AssignTasks,
    AttemptsErred,
    AttemptsFinished,
    Bye,
    DropAttempts,
    FetchKeys,
    KeysData,
    Stop,
)
from weft.worker.slots import slot_reading


class Gate:
    gate: ClassVar[threading.Event] = threading.Event()
    entered: ClassVar[threading.Event] = threading.Event()
    steps: ClassVar[threading.Semaphore] = threading.Semaphore(0)


def pass_gate(x):
    from tests.worker.slots.test_slot_reading import Gate

    Gate.entered.set()
    assert Gate.gate.wait(20)
    return x


@pytest.fixture(autouse=True)
def gate():
    Gate.gate.clear()
    Gate.entered.clear()
    yield Gate.gate
    Gate.gate.set()


def take_step():
    from tests.worker.slots.test_slot_reading import Gate

    Gate.entered.set()
    assert Gate.steps.acquire(timeout=20)


def thread_name():
    return threading.current_thread().name


async def ask(scheduler, worker):
    """Run one task, and wait for its result."""
    task = scheduler.task(inc, 1, key=f"x{scheduler.last_attempt + 1}")
    (attempt,) = task.attempts
    scheduler.send(worker, task)
    await scheduler.until(lambda: attempt in scheduler.results())
    assert scheduler.results()[attempt] == 2
    return attempt


def is_lent(worker):
    reading = worker.executor.slot_reading
    return reading is not None and reading.is_lent


async def ask_until_lent(scheduler, worker):
    """Run tasks one by one until a slot reads."""
    while not (is_lent(worker) and worker.executor.slot_reading._reader):
        await ask(scheduler, worker)


async def test_tasks_that_come_alone_are_read_by_the_slot_that_runs_them(cluster):
    worker = await cluster.start()
    await ask_until_lent(cluster.scheduler, worker)
    n_before = worker.executor.slot_reading._n_readings
    attempts = [await ask(cluster.scheduler, worker) for _ in range(50)]
    assert worker.executor.slot_reading._n_readings > n_before
    cluster.scheduler.send(worker, DropAttempts(attempts=attempts))
    await turns(lambda: worker.executor.lookup([f"x{a}" for a in attempts]) == [])


@pytest.mark.parametrize("scheme", ["tls", "inproc"])
async def test_connections_without_a_bypass_are_read_by_the_loop(scheme, security, tmp_path):
    import dataclasses

    from weft.protocol.trust.security import generate_certificate

    address = "inproc://slots" if scheme == "inproc" else "tls://127.0.0.1:0"
    if scheme == "tls":
        certificate, key = generate_certificate(security.cluster_id)
        security = dataclasses.replace(security, certificate_pem=certificate, private_key_pem=key)
    async with running(address, security, tmp_path) as cluster:
        worker = await cluster.start()
        for _ in range(10):
            await ask(cluster.scheduler, worker)
        assert not is_lent(worker)


async def test_the_loop_reads_again_when_no_task_comes(cluster):
    worker = await cluster.start()
    await ask_until_lent(cluster.scheduler, worker)
    worker.executor.slot_reading.end()
    await turns(lambda: not is_lent(worker))
    await ask(cluster.scheduler, worker)


async def test_messages_are_read_between_the_tasks_of_a_busy_slot(cluster, monkeypatch):
    scheduler = cluster.scheduler
    worker = await cluster.start()
    await ask_until_lent(scheduler, worker)
    monkeypatch.setattr(slot_reading, "_LOOK_S", 1000.0)  # the loop does not take the reading back
    Gate.entered.clear()
    scheduler.send(worker, scheduler.task(take_step, key="one"), scheduler.task(take_step, key="b"))
    await turns(Gate.entered.is_set)
    Gate.entered.clear()
    scheduler.send(worker, scheduler.task(take_step, key="late"))
    Gate.steps.release()
    await turns(lambda: Gate.entered.is_set() and "late" in worker.executor.state.by_key)
    Gate.steps.release(2)
    await scheduler.until(lambda: scheduler.last_attempt in scheduler.results())


async def test_messages_are_read_while_a_task_runs(cluster, gate):
    scheduler = cluster.scheduler
    worker = await cluster.start()
    for _ in range(3):
        await ask_until_lent(scheduler, worker)
        done = await ask(scheduler, worker)
        Gate.entered.clear()
        task = scheduler.task(pass_gate, 1, key=f"long{scheduler.last_attempt}")
        scheduler.send(worker, task)
        await turns(Gate.entered.is_set)
        n_answers = len(scheduler.of(KeysData))
        scheduler.send(worker, FetchKeys(request=7, keys=[f"x{done}"]))
        await scheduler.until(lambda n=n_answers: len(scheduler.of(KeysData)) > n)
        gate.set()
        await scheduler.until(lambda t=task: t.attempts[0] in scheduler.results())
        gate.clear()


async def test_messages_for_the_loop_that_a_slot_reads_are_handled_by_the_loop(cluster):
    scheduler = cluster.scheduler
    worker = await cluster.start()
    await ask_until_lent(scheduler, worker)
    done = await ask(scheduler, worker)
    task = scheduler.task(inc, 1, key="beside")
    scheduler.send(worker, FetchKeys(request=7, keys=[f"x{done}"]), task)
    await scheduler.until(
        lambda: scheduler.of(KeysData) and task.attempts[0] in scheduler.results()
    )
    await ask_until_lent(scheduler, worker)
    scheduler.send(worker, Stop(reason="enough"))
    await asyncio.wait_for(cluster.runs[0], 20)


async def test_a_slot_that_reads_is_given_a_task_by_another_thread(cluster):
    """An input that the loop has fetched makes a task ready."""
    scheduler = cluster.scheduler
    a, b = await cluster.start(name="a"), await cluster.start(name="b")
    for n in range(10):
        task = scheduler.task(inc, n, key=f"input{n}", wanted=0)
        scheduler.send(a, task)
        (attempt,) = task.attempts
        await scheduler.until(lambda t=attempt: t in scheduler.results())
        await ask_until_lent(scheduler, b)
        reader = scheduler.task(inc, Ref(f"input{n}"), key=f"reader{n}")
        scheduler.send(b, scheduler.located(reader, f"input{n}", attempt, a.address))
        await scheduler.until(lambda t=reader: t.attempts[0] in scheduler.results())
        assert scheduler.results()[reader.attempts[0]] == n + 2


async def test_several_slots_share_the_reading(cluster):
    scheduler = cluster.scheduler
    worker = await cluster.start(nthreads=4)
    for _ in range(5):
        await ask_until_lent(scheduler, worker)
        tasks = [scheduler.task(inc, n, key=f"m{scheduler.last_attempt}") for n in range(40)]
        for task in tasks:
            scheduler.send(worker, task)
        await scheduler.until(
            lambda ts=tasks: all(t.attempts[0] in scheduler.results() for t in ts)
        )


async def test_a_session_that_ends_while_a_slot_reads_is_followed_by_another(cluster):
    scheduler = cluster.scheduler
    worker = await cluster.start()
    for n in range(3):
        await ask_until_lent(scheduler, worker)
        if n % 2:
            scheduler.connections[worker.config.worker_id].abort()
        else:
            scheduler.send(worker, Bye(reason="for a moment"))
        await scheduler.until(lambda n=n: len(scheduler.registrations) == n + 2)
        await asyncio.wait_for(worker.registered.wait(), 20)
    await ask(scheduler, worker)


async def test_an_invalid_message_that_a_slot_reads_ends_the_connection(cluster, caplog):
    scheduler = cluster.scheduler
    worker = await cluster.start()
    await ask_until_lent(scheduler, worker)
    task = scheduler.task(inc, 1, key="bad")
    task.args = [None]
    scheduler.send(worker, task)
    await scheduler.until(lambda: len(scheduler.registrations) == 2)
    await asyncio.wait_for(worker.registered.wait(), 20)
    assert "the scheduler sent an invalid message" in caplog.text
    await ask(scheduler, worker)
    assert scheduler.of(AttemptsErred) == []
    assert scheduler.of(AttemptsFinished)
    assert isinstance(task, AssignTasks)


async def test_a_worker_stops_while_a_slot_reads(cluster):
    worker = await cluster.start()
    await ask_until_lent(cluster.scheduler, worker)
    worker.stop("enough")
    await asyncio.wait_for(cluster.runs[0], 20)
    assert worker.executor.join(10)
