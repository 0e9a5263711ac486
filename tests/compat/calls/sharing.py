"""What tasks call (1.4), actors (1.5), and options of tasks (1.6)."""

from __future__ import annotations

from .row import Call

INSIDE = [
    Call(
        "get_worker()",
        "client.submit(lambda: dd.get_worker().address, pure=False).result() in addresses()",
    ),
    Call(
        "get_worker().name, local_directory, plugins",
        """
    def facts():
        worker = dd.get_worker()
        return worker.name, worker.local_directory, worker.plugins is not None
    all(map(bool, client.submit(facts).result()))
    """,
    ),
    Call(
        "get_worker().get_current_task()",
        """
    f = client.submit(lambda: dd.get_worker().get_current_task(), pure=False)
    f.result() == f.key
    """,
        """
    f = client.submit(lambda: weft.get_current_task(), pure=False)
    f.result() == f.key
    """,
        "`weft.get_current_task()`",
    ),
    Call(
        "get_worker().log_event(topic, msg)",
        """
    client.submit(lambda: dd.get_worker().log_event("in-task", 1), pure=False).result()
    until(lambda: client.get_events("in-task"))
    """,
        """
    client.submit(lambda: weft.get_client().log_event("in-task", 1), pure=False).result()
    until(lambda: client.get_events("in-task"))
    """,
        "`get_client().log_event(...)`",
    ),
    Call(
        "get_client()",
        """
    client.submit(lambda: dd.get_client().submit(inc, 1).result(), pure=False).result() == 2
    """,
    ),
    Call(
        "get_client(timeout=, resolve_address=)",
        """
    def nested():
        return dd.get_client(timeout=5, resolve_address=True).submit(inc, 1).result()
    client.submit(nested).result() == 2
    """,
    ),
    Call(
        "get_client(address=)",
        "dd.get_client(address=cluster.scheduler_address) is client",
        "dd.get_client() is client",
        "without `address=`: a task has one cluster",
    ),
    Call(
        "worker_client()",
        """
    def nested():
        with dd.worker_client() as c:
            return c.gather(c.map(inc, range(2)))
    client.submit(nested).result() == [1, 2]
    """,
    ),
    Call(
        "worker_client(timeout=, separate_thread=)",
        """
    def nested():
        with dd.worker_client(timeout="5s", separate_thread=False) as c:
            return c.gather(c.map(inc, range(2)))
    client.submit(nested).result() == [1, 2]
    """,
    ),
    Call(
        "secede(), rejoin()",
        """
    def leave():
        dd.secede()
        dd.rejoin()
        return 1
    client.submit(leave).result() == 1
    """,
    ),
    Call(
        "raise Reschedule()",
        """
    path = str(folder / "rescheduled")
    def again():
        if not os.path.exists(path):
            open(path, "w").close()
            raise dd.Reschedule()
        return 1
    client.submit(again).result(timeout=20) == 1
    """,
    ),
    Call(
        "print(...) in a task",
        """
    with contextlib.redirect_stdout(io.StringIO()) as out:
        client.submit(lambda: dd.print("from a task"), pure=False).result()
        found = until(lambda: "from a task" in out.getvalue())
    found
    """,
    ),
    Call(
        "warn(...) in a task",
        """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        client.submit(lambda: dd.warn("careful"), pure=False).result()
        found = until(lambda: any("careful" in str(w.message) for w in caught))
    found
    """,
    ),
    Call(
        "span(*tags)",
        """
    with dd.span("load", "deep") as identity:
        client.submit(inc, 600).result()
    identity is not None
    """,
    ),
    Call(
        "x.compute() in a task",
        "client.submit(lambda: delayed(inc)(1).compute(), pure=False).result() == 2",
    ),
]

