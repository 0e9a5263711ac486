"""Questions of clients about the cluster (1.2)."""

from __future__ import annotations

from .row import Call

LOOK = [
    Call(
        "scheduler_info()",
        'len(client.scheduler_info()["workers"]) == 2',
    ),
    Call(
        "scheduler_info(n_workers=)",
        'len(client.scheduler_info(n_workers=1)["workers"]) == 1',
    ),
    Call(
        "nthreads(), ncores()",
        "set(client.nthreads().values()) == {2} and client.ncores() == client.nthreads()",
    ),
    Call(
        "nthreads(workers)",
        """
    w = addresses()[0]
    client.nthreads([w]) == {w: 2}
    """,
    ),
    Call(
        "who_has(futures)",
        """
    f = client.submit(inc, 300)
    dd.wait(f)
    [*client.who_has([f]).values()][0][0] in addresses()
    """,
    ),
    Call(
        "has_what(workers)",
        """
    f = client.submit(inc, 301)
    dd.wait(f)
    any(f.key in held for held in client.has_what().values())
    """,
    ),
    Call(
        "processing(workers)",
        """
    f = held()
    until(lambda: any(f.key in keys for keys in client.processing().values()))
    """,
    ),
    Call(
        "nbytes(keys, summary=True)",
        """
    f = client.submit(inc, 302, key='nbytes-1')
    dd.wait(f)
    [*client.nbytes([f.key], summary=False).values()][0] > 0
    """,
    ),
    Call(
        "nbytes() by prefix",
        """
    f = client.submit(inc, 303)
    dd.wait(f)
    client.nbytes()['inc'] > 0
    """,
    ),
    Call(
        "call_stack(futures)",
        """
    f = held()
    until(lambda: f.key in str(client.processing()))
    until(lambda: "hold" in str(client.call_stack(f)))
    """,
    ),
    Call(
        "call_stack(keys=)",
        """
    f = held()
    until(lambda: f.key in str(client.processing()))
    until(lambda: "hold" in str(client.call_stack(keys=[f.key])))
    """,
    ),
    Call(
        "story(keys)",
        """
    f = client.submit(inc, 304)
    dd.wait(f)
    len(client.story(f.key)) > 0
    """,
    ),
    Call(
        "get_versions()",
        '{"scheduler", "workers", "client"} <= {*client.get_versions()}',
    ),
    Call(
        "get_versions(check=, packages=)",
        'client.get_versions(check=True, packages=["numpy"]) is not None',
    ),
    Call(
        "get_scheduler_logs(n)",
        "client.get_scheduler_logs(5) is not None",
    ),
    Call(
        "get_worker_logs(n, workers)",
        """
    w = addresses()[0]
    [*client.get_worker_logs(5, workers=[w])] == [w]
    """,
    ),
    Call(
        "get_worker_logs(nanny=True)",
        "len(client.get_worker_logs(nanny=True)) == 2",
    ),
    Call(
        "log_event(topic, msg), get_events(topic)",
        """
    client.log_event("topic", {"x": 1})
    until(lambda: len(client.get_events("topic")) == 1)
    client.get_events("topic")[0][1] == {"x": 1}
    """,
    ),
    Call(
        "get_events()",
        """
    client.log_event("all", 1)
    until(lambda: "all" in client.get_events())
    """,
    ),
    Call(
        "subscribe_topic(topic, handler), unsubscribe_topic",
        """
    seen = []
    client.subscribe_topic("sub", seen.append)
    until(lambda: client.log_event("sub", 1) or seen)
    client.unsubscribe_topic("sub")
    seen[0][1] == 1
    """,
    ),
    Call(
        "forward_logging(name, level), unforward_logging",
        """
    records = []
    handler = logging.Handler()
    handler.emit = records.append
    logging.getLogger("calls.forwarded").addHandler(handler)
    logging.getLogger("calls.forwarded").propagate = False
    client.forward_logging("calls.forwarded", logging.INFO)
    client.submit(lambda: logging.getLogger("calls.forwarded").warning("x"), pure=False).result()
    found = until(lambda: records)
    client.unforward_logging("calls.forwarded")
    found
    """,
    ),
    Call(
        "benchmark_hardware()",
        "client.benchmark_hardware() is not None",
    ),
    Call(
        "profile(key=, workers=)",
        "client.profile() is not None",
        "client.profile(seconds=0.2) is not None",
        "`client.profile(seconds=5)`: from now on",
    ),
    Call(
        "profile(start=, stop=, merge_workers=)",
        """
    client.profile(start=time.time() - 1, stop=time.time(), merge_workers=False) is not None
    """,
        "client.profile(workers=addresses(), seconds=0.2) is not None",
        "`client.profile(workers=, seconds=)`: only what is asked for is measured",
    ),
    Call(
        "profile(plot=, filename=)",
        'client.profile(filename=str(folder / "p.html")) is not None',
        """
    client.profile(seconds=0.2).save(folder / "p.html")
    (folder / "p.html").exists()
    """,
        "`client.profile().save(path)`",
    ),
    Call(
        "profile(server=, scheduler=)",
        "client.profile(scheduler=True) is not None",
    ),
    Call(
        "get_task_stream(start=, stop=, count=)",
        "client.get_task_stream(count=5) is not None",
    ),
    Call(
        "get_task_stream(plot=, filename=)",
        'client.get_task_stream(plot="save", filename=str(folder / "ts.html")) is not None',
    ),
    Call(
        "dump_cluster_state(filename)",
        """
    client.dump_cluster_state(str(folder / "dump"))
    any(p.name.startswith("dump") for p in folder.iterdir())
    """,
    ),
    Call(
        'dump_cluster_state(format="yaml")',
        """
    client.dump_cluster_state(str(folder / "yaml-dump"), format="yaml")
    any(p.name.startswith("yaml-dump") for p in folder.iterdir())
    """,
    ),
    Call(
        "dump_cluster_state(exclude=, write_from_scheduler=)",
        """
    options = dict(exclude=["run_spec"], write_from_scheduler=False)
    client.dump_cluster_state(str(folder / "part"), **options)
    any(p.name.startswith("part") for p in folder.iterdir())
    """,
    ),
    Call(
        "dump_cluster_state to a URL of fsspec",
        """
    import fsspec
    client.dump_cluster_state("memory://dump")
    bool(fsspec.filesystem("memory").find("/"))
    """,
    ),
    Call(
        "recreate_error_locally(future)",
        """
    f = client.submit(fail, pure=False)
    dd.wait(f)
    isinstance(error_of(client.recreate_error_locally, f), ValueError)
    """,
    ),
    Call(
        "recreate_task_locally(future)",
        """
    f = client.submit(inc, 305)
    client.recreate_task_locally(f) == 306
    """,
    ),
]
