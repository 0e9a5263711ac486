"""Each line with a comment is an error; the comment is a part of what mypy says."""

from __future__ import annotations

import weft


def double(number: int) -> int:
    return 2 * number


async def forget_to_await(client: weft.Client[weft.Awaited]) -> None:
    future = client.submit(double, 1)
    bad_result: int = future.result()  # error: expression has type "Coroutine
    bad_gathered: list[int] = client.gather([future])  # error: expression has type "Coroutine
    bad_scattered: list[object] = client.scatter([1])  # error: expression has type "Coroutine
    bad_graph: int = client.get({"x": 1}, "x")  # error: expression has type "Coroutine
    bad_dataset: int = client.get_dataset("one")  # error: expression has type "Coroutine
    bad_metadata: int = client.get_metadata("one")  # error: expression has type "Coroutine
    bad_again: int = client.reproduce(future)  # error: expression has type "Coroutine
