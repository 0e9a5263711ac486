"""What clients submit (1.2)."""

from __future__ import annotations

from .row import Call

SUBMIT = [
    Call(
        "submit(f, x)",
        "client.submit(inc, 1).result() == 2",
    ),
    Call(
        "submit(f, x=)",
        "client.submit(scaled, 2, by=3).result() == 6",
    ),
    Call(
        "submit(f, future)",
        "client.submit(inc, client.submit(inc, 1)).result() == 3",
    ),
    Call(
        "submit: futures in lists, tuples, sets, dicts, named tuples",
        """
    one = client.submit(inc, 0)
    given = [[one], (one,), {one}, {"k": one}, Pair(one, [one])]
    client.submit(lambda g: [list(g[0]), g[1], g[2], g[3], g[4]], given).result() == [
        [1], (1,), {1}, {"k": 1}, Pair(1, [1])]
    """,
    ),
    Call(
        "submit: coroutine functions",
        "client.submit(later, 5).result() == 5",
    ),
    Call(
        "submit: equal calls are one task",
        "client.submit(inc, 40).key == client.submit(inc, 40).key",
    ),
    Call(
        "submit(pure=False)",
        "client.submit(inc, 1, pure=False).key != client.submit(inc, 1, pure=False).key",
    ),
    Call(
        "submit(key=)",
        'client.submit(inc, 1, key="named").key == "named"',
    ),
    Call(
        "submit(workers=)",
        """
    w = addresses()[0]
    client.submit(here, workers=[w], pure=False).result() == w
    """,
    ),
    Call(
        "submit(workers=) by name",
        """
    name = [w['name'] for w in client.scheduler_info()['workers'].values()][0]
    client.submit(inc, 2, workers=name, pure=False).result() == 3
    """,
    ),
    Call(
        "submit(allow_other_workers=)",
        """
    client.submit(inc, 1, workers=["tcp://127.0.0.1:9"], allow_other_workers=True, pure=False
        ).result() == 2
    """,
    ),
    Call(
        "submit(resources=)",
        'client.submit(inc, 1, resources={"GPU": 1}, pure=False).result() == 2',
    ),
    Call(
        "submit(retries=)",
        'client.submit(once, str(folder / "r"), retries=1).result() == "second"',
    ),
    Call(
        "submit(priority=)",
        "client.submit(inc, 1, priority=10, pure=False).result() == 2",
    ),
    Call(
        "submit(fifo_timeout=)",
        'client.submit(inc, 1, fifo_timeout="1s", pure=False).result() == 2',
    ),
    Call(
        "submit(actor=True)",
        "client.submit(Counter, actor=True, pure=False).result().add(2).result() == 2",
    ),
    Call(
        "submit(actors=True)",
        "client.submit(Counter, actors=True, pure=False).result().add(2).result() == 2",
    ),
    Call(
        "map(f, xs)",
        "client.gather(client.map(inc, range(3))) == [1, 2, 3]",
    ),
    Call(
        "map(f, xs, ys)",
        "client.gather(client.map(total, [1, 2], [10, 20, 30])) == [11, 22]",
    ),
    Call(
        "map(f, futures)",
        "client.gather(client.map(inc, client.map(inc, range(2)))) == [2, 3]",
    ),
    Call(
        "map(key=prefix)",
        'client.map(inc, [1], key="load")[0].key.startswith("load")',
    ),
    Call(
        "map(key=[...])",
        '[f.key for f in client.map(inc, [1, 2], key=["k1", "k2"])] == ["k1", "k2"]',
    ),
    Call(
        "map(workers=)",
        """
    w = addresses()[1]
    set(client.gather(client.map(lambda _: here(), range(4), workers=w, pure=False))) == {w}
    """,
    ),
    Call(
        "map(allow_other_workers=)",
        """
    options = dict(workers=addresses()[0], allow_other_workers=True, pure=False)
    client.gather(client.map(inc, [1], **options)) == [2]
    """,
    ),
    Call(
        "map(retries=)",
        'client.gather(client.map(once, [str(folder / "m")], retries=1)) == ["second"]',
    ),
    Call(
        "map(resources=)",
        'client.gather(client.map(inc, [1], resources={"GPU": 1}, pure=False)) == [2]',
    ),
    Call(
        "map(priority=)",
        "client.gather(client.map(inc, [1], priority=-1, pure=False)) == [2]",
    ),
    Call(
        "map(fifo_timeout=)",
        'client.gather(client.map(inc, [1], fifo_timeout="1s", pure=False)) == [2]',
    ),
    Call(
        "map(actor=True)",
        """
    counters = client.gather(client.map(lambda _: Counter(), [0, 1], actor=True))
    [c.add(1).result() for c in counters] == [1, 1]
    """,
    ),
    Call(
        "map(pure=False)",
        """
    a, b = client.map(inc, [1, 1], pure=False)
    a.key != b.key
    """,
    ),
    Call(
        "map(batch_size=)",
        "len(client.gather(client.map(inc, range(50), batch_size=10))) == 50",
    ),
    Call(
        "map(by=): large arguments",
        'len(client.map(scaled, [1, 2], by="x" * 200_000)[1].result()) == 400_000',
    ),
    Call(
        "map(iterator)",
        "isinstance(error_of(client.map, inc, iter([1])), TypeError)",
        "client.gather(client.map(inc, iter([1]))) == [2]",
        "iterators are taken, too",
    ),
    Call(
        "get(graph, keys)",
        'client.get({"x": 1, "y": (inc, "x")}, "y") == 2',
    ),
    Call(
        "get: nested keys",
        """
    found = client.get({"x6": 1, "y6": (inc, "x6")}, [["x6"], ["y6", "x6"]])
    [list(values) for values in found] == [[1], [2, 1]]
    """,
    ),
    Call(
        "get(sync=False)",
        'client.gather(client.get({"y1": (inc, 1)}, ["y1"], sync=False)) == [2]',
    ),
    Call(
        "get(workers=, allow_other_workers=)",
        """
    client.get({"y2": (inc, 1)}, "y2", workers=addresses()[0], allow_other_workers=True) == 2
    """,
    ),
    Call(
        "get(resources=, retries=, priority=)",
        'client.get({"y3": (inc, 1)}, "y3", resources={"GPU": 1}, retries=1, priority=1) == 2',
    ),
    Call(
        "get(direct=)",
        'client.get({"y4": (inc, 1)}, "y4", direct=True) == 2',
    ),
    Call(
        "get(fifo_timeout=)",
        'client.get({"y5": (inc, 1)}, "y5", fifo_timeout="5s") == 2',
    ),
    Call(
        "get(actors=)",
        'client.get({"c": (Counter,)}, "c", actors=True) is not None',
    ),
    Call(
        "compute(collection)",
        "client.compute(delayed(inc)(1)).result() == 2",
    ),
    Call(
        "compute([...])",
        "[f.result() for f in client.compute([delayed(inc)(1), da.ones(4).sum()])] == [2, 4]",
    ),
    Call(
        "compute(sync=True)",
        "client.compute(delayed(inc)(1), sync=True) == 2",
    ),
    Call(
        "compute(optimize_graph=False)",
        "client.compute(da.ones(4).sum(), optimize_graph=False).result() == 4",
    ),
    Call(
        "compute(workers=, allow_other_workers=)",
        """
    client.compute(delayed(inc)(7), workers=addresses()[0], allow_other_workers=True).result() == 8
    """,
    ),
    Call(
        "compute(resources=, retries=, priority=)",
        """
    client.compute(delayed(inc)(8), resources={"GPU": 1}, retries=1, priority=1).result() == 9
    """,
    ),
    Call(
        "compute(fifo_timeout=)",
        'client.compute(delayed(inc)(9), fifo_timeout="1s").result() == 10',
    ),
    Call(
        "compute(actors=)",
        "client.compute(delayed(Counter)(), actors=True).result() is not None",
    ),
    Call(
        "compute(traverse=False)",
        "client.compute(delayed(inc)(1), traverse=False).result() == 2",
    ),
    Call(
        "persist(collection)",
        """
    x = client.persist(da.ones(4, chunks=2))
    x.sum().compute() == 4
    """,
    ),
    Call(
        "persist(optimize_graph=, workers=, allow_other_workers=, resources=, retries=, priority=)",
        """
    x = client.persist(da.ones(6, chunks=3) + 1, optimize_graph=False, workers=addresses()[0],
        allow_other_workers=True, resources={"GPU": 1}, retries=1, priority=1)
    x.sum().compute() == 12
    """,
    ),
    Call(
        "persist(actors=)",
        "client.persist(delayed(Counter)(), actors=True) is not None",
    ),
    Call(
        "normalize_collection(x)",
        """
    x = client.persist(da.ones(4, chunks=2))
    client.normalize_collection(x) is not None
    """,
    ),
    Call(
        "Client.futures_of(x)",
        "len(client.futures_of(client.persist(da.ones(4, chunks=2)))) == 2",
        "len(weft.futures_of(client.persist(da.ones(4, chunks=2)))) == 2",
        "`weft.futures_of(x)`",
    ),
    Call(
        "x.compute(), dask.compute(x)",
        "dask.compute(delayed(inc)(3)) == (4,)",
    ),
    Call(
        'x.compute(scheduler="distributed")',
        'delayed(inc)(3).compute(scheduler="distributed") == 4',
        "delayed(inc)(3).compute(scheduler=client) == 4",
        "`scheduler=client`; or `install()`",
    ),
    Call(
        "get_executor()",
        """
    with client.get_executor() as executor:
        mapped = list(executor.map(inc, [1, 2], timeout=60, chunksize=2))
        done = executor.submit(inc, 1).result(), mapped
    done == (2, [2, 3])
    """,
    ),
    Call(
        "get_executor(pure=, workers=, resources=, allow_other_workers=, retries=)",
        """
    options = dict(pure=False, workers=addresses()[0], allow_other_workers=True, retries=1)
    executor = client.get_executor(resources={"GPU": 1}, **options)
    done = executor.submit(inc, 1).result()
    executor.shutdown(wait=True)
    done == 2
    """,
    ),
]
