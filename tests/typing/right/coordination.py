"""What queues, variables, locks, actors, executors and clusters give."""

from __future__ import annotations

import concurrent.futures
from typing import Any

from typing_extensions import assert_type

import weft


def inc(x: int) -> int:
    return x + 1


def main(client: weft.Client) -> None:
    queue = weft.Queue[int]("numbers", client, maxsize=3)
    queue.put(1, timeout="1 s")
    assert_type(queue.get(timeout=3), int)
    assert_type(queue.get(batch=True), list[int])
    assert_type(queue.qsize(), int)
    variable: weft.Variable[weft.Future[str]] = weft.Variable("text")
    variable.set(client.submit(str, 1))
    assert_type(variable.get().result(), str)
    with weft.Lock("one") as lock:
        assert_type(lock, weft.Lock)
        assert_type(lock.acquire(timeout=2), bool)
    assert_type(weft.Semaphore(2, "two").get_value(), int)
    assert_type(weft.Event("set").wait(3), bool)
    assert_type(weft.CountDown("all", 3).count_down(2), int)
    with weft.MultiLock(["a", "b"]), weft.limit("api", 10):
        pass
    client.publish_dataset(weft.futures_of([]), name="all")
    client.set_metadata("key", 1)

    actor = client.submit(dict, actor=True).result()
    assert_type(actor.key, str)
    assert_type(weft.Executor(client=client).submit(inc, 1), concurrent.futures.Future[int])
    with client.get_executor(retries=2) as executor:
        assert_type([*executor.map(inc, [1])], list[int])

    assert_type(client.nthreads(workers=["here"]), dict[str, int])
    assert_type(client.run(inc, 1, workers="here"), dict[str, Any])
    assert_type(client.restart(), weft.Client)
    assert_type(client.get_task_stream(count=3), list[dict[str, Any]])
    weft.progress(client.map(inc, [1]), client.submit(inc, 1))
    assert_type(client.explain("key").state, str)
    with weft.LocalCluster(n_workers=1) as cluster:
        cluster.scale(3)
        assert_type(cluster.get_client(), weft.Client)
        assert_type(cluster.workers, dict[str, Any])
        assert_type(cluster.get_logs(), dict[str, str])


async def awaited(client: weft.Client[weft.Awaited]) -> None:
    queue: weft.Queue[int, weft.Awaited] = weft.Queue("numbers", client)
    await queue.put(1)
    assert_type(await queue.get(), int)
    assert_type(await queue.get(batch=3), list[int])
    assert_type(await weft.Lock("one", client).locked(), bool)
    assert_type(await weft.CountDown("all", 3, client).wait(), bool)
    lock: weft.Lock[weft.Awaited] = weft.Lock("one")
    async with lock:
        assert_type(await lock.acquire(), bool)
    variable = weft.Variable[str, weft.Awaited]("text")
    assert_type(await variable.get(), str)
    assert_type(await client.nthreads(), dict[str, int])
    assert_type(await client.restart(), weft.Client[weft.Awaited])
    assert_type(await client.get_task_stream(), list[dict[str, Any]])
    await weft.progress(client.map(inc, [1]))
    async with weft.LocalCluster(asynchronous=True) as cluster:
        await cluster.scale(3)
        assert_type(await cluster.workers, dict[str, Any])
        assert_type(cluster.get_client(), weft.Client[weft.Awaited])
