"""A worker that got SIGTERM: when its shell ends it. The grace period of these tests never ends."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest

from weft.protocol.wire.messages import (
    AskToLeave,
    AttemptsFinished,
    Bye,
    FetchKeys,
    InventoryUnfinished,
    KeysData,
    MayLeave,
    Unsupported,
    WorkerLeaving,
)

ENTERED, GO_ON = threading.Event(), threading.Event()


def wait():
    ENTERED.set()
    assert GO_ON.wait(20)


async def busy_worker(cluster):
    """Start a worker that runs a task until `GO_ON` is set."""
    ENTERED.clear()
    GO_ON.clear()
    worker = await cluster.start(grace_period_s=600.0)
    cluster.scheduler.send(worker, cluster.scheduler.task(wait, key="x"))
    assert await asyncio.get_running_loop().run_in_executor(None, ENTERED.wait, 20)
    return worker


async def lose_session(cluster, worker):
    cluster.scheduler.connections[worker.config.worker_id].abort()
    await cluster.scheduler.until(lambda: len(cluster.scheduler.registrations) == 2)
    await asyncio.wait_for(worker.registered.wait(), 20)


async def test_a_worker_leaves_when_its_last_task_was_reported(cluster):
    scheduler = cluster.scheduler
    worker = await busy_worker(cluster)
    worker.leave("SIGTERM")
    await scheduler.until(lambda: scheduler.of(WorkerLeaving))
    assert not cluster.runs[0].done()
    GO_ON.set()
    await asyncio.wait_for(cluster.runs[0], 20)
    await scheduler.until(lambda: scheduler.of(Bye))
    kinds = [type(message) for _, message in scheduler.heard]
    assert [k for k in kinds if k in {WorkerLeaving, AttemptsFinished, Bye}] == [
        WorkerLeaving,
        AttemptsFinished,
        Bye,
    ]


async def test_a_worker_that_runs_nothing_leaves_when_it_is_let_go(cluster):
    worker = await cluster.start(grace_period_s=600.0)
    worker.leave("SIGTERM")
    await asyncio.wait_for(cluster.runs[0], 20)


@pytest.mark.parametrize(
    "answer", [MayLeave(request=1), Unsupported(unknown_code=87, request=1)], ids=["now", "earlier"]
)
async def test_a_worker_that_may_not_go_yet_serves_its_results_until_then(cluster, answer):
    scheduler = cluster.scheduler
    scheduler.lets_go = False
    worker = await cluster.start(grace_period_s=600.0)
    scheduler.send(worker, scheduler.task(bytes, key="x"))
    await scheduler.until(lambda: scheduler.of(AttemptsFinished))
    worker.leave("SIGTERM")
    await scheduler.until(lambda: scheduler.of(AskToLeave))
    scheduler.send(worker, FetchKeys(request=2, keys=["x"]))
    await scheduler.until(lambda: scheduler.of(KeysData))
    assert not cluster.runs[0].done()
    scheduler.send(worker, answer)
    await asyncio.wait_for(cluster.runs[0], 20)


async def test_the_grace_period_ends_a_worker_that_is_not_let_go(cluster, caplog):
    caplog.set_level(logging.INFO, "weft.worker")
    cluster.scheduler.lets_go = False
    worker = await cluster.start(grace_period_s=0.001)
    worker.leave("SIGTERM")
    await asyncio.wait_for(cluster.runs[0], 20)
    assert "SIGTERM, and its grace period of 0.001 s is over" in caplog.text


async def test_a_second_signal_ends_a_leaving_worker_although_its_task_runs(cluster):
    worker = await busy_worker(cluster)
    worker.config.stop_timeout_s = 0.0
    worker.leave("SIGTERM")
    worker.leave("SIGTERM")
    await asyncio.wait_for(cluster.runs[0], 20)
    GO_ON.set()
    assert worker.executor.join(20)


async def test_a_leaving_worker_that_loses_its_session_comes_back_and_goes_on_leaving(cluster):
    scheduler = cluster.scheduler
    scheduler.lets_go = False
    worker = await busy_worker(cluster)
    worker.leave("SIGTERM")
    await scheduler.until(lambda: scheduler.of(AskToLeave))
    await lose_session(cluster, worker)
    await scheduler.until(lambda: len(scheduler.of(AskToLeave)) == 2)
    first, second = scheduler.of(AskToLeave)
    assert 0 < second.left_ms <= first.left_ms <= 600_000
    await scheduler.until(lambda: scheduler.of(InventoryUnfinished))
    assert [x.keys for x in scheduler.of(InventoryUnfinished)] == [["x"]]
    GO_ON.set()
    await scheduler.until(lambda: scheduler.of(AttemptsFinished))
    assert not cluster.runs[0].done()
    scheduler.send(worker, MayLeave(request=1))
    await asyncio.wait_for(cluster.runs[0], 20)
    assert [bye.reason for bye in scheduler.of(Bye)] == ["SIGTERM"]


@pytest.mark.parametrize("end", ["grace period", "no reconnect"])
async def test_a_leaving_worker_that_cannot_come_back_ends_in_order(cluster, end):
    """The signal comes in the middle of its last session; in order means with no error."""
    options = {"grace_period_s": 0.5} if end == "grace period" else {"reconnect": False}
    worker = await cluster.start(**{"grace_period_s": 600.0, **options})
    cluster.scheduler.lets_go = False
    cluster.scheduler.send(worker, cluster.scheduler.task(bytes, key="x"))
    await cluster.scheduler.until(lambda: cluster.scheduler.of(AttemptsFinished))
    worker.leave("SIGTERM")
    await cluster.scheduler.until(lambda: cluster.scheduler.of(AskToLeave))
    await cluster.scheduler.stop()
    await asyncio.wait_for(cluster.runs[0], 20)


async def test_a_task_that_a_lost_session_has_cancelled_holds_a_leaving_worker_until_its_end(
    cluster,
):
    worker = await busy_worker(cluster)
    await lose_session(cluster, worker)
    worker.leave("SIGTERM")
    await cluster.scheduler.until(lambda: cluster.scheduler.of(WorkerLeaving))
    assert not cluster.runs[0].done()
    GO_ON.set()  # its end is reported to nobody, so that nothing is sent
    await asyncio.wait_for(cluster.runs[0], 20)
