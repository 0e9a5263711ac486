"""Tasks: what is called, their options, and how they are cancelled."""

from __future__ import annotations

from ..calls.row import NOTHING, Call

TASKS = [
    Call(
        "`@ray.remote` of a function, `f.remote(x)`",
        """
    @ray.remote
    def twice(x): return 2 * x
    ray.get(twice.remote(3)) == 6
    """,
        """
    def twice(x): return 2 * x
    client.submit(twice, 3).result() == 6
    """,
        "`client.submit(f, x)`, without a decorator",
    ),
    Call(
        "ray.remote(f)",
        "ray.get(ray.remote(lambda x: -x).remote(-1)) == 1",
        "client.submit(abs, -1).result() == 1",
        "`client.submit(f, x)`",
    ),
    Call(
        "f.remote(x=)",
        "ray.get(scaled.remote(2, by=3)) == 6",
        "client.submit(scaled, 2, by=3).result() == 6",
        "`client.submit(f, x=)`",
    ),
    Call(
        "f.remote(): equal calls",
        "inc.remote(1) != inc.remote(1)",
        "client.submit(inc, 1, pure=False).key != client.submit(inc, 1, pure=False).key",
        "`client.submit(f, x, pure=False)`; without it they are one task",
    ),
    Call(
        "[f.remote(x) for x in xs]",
        "ray.get([inc.remote(x) for x in range(3)]) == [1, 2, 3]",
        "client.gather(client.map(inc, range(3))) == [1, 2, 3]",
        "`client.map(f, xs)`",
    ),
    Call(
        "f.remote(ref): its value",
        "ray.get(inc.remote(inc.remote(1))) == 3",
        "client.submit(inc, client.submit(inc, 1)).result() == 3",
        "`client.submit(f, future)`",
    ),
    Call(
        "f.remote([ref]): the reference",
        """
    ray.get(ray.remote(lambda refs: ray.get(refs[0]) + 1).remote([inc.remote(1)])) == 3
    """,
        "client.submit(lambda values: values[0] + 1, [client.submit(inc, 1)]).result() == 3",
        "`client.submit(f, [future])`: the function gets the value here, too",
    ),
    Call(
        "f.remote([ref]): before it is ready",
        """
    path = gate()
    late = hold.remote(path)
    opened = ray.remote(lambda refs: len(ray.wait(refs, timeout=0)[0]) or open(path, "w").close())
    ray.get(opened.remote([late]))
    ray.get(late) == "held"
    """,
        """
    path = gate()
    weft.Variable("late").set(client.submit(hold, path))
    def opened():
        late = weft.Variable("late").get()
        return late.done() or open(path, "w").close()
    client.submit(opened).result()
    weft.Variable("late").get().result() == "held"
    """,
        "a future in a `weft.Variable` or `weft.Queue`, which the task gets",
    ),
    Call(
        "a ref in a closure",
        """
    ref = inc.remote(1)
    ray.get(ray.remote(lambda: ray.get(ref)).remote()) == 2
    """,
        """
    future = client.submit(inc, 1)
    client.submit(lambda value: value, future).result() == 2
    """,
        "pass the future as an argument; in a closure it raises `weft.SerializationError`",
    ),
    Call(
        "`f.remote()` in a task",
        """
    ray.get(ray.remote(lambda: ray.get(inc.remote(1))).remote()) == 2
    """,
        """
    client.submit(lambda: weft.get_client().submit(inc, 1).result()).result() == 2
    """,
        "`weft.get_client().submit(f, x)`",
    ),
    Call(
        "`f.remote()` that returns a ref",
        """
    ray.get(ray.get(ray.remote(lambda: inc.remote(1)).remote())) == 2
    """,
        """
    client.submit(lambda: weft.get_client().submit(inc, 1)).result().result() == 2
    """,
        "the same: a task returns a future",
    ),
    Call(
        "f.bind(x).execute()",
        "ray.get(inc.bind(inc.bind(1)).execute()) == 3",
        "delayed(inc)(delayed(inc)(1)).compute() == 3",
        "`dask.delayed(f)(x).compute()`",
    ),
    Call(
        "`f(x)`, without `.remote`",
        "isinstance(error_of(inc, 1), TypeError)",
        "inc(1) == 2",
        "`f(x)` is a plain call",
    ),
    Call(
        "`async def` as a task",
        "isinstance(error_of(ray.remote, later), ValueError)",
        "client.submit(later, 1).result() == 1",
        "coroutine functions are taken, too",
    ),
    Call(
        "f.options(num_returns=2)",
        """
    a, b = ray.remote(lambda: divmod(7, 2)).options(num_returns=2).remote()
    ray.get([a, b]) == [3, 1]
    """,
        """
    both = client.submit(divmod, 7, 2)
    a, b = client.map(lambda pair, i: pair[i], [both] * 2, range(2))
    client.gather([a, b]) == [3, 1]
    """,
        "tasks that take the parts of what it returns; `num_returns=` is refused",
    ),
    Call(
        "f.options(num_returns=0)",
        "inc.options(num_returns=0).remote(1) is None",
        "weft.fire_and_forget(client.submit(inc, 1, pure=False)) is None",
        "`weft.fire_and_forget(client.submit(f))`",
    ),
    Call(
        'f.options(num_returns="dynamic")',
        """
    refs = ray.get(ray.remote(items).options(num_returns="dynamic").remote(3))
    [ray.get(ref) for ref in refs] == [0, 1, 2]
    """,
        """
    parts = client.submit(lambda: weft.get_client().map(abs, range(3))).result()
    client.gather(parts) == [0, 1, 2]
    """,
        "a task that returns futures",
    ),
    Call(
        "generators as tasks: `for ref in f.remote()`",
        "[ray.get(ref) for ref in ray.remote(items).remote(3)] == [0, 1, 2]",
        """
    queue = weft.Queue()
    def put_all(n):
        for item in items(n): queue.put(item)
        queue.put(None)
    done = client.submit(put_all, 3, pure=False)
    list(iter(queue.get, None)) == [0, 1, 2]
    """,
        "a task that puts its items into a `weft.Queue`; they are there as they are made",
    ),
    Call(
        "generators as tasks: `async for`",
        """
    async def main(): return [await ref async for ref in ray.remote(items).remote(3)]
    run(main()) == [0, 1, 2]
    """,
        """
    async def main():
        async with weft.Client(cluster, asynchronous=True) as other:
            queue = weft.Queue(client=other)
            async def put_all():
                for item in items(3): await queue.put(item)
            done = other.submit(put_all, pure=False)
            return [await queue.get() for _ in range(3)]
    run(main()) == [0, 1, 2]
    """,
        "`await queue.get()`",
    ),
    Call(
        "f.options(_generator_backpressure_num_objects=)",
        """
    made = ray.remote(items).options(_generator_backpressure_num_objects=1).remote(3)
    [ray.get(ref) for ref in made] == [0, 1, 2]
    """,
        """
    queue = weft.Queue(maxsize=1)
    def put_all(n):
        for item in items(n): queue.put(item)
    done = client.submit(put_all, 3, pure=False)
    [queue.get() for _ in range(3)] == [0, 1, 2]
    """,
        "`weft.Queue(maxsize=1)`",
    ),
    Call(
        "`ray.wait(num_returns=)` of generators",
        """
    made = ray.remote(items).remote(3)
    ray.wait([made], num_returns=1)[0] == [made]
    """,
        """
    queue = weft.Queue()
    client.submit(lambda: queue.put(1), pure=False).result()
    queue.get(timeout=10) == 1
    """,
        "`queue.get(timeout=)`",
    ),
]

