"""Results of attempts that still run, or are not assigned yet, at the data port."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from tests.worker.server_kit import Ref, ask, inc
from weft.protocol.values.serialize import loads
from weft.protocol.wire.messages import GetPromised, KeysData, KeysMissing
from weft.worker.data import promised


def fail(x):
    raise ValueError(x)


def promise(task, key, attempt, holder):
    task.promised_keys, task.promised_attempts = [key], [attempt]
    task.promised_holders = [holder.address]
    return task


async def answer_of(asker):
    return await asyncio.wait_for(asker.answers.get(), 20)


async def test_a_reader_gets_its_input_when_the_attempt_of_another_worker_ends(cluster):
    scheduler = cluster.scheduler
    a, b = await cluster.start(name="a"), await cluster.start(name="b")
    read = scheduler.task(inc, 1, key="x", wanted=0)
    reads = scheduler.task(inc, Ref("x"), key="y")
    scheduler.send(b, promise(reads, "x", 1, a))
    await scheduler.until(lambda: a.executor.state.awaited)
    scheduler.send(a, read)
    assert (await scheduler.until_done(2))[2] == 3
    assert not scheduler.of(KeysMissing)


@pytest.mark.parametrize("nbytes", [10, 1 << 20], ids=["small", "large"])
async def test_a_request_for_an_attempt_is_answered_when_that_has_ended(cluster, security, nbytes):
    scheduler = cluster.scheduler
    worker = await cluster.start()
    asker, connection = await ask(worker, security, GetPromised(request=1, key="x", attempt=1))
    await scheduler.until(lambda: worker.executor.state.awaited)
    scheduler.send(worker, scheduler.task(np.zeros, nbytes, "u1", key="x", wanted=0))
    answer = await answer_of(asker)
    assert (answer.request, answer.keys, answer.missing) == (1, ["x"], [])
    assert loads(answer.results[0]).nbytes == nbytes
    connection.close()
    await asyncio.wait_for(asker.closed.wait(), 20)


async def test_a_request_for_an_attempt_that_fails_is_answered_as_missing(cluster, security):
    scheduler = cluster.scheduler
    worker = await cluster.start()
    asker, connection = await ask(worker, security, GetPromised(request=1, key="x", attempt=1))
    scheduler.send(worker, scheduler.task(fail, 1, key="x"))
    assert await answer_of(asker) == KeysData(request=1, keys=[], results=[], missing=["x"])
    connection.close()
    await asyncio.wait_for(asker.closed.wait(), 20)


async def test_a_request_for_an_attempt_that_never_comes_is_answered_after_some_time(
    cluster, security, monkeypatch
):
    monkeypatch.setattr(promised, "LONGEST_S", 0.01)
    worker = await cluster.start()
    asker, connection = await ask(worker, security, GetPromised(request=1, key="x", attempt=1))
    assert (await answer_of(asker)).missing == ["x"]
    assert not worker.executor.state.awaited
    connection.close()
    await asyncio.wait_for(asker.closed.wait(), 20)


async def test_the_requests_of_a_reader_that_is_gone_are_forgotten(cluster, security):
    scheduler = cluster.scheduler
    worker = await cluster.start()
    asker, connection = await ask(worker, security, GetPromised(request=1, key="x", attempt=1))
    await scheduler.until(lambda: worker.executor.state.awaited)
    connection.close()
    await scheduler.until(lambda: not worker.executor.state.awaited)
    await asyncio.wait_for(asker.closed.wait(), 20)
