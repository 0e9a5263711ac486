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


@pytest.mark.parametrize("how", ["lost session", "second signal"])
async def test_a_leaving_worker_ends_although_its_task_runs(cluster, how):
    worker = await busy_worker(cluster)
    worker.config.stop_timeout_s = 0.0
    worker.leave("SIGTERM")
    if how == "lost session":
        cluster.scheduler.connections[worker.config.worker_id].abort()
    else:
        worker.leave("SIGTERM")
    await asyncio.wait_for(cluster.runs[0], 20)
    GO_ON.set()
    assert worker.executor.join(20)


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