ACTORS = [
    Call(
        "actor.method(...)",
        """
    c = client.submit(Counter, actor=True, pure=False).result()
    c.add(3).result() == 3
    """,
    ),
    Call(
        "actor.attribute",
        """
    c = client.submit(Counter, actor=True, pure=False).result()
    c.add(3).result()
    c.n == 3
    """,
    ),
    Call(
        "coroutine methods of actors",
        """
    c = client.submit(Counter, actor=True, pure=False).result()
    c.later().result() == 0
    """,
    ),
    Call(
        "ActorFuture.result(timeout=), done()",
        """
    c = client.submit(Counter, actor=True, pure=False).result()
    f = c.add(1)
    f.result(timeout=10) == 1 and f.done()
    """,
    ),
    Call(
        "Actor, ActorFuture, BaseActorFuture",
        """
    c = client.submit(Counter, actor=True, pure=False).result()
    f = c.add(1)
    isinstance(c, dd.Actor) and isinstance(f, dd.ActorFuture) and isinstance(f, dd.BaseActorFuture)
    """,
    ),
    Call(
        "await actor.method(...)",
        """
    async def main():
        async with connected(asynchronous=True) as other:
            c = await other.submit(Counter, actor=True)
            return await c.add(2)
    run(main()) == 2
    """,
    ),
    Call(
        "actors as arguments of tasks",
        """
    c = client.submit(Counter, actor=True, pure=False).result()
    client.submit(lambda counter: counter.add(5).result(), c).result() == 5
    """,
    ),
    Call(
        "an actor whose worker died",
        """
    class Mortal:
        def die(self):
            os.kill(os.getpid(), signal.SIGKILL)
    with local(processes=True) as own, dd.Client(own, set_as_default=False) as c:
        actor = c.submit(Mortal, actor=True).result()
        error = error_of(lambda: actor.die().result(timeout=60))
    isinstance(error, Exception)
    """,
    ),
]

OPTIONS = [
    Call(
        "annotate(priority=)",
        """
    with dask.annotate(priority=5):
        x = delayed(inc)(700)
    x.compute(optimize_graph=False) == 700 + 1
    """,
    ),
    Call(
        "annotate(workers=, allow_other_workers=)",
        """
    with dask.annotate(workers=[addresses()[0]], allow_other_workers=True):
        x = delayed(inc)(701)
    x.compute(optimize_graph=False) == 701 + 1
    """,
    ),
    Call(
        "annotate(retries=)",
        """
    with dask.annotate(retries=2):
        x = delayed(inc)(702)
    x.compute(optimize_graph=False) == 702 + 1
    """,
    ),
    Call(
        "annotate(resources=)",
        """
    with dask.annotate(resources={"GPU": 1}):
        x = delayed(inc)(703)
    x.compute(optimize_graph=False) == 703 + 1
    """,
    ),
    Call(
        "annotate(span=)",
        """
    with dd.span("annotated"):
        x = delayed(inc)(704)
    x.compute(optimize_graph=False) == 705
    """,
    ),
    Call(
        "annotate(executor=)",
        """
    with dask.annotate(executor="offload"):
        x = delayed(inc)(705)
    x.compute(optimize_graph=False) == 705 + 1
    """,
    ),
    Call(
        "annotate(priority=function of the key)",
        """
    with dask.annotate(priority=lambda key: 3):
        x = delayed(inc)(706)
    x.compute(optimize_graph=False) == 706 + 1
    """,
    ),
    Call(
        "annotations of a collection before options of `compute`",
        """
    with dask.annotate(workers=addresses()[0]):
        x = delayed(here)()
    found = client.compute(x, workers=addresses()[1], optimize_graph=False).result(timeout=20)
    found == addresses()[0]
    """,
    ),
    Call(
        "Worker.executors: a pool of processes",
        """
    from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
    def equip(dask_worker):
        dask_worker.executors["more"] = ThreadPoolExecutor(1)
    client.run(equip)
    with dask.annotate(executor="more"):
        x = delayed(inc)(708)
    x.compute(optimize_graph=False) == 709
    """,
    ),
    Call(
        "resources of workers",
        """
    with local(resources={"GPU": 2}) as own, dd.Client(own, set_as_default=False) as other:
        done = other.submit(inc, 1, resources={"GPU": 2}).result()
    done == 2
    """,
    ),
    Call(
        "priority: greater first",
        """
    with connected(threads_per_worker=1) as other:
        order = []
        def note(i):
            dd.get_worker().noted = [*getattr(dd.get_worker(), "noted", []), i]
        first = other.submit(time.sleep, 0.5)  # workload
        fs = [other.submit(note, i, priority=i) for i in range(5)]
        other.gather(fs)
        [order] = other.run(lambda dask_worker: dask_worker.noted).values()
    order.index(4) < order.index(3) < order.index(2)
    """,
    ),
]
