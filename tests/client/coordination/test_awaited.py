"""Coordination objects in coroutines, as in dask, and without a scheduler."""

from __future__ import annotations

import asyncio

import pytest

from weft import Client, CountDown, Event, Lock, MultiLock, Queue, Semaphore, Variable
from weft.protocol.errors import (
    AlreadyHeld,
    OtherLimit,
)

pytestmark = [pytest.mark.slow, pytest.mark.shares_resources]


# --- Async ----------------------------------------------------------------------------------------


async def test_everything_is_awaited_with_an_asynchronous_client(cluster):
    async with Client(cluster, asynchronous=True) as client:
        lock = Lock("async", client=client)
        async with lock:
            assert await lock.locked()
            with pytest.raises(AlreadyHeld):
                await lock.acquire()
            other_task = asyncio.create_task(_acquired(Lock("async", client=client)))
        await other_task
        with pytest.raises(TypeError, match="needs `async with`"), lock:
            pass
        semaphore = await Semaphore(2, "async", client=client)
        assert await semaphore.acquire()
        assert await semaphore.get_value() == 1
        await semaphore.release()
        event = Event("async", client=client)
        assert await event.wait(0.01) is False
        await event.set()
        assert await event.wait() is True
        queue = Queue("async", client=client)
        future = client.submit(abs, -3)
        await queue.put(future)
        assert await (await queue.get()) == 3
        variable = Variable("async", client=client)
        await variable.set(4)
        assert await variable.get() == 4
        await variable.delete()
        async with MultiLock(["async"], client=client):
            pass
        await event.clear()
        latch = await CountDown("async", 2, client=client)
        assert await latch.count_down() == 1
        assert await latch.wait(0.01) is False
        assert await latch.count_down() == 0
        assert await latch.wait() is True
        assert await latch.count() == 0


async def _acquired(lock):
    async with lock:
        return True


async def test_values_and_locks_survive_waits_that_are_cancelled_at_any_time(cluster):
    async with Client(cluster, asynchronous=True) as client:
        queue, lock = Queue("races", client=client), Lock("races", client=client)
        got = []

        async def take():
            async with lock:
                got.append(await queue.get())

        for n in range(30):
            taking = asyncio.create_task(take())
            await queue.put(n)
            for _ in range(n % 5):
                await asyncio.sleep(0)
            taking.cancel()
            await asyncio.gather(taking, return_exceptions=True)
        got += await queue.get(batch=True)
        assert sorted(got) == list(range(30))
        assert not await lock.locked()


async def test_a_blocking_client_may_be_used_in_async_with(cluster):
    with Client(cluster, set_as_default=False) as client:
        async with Lock("either", client=client):
            assert await asyncio.to_thread(Lock("either", client=client).locked)


# --- As in dask -----------------------------------------------------------------------------------


def test_an_object_of_another_limit_is_refused_where_it_is_awaited(cluster):
    async def main():
        async with Client(cluster, asynchronous=True):
            await Queue("a", maxsize=3)
            with pytest.raises(OtherLimit):
                await Queue("a", maxsize=4)
            await Queue("a").close()

    asyncio.run(main())


def test_the_release_of_a_semaphore_returns_true(client):
    semaphore = Semaphore(2, "returns")
    semaphore.acquire()
    assert semaphore.release() is True


def test_each_lock_has_an_id_of_its_own(client):
    first, second = Lock("a"), Lock("a")
    assert first.id == first.id != second.id


def test_the_repr_of_a_lock_has_its_name():
    assert repr(Lock("a b")) == "<Lock: a b>"


# --- Without a scheduler --------------------------------------------------------------------------


def test_a_late_call_that_changes_something_says_that_it_may_have_been_done(scheduler):
    with Client(scheduler, set_as_default=False) as client:
        scheduler.disappear()
        assert Lock("x", client).acquire(blocking=False) is False
        with pytest.raises(
            TimeoutError, match=r"within 0\.1 s; it is not known whether it was done"
        ):
            Queue("x", client).put(1, timeout=0.1)
        with pytest.raises(TimeoutError, match="did not answer set of variable"):
            Variable("x", client).set(1, timeout=0.1)
