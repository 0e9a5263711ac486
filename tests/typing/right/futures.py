"""What `submit`, `map`, `gather`, `wait` and `as_completed` give, for blocking clients."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from typing_extensions import assert_type

import weft
from weft.client.waiting import DoneAndNotDone


def inc(x: int) -> int:
    return x + 1


async def fetch(url: str) -> bytes:
    return url.encode()


class Counter:
    def __init__(self, n: int = 0) -> None:
        self.n = n


def main() -> None:
    with weft.Client(n_workers=2, name="reader") as client:
        assert_type(client, weft.Client)
        future = client.submit(inc, 1, retries=2, timeout="1 min")
        assert_type(future, weft.Future[int])
        assert_type(future.result(timeout=3), int)
        assert_type(future.exception(), BaseException | None)
        assert_type(client.submit(fetch, "http://here", retries=weft.Retries(3)).result(), bytes)
        assert_type(client.submit(Counter, 1).result(), Counter)
        actor = client.submit(Counter, n=1, actor=True, workers="here", retries=2)
        assert_type(actor, weft.Future[weft.Actor])
        assert_type(client.submit(functools.partial(inc, 1)).result(), int)
        assert_type(client.submit(lambda a, b: f"{a}{b}", 1, b=2).result(), str)
        assert_type(client.submit(inc, future).result(), int)  # a future in the place of a value
        client.submit(sum, [1, 2]).result()
        client.submit(max, 1, 2).result()
        client.submit(print, "text", end="", key="printed", workers=["here"], priority=2)
        future.add_done_callback(note)

        futures = client.map(inc, range(3), batch_size=2)
        assert_type(futures, list[weft.Future[int]])
        assert_type(client.map(fetch, ["http://here"]), list[weft.Future[bytes]])
        assert_type(client.map(Counter, [1, 2], actor=True), list[weft.Future[weft.Actor]])
        assert_type(client.map(int, ["10"], base=2), list[weft.Future[int]])

        assert_type(client.gather(future), int)
        assert_type(client.gather(futures), list[int])
        assert_type(client.gather(iter(futures), "skip", timeout="1 min"), list[int])
        assert_type(client.gather(tuple(futures)), list[int])
        assert_type(client.gather({*futures}), set[int])
        assert_type(client.gather({"one": future}), dict[str, int])
        assert_type(client.gather([futures, futures]), Any)

        assert_type(client.scatter([1, 2]), list[weft.Future[int]])
        assert_type(client.scatter(iter(["a"]), broadcast=True), list[weft.Future[str]])
        assert_type(client.scatter({"one": 1}, hash=False), dict[str, weft.Future[int]])
        assert_type(client.scatter((1, 2)), tuple[weft.Future[int], ...])
        assert_type(client.scatter({1, 2}, timeout="1 min"), set[weft.Future[int]])
        assert_type(client.scatter("text", ["here"]), weft.Future[str])

        assert_type(weft.wait(futures), DoneAndNotDone[weft.Future[int]])
        done, _ = weft.wait(futures, timeout=3, return_when="FIRST_COMPLETED")
        assert_type([each.result() for each in done], list[int])

        for each in weft.as_completed(futures):
            assert_type(each.result(), int)
        for each, result in weft.as_completed(futures, with_results=True):
            assert_type(each, weft.Future[int])
            assert_type(result, int)
        for _, found in weft.as_completed(futures, with_results=True, raise_errors=False):
            assert_type(found, int | BaseException)
        for batch in weft.as_completed(futures).batches():
            assert_type(batch, list[weft.Future[int]])
        assert_type(weft.as_completed(futures).next_batch(), list[weft.Future[int]])

        client.cancel(futures, reason="enough")


def note(future: weft.Future[int]) -> None:
    print(future.result())


def sums(client: weft.Client, parts: list[weft.Future[float]]) -> Iterator[weft.Future[float]]:
    """Combine futures, two by two."""
    for one, other in zip(parts[::2], parts[1::2], strict=True):
        yield client.submit(float.__add__, one, other)


def in_task(n: int) -> int:
    client: weft.Client = weft.get_client()
    with weft.worker_client() as same:
        assert_type(same, weft.Client)
    return client.submit(inc, n).result()
