"""The same calls where they are awaited: `asynchronous=True`, and coroutines in tasks."""

from __future__ import annotations

from typing_extensions import assert_type

import weft
from weft import Awaited
from weft.client.waiting import DoneAndNotDone


def inc(x: int) -> int:
    return x + 1


async def fetch(url: str) -> bytes:
    return url.encode()


async def main() -> None:
    async with weft.Client(asynchronous=True) as client:
        assert_type(client, weft.Client[Awaited])
        future = client.submit(inc, 1)
        assert_type(future, weft.Future[int, Awaited])
        assert_type(await future, int)
        assert_type(await future.result(timeout=3), int)
        assert_type(await future.exception(), BaseException | None)
        assert_type(await client.submit(fetch, "http://here"), bytes)
        futures = client.map(inc, range(3))
        assert_type(await client.gather(futures), list[int])
        assert_type(await client.scatter([1, 2]), list[weft.Future[int, Awaited]])
        assert_type(await client.scatter(1), weft.Future[int, Awaited])
        assert_type(await client.gather({"one": future}), dict[str, int])
        assert_type(await weft.wait(futures), DoneAndNotDone[weft.Future[int, Awaited]])
        async for each in weft.as_completed(futures):
            assert_type(await each, int)
        async for _, result in weft.as_completed(futures, with_results=True):
            assert_type(result, int)
        batch = await weft.as_completed(futures).next_batch()
        assert_type(batch, list[weft.Future[int, Awaited]])
        await client.cancel(futures)
    second = await weft.Client("tcp://here:8786", asynchronous=True)
    assert_type(await second.submit(inc, 1), int)


async def in_task(n: int) -> int:
    client: weft.Client[Awaited] = weft.get_client()
    return await client.submit(inc, n).result()


async def with_either(client: weft.Client) -> int:
    return await client.submit(inc, 1)  # the future of a blocking client, too
