"""`ray.util`: queues, pools of actors and processes, and other libraries."""

from __future__ import annotations

from ..calls.row import NOTHING, Call

UTILITIES = [
    Call(
        "Queue(maxsize=): put, get",
        """
    q = Queue(maxsize=2)
    q.put(1)
    q.get() == 1
    """,
        """
    q = weft.Queue(maxsize=2)
    q.put(1)
    q.get() == 1
    """,
        "`weft.Queue(maxsize=)`",
    ),
    Call(
        "Queue.put(timeout=), get(timeout=)",
        """
    from ray.util.queue import Empty, Full
    q = Queue(maxsize=1)
    q.put(1)
    full = isinstance(error_of(q.put, 2, timeout=0.1), Full)
    full and q.get() == 1 and isinstance(error_of(q.get, timeout=0.1), Empty)
    """,
        """
    q = weft.Queue(maxsize=1)
    q.put(1)
    full = isinstance(error_of(q.put, 2, timeout=0.1), TimeoutError)
    full and q.get() == 1 and isinstance(error_of(q.get, timeout=0.1), TimeoutError)
    """,
        "the same; `TimeoutError` stands for `Full` and `Empty`",
    ),
    Call(
        "Queue.put_nowait()",
        """
    q = Queue()
    q.put_nowait(1)
    q.get() == 1
    """,
        """
    q = weft.Queue()
    q.put(1, timeout=0)
    q.get() == 1
    """,
        "`queue.put(x, timeout=0)`",
    ),
    Call(
        "Queue.get_nowait()",
        """
    q = Queue()
    q.put(1)
    q.get_nowait() == 1
    """,
        """
    q = weft.Queue()
    q.put(1)
    q.get(timeout=0) == 1
    """,
        "`queue.get(timeout=0)`",
    ),
    Call(
        "Queue.put_nowait_batch()",
        """
    q = Queue()
    q.put_nowait_batch([1, 2])
    q.size() == 2
    """,
        """
    q = weft.Queue()
    for x in [1, 2]: q.put(x)
    q.qsize() == 2
    """,
        "`queue.put(x)` for each",
    ),
    Call(
        "Queue.get_nowait_batch(n)",
        """
    q = Queue()
    for x in [1, 2]: q.put(x)
    q.get_nowait_batch(2) == [1, 2]
    """,
        """
    q = weft.Queue()
    for x in [1, 2]: q.put(x)
    list(q.get(batch=2)) == [1, 2]
    """,
        "`queue.get(batch=n)`",
    ),
    Call(
        "Queue.qsize(), size(), len(queue)",
        "Queue().qsize() == 0",
        "weft.Queue().qsize() == 0",
        "`queue.qsize()`",
    ),
    Call(
        "Queue.empty(), full()",
        "Queue().empty()",
        "weft.Queue().qsize() == 0",
        "`queue.qsize() == 0`",
    ),
    Call(
        "await Queue.put_async(), get_async()",
        """
    q = Queue()
    async def main():
        await q.put_async(1)
        return await q.get_async()
    run(main()) == 1
    """,
        """
    async def main():
        async with weft.Client(cluster, asynchronous=True) as other:
            q = weft.Queue(client=other)
            await q.put(1)
            return await q.get()
    run(main()) == 1
    """,
        "`await queue.put(x)`, `await queue.get()`, with an asynchronous client",
    ),
    Call(
        "`Queue` as an argument",
        """
    q = Queue()
    ray.get(ray.remote(lambda q: q.put(5)).remote(q))
    q.get() == 5
    """,
        """
    q = weft.Queue()
    client.submit(lambda q: q.put(5), q).result()
    q.get() == 5
    """,
        "the same",
    ),
    Call(
        "Queue.shutdown(force=)",
        "Queue().shutdown(force=True) is None",
        "weft.Queue().close() is None",
        "`queue.close()`",
    ),
    Call(
        "Queue(actor_options=)",
        'Queue(actor_options={"num_cpus": 0}).qsize() == 0',
        NOTHING,
        "a queue is no actor: the scheduler keeps it",
    ),
    Call(
        "ActorPool(actors).map(fn, xs)",
        """
    pool = ActorPool([Counter.remote(), Counter.remote()])
    list(pool.map(lambda a, x: a.twice.remote(x), range(3))) == [0, 2, 4]
    """,
        """
    actors = client.gather(client.map(Counter, range(2), actor=True))
    client.gather([a.twice(x) for a, x in zip(itertools.cycle(actors), range(3))]) == [0, 2, 4]
    """,
        "`client.map(cls, range(n), actor=True)`, and calls in turn",
    ),
    Call(
        "ActorPool.map_unordered(fn, xs)",
        """
    pool = ActorPool([Counter.remote()])
    sorted(pool.map_unordered(lambda a, x: a.twice.remote(x), range(3))) == [0, 2, 4]
    """,
        """
    counter = client.submit(Counter, actor=True, pure=False).result()
    done = weft.as_completed([counter.twice(x) for x in range(3)], with_results=True)
    sorted(value for _, value in done) == [0, 2, 4]
    """,
        "`weft.as_completed(calls)`",
    ),
    Call(
        "ActorPool.submit(), get_next(), has_next()",
        """
    pool = ActorPool([Counter.remote()])
    pool.submit(lambda a, x: a.twice.remote(x), 3)
    pool.has_next() and pool.get_next() == 6
    """,
        """
    counter = client.submit(Counter, actor=True, pure=False).result()
    calls = collections.deque([counter.twice(3)])
    calls.popleft().result() == 6
    """,
        "a `deque` of calls",
    ),
    Call(
        "ActorPool.get_next_unordered()",
        """
    pool = ActorPool([Counter.remote()])
    pool.submit(lambda a, x: a.twice.remote(x), 3)
    pool.get_next_unordered() == 6
    """,
        """
    counter = client.submit(Counter, actor=True, pure=False).result()
    next(weft.as_completed([counter.twice(3)])).result() == 6
    """,
        "`next(weft.as_completed(calls))`",
    ),
    Call(
        "ActorPool.push(), pop_idle(), has_free()",
        """
    pool = ActorPool([])
    pool.push(Counter.remote())
    pool.has_free() and pool.pop_idle() is not None
    """,
        """
    idle = weft.Queue()
    idle.put(client.submit(Counter, actor=True, pure=False))
    idle.get().result().twice(3).result() == 6
    """,
        "a `weft.Queue` of idle actors",
    ),
    Call(
        "multiprocessing.Pool(n).map(f, xs)",
        """
    with Pool(2) as pool: found = pool.map(abs, [-1, -2])
    found == [1, 2]
    """,
        """
    with client.get_executor() as pool: found = list(pool.map(abs, [-1, -2]))
    found == [1, 2]
    """,
        "`client.get_executor().map(f, xs)`",
    ),
    Call(
        "Pool.apply(), apply_async()",
        """
    with Pool(2) as pool: found = pool.apply(pow, (2, 3)), pool.apply_async(pow, (2, 3)).get()
    found == (8, 8)
    """,
        """
    with client.get_executor() as pool: found = pool.submit(pow, 2, 3).result()
    found == 8
    """,
        "`executor.submit(f, x).result()`",
    ),
    Call(
        "Pool.starmap(), starmap_async()",
        """
    with Pool(2) as pool: found = pool.starmap(pow, [(2, 3), (3, 2)])
    found == [8, 9]
    """,
        """
    with client.get_executor() as pool: found = list(pool.map(pow, *zip((2, 3), (3, 2))))
    found == [8, 9]
    """,
        "`executor.map(f, *zip(*rows))`",
    ),
    Call(
        "Pool.imap(), imap_unordered()",
        """
    with Pool(2) as pool:
        found = [*pool.imap(abs, [-1, -2])], [*pool.imap_unordered(abs, [1])]
    found == ([1, 2], [1])
    """,
        """
    with client.get_executor() as pool: found = list(pool.map(abs, iter([-1, -2])))
    found == [1, 2]
    """,
        "`executor.map(f, xs)` is lazy; `weft.as_completed` for the order of their ends",
    ),
    Call(
        "Pool.map_async(callback=)",
        """
    seen = threading.Event()
    with Pool(2) as pool:
        pool.map_async(abs, [-1], callback=lambda _: seen.set())
        found = seen.wait(60)
    found
    """,
        """
    seen = threading.Event()
    with client.get_executor() as pool:
        pool.submit(abs, -1).add_done_callback(lambda _: seen.set())
        found = seen.wait(60)
    found
    """,
        "`future.add_done_callback(fn)`",
    ),
    Call(
        "Pool(initializer=, initargs=)",
        """
    with Pool(1, initializer=os.putenv, initargs=("A", "b")) as pool: found = pool.map(abs, [-1])
    found == [1]
    """,
        """
    options = {"initializer": os.putenv, "initargs": ("A", "b")}
    with weft.Executor(client=client, **options) as pool: found = list(pool.map(abs, [-1]))
    found == [1]
    """,
        "`weft.Executor(client=client, initializer=, initargs=)`",
    ),
    Call(
        "Pool(maxtasksperchild=)",
        """
    with Pool(1, maxtasksperchild=1) as pool: found = pool.map(abs, [-1])
    found == [1]
    """,
        "weft.Executor(client=client, max_tasks_per_child=1)",
    ),
    Call(
        "Pool(ray_remote_args=)",
        """
    with Pool(1, ray_remote_args={"num_cpus": 0}) as pool: found = pool.map(abs, [-1])
    found == [1]
    """,
        """
    with client.get_executor(resources={"tpu": 1}) as pool: found = list(pool.map(abs, [-1]))
    found == [1]
    """,
        "`client.get_executor(resources=, retries=, ...)`",
    ),
    Call(
        "Pool.close(), join(), terminate()",
        """
    pool = Pool(1)
    pool.close()
    pool.join() is None
    """,
        "client.get_executor().shutdown(wait=True, cancel_futures=True) is None",
        "`executor.shutdown(wait=, cancel_futures=)`",
    ),
    Call(
        "ray.util.joblib.register_ray()",
        """
    import joblib, ray.util.joblib
    ray.util.joblib.register_ray()
    with joblib.parallel_config("ray"): found = joblib.Parallel()([joblib.delayed(abs)(-1)])
    found == [1]
    """,
        """
    import joblib, weft.joblib
    with joblib.parallel_config("weft"): found = joblib.Parallel()([joblib.delayed(abs)(-1)])
    found == [1]
    """,
        '`joblib.parallel_config("weft")`',
    ),
    Call(
        "ray.util.dask.ray_dask_get, enable_dask_on_ray()",
        """
    from ray.util.dask import ray_dask_get
    delayed(abs)(-1).compute(scheduler=ray_dask_get) == 1
    """,
        "delayed(abs)(-1).compute() == 1",
        "`x.compute()`",
    ),
    Call(
        "ray.util.iter.from_range(n).for_each(f).gather_sync()",
        """
    sorted(ray.util.iter.from_range(4, num_shards=2).for_each(lambda x: x + 1).gather_sync()) == [
        1, 2, 3, 4]
    """,
        """
    import dask.bag
    dask.bag.from_sequence(range(4), npartitions=2).map(inc).compute() == [1, 2, 3, 4]
    """,
        "`dask.bag.from_sequence(xs, npartitions=).map(f).compute()`",
    ),
    Call(
        "`ray.util.iter`: `filter`, `batch`, `flatten`",
        """
    shards = ray.util.iter.from_items([1, 2, 3, 4], num_shards=1)
    list(shards.filter(lambda x: x > 1).batch(2).flatten().gather_sync()) == [2, 3, 4]
    """,
        """
    import dask.bag
    dask.bag.from_sequence([1, 2, 3, 4]).filter(lambda x: x > 1).compute() == [2, 3, 4]
    """,
        "`dask.bag`: `filter`, `repartition`, `flatten`",
    ),
    Call(
        "ray.util.collective.init_collective_group()",
        "callable(ray.util.collective.init_collective_group)",
        """
    gang = client.submit_gang(lambda: weft.get_gang().environment["WORLD_SIZE"], 2)
    client.gather(gang) == ["2", "2"]
    """,
        "`weft.get_gang().environment` starts PyTorch's or MPI's own groups",
    ),
    Call(
        "ray.util.spark.setup_ray_cluster()",
        "import ray.util.spark\ncallable(ray.util.spark.setup_ray_cluster)",
        "weft.util.spark",
    ),
    Call(
        "ray.data, ray.train, ray.tune, ray.serve, ray.rllib",
        "import importlib.util\nimportlib.util.find_spec('ray.serve') is not None",
        "weft.serve",
    ),
]
