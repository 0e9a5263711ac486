"""Each line with a comment is an error; the comment is a part of what mypy says."""

from __future__ import annotations

import weft


def inc(x: int) -> int:
    return x + 1


def main(client: weft.Client) -> None:
    queue = weft.Queue[int]("numbers", client)
    queue.put("text")  # error: incompatible type "str"; expected "int"
    bad_value: str = queue.get()  # error: expression has type "int"
    variable = weft.Variable[str]("text")
    variable.set(3)  # error: incompatible type "int"; expected "str"
    bad_variable: int = variable.get()  # error: expression has type "str"
    bad_count: str = weft.CountDown("all", 3).count()  # error: expression has type "int"
    bad_locked: str = weft.Lock("one").locked()  # error: expression has type "bool"
    weft.Lock("one").acquire(timeout=[])  # error: incompatible type "list
    bad_threads: dict[str, str] = client.nthreads()  # error: "dict[str, int]"
    client.nthreads(workers=3)  # error: incompatible type "int"
    client.scale("3")  # error: incompatible type "str"; expected "int"
    with client.get_executor() as executor:
        bad_call: str = executor.submit(inc, 1).result()  # error: expression has type "int"
    weft.LocalCluster(n_workers="2")  # error: No overload variant of "LocalCluster"


async def awaited(client: weft.Client[weft.Awaited]) -> None:
    queue = weft.Queue[int, weft.Awaited]("numbers", client)
    bad_value: int = queue.get()  # error: "Coroutine[Any, Any, int]"
    queue.put(1)  # error: must be used
    weft.Queue[int]("numbers", client)  # error: expected "Client[Blocking] | None"
    await client.nthreads()
    client.nthreads()  # error: must be used
