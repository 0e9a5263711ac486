"""Each line with a comment is an error; the comment is a part of what mypy says."""

from __future__ import annotations

import weft


def inc(x: int) -> int:
    return x + 1


async def fetch(url: str) -> bytes:
    return url.encode()


def main(client: weft.Client) -> None:
    bad_result: str = client.submit(inc, 1).result()  # error: expression has type "int"
    bad_bytes: str = client.submit(fetch, "a").result()  # error: expression has type "bytes"
    futures = client.map(inc, [1])
    bad_future: weft.Future[str] = futures[0]  # error: "Future[int, Blocking]"
    results = client.gather(futures)
    bad_element: str = results[0]  # error: expression has type "int"
    bad_list: list[str] = client.gather(futures)  # error: incompatible type "list[Future[int
    for future in weft.as_completed(futures):
        bad_completed: str = future.result()  # error: expression has type "int"
    for _, result in weft.as_completed(futures, with_results=True):
        bad_pair: str = result  # error: expression has type "int"
    done, _ = weft.wait(futures)
    bad_done: str = done.pop().result()  # error: expression has type "int"
    weft.wait(futures, return_when="SOME")  # error: No overload variant of "wait"
    client.submit(inc, 1, retries="3")  # error: No overload variant matches
    client.submit(inc, 1, priority="high")  # error: No overload variant matches
    client.map(inc, [1], workers=3)  # error: No overload variant matches
    client.gather(futures, errors="ignore")  # error: No overload variant
    client.submit(inc, 1, actor=True, retries="3")  # error: No overload variant matches
    client.map(inc, [1], actor=True, priority="high")  # error: No overload variant matches
    bad_scattered: str = client.scatter([1])[0].result()  # error: expression has type "int"
    client.scatter([1], broadcats=True)  # error: No overload variant matches
    client.submit(5)  # error: No overload variant matches
    client.sumbit(inc, 1)  # error: has no attribute "sumbit"
    weft.Client(asynchronous="yes")  # error: No overload variant of "Client"
    weft.Client(n_workers="2")  # error: No overload variant of "Client"
    weft.Client(n_wokers=2)  # error: did you mean "n_workers"
    weft.LocalCluster(threads=2)  # error: Unexpected keyword argument "threads"


async def unawaited(client: weft.Client[weft.Awaited]) -> None:
    bad_awaited: int = client.submit(inc, 1).result()  # error: "Coroutine[Any, Any, int]"
    bad_gather: list[int] = client.gather(client.map(inc, [1]))  # error: "Coroutine[Any, Any,
    client.cancel(client.submit(inc, 1))  # error: must be used


async def awaited(client: weft.Client) -> None:
    await client.submit(inc, 1).result()  # error: Incompatible types in "await"
