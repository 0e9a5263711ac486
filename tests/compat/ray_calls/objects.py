"""References and the values behind them, and errors."""

from __future__ import annotations

from ..calls.row import NOTHING, Call

OBJECTS = [
    Call(
        "ray.put(x)",
        "ray.get(ray.put('abc')) == 'abc'",
        "client.scatter('abc').result() == 'abc'",
        "`client.scatter(x)`; arguments of a call need none",
    ),
    Call(
        "f.remote(ray.put(x))",
        "ray.get(ray.remote(lambda x: len(x)).remote(ray.put(bytes(1000)))) == 1000",
        "client.submit(len, client.scatter(bytes(1000))).result() == 1000",
        "`client.submit(f, client.scatter(x))`",
    ),
    Call(
        "`ray.put(x)` in a task",
        "ray.get(ray.get(ray.remote(lambda: ray.put(5)).remote())) == 5",
        """
    client.submit(lambda: weft.get_client().scatter(5)).result().result() == 5
    """,
        "`weft.get_client().scatter(x)`",
    ),
    Call(
        "ray.put([ref])",
        """
    (ref,) = ray.get(ray.put([inc.remote(1)]))
    ray.get(ref) == 2
    """,
        """
    box = weft.Variable()
    box.set([client.submit(inc, 1)])
    box.get()[0].result() == 2
    """,
        "futures in a `weft.Variable`, a `weft.Queue` or a dataset",
    ),
    Call(
        "ray.put(array): one copy for all processes of a machine",
        """
    total = ray.remote(lambda x: (x.sum(), x.flags.owndata))
    ray.get(total.remote(ray.put(numpy.ones(1_000_000)))) == (1_000_000, False)
    """,
        """
    ones = client.submit(numpy.ones, 1_000_000)
    client.submit(lambda x: (x.sum(), x.flags.owndata), ones).result()[0] == 1_000_000
    """,
        "large arrays in results and arguments are shared on a host",
    ),
    Call(
        "arrays from `ray.get` are read-only",
        "not ray.get(ray.put(numpy.ones(100_000))).flags.writeable",
        """
    x = client.submit(numpy.ones, 100_000).result()
    x.sum() == 100_000
    """,
        "`future.result()`; what is shared must not be changed",
    ),
    Call(
        "ray.get(ref)",
        "ray.get(inc.remote(1)) == 2",
        "client.submit(inc, 1).result() == 2",
        "`future.result()`",
    ),
    Call(
        "ray.get([ref, ...])",
        "ray.get([inc.remote(1), ray.put(3)]) == [2, 3]",
        "client.gather([client.submit(inc, 1), client.submit(inc, 2)]) == [2, 3]",
        "`client.gather(futures)`",
    ),
    Call(
        "ray.get(ref, timeout=)",
        """
    late = hold.remote(gate())
    isinstance(error_of(ray.get, late, timeout=0.1), ray.exceptions.GetTimeoutError)
    """,
        """
    late = client.submit(hold, gate())
    isinstance(error_of(late.result, timeout=0.1), TimeoutError)
    """,
        "`future.result(timeout=)`, which raises `TimeoutError`",
    ),
    Call(
        "ray.get([...], timeout=)",
        """
    late = hold.remote(gate())
    isinstance(error_of(ray.get, [late], timeout=0.1), ray.exceptions.GetTimeoutError)
    """,
        """
    late = client.submit(hold, gate())
    isinstance(error_of(client.gather, [late], timeout=0.1), TimeoutError)
    """,
        "`client.gather(futures, timeout=)`",
    ),
    Call(
        "`ray.get` in a task",
        "ray.get(ray.remote(lambda r: ray.get(r[0])).remote([inc.remote(1)])) == 2",
        "client.submit(lambda: weft.get_client().submit(inc, 1).result()).result() == 2",
        "`future.result()`: a task that waits gives its thread up",
    ),
    Call(
        "ray.wait(refs, num_returns=)",
        """
    done, late = ray.wait([inc.remote(1), hold.remote(gate())], num_returns=1)
    (len(done), len(late)) == (1, 1)
    """,
        """
    futures = [client.submit(inc, 1), client.submit(hold, gate())]
    done, late = weft.wait(futures, return_when="FIRST_COMPLETED")
    (len(done), len(late)) == (1, 1)
    """,
        '`weft.wait(futures, return_when="FIRST_COMPLETED")`; of more by `weft.as_completed`',
    ),
    Call(
        "ray.wait(refs, timeout=)",
        """
    late = hold.remote(gate())
    ray.wait([late], timeout=0.1) == ([], [late])
    """,
        """
    late = client.submit(hold, gate())
    isinstance(error_of(weft.wait, [late], timeout=0.1), TimeoutError) and not late.done()
    """,
        "`weft.wait(futures, timeout=)`, which raises `TimeoutError`; `future.done()` never waits",
    ),
    Call(
        "ray.wait(refs, fetch_local=False)",
        """
    ray.wait([inc.remote(1)], fetch_local=False)[1] == []
    """,
        "len(weft.wait([client.submit(inc, 1)]).done) == 1",
        "`weft.wait(futures)` fetches nothing",
    ),
    Call(
        "while refs: ray.wait(refs)",
        """
    left, found = [inc.remote(n) for n in range(5)], []
    while left:
        done, left = ray.wait(left)
        found += ray.get(done)
    sorted(found) == [1, 2, 3, 4, 5]
    """,
        """
    found = [value for _, value in weft.as_completed(client.map(inc, range(5)), with_results=True)]
    sorted(found) == [1, 2, 3, 4, 5]
    """,
        "`for future in weft.as_completed(futures)`",
    ),
    Call(
        "ray.util.as_completed(refs)",
        "sorted(ray.util.as_completed([inc.remote(n) for n in range(3)])) == [1, 2, 3]",
        """
    done = weft.as_completed(client.map(inc, range(3)), with_results=True)
    sorted(value for _, value in done) == [1, 2, 3]
    """,
        "`weft.as_completed(futures, with_results=True)`",
    ),
    Call(
        "ray.util.map_unordered(f, xs)",
        "sorted(ray.util.map_unordered(inc, range(3))) == [1, 2, 3]",
        """
    done = weft.as_completed(client.map(inc, range(3)), with_results=True)
    sorted(value for _, value in done) == [1, 2, 3]
    """,
        "`weft.as_completed(client.map(f, xs), with_results=True)`",
    ),
    Call(
        "ref.hex(), ref.task_id()",
        """
    ref = inc.remote(1)
    len(ref.hex()) == 56 and ref.task_id() is not None
    """,
        "client.submit(inc, 1).key.startswith('inc-')",
        "`future.key`",
    ),
    Call(
        "ref.future()",
        "inc.remote(1).future().result() == 2",
        "client.get_executor().submit(inc, 1).result() == 2",
        "`client.get_executor().submit(f, x)` is a `concurrent.futures.Future`",
    ),
    Call(
        "ref.future().add_done_callback(fn)",
        """
    seen = threading.Event()
    inc.remote(1).future().add_done_callback(lambda _: seen.set())
    seen.wait(60)
    """,
        """
    seen = threading.Event()
    client.submit(inc, 1).add_done_callback(lambda _: seen.set())
    seen.wait(60)
    """,
        "`future.add_done_callback(fn)`",
    ),
    Call(
        "await ref",
        """
    async def main(): return await inc.remote(1)
    run(main()) == 2
    """,
        """
    async def main(): return await client.submit(inc, 1)
    run(main()) == 2
    """,
        "`await future`",
    ),
    Call(
        "asyncio.gather(*refs), asyncio.wait(refs)",
        """
    async def main():
        found = await asyncio.gather(inc.remote(1), inc.remote(2))
        done, _ = await asyncio.wait([asyncio.ensure_future(wrap(inc.remote(3)))])
        return found, len(done)
    async def wrap(ref): return await ref
    run(main()) == ([2, 3], 1)
    """,
        """
    async def main():
        found = await asyncio.gather(client.submit(inc, 1), client.submit(inc, 2))
        done, _ = await asyncio.wait([asyncio.ensure_future(wrap(client.submit(inc, 3)))])
        return found, len(done)
    async def wrap(future): return await future
    run(main()) == ([2, 3], 1)
    """,
        "`asyncio.gather(*futures)`, or `await client.gather(futures)`",
    ),
    Call(
        "del ref",
        """
    ref = inc.remote(1)
    del ref
    True
    """,
        """
    future = client.submit(inc, 77)
    key = future.key
    del future
    until(lambda: key not in client.futures)
    """,
        "the same, or `future.release()`",
    ),
    Call(
        "ray.experimental.get_object_locations(refs)",
        """
    ref = ray.put(bytes(1_000_000))
    (found,) = ray.experimental.get_object_locations([ref]).values()
    len(found["node_ids"]) == 1
    """,
        """
    future = client.submit(bytes, 1_000_000)
    weft.wait([future])
    (found,) = client.who_has([future]).values()
    len(found) == 1
    """,
        "`client.who_has(futures)`, `client.nbytes()`",
    ),
    Call(
        "ray.cloudpickle.dumps(ref)",
        """
    kept = inc.remote(1)
    ray.get(ray.cloudpickle.loads(ray.cloudpickle.dumps(kept))) == 2
    """,
        """
    kept = client.submit(inc, 1)
    pickle.loads(pickle.dumps(kept)).result() == 2
    """,
        "the same; `client.publish_dataset` keeps it for other programs",
    ),
    Call(
        "ray.util.register_serializer(cls, ...)",
        """
    class Point:
        def __init__(self, x): self.x = x
    ray.util.register_serializer(Point, serializer=lambda p: p.x, deserializer=Point)
    found = ray.get(ray.put(Point(3))).x
    ray.util.deregister_serializer(Point)
    found == 3
    """,
        """
    class Point:
        def __init__(self, x): self.x = x
        def __reduce__(self): return Point, (self.x,)
    client.submit(lambda p: p, Point(3)).result().x == 3
    """,
        "`__reduce__`, or `copyreg.pickle(cls, reduce)`",
    ),
    Call(
        "ray.util.inspect_serializability(x)",
        """
    with contextlib.redirect_stdout(io.StringIO()):
        good, _ = ray.util.inspect_serializability(threading.Lock(), name="lock")
    not good
    """,
        "isinstance(error_of(client.submit, len, [threading.Lock()]), weft.SerializationError)",
        "`client.submit` raises `weft.SerializationError`, which names the part",
    ),
    Call(
        "an argument that is changed after the call",
        """
    xs = [1]
    late = ray.remote(lambda x, _: x).remote(xs, hold.remote(gate()))
    xs.append(2)
    release()
    ray.get(late) == [1]
    """,
        """
    xs = [1]
    late = client.submit(lambda x, _: x, xs, client.submit(hold, gate()))
    xs.append(2)
    release()
    late.result() == [1]
    """,
        "the same: arguments are copied before the call returns",
    ),
    Call(
        "a lost result is computed again",
        """
    pid, data = ray.get(ray.remote(lambda: (os.getpid(), bytes(10))).remote())
    len(data) == 10
    """,
        """
    with weft.Client(n_workers=1, set_as_default=False) as other:
        made = other.submit(lambda: (os.getpid(), bytes(1_000_000)))
        where = other.submit(lambda made: made[0], made).result()
        os.kill(where, signal.SIGKILL)
        until(lambda: os.getpid() and other.submit(os.getpid, pure=False).result() != where)
        again = other.submit(lambda made: made[0], made, pure=False).result()
    again != where
    """,
        "the same, with what it was made of; scattered data is not: `weft.DataLost`",
    ),
    Call(
        "@ray.method(tensor_transport=)",
        'ray.method(tensor_transport="gloo") is not None',
        NOTHING,
        "results in the memory of GPUs stay pickled copies",
    ),
]

