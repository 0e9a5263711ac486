"""Commands of clients to the cluster (1.2)."""

from __future__ import annotations

from .row import Call

CONTROL = [
    Call(
        "cancel(futures)",
        """
    f = held()
    client.cancel([f])
    until(f.cancelled)
    """,
    ),
    Call(
        "cancel(force=)",
        """
    f = held()
    client.cancel(f, force=True)
    until(f.cancelled)
    """,
    ),
    Call(
        "cancel(reason=, msg=)",
        """
    f = held()
    client.cancel([f], reason="bored", msg="no more")
    "bored" in str(error_of(f.result)) or "no more" in str(error_of(f.result))
    """,
    ),
    Call(
        "cancel(asynchronous=)",
        "client.cancel([client.submit(inc, 90)], asynchronous=False) is None",
    ),
    Call(
        "cancel: what depends on it is cancelled too",
        """
    f = held()
    g = client.submit(len, f)
    client.cancel([f])
    until(g.cancelled)
    """,
    ),
    Call(
        "retry(futures)",
        """
    f = client.submit(once, str(folder / "again"), pure=False)
    dd.wait(f)
    client.retry([f])
    f.result() == "second"
    """,
    ),
    Call(
        "retry: failed dependencies, too",
        """
    f = client.submit(once, str(folder / "again2"), pure=False)
    g = client.submit(len, f)
    dd.wait(g)
    client.retry([g])
    g.result() == 6
    """,
    ),
    Call(
        "run(f)",
        "sorted(client.run(os.getpid)) == addresses()",
    ),
    Call(
        "run(f, x, y=)",
        "set(client.run(scaled, 2, by=3).values()) == {6}",
    ),
    Call(
        "run(coroutine function)",
        "set(client.run(later, 2).values()) == {2}",
    ),
    Call(
        "run(workers=)",
        """
    w = addresses()[0]
    list(client.run(os.getpid, workers=[w])) == [w]
    """,
    ),
    Call(
        "run(wait=False)",
        "not any((client.run(later, 1, wait=False) or {}).values())",
    ),
    Call(
        "run(nanny=True)",
        "len(client.run(os.getpid, nanny=True)) == 2",
    ),
    Call(
        'run(on_error="return")',
        'all(isinstance(e, ValueError) for e in client.run(fail, on_error="return").values())',
    ),
    Call(
        'run(on_error="ignore")',
        'client.run(fail, on_error="ignore") == {}',
    ),
    Call(
        "run(f) with a parameter `dask_worker`",
        "client.run(lambda dask_worker: dask_worker.address) == {w: w for w in addresses()}",
    ),
    Call(
        "run_on_scheduler(f)",
        "client.run_on_scheduler(inc, 1) == 2",
        """
    import distributed
    weft.compat.distributed.install()
    try:
        found = client.run_on_scheduler(inc, 1)
    finally:
        weft.compat.distributed.uninstall()
    found == 2
    """,
        "in the process of the client, with `weft.compat.distributed.install()`",
    ),
    Call(
        "run_on_scheduler(f) with a parameter `dask_scheduler`",
        "client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.workers)) == 2",
    ),
    Call(
        "upload_file(path)",
        """
    (folder / "uploaded.py").write_text("def f(): return 8")
    client.upload_file(str(folder / "uploaded.py"))
    def use():
        import uploaded
        return uploaded.f()
    client.submit(use).result() == 8
    """,
    ),
    Call(
        "upload_file(load=False)",
        """
    (folder / "data.txt").write_text("d")
    client.upload_file(str(folder / "data.txt"), load=False) is not None
    """,
    ),
    Call(
        "register_worker_callbacks(f)",
        """
    def setup(dask_worker):
        dask_worker.called_back = True
    client.register_worker_callbacks(setup)
    all(client.run(lambda dask_worker: dask_worker.called_back).values())
    """,
    ),
    Call(
        "register_plugin(worker plugin)",
        """
    client.register_plugin(Setup())
    all(client.run(lambda dask_worker: dask_worker.is_set_up).values())
    """,
    ),
    Call(
        "register_plugin(name=), idempotent",
        """
    class Lasting(Setup):
        idempotent = True
    client.register_plugin(Lasting(), name="lasting")
    client.register_plugin(Lasting(), name="lasting")
    all("lasting" in p for p in client.run(lambda dask_worker: list(dask_worker.plugins)).values())
    """,
    ),
    Call(
        "register_plugin(nanny plugin)",
        """
    class Watch(dd.NannyPlugin):
        name = "watch"
        restart = False
        def setup(self, nanny):
            pass
    client.register_plugin(Watch()) is not None
    """,
    ),
    Call(
        "register_plugin(scheduler plugin)",
        """
    class Seen(dd.SchedulerPlugin):
        name = "seen"
    client.register_plugin(Seen())
    client.unregister_scheduler_plugin("seen") is None
    """,
    ),
    Call(
        "unregister_worker_plugin(name)",
        """
    client.register_plugin(Setup(), name="leaving")
    client.unregister_worker_plugin("leaving")
    left = client.run(lambda dask_worker: list(dask_worker.plugins))
    not any("leaving" in plugins for plugins in left.values())
    """,
    ),
    Call(
        "unregister_worker_plugin(nanny=True)",
        """
    class Watch(dd.NannyPlugin):
        name = "watch-2"
        restart = False
        def setup(self, nanny):
            pass
    client.register_plugin(Watch())
    client.unregister_worker_plugin("watch-2", nanny=True) is not False
    """,
    ),
    Call(
        "unregister_scheduler_plugin(name)",
        """
    class Left(dd.SchedulerPlugin):
        name = "left"
    client.register_plugin(Left())
    client.unregister_scheduler_plugin("left") is None
    """,
        'client.unregister_scheduler_plugin("left")',
    ),
    Call(
        "publish_dataset(x=...)",
        """
    client.publish_dataset(d1=client.submit(inc, 1))
    client.get_dataset("d1").result() == 2
    """,
    ),
    Call(
        "publish_dataset({name: x}, x, name=)",
        """
    client.publish_dataset({"d2": 1})
    client.publish_dataset(2, name="d3")
    (client.get_dataset("d2"), client.get_dataset("d3")) == (1, 2)
    """,
    ),
    Call(
        "publish_dataset(override=)",
        """
    client.publish_dataset(d4=1)
    client.publish_dataset(d4=2, override=True)
    client.get_dataset("d4") == 2
    """,
    ),
    Call(
        "list_datasets()",
        """
    client.publish_dataset(d5=1)
    "d5" in client.list_datasets()
    """,
    ),
    Call(
        "get_dataset(default=)",
        'client.get_dataset("no-such", default=3) == 3',
    ),
    Call(
        "get_dataset([names])",
        """
    client.publish_dataset(d6=1, d7=2)
    list(client.get_dataset(["d6", "d7"])) == [1, 2]
    """,
        """
    client.publish_dataset(d6=1, d7=2)
    [client.get_dataset(name) for name in ("d6", "d7")] == [1, 2]
    """,
        "one name a call",
    ),
    Call(
        "unpublish_dataset(name)",
        """
    client.publish_dataset(d8=1)
    client.unpublish_dataset("d8")
    "d8" not in client.list_datasets()
    """,
    ),
    Call(
        "unpublish_dataset([names])",
        """
    client.publish_dataset(d9=1, d10=1)
    client.unpublish_dataset(["d9", "d10"])
    not {"d9", "d10"} & {*client.list_datasets()}
    """,
    ),
    Call(
        "set_metadata(key, value), get_metadata(key)",
        """
    client.set_metadata("m", 1)
    client.get_metadata("m") == 1
    """,
    ),
    Call(
        "set_metadata([path], value)",
        """
    client.set_metadata(["p", "q"], 2)
    client.get_metadata(["p", "q"]) == 2
    """,
    ),
    Call(
        "get_metadata(keys, default)",
        'client.get_metadata(["no"], 4) == 4',
    ),
    Call(
        "amm: start, stop, run_once, running",
        """
    client.amm.stop()
    client.amm.start()
    client.amm.running()
    """,
    ),
]