OPTIONS = [
    Call(
        "@ray.remote(num_cpus=), f.options(num_cpus=)",
        """
    @ray.remote(num_cpus=1)
    def twice(x): return 2 * x
    ray.get(twice.options(num_cpus=2).remote(3)) == 6
    """,
        "client.submit(inc, 1, cores=2).result() == 2",
        "`client.submit(f, cores=2)`",
    ),
    Call(
        "f.options(num_cpus=0.5)",
        "ray.get(inc.options(num_cpus=0.5).remote(1)) == 2",
        "client.submit(inc, 2, cores=0.5).result() == 3",
        "`client.submit(f, cores=0.5)`",
    ),
    Call(
        "f.options(num_cpus=0)",
        "ray.get(inc.options(num_cpus=0).remote(1)) == 2",
        "client.submit(inc, 3, cores=0).result() == 4",
        "`client.submit(f, cores=0)`",
    ),
    Call(
        "f.options(memory=)",
        "ray.get(inc.options(memory=10_000_000).remote(1)) == 2",
        'client.submit(inc, 4, memory="10 MB").result() == 5',
        '`client.submit(f, memory="10 MB")`',
    ),
    Call(
        "f.options(num_gpus=)",
        "ray.get(inc.options(num_gpus=1).remote(1)) == 2",
        'client.submit(inc, 5, resources={"GPU": 1}).result() == 6',
        '`client.submit(f, resources={"GPU": 1})`',
    ),
    Call(
        "f.options(num_gpus=0.5)",
        "ray.get(inc.options(num_gpus=0.5).remote(1)) == 2",
        'client.submit(inc, 6, resources={"GPU": 0.5}).result() == 7',
        '`client.submit(f, resources={"GPU": 0.5})`',
    ),
    Call(
        "f.options(num_gpus=1): $CUDA_VISIBLE_DEVICES",
        """
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    read = ray.remote(lambda: os.environ["CUDA_VISIBLE_DEVICES"])
    ray.get(read.options(num_gpus=1).remote()) == "0"
    """,
        NOTHING,
        "weft sets no devices; start a worker for each one, with `CUDA_VISIBLE_DEVICES=0 weft "
        "worker --resources GPU=1`",
    ),
    Call(
        "f.options(resources=)",
        'ray.get(inc.options(resources={"tpu": 1}).remote(1)) == 2',
        'client.submit(inc, 7, resources={"tpu": 1}).result() == 8',
        '`client.submit(f, resources={"tpu": 1})`',
    ),
    Call(
        "f.options(accelerator_type=)",
        """
    asked = inc.options(accelerator_type="T4", num_gpus=1).remote(1)
    ray.wait([asked], timeout=0.2) == ([], [asked])
    """,
        'client.submit(inc, 1, accelerator_type="T4")',
    ),
    Call(
        "f.options(label_selector=)",
        """
    where = {"ray.io/node-id": ray.get_runtime_context().get_node_id()}
    ray.get(inc.options(label_selector=where).remote(1)) == 2
    """,
        'client.submit(inc, 1, label_selector={"zone": "a"})',
    ),
    Call(
        "f.options(fallback_strategy=)",
        """
    here = {"ray.io/node-id": ray.get_runtime_context().get_node_id()}
    options = {"label_selector": {"zone": "b"}, "fallback_strategy": [{"label_selector": here}]}
    ray.get(inc.options(**options).remote(1)) == 2
    """,
        """
    client.submit(inc, 8, workers="nowhere", allow_other_workers=True).result() == 9
    """,
        "`client.submit(f, workers=, allow_other_workers=True)`",
    ),
    Call(
        "f.options(max_retries=, retry_exceptions=True)",
        """
    twice = once.options(max_retries=2, retry_exceptions=True)
    ray.get(twice.remote(str(folder / "r1"))) == "second"
    """,
        'client.submit(once, str(folder / "r1"), retries=2).result() == "second"',
        "`client.submit(f, retries=2)`",
    ),
    Call(
        "f.options(retry_exceptions=[ValueError])",
        """
    twice = once.options(max_retries=2, retry_exceptions=[ValueError])
    ray.get(twice.remote(str(folder / "r2"))) == "second"
    """,
        "client.submit(once, 1, retry_exceptions=[ValueError])",
    ),
    Call(
        "f.options(max_retries=0): the death of a process",
        """
    error = error_of(ray.get, die.options(max_retries=0).remote())
    isinstance(error, ray.exceptions.WorkerCrashedError)
    """,
        "isinstance(client.submit(die).exception(), weft.WorkerDied)",
        "`weft.WorkerDied`, after the fourth death",
    ),
    Call(
        "f.options(max_retries=1): the death of a process",
        """
    ray.get(die_once.options(max_retries=1).remote(str(folder / "d1"))) == "alive"
    """,
        'client.submit(die_once, str(folder / "d1")).result() == "alive"',
        "without an option: a task runs again if its worker dies",
    ),
    Call(
        "@ray.remote(max_calls=1)",
        """
    pid = ray.remote(max_calls=1)(lambda: os.getpid())
    ray.get(pid.remote()) != ray.get(pid.remote())
    """,
        """
    options = "--isolate", "--max-tasks", "1", "--nthreads", "1"
    with daemons(worker=options) as (other, _):
        pids = [other.submit(os.getpid, pure=False).result() for _ in range(2)]
    pids[0] != pids[1]
    """,
        "`weft worker --isolate --max-tasks 1`",
    ),
    Call(
        "f.options(name=)",
        """
    named = ray.remote(lambda: ray.get_runtime_context().get_task_name())
    ray.get(named.options(name="n").remote()) == "n"
    """,
        """
    client.submit(lambda: weft.get_current_task(), key="n").result() == "n"
    """,
        '`client.submit(f, key="n")`',
    ),
    Call(
        "f.options(enable_task_events=False)",
        "ray.get(inc.options(enable_task_events=False).remote(1)) == 2",
        "client.submit(inc, 1, enable_task_events=False)",
    ),
    Call(
        'f.options(scheduling_strategy="SPREAD")',
        'ray.get(inc.options(scheduling_strategy="SPREAD").remote(1)) == 2',
        'client.submit(inc, 1, scheduling_strategy="SPREAD")',
    ),
    Call(
        "f.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False))",
        """
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
    node = ray.get_runtime_context().get_node_id()
    where = ray.remote(lambda: ray.get_runtime_context().get_node_id())
    at = NodeAffinitySchedulingStrategy(node, soft=False)
    ray.get(where.options(scheduling_strategy=at).remote()) == node
    """,
        """
    address = [*client.nthreads()][0]
    client.submit(lambda: weft.get_worker().address, workers=address).result() == address
    """,
        "`client.submit(f, workers=address)`",
    ),
    Call(
        "f.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=True))",
        """
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
    at = NodeAffinitySchedulingStrategy("a" * 56, soft=True)
    ray.get(inc.options(scheduling_strategy=at).remote(1)) == 2
    """,
        'client.submit(inc, 9, workers="away", allow_other_workers=True).result() == 10',
        "`client.submit(f, workers=address, allow_other_workers=True)`",
    ),
    Call(
        "f.options(scheduling_strategy=NodeLabelSchedulingStrategy())",
        """
    from ray.util.scheduling_strategies import In, NodeLabelSchedulingStrategy
    node = ray.get_runtime_context().get_node_id()
    at = NodeLabelSchedulingStrategy(hard={"ray.io/node-id": In(node)})
    ray.get(inc.options(scheduling_strategy=at).remote(1)) == 2
    """,
        'client.submit(inc, 10, resources={"zone a": 0}).result() == 11',
        'a resource stands for a label: `resources={"zone a": 0}`',
    ),
    Call(
        "a request that nothing can hold",
        """
    asked = inc.options(resources={"moon": 1}).remote(1)
    ray.wait([asked], timeout=0.2) == ([], [asked])
    """,
        """
    asked = client.submit(inc, 1, resources={"moon": 1}, no_worker_timeout=0)
    isinstance(asked.exception(), weft.NoWorker)
    """,
        "`client.submit(f, resources=, no_worker_timeout=)` fails with `weft.NoWorker`",
    ),
]

