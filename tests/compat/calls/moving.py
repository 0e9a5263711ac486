"""How data moves (1.2)."""

from __future__ import annotations

from .row import Call

MOVE = [
    Call(
        "gather(futures)",
        "client.gather(client.map(inc, range(2))) == [1, 2]",
    ),
    Call(
        "gather: any container",
        """
    f = client.submit(inc, 0)
    client.gather({"a": [f, (f,)], "b": {f}}) == {"a": [1, (1,)], "b": {1}}
    """,
    ),
    Call(
        "gather(iterator)",
        "list(client.gather(iter(client.map(inc, range(2))))) == [1, 2]",
    ),
    Call(
        'gather(errors="skip")',
        """
    client.gather([client.submit(fail, pure=False), client.submit(inc, 1)], errors="skip") == [2]
    """,
    ),
    Call(
        "gather(direct=)",
        "client.gather([client.submit(inc, 1)], direct=True) == [2]",
    ),
    Call(
        "gather: futures of another client",
        """
    with connected() as other:
        error = error_of(client.gather, [other.submit(inc, 1)])
    isinstance(error, ValueError)
    """,
    ),
    Call(
        "gather(asynchronous=)",
        """
    async def main():
        async with connected(asynchronous=True) as other:
            return await other.gather(other.map(inc, range(2)), asynchronous=True)
    run(main()) == [1, 2]
    """,
    ),
    Call(
        "scatter(value)",
        "client.scatter(numpy.arange(3)).result().sum() == 3",
    ),
    Call(
        "scatter([...]), (...), {...}",
        """
    kinds = [type(client.scatter(x)) for x in ([1, 2], (1, 2), {1, 2}, {"a": 1})]
    kinds == [list, tuple, set, dict]
    """,
    ),
    Call(
        "scatter: named tuples",
        "client.gather(client.scatter(Pair(1, 2))) == Pair(1, 2)",
    ),
    Call(
        "scatter({name: value}): its names as keys",
        'client.scatter({"named-data": 5})["named-data"].key == "named-data"',
        'client.scatter({"named-data": 5})["named-data"].result() == 5',
        "its futures by name; keys do not name values",
    ),
    Call(
        "scatter(workers=)",
        """
    w = addresses()[0]
    f = client.scatter([b'w'], workers=[w])
    list(client.who_has(f).values())[0][0] == w
    """,
    ),
    Call(
        "scatter(broadcast=True)",
        """
    f = client.scatter(b'everywhere', broadcast=True)
    until(lambda: len(list(client.who_has([f]).values())[0]) == 2)
    """,
    ),
    Call(
        "scatter(broadcast=n)",
        "client.scatter(b'twice', broadcast=2).result() == b'twice'",
    ),
    Call(
        "scatter(direct=)",
        "client.scatter(b'direct', direct=True).result() == b'direct'",
    ),
    Call(
        "scatter(direct=False)",
        "client.scatter(b'not', direct=False).result() == b'not'",
    ),
    Call(
        "scatter(hash=)",
        "client.scatter(1, hash=False).key != client.scatter(1, hash=False).key",
    ),
    Call(
        "scatter(timeout=)",
        "client.scatter(11, timeout=10).result() == 11",
    ),
    Call(
        "replicate(futures)",
        """
    f = client.submit(inc, 200)
    dd.wait(f)
    client.replicate([f])
    until(lambda: len(list(client.who_has([f]).values())[0]) == 2)
    """,
    ),
    Call(
        "replicate(n=)",
        """
    f = client.submit(inc, 201)
    dd.wait(f)
    client.replicate([f], n=2)
    until(lambda: len(list(client.who_has([f]).values())[0]) == 2)
    """,
    ),
    Call(
        "replicate(workers=, branching_factor=)",
        """
    f = client.submit(inc, 202)
    dd.wait(f)
    client.replicate([f], workers=addresses(), branching_factor=2)
    until(lambda: len(list(client.who_has([f]).values())[0]) == 2)
    """,
    ),
    Call(
        "rebalance()",
        "client.rebalance() is None",
    ),
    Call(
        "rebalance(futures, workers=)",
        """
    fs = client.map(inc, range(4))
    dd.wait(fs)
    client.rebalance(fs, workers=addresses()) is None
    """,
    ),
]