ERRORS = [
    Call(
        "RayTaskError: the task's own exception",
        """
    error = error_of(ray.get, fail.remote())
    isinstance(error, ValueError) and isinstance(error, ray.exceptions.RayTaskError)
    """,
        "type(error_of(client.submit(fail).result)) is ValueError",
        "the exception itself, with a note",
    ),
    Call(
        "RayTaskError: cause, and the frames of the worker",
        """
    error = error_of(ray.get, fail.remote())
    isinstance(error.cause, ValueError) and "in fail" in str(error)
    """,
        """
    import traceback
    error = client.submit(fail).exception()
    "fail" in "".join(traceback.format_exception(error))
    """,
        "`future.exception()`, whose traceback has the worker's frames",
    ),
    Call(
        "an exception of an input",
        "isinstance(error_of(ray.get, inc.remote(fail.remote())), ValueError)",
        "isinstance(client.submit(inc, client.submit(fail)).exception(), ValueError)",
        "the same: the exception of the input",
    ),
    Call(
        "GetTimeoutError",
        """
    error = error_of(ray.get, hold.remote(gate()), timeout=0.1)
    isinstance(error, ray.exceptions.GetTimeoutError) and isinstance(error, TimeoutError)
    """,
        "isinstance(error_of(client.submit(hold, gate()).result, timeout=0.1), TimeoutError)",
        "`TimeoutError`",
    ),
    Call(
        "TaskCancelledError",
        """
    late = inc.remote(hold.remote(gate()))
    ray.cancel(late)
    isinstance(error_of(ray.get, late), ray.exceptions.TaskCancelledError)
    """,
        """
    late = client.submit(len, client.submit(hold, gate()))
    late.cancel()
    isinstance(error_of(late.result), weft.TaskCancelled)
    """,
        "`weft.TaskCancelled`",
    ),
    Call(
        "WorkerCrashedError",
        """
    error = error_of(ray.get, die.options(max_retries=0).remote())
    isinstance(error, ray.exceptions.WorkerCrashedError)
    """,
        "isinstance(client.submit(die).exception(), weft.WorkerDied)",
        "`weft.WorkerDied`",
    ),
    Call(
        "ActorDiedError",
        """
    counter = Counter.remote()
    error_of(ray.get, counter.die.remote())
    isinstance(error_of(ray.get, counter.add.remote()), ray.exceptions.ActorDiedError)
    """,
        """
    counter = client.submit(Counter, actor=True, pure=False).result()
    first = counter.die().exception()
    until(lambda: isinstance(error_of(lambda: counter.add().result()), weft.ActorLost))
    isinstance(first, weft.ActorCallInDoubt)
    """,
        "`weft.ActorLost`: the call has not run; `weft.ActorCallInDoubt`: it may have",
    ),
    Call(
        "ActorDiedError of an `__init__` that raises",
        """
    class Broken:
        def __init__(self): raise ValueError("no")
        def use(self): return 1
    error = error_of(ray.get, ray.remote(Broken).remote().use.remote())
    isinstance(error, ray.exceptions.ActorDiedError)
    """,
        "isinstance(client.submit(int, 'x', actor=True).exception(), ValueError)",
        "`future.exception()` of the actor's future is that exception",
    ),
    Call(
        "ActorUnschedulableError, TaskUnschedulableError",
        """
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
    away = NodeAffinitySchedulingStrategy("a" * 56, soft=False)
    error = error_of(ray.get, inc.options(scheduling_strategy=away).remote(1))
    isinstance(error, ray.exceptions.TaskUnschedulableError)
    """,
        """
    asked = client.submit(inc, 1, workers="away", no_worker_timeout=0)
    isinstance(asked.exception(), weft.NoWorker)
    """,
        "`weft.NoWorker`, with `no_worker_timeout=`",
    ),
    Call(
        "PendingCallsLimitExceeded",
        """
    class Slow:
        def wait(self, path): hold_file(path)
    slow = ray.remote(Slow).options(max_pending_calls=1).remote()
    path = gate()
    error = error_of(lambda: [slow.wait.remote(path) for _ in range(9)])
    isinstance(error, ray.exceptions.PendingCallsLimitExceeded)
    """,
        "client.submit(Counter, actor=True, max_pending_calls=1)",
    ),
    Call(
        "RuntimeEnvSetupError",
        """
    broken = inc.options(runtime_env={"working_dir": "s3://no-such-bucket/x.zip"})
    isinstance(error_of(ray.get, broken.remote(1)), Exception)
    """,
        """
    class Broken(weft.WorkerPlugin):
        def setup(self, worker): raise RuntimeError("no")
    isinstance(error_of(client.register_plugin, Broken(), name="broken"), Exception)
    """,
        "`client.register_plugin` raises what its `setup` raises",
    ),
    Call(
        "ObjectLostError, OwnerDiedError",
        """
    issubclass(ray.exceptions.OwnerDiedError, ray.exceptions.ObjectLostError)
    """,
        "issubclass(weft.DataLost, weft.TaskError)",
        "`weft.DataLost`: no copy is left, and it cannot be computed again",
    ),
    Call(
        "OutOfMemoryError, ObjectStoreFullError",
        "issubclass(ray.exceptions.OutOfMemoryError, ray.exceptions.RayError)",
        "issubclass(weft.MemoryExceeded, weft.TaskError)",
        "`weft.MemoryExceeded`",
    ),
    Call(
        "NodeDiedError, RaySystemError, RpcError",
        "issubclass(ray.exceptions.NodeDiedError, ray.exceptions.RayError)",
        "issubclass(weft.CommError, weft.WeftError)",
        "`weft.CommError`, if the scheduler is away for too long; a lost worker is none",
    ),
    Call(
        "UnserializableException",
        """
    class Bad(Exception):
        def __init__(self, a, b): super().__init__(a)
    def raises(): raise Bad(1, 2)
    error = error_of(ray.get, ray.remote(raises).remote())
    isinstance(error, ray.exceptions.UnserializableException)
    """,
        """
    class Bad(Exception):
        def __init__(self, a, b): super().__init__(a)
    def raises(): raise Bad(1, 2)
    isinstance(client.submit(raises).exception(), (weft.TaskErred, Bad))
    """,
        "`weft.TaskErred`, with its type and text",
    ),
    Call(
        "RayError: all of them",
        "issubclass(ray.exceptions.RayActorError, ray.exceptions.RayError)",
        "issubclass(weft.ActorLost, weft.WeftError)",
        "`weft.WeftError`; all are in `weft.errors`",
    ),
]
