"""The same client on the caller's own loop, and futures awaited from other loops."""

from __future__ import annotations

import asyncio

import pytest

from weft.client import Client, as_completed, wait
from weft.protocol.errors import ClientClosed, WorkerStartTimeout


def inc(x):
    return x + 1


def fail(text):
    raise ValueError(text)


async def test_everything_can_be_awaited(scheduler):
    async with Client(scheduler, asynchronous=True) as client:
        future = client.submit(inc, 1)
        assert await future == 2
        assert await future.result() == 2
        futures = client.map(inc, range(100))
        assert await client.gather(futures) == list(range(1, 101))
        assert (await wait(futures)).done == {*futures}
        bad = client.submit(fail, "boom")
        with pytest.raises(ValueError, match="boom"):
            await bad
        assert isinstance(await bad.exception(), ValueError)
        assert await bad.traceback() is not None
        with pytest.raises(ValueError, match="boom"):
            await client.gather([future, bad])
        assert "workers" in await client.scheduler_info()
        with pytest.raises(WorkerStartTimeout):
            await client.wait_for_workers(5, timeout=0.01)
        assert Client.current() is client
    assert client.status == "closed"
    with pytest.raises(ClientClosed):
        client.submit(inc, 1)


async def test_waiting_for_no_futures_can_be_awaited():
    found = await wait([])
    assert found == wait([]) == (set(), set())
    assert found.done == found.not_done == set()


async def test_a_key_is_free_as_soon_as_its_future_is_released(scheduler):
    async with Client(scheduler, asynchronous=True) as client:
        for n in range(50):
            future = client.submit(inc, n, key="again")
            assert await future == n + 1
            future.release()


async def test_as_completed_iterates_asynchronously(scheduler):
    client = await Client(scheduler, asynchronous=True)
    futures = client.map(inc, range(200))
    found = [result async for _, result in as_completed(futures, with_results=True)]
    assert sorted(found) == list(range(1, 201))
    batches = [batch async for batch in as_completed(futures).batches()]
    assert sum(map(len, batches)) == 200
    assert len(await as_completed(futures).next_batch()) == 200
    await client.close()


async def test_timeouts_and_cancelling_work_asynchronously(scheduler):
    async with Client(scheduler, asynchronous=True) as client:
        scheduler.is_holding = True
        future = client.submit(inc, 1)
        with pytest.raises(TimeoutError):
            await future.result(timeout=0.01)
        with pytest.raises(TimeoutError):
            await client.gather([future], timeout=0.01)
        with pytest.raises(TimeoutError):
            await anext(as_completed([future], timeout=0.01))
        await future.cancel()
        assert future.cancelled()
        called = asyncio.Event()
        future.add_done_callback(lambda _: called.set())
        await asyncio.wait_for(called.wait(), 10)


async def test_large_results_are_awaited(scheduler):
    async with Client(scheduler, asynchronous=True) as client:
        results = await client.gather(client.map(bytes, [100_000, 100_001]))
        assert [len(result) for result in results] == [100_000, 100_001]


async def test_a_client_that_is_not_open_raises_an_error_about_that(scheduler):
    client = Client(scheduler, asynchronous=True)
    with pytest.raises(ClientClosed, match="await it first"):
        client.submit(inc, 1)
    with pytest.raises(TypeError, match="async with"), client:
        pass
    await client.close()


async def test_functions_of_asyncio_take_futures_except_wait_which_says_what_to_use(scheduler):
    async with Client(scheduler, asynchronous=True) as client:
        first, second = client.submit(inc, 1), client.submit(inc, 2)
        assert await asyncio.gather(first, second) == [2, 3]
        assert await asyncio.wait_for(first, 20) == 2
        assert await asyncio.shield(first) == 2
        assert [await done for done in asyncio.as_completed([first])] == [2]
        with pytest.raises(AttributeError, match="takes futures of asyncio only"):
            await asyncio.wait([first])
        done, pending = await asyncio.wait([asyncio.ensure_future(second)])
        assert [task.result() for task in done] == [3]
        assert not pending


async def test_blocking_on_the_clients_own_loop_is_refused(scheduler):
    async with Client(scheduler, asynchronous=True) as client:
        scheduler.is_holding = True
        completed = as_completed([client.submit(inc, 1)])
        with pytest.raises(RuntimeError, match="would block"):
            next(completed)


async def test_many_coroutines_may_await_one_future(scheduler):
    async with Client(scheduler, asynchronous=True) as client:
        scheduler.is_holding = True
        future = client.submit(inc, 1)
        first, second, third = [asyncio.ensure_future(future.result()) for _ in range(3)]
        await asyncio.sleep(0)
        for cancelled in (first, third):
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
        fourth = asyncio.ensure_future(future.result())
        await asyncio.sleep(0)
        scheduler.go_on()
        assert await asyncio.gather(second, fourth) == [2, 2]


async def test_a_coroutine_that_is_cancelled_leaves_no_watcher(scheduler):
    async with Client(scheduler, asynchronous=True) as client:
        scheduler.is_holding = True
        future = client.submit(inc, 1)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(future.result(), 0.01)
        await client._engine.settle_async()
        assert future._state.watchers is None
        scheduler.go_on()
        assert await future == 2


async def test_coroutines_that_await_calls_end_with_the_client(scheduler):
    client = await Client(scheduler, asynchronous=True)
    scheduler.is_holding = True
    waiting = [asyncio.ensure_future(client.submit(inc, i).result()) for i in range(3)]
    await asyncio.sleep(0)
    await client.close()
    for each in waiting:
        with pytest.raises(ClientClosed):
            await each


async def test_a_burst_of_submissions_is_sent_before_the_next_turn_of_the_loop(scheduler):
    async with Client(scheduler, asynchronous=True) as client:
        futures = [client.submit(inc, i) for i in range(600)]
        assert client._engine.n_flushes > 0
        assert {future._state.phase for future in futures[:500]} == {"sent"}
        assert sum(await asyncio.gather(*[future.result() for future in futures])) == 180_300


def test_futures_of_a_blocking_client_can_be_awaited_in_any_loop(client):
    async def main():
        futures = client.map(inc, range(10))
        results = [result async for _, result in as_completed(futures, with_results=True)]
        return await client.submit(sum, results)

    assert asyncio.run(main()) == 55


async def test_for_over_futures_of_an_asynchronous_client_is_refused_also_when_they_are_done():
    async with Client(asynchronous=True, processes=False, n_workers=1) as client:
        future = client.submit(abs, -1)
        await future
        completed = as_completed([future])
        with pytest.raises(RuntimeError, match="use `async for`"):
            for _ in completed:
                pass
        with pytest.raises(RuntimeError, match="use `async for`"):
            list(completed.batches())
        assert [one async for one in completed] == [future]