CANCEL = [
    Call(
        "`ray.cancel(ref)` of a task that waits",
        """
    late = inc.remote(hold.remote(gate()))
    ray.cancel(late)
    isinstance(error_of(ray.get, late), ray.exceptions.TaskCancelledError)
    """,
        """
    late = client.submit(len, client.submit(hold, gate()))
    late.cancel()
    isinstance(late.exception(), weft.TaskCancelled)
    """,
        "`future.cancel()`, `client.cancel(futures)`",
    ),
    Call(
        "`ray.cancel(ref)` of a task that runs",
        """
    path = gate()
    runs = hold.remote(path)
    until(lambda: os.path.exists(path + "-begun"))
    ray.cancel(runs)
    isinstance(error_of(ray.get, runs), ray.exceptions.TaskCancelledError)
    """,
        """
    path = gate()
    runs = client.submit(hold, path)
    until(lambda: os.path.exists(path + "-begun"))
    runs.cancel(running=True)
    isinstance(runs.exception(), weft.TaskCancelled)
    """,
        "`future.cancel(running=True)`",
    ),
    Call(
        "ray.cancel(ref, force=True)",
        """
    path = gate()
    runs = hold.remote(path)
    until(lambda: os.path.exists(path + "-begun"))
    ray.cancel(runs, force=True)
    error = error_of(ray.get, runs)
    isinstance(error, (ray.exceptions.TaskCancelledError, ray.exceptions.WorkerCrashedError))
    """,
        """
    path = gate()
    runs = client.submit(hold, path)
    until(lambda: os.path.exists(path + "-begun"))
    runs.cancel(running=True, force=True)
    isinstance(runs.exception(), weft.TaskCancelled)
    """,
        "`future.cancel(running=True)` ends the process if nothing else helps; `force=True` "
        "also what other clients want",
    ),
    Call(
        "ray.cancel(ref, recursive=True)",
        """
    path = gate()
    outer = ray.remote(lambda: ray.get(hold.remote(path))).remote()
    until(lambda: os.path.exists(path + "-begun"))
    ray.cancel(outer, recursive=True)
    isinstance(error_of(ray.get, outer), ray.exceptions.TaskCancelledError)
    """,
        """
    path = gate()
    outer = client.submit(lambda: weft.get_client().submit(hold, path).result())
    until(lambda: os.path.exists(path + "-begun"))
    outer.cancel(running=True)
    isinstance(outer.exception(), weft.TaskCancelled)
    """,
        "`future.cancel(running=True)`: what a task has submitted ends with it",
    ),
    Call(
        "ray.get_runtime_context().is_canceled()",
        """
    @ray.remote
    class Search:
        def search(self, path):
            open(path + "-begun", "w").close()
            tick = threading.Event()
            while not ray.get_runtime_context().is_canceled(): tick.wait(0.01)
            open(path + "-ended", "w").close()
    path, search = gate(), Search.remote()
    call = search.search.remote(path)
    until(lambda: os.path.exists(path + "-begun"))
    ray.cancel(call)
    until(lambda: os.path.exists(path + "-ended"))
    """,
        """
    path = gate()
    def search():
        pathlib.Path(path + "-begun").touch()
        tick = threading.Event()
        while not weft.get_worker().is_cancelled: tick.wait(0.01)
        pathlib.Path(path + "-ended").touch()
    runs = client.submit(search)
    until(lambda: os.path.exists(path + "-begun"))
    runs.cancel(running=True)
    until(lambda: os.path.exists(path + "-ended"))
    """,
        "`weft.get_worker().is_cancelled`",
    ),
    Call(
        "ray.cancel(actor.method.remote())",
        """
    @ray.remote
    class Waits:
        async def wait(self): await asyncio.sleep(3600)
    call = Waits.remote().wait.remote()
    ray.cancel(call)
    isinstance(error_of(ray.get, call), ray.exceptions.TaskCancelledError)
    """,
        "client.submit(Counter, actor=True, pure=False).result().add(1).cancel()",
    ),
]
