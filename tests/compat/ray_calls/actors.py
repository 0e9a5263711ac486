"""Actors, their options, and how they end."""

from __future__ import annotations

from ..calls.row import NOTHING, Call

ACTORS = [
    Call(
        "`@ray.remote` of a class, `cls.remote()`, `actor.method.remote()`",
        """
    counter = Counter.remote(10)
    ray.get(counter.add.remote(5)) == 15
    """,
        """
    counter = client.submit(Counter, 10, actor=True).result()
    counter.add(5).result() == 15
    """,
        "`client.submit(cls, 10, actor=True).result()`, `actor.method(5)`",
    ),
    Call(
        "cls.options(num_cpus=, resources=)",
        """
    counter = Counter.options(num_cpus=0, resources={"tpu": 1}).remote()
    ray.get(counter.add.remote()) == 1
    """,
        """
    counter = client.submit(Counter, actor=True, pure=False, resources={"tpu": 1}).result()
    counter.add().result() == 1
    """,
        "`client.submit(cls, actor=True, resources=)`: they are taken while it is made",
    ),
    Call(
        "cls.options(num_gpus=)",
        "ray.get(Counter.options(num_gpus=1).remote().add.remote()) == 1",
        """
    counter = client.submit(Counter, actor=True, pure=False, resources={"GPU": 1}).result()
    counter.add().result() == 1
    """,
        '`client.submit(cls, actor=True, resources={"GPU": 1})`',
    ),
    Call(
        "cls.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node))",
        """
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
    node = ray.get_runtime_context().get_node_id()
    at = NodeAffinitySchedulingStrategy(node, soft=False)
    ray.get(Counter.options(scheduling_strategy=at).remote().add.remote()) == 1
    """,
        """
    address = [*client.nthreads()][0]
    counter = client.submit(Counter, actor=True, pure=False, workers=address).result()
    counter.add().result() == 1
    """,
        "`client.submit(cls, actor=True, workers=address)`",
    ),
    Call(
        "calls of an actor run in order",
        """
    counter = Counter.remote()
    ray.get([counter.add.remote() for _ in range(5)]) == [1, 2, 3, 4, 5]
    """,
        """
    counter = client.submit(Counter, actor=True, pure=False).result()
    client.gather([counter.add() for _ in range(5)]) == [1, 2, 3, 4, 5]
    """,
        "the same",
    ),
    Call(
        "actor.method.remote(ref)",
        "ray.get(Counter.remote().add.remote(inc.remote(1))) == 2",
        """
    counter = client.submit(Counter, actor=True, pure=False).result()
    counter.add(client.submit(inc, 1).result()).result() == 2
    """,
        "`actor.method(future.result())`; a future stays one, for which the method waits",
    ),
    Call(
        "f.remote(actor)",
        """
    counter = Counter.remote()
    ray.get(ray.remote(lambda c: ray.get(c.add.remote(3))).remote(counter)) == 3
    """,
        """
    counter = client.submit(Counter, actor=True, pure=False)
    client.submit(lambda c: c.add(3).result(), counter).result() == 3
    """,
        "`client.submit(f, actor)`",
    ),
    Call(
        "an actor that has another one",
        """
    class Twice:
        def __init__(self, counter): self.counter = counter
        def add(self): return ray.get(self.counter.add.remote(2))
    ray.get(ray.remote(Twice).remote(Counter.remote()).add.remote()) == 2
    """,
        """
    class Twice:
        def __init__(self, counter): self.counter = counter
        def add(self): return self.counter.add(2).result()
    counter = client.submit(Counter, actor=True, pure=False)
    client.submit(Twice, counter, actor=True).result().add().result() == 2
    """,
        "`client.submit(cls, actor, actor=True)`",
    ),
    Call(
        "`f.remote()` in an actor",
        """
    class Outer:
        def run(self): return ray.get(inc.remote(1))
    ray.get(ray.remote(Outer).remote().run.remote()) == 2
    """,
        """
    class Outer:
        def run(self): return weft.get_client().submit(inc, 1).result()
    client.submit(Outer, actor=True).result().run().result() == 2
    """,
        "`weft.get_client().submit(f, x)`",
    ),
    Call(
        "class methods, inheritance",
        """
    class Base:
        def name(self): return "base"
    class Child(Base):
        def both(self): return self.name() + " child"
    ray.get(ray.remote(Child).remote().both.remote()) == "base child"
    """,
        """
    class Base:
        def name(self): return "base"
    class Child(Base):
        def both(self): return self.name() + " child"
    client.submit(Child, actor=True).result().both().result() == "base child"
    """,
        "the same",
    ),
    Call(
        "an exception of a method",
        """
    counter = Counter.remote()
    error = error_of(ray.get, counter.fail.remote())
    isinstance(error, ValueError) and ray.get(counter.add.remote()) == 1
    """,
        """
    counter = client.submit(Counter, actor=True, pure=False).result()
    isinstance(counter.fail().exception(), ValueError) and counter.add().result() == 1
    """,
        "the same: the actor goes on",
    ),
    Call(
        "`async def` methods",
        """
    ray.get(AsyncCounter.remote().later.remote()) == 0
    """,
        """
    client.submit(AsyncCounter, actor=True).result().later().result() == 0
    """,
        "the same: they run beside each other, in one event loop",
    ),
    Call(
        "await actor.method.remote()",
        """
    async def main(): return await Counter.remote().add.remote(2)
    run(main()) == 2
    """,
        """
    counter = client.submit(Counter, actor=True, pure=False).result()
    async def main(): return await counter.add(2)
    run(main()) == 2
    """,
        "`await actor.method()`",
    ),
    Call(
        "ray.wait([actor.method.remote(), ...])",
        """
    counter = Counter.remote()
    len(ray.wait([counter.add.remote(), inc.remote(1)], num_returns=2)[0]) == 2
    """,
        """
    counter = client.submit(Counter, actor=True, pure=False).result()
    len(weft.wait([counter.add(), client.submit(inc, 1)]).done) == 2
    """,
        "`weft.wait`, `weft.as_completed` and `client.gather` take both",
    ),
    Call(
        "f.remote(actor.method.remote())",
        "ray.get(inc.remote(Counter.remote().add.remote())) == 2",
        """
    counter = client.submit(Counter, actor=True, pure=False).result()
    client.submit(inc, counter.add().result()).result() == 2
    """,
        "`client.submit(f, actor.method().result())`",
    ),
    Call(
        "generators as methods",
        """
    class Source:
        def items(self, n):
            for i in range(n): yield i
    made = ray.remote(Source).remote().items.remote(3)
    [ray.get(ref) for ref in made] == [0, 1, 2]
    """,
        """
    class Source:
        def items(self, queue, n):
            for i in range(n): queue.put(i)
    queue = weft.Queue()
    made = client.submit(Source, actor=True).result().items(queue, 3)
    [queue.get() for _ in range(3)] == [0, 1, 2]
    """,
        "a method that puts its items into a `weft.Queue`",
    ),
    Call(
        "@ray.method(num_returns=2), actor.method.options(num_returns=2)",
        """
    class Both:
        @ray.method(num_returns=2)
        def divide(self, a, b): return divmod(a, b)
    a, b = ray.remote(Both).remote().divide.remote(7, 2)
    ray.get([a, b]) == [3, 1]
    """,
        "weft.method(num_returns=2)",
    ),
    Call(
        "actor.method.bind(x).execute()",
        """
    counter = Counter.remote()
    ray.get(counter.add.bind(2).execute()) == 2
    """,
        """
    counter = client.submit(Counter, actor=True, pure=False)
    client.submit(lambda c: c.add(2).result(), counter).result() == 2
    """,
        "a task that calls the actor",
    ),
    Call(
        "actor.__ray_ready__.remote()",
        "ray.get(Counter.remote().__ray_ready__.remote())",
        "client.submit(Counter, actor=True, pure=False).result() is not None",
        "the `result()` of the actor's future",
    ),
    Call(
        "actor.__ray_call__.remote(f)",
        "ray.get(Counter.remote(4).__ray_call__.remote(lambda self: self.n)) == 4",
        "client.submit(Counter, 4, actor=True).result().n == 4",
        "`actor.attribute` reads one; what else is called is a method",
    ),
    Call(
        'cls.options(name="n"), ray.get_actor("n")',
        """
    kept = Counter.options(name="n1").remote()
    ray.get(ray.get_actor("n1").add.remote()) == 1
    """,
        """
    weft.Variable("n1").set(client.submit(Counter, actor=True, pure=False))
    weft.Variable("n1").get().result().add().result() == 1
    """,
        '`weft.Variable("n").set(future)`, `weft.Variable("n").get()`',
    ),
    Call(
        "cls.options(name=, get_if_exists=True)",
        """
    both = [Counter.options(name="n2", get_if_exists=True).remote() for _ in range(2)]
    [ray.get(c.add.remote()) for c in both] == [1, 2]
    """,
        """
    both = [client.submit(Counter, actor=True, key="n2").result() for _ in range(2)]
    [c.add().result() for c in both] == [1, 2]
    """,
        '`client.submit(cls, actor=True, key="n")`: the same key is the same actor',
    ),
    Call(
        "`cls.options(name=)` of a name that is taken",
        """
    kept = Counter.options(name="n3").remote()
    isinstance(error_of(Counter.options(name="n3").remote), ValueError)
    """,
        """
    kept = client.submit(Counter, 1, actor=True, key="n3")
    isinstance(error_of(client.submit, Counter, 2, actor=True, key="n3"), ValueError)
    """,
        "`client.submit(cls, actor=True, key=)` of another call raises `ValueError`",
    ),
    Call(
        "`ray.get_actor()` of a name that is not there",
        'isinstance(error_of(ray.get_actor, "nobody"), ValueError)',
        'isinstance(error_of(weft.Variable("nobody").get, timeout=0.1), TimeoutError)',
        "`weft.Variable(name).get(timeout=)` raises `TimeoutError`",
    ),
    Call(
        "cls.options(namespace=), ray.get_actor(name, namespace)",
        """
    kept = Counter.options(name="n4", namespace="a").remote()
    ray.get(ray.get_actor("n4", namespace="a").add.remote()) == 1
    """,
        """
    weft.Variable("a/n4").set(client.submit(Counter, actor=True, pure=False))
    weft.Variable("a/n4").get().result().add().result() == 1
    """,
        "part of the name: names are those of the whole cluster",
    ),
    Call(
        "ray.util.list_named_actors()",
        """
    kept = Counter.options(name="n5").remote()
    "n5" in ray.util.list_named_actors()
    """,
        """
    client.publish_dataset(client.submit(Counter, actor=True, pure=False), name="n5")
    "n5" in client.list_datasets()
    """,
        "`client.publish_dataset(future, name=)`, `client.list_datasets()`",
    ),
    Call(
        'cls.options(lifetime="detached")',
        """
    program(f'''
    import ray
    ray.init({ADDRESS!r}, namespace="d")
    class Counter:
        n = 0
        def add(self):
            self.n += 1
            return self.n
    counter = ray.remote(Counter).options(name="n6", lifetime="detached").remote()
    print(ray.get(counter.add.remote()))''')
    ray.get(ray.get_actor("n6", namespace="d").add.remote()) == 2
    """,
        """
    with weft.Client(cluster, set_as_default=False) as other:
        weft.Variable("n6", other).set(other.submit(Counter, actor=True, pure=False))
        weft.Variable("n6", other).get().result().add().result()
    weft.Variable("n6").get().result().add().result() == 2
    """,
        "a `weft.Variable` holds it after its client has closed",
    ),
    Call(
        "`cls.options(max_concurrency=)` of a class with threads",
        """
    both = Meeting.options(max_concurrency=2).remote()
    sorted(ray.get([both.meet.remote(), both.meet.remote()])) == [0, 1]
    """,
        "client.submit(Meeting, actor=True, max_concurrency=2)",
    ),
    Call(
        "`cls.options(max_concurrency=)` of `async def` methods",
        """
    gates = AsyncGate.options(max_concurrency=2).remote()
    waits = gates.passed.remote()
    ray.get(gates.open.remote())
    ray.get(waits)
    """,
        """
    gates = client.submit(AsyncGate, actor=True, pure=False).result()
    waits = gates.passed()
    gates.open().result()
    waits.result()
    """,
        "coroutine methods; an `asyncio.Semaphore` in the actor limits them",
    ),
    Call(
        "`concurrency_groups=`, `@ray.method(concurrency_group=)`",
        """
    class Groups:
        @ray.method(concurrency_group="io")
        async def read(self): return 1
    ray.get(ray.remote(concurrency_groups={"io": 2})(Groups).remote().read.remote()) == 1
    """,
        'client.submit(Counter, actor=True, concurrency_groups={"io": 2})',
    ),
    Call(
        "cls.options(max_restarts=)",
        """
    counter = Counter.options(max_restarts=1).remote()
    error_of(ray.get, counter.die.remote())
    until(lambda: error_of(ray.get, counter.add.remote()) is None)
    """,
        "client.submit(Counter, actor=True, max_restarts=1)",
    ),
    Call(
        "cls.options(max_task_retries=)",
        """
    options = {"max_restarts": 1, "max_task_retries": 1}
    counter = Counter.options(**options).remote()
    ray.get(counter.die_once.remote(str(folder / "a1"))) == "alive"
    """,
        "client.submit(Counter, actor=True, max_task_retries=1)",
    ),
    Call(
        "actor.method.options(max_task_retries=, retry_exceptions=)",
        """
    counter = Counter.options(max_task_retries=1).remote()
    call = counter.once.options(max_task_retries=1, retry_exceptions=True)
    ray.get(call.remote(str(folder / "a2"))) == "second"
    """,
        """
    counter = client.submit(Counter, actor=True, pure=False).result()
    def twice(counter, path): return counter.once(path).result()
    client.submit(twice, counter, str(folder / "a2"), retries=1).result() == "second"
    """,
        "a task with `retries=` that calls the actor",
    ),
    Call(
        "an actor again after its process has died",
        """
    counter = Counter.options(max_restarts=-1).remote(7)
    error_of(ray.get, counter.die.remote())
    until(lambda: error_of(ray.get, counter.add.remote()) is None)
    """,
        """
    counter = client.submit(Counter, 7, actor=True).result()
    counter.die().exception()
    until(lambda: isinstance(error_of(lambda: counter.add().result()), weft.ActorLost))
    again = client.submit(Counter, 7, actor=True).result()
    again.add().result() == 8
    """,
        "`except weft.ActorLost`: make another one, from what was saved",
    ),
    Call(
        "cls.options(max_pending_calls=)",
        """
    counter = Counter.options(max_pending_calls=5).remote()
    ray.get(counter.add.remote()) == 1
    """,
        "client.submit(Counter, actor=True, max_pending_calls=5)",
    ),
    Call(
        "cls.options(allow_out_of_order_execution=)",
        """
    gates = AsyncGate.options(allow_out_of_order_execution=True).remote()
    ray.get(gates.open.remote()) is None
    """,
        "client.submit(AsyncGate, actor=True, allow_out_of_order_execution=True)",
    ),
    Call(
        '`cls.options(runtime_env={"env_vars": ...})`',
        """
    options = {"runtime_env": {"env_vars": {"MODE": "b"}}}
    ray.get(Counter.options(**options).remote().mode.remote()) == "b"
    """,
        """
    client.submit(Counter, actor=True, runtime_env={"env_vars": {"MODE": "b"}})
    """,
    ),
    Call(
        "ray.get_runtime_context().current_actor",
        """
    class Self:
        def same(self): return ray.get_runtime_context().current_actor._actor_id.hex()
    made = ray.remote(Self).remote()
    ray.get(made.same.remote()) == made._actor_id.hex()
    """,
        """
    class Self:
        def __init__(self, box): self.box = box
        def same(self): return self.box.get().key
    box = weft.Variable()
    made = client.submit(Self, box, actor=True).result()
    box.set(made)
    made.same().result() == made.key
    """,
        "an actor gets its own handle from a `weft.Variable`",
    ),
    Call(
        "ray.get_runtime_context().get_actor_id(), get_actor_name()",
        """
    class Self:
        def name(self): return ray.get_runtime_context().get_actor_name()
    ray.get(ray.remote(Self).options(name="n7").remote().name.remote()) == "n7"
    """,
        'client.submit(Counter, actor=True, key="n7").result().key == "n7"',
        "`actor.key`",
    ),
    Call(
        "ray.get_runtime_context().was_current_actor_reconstructed",
        """
    class Self:
        def again(self): return ray.get_runtime_context().was_current_actor_reconstructed
    ray.get(ray.remote(Self).remote().again.remote()) is False
    """,
        NOTHING,
        "an actor is not made again by itself",
    ),
    Call(
        "del actor",
        """
    counter = Counter.remote()
    pid = ray.get(counter.pid.remote())
    del counter
    until(lambda: not os.path.exists(f"/proc/{pid}"))
    """,
        """
    counter = client.submit(Counter, actor=True, pure=False).result()
    key = counter.key
    del counter
    until(lambda: key not in client.futures)
    """,
        "the same: it ends with the last that holds it",
    ),
    Call(
        "ray.kill(actor)",
        """
    counter = Counter.remote()
    ray.kill(counter)
    isinstance(error_of(ray.get, counter.add.remote()), ray.exceptions.ActorDiedError)
    """,
        """
    future = client.submit(Counter, actor=True, pure=False)
    future.result().add().result()
    future.release() is None
    """,
        "`future.release()`: it ends with the last that holds it, after its calls",
    ),
    Call(
        "ray.kill(actor, no_restart=False)",
        """
    counter = Counter.options(max_restarts=1).remote()
    ray.get(counter.add.remote())
    ray.kill(counter, no_restart=False)
    until(lambda: error_of(ray.get, counter.add.remote()) is None)
    """,
        """
    counter = client.submit(Counter, actor=True, pure=False).result()
    worker = client.scheduler_info()["workers"]
    address = next(a for a, w in worker.items() if counter.add().result())
    client.restart_workers(address) and client.submit(Counter, actor=True).result() is not None
    """,
        "`client.restart_workers(address)` ends its process; then make another actor",
    ),
    Call(
        "ray.actor.exit_actor()",
        """
    class Leaves:
        def leave(self): ray.actor.exit_actor()
    leaves = ray.remote(Leaves).remote()
    error_of(ray.get, leaves.leave.remote())
    isinstance(error_of(ray.get, leaves.leave.remote()), ray.exceptions.ActorDiedError)
    """,
        "weft.actor.exit_actor()",
    ),
    Call(
        "actor.__ray_terminate__.remote()",
        """
    counter = Counter.remote()
    ray.get(counter.add.remote())
    counter.__ray_terminate__.remote() is not None
    """,
        """
    future = client.submit(Counter, actor=True, pure=False)
    future.result().add()
    future.release() is None
    """,
        "`future.release()`: calls that were made before are done first",
    ),
    Call(
        "`@ray.remote(num_cpus=1)` of a class: its CPU while it lives",
        """
    kept = Counter.options(num_cpus=3).remote()
    ray.get(kept.add.remote())
    until(lambda: ray.available_resources().get("CPU", 0) <= 1)
    """,
        "client.submit(Counter, actor=True, num_cpus=3)",
    ),
]
