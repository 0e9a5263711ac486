"""Plugins and preloaded modules (1.8), and what schedulers do unasked (1.9)."""

from __future__ import annotations

from .row import NOTHING, Call

PLUGINS = [
    Call(
        "SchedulerPlugin",
        """
    class Events(dd.SchedulerPlugin):
        def transition(self, key, start, finish, *args, **kwargs): pass
    Events() is not None
    """,
    ),
    Call(
        "WorkerPlugin: setup, teardown",
        """
    with local(processes=True) as own, dd.Client(own, set_as_default=False) as c:
        c.wait_for_workers(1)
        path = str(folder / "torn")
        c.run(lambda: os.environ.__setitem__("TORN", path))
        c.register_plugin(Setup())
        c.unregister_worker_plugin("setup")
        found = until((folder / "torn").exists)
    found
    """,
    ),
    Call(
        "WorkerPlugin.transition",
        """
    class Seen(dd.WorkerPlugin):
        name = "transitions"
        keys = []
        def transition(self, key, start, finish, **kwargs):
            dd.get_worker
            self.keys.append(key)
    client.register_plugin(Seen())
    client.submit(inc, 800).result()
    any(client.run(lambda dask_worker: dask_worker.plugins["transitions"].keys).values())
    """,
    ),
    Call(
        "NannyPlugin: setup, teardown, restart",
        """
    class Watched(dd.NannyPlugin):
        name = "watched"
        restart = True
        def setup(self, nanny):
            (folder / "nanny").write_text("x")
    with local(processes=True) as own, dd.Client(own, set_as_default=False) as c:
        c.wait_for_workers(1)
        c.register_plugin(Watched())
        found = until((folder / "nanny").exists)
    found
    """,
    ),
    Call(
        "PipInstall(packages)",
        'dd.PipInstall(["x"], pip_options=["--upgrade"], restart_workers=False) is not None',
    ),
    Call(
        "CondaInstall(packages)",
        'dd.CondaInstall(["x"]) is not None',
    ),
    Call(
        "InstallPlugin(function)",
        """
    def install():
        (folder / "installed").write_text("x")
    with local() as own, dd.Client(own, set_as_default=False) as c:
        c.wait_for_workers(1)
        c.register_plugin(dd.InstallPlugin(install, restart_workers=False))
        found = until((folder / "installed").exists)
    found
    """,
    ),
    Call(
        "Environ(variables)",
        """
    with local(processes=True) as own, dd.Client(own, set_as_default=False) as c:
        c.wait_for_workers(1)
        c.register_plugin(dd.Environ({"ENVIRON": "set"}))
        found = until(lambda: "set" in c.run(os.getenv, "ENVIRON").values())
    found
    """,
    ),
    Call(
        "UploadFile(path)",
        """
    (folder / "uploaded2.py").write_text("x = 9")
    client.register_plugin(dd.UploadFile(str(folder / "uploaded2.py")))
    def use():
        import uploaded2
        return uploaded2.x
    client.submit(use).result() == 9
    """,
    ),
    Call(
        "UploadDirectory(path)",
        """
    package = folder / "uploaded3"
    package.mkdir()
    (package / "__init__.py").write_text("x = 10")
    client.register_plugin(dd.UploadDirectory(str(package), update_path=True))
    client.wait_for_workers(2)
    def use():
        import uploaded3
        return uploaded3.x
    client.submit(use).result() == 10
    """,
    ),
    Call(
        "ForwardOutput",
        """
    from distributed.diagnostics.plugin import ForwardOutput
    client.register_plugin(ForwardOutput(), name="forward")
    with contextlib.redirect_stdout(io.StringIO()) as out:
        client.submit(lambda: print("forwarded"), pure=False).result()
        found = until(lambda: "forwarded" in out.getvalue())
    client.unregister_worker_plugin("forward")
    found
    """,
        """
    with contextlib.redirect_stdout(io.StringIO()) as out:
        with dd.Client(cluster, forward_output=True, set_as_default=False) as other:
            other.submit(lambda: print("forwarded"), pure=False).result()
            found = until(lambda: "forwarded" in out.getvalue())
    found
    """,
        "`Client(forward_output=True)`",
    ),
    Call(
        "ForwardLoggingPlugin",
        """
    from distributed.diagnostics.plugin import ForwardLoggingPlugin
    True
    """,
        "client.forward_logging() is None and client.unforward_logging() is None",
        "`client.forward_logging()`",
    ),
    Call(
        "`--preload` of workers",
        """
    (folder / "pre.py").write_text("def dask_setup(worker): worker.pre = 2")
    with local(processes=True) as own:
        command = [sys.executable, "-m", "distributed.cli.dask_worker", own.scheduler_address,
            "--preload", str(folder / "pre.py"), "--nthreads", "1", "--no-dashboard"]
        started = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        with dd.Client(own, set_as_default=False) as c:
            c.wait_for_workers(2)
            found = list(c.run(lambda dask_worker: getattr(dask_worker, "pre", None)).values())
        started.terminate()
        started.wait()
    2 in found
    """,
        """
    (folder / "pre.py").write_text("def dask_setup(worker): worker.pre = 2")
    with daemons(worker=["--preload", str(folder / "pre.py")]) as (c, _):
        found = list(c.run(lambda dask_worker: dask_worker.pre).values())
    2 in found
    """,
        "`weft worker --preload`",
    ),
    Call(
        "`--preload` of schedulers",
        """
    (folder / "pres.py").write_text("def dask_setup(scheduler): scheduler.pre = 2")
    with local(scheduler_kwargs={"preload": str(folder / "pres.py")}) as own:
        found = own.scheduler.pre
    found == 2
    """,
        'local(scheduler_kwargs={"preload": "pres.py"})',
    ),
    Call(
        "`--preload-nanny`",
        "local(processes=True, preload_nanny=[]).close() is None",
        'local(processes=True, preload_nanny=["x"])',
    ),
]

SERVICES = [
    Call(
        "memory target and spill: results go to disk",
        """
    options = dict(processes=True, memory_limit="400MB", local_directory=str(folder))
    with local(**options) as own, dd.Client(own, set_as_default=False) as c:
        fs = c.map(lambda i: b"x" * 40_000_000, range(10), pure=False)
        n = sum(c.gather(c.map(len, fs)))
    n == 400_000_000
    """,
    ),
    Call(
        "memory terminate: a worker that takes too much is restarted",
        """
    options = dict(processes=True, memory_limit="300MB")
    with local(**options) as own, dd.Client(own, set_as_default=False) as c:
        error = c.submit(lambda: (b"x" * 600_000_000, threading.Event().wait(60)) and 0).exception()
    isinstance(error, dd.KilledWorker)
    """,
    ),
    Call(
        "config `worker.memory.target`, `spill`, `pause`, `terminate`",
        """
    with dask.config.set({"distributed.worker.memory.pause": 0.9}):
        local(processes=True).close()
    True
    """,
        """
    with daemons(worker=["--memory-target", "0.5", "--memory-pause", "0.9"]) as (c, _):
        done = c.submit(inc, 1).result()
    done == 2
    """,
        "`weft worker --memory-pause 0.9`, or weft.toml",
    ),
    Call(
        "config `worker.memory.max-spill`",
        """
    with dask.config.set({"distributed.worker.memory.max-spill": "1GB"}):
        local(processes=True).close()
    True
    """,
        """
    with daemons(worker=["--max-spill", "1GB"]) as (c, _):
        done = c.submit(inc, 1).result()
    done == 2
    """,
        "`weft worker --max-spill`",
    ),
    Call(
        "Worker(data=) of one's own",
        """
    with local(data=dict) as own, dd.Client(own, set_as_default=False) as c:
        found = c.submit(inc, 1).result()
    found == 2
    """,
    ),
    Call(
        "idle workers get the tasks of others",
        """
    with local() as own, dd.Client(own, set_as_default=False) as c:
        fs = c.map(lambda i: time.sleep(0.3) or dd.get_worker().address, range(8))  # workload
        own.scale(2)
        found = len(set(c.gather(fs)))
    found == 2
    """,
    ),
    Call(
        "config `scheduler.work-stealing`",
        """
    with dask.config.set({"distributed.scheduler.work-stealing": False}):
        local().close()
    True
    """,
        NOTHING,
        "idle workers take tasks of busy ones; there is nothing to tune",
    ),
    Call(
        "queuing: first tasks wait at the scheduler",
        """
    with local() as own, dd.Client(own, set_as_default=False) as c:
        fs = c.map(lambda i: time.sleep(0.1), range(20))  # workload
        until(lambda: any(c.processing().values()))
        n = len([*c.processing().values()][0])
        dd.wait(fs)
    n < 20
    """,
    ),
    Call(
        "ReduceReplicas: copies that nothing needs are dropped",
        """
    with local(n_workers=2) as own, dd.Client(own, set_as_default=False) as c:
        c.wait_for_workers(2)
        f = c.submit(inc, 1)
        dd.wait(f)
        c.replicate([f])
        c.amm.run_once()
        found = until(lambda: len(c.who_has([f])[f.key]) == 1)
    found
    """,
        "client.amm",
    ),
    Call(
        "retire_workers: only copies are moved first",
        """
    with local(n_workers=2) as own, dd.Client(own, set_as_default=False) as c:
        c.wait_for_workers(2)
        w = next(iter(c.nthreads()))
        f = c.submit(inc, 1, workers=w, allow_other_workers=True)
        dd.wait(f)
        c.retire_workers([w])
        found = f.result() == 2 and w not in c.nthreads()
    found
    """,
    ),
    Call(
        "retire_workers(close_workers=)",
        """
    with local(n_workers=2) as own, dd.Client(own, set_as_default=False) as c:
        c.wait_for_workers(2)
        w = next(iter(c.nthreads()))
        found = c.retire_workers([w], close_workers=True)
    len(found) == 1
    """,
    ),
    Call(
        "restart()",
        """
    with local(processes=True) as own, dd.Client(own, set_as_default=False) as c:
        c.wait_for_workers(1)
        before = c.run(os.getpid)
        c.restart()
        after = c.run(os.getpid)
    [*before.values()] != [*after.values()]
    """,
    ),
    Call(
        "restart(timeout=, wait_for_workers=)",
        """
    with local(processes=True) as own, dd.Client(own, set_as_default=False) as c:
        c.wait_for_workers(1)
        c.restart(timeout=60, wait_for_workers=True)
        found = len(c.nthreads())
    found == 1
    """,
    ),
    Call(
        "restart_workers(workers)",
        """
    with local(processes=True) as own, dd.Client(own, set_as_default=False) as c:
        c.wait_for_workers(1)
        [w] = c.nthreads()
        found = c.restart_workers([w], timeout=60, raise_for_error=True)
    [*found.values()] == ["OK"]
    """,
    ),
    Call(
        "config `allowed-failures`",
        """
    with dask.config.set({"distributed.scheduler.allowed-failures": 0}):
        with local(processes=True) as own, dd.Client(own, set_as_default=False) as c:
            error = c.submit(die).exception()
    isinstance(error, dd.KilledWorker)
    """,
        """
    with daemons("--allowed-deaths", "0", worker=[]) as (c, _):
        error = c.submit(die).exception()
    isinstance(error, dd.KilledWorker)
    """,
        "`weft scheduler --allowed-deaths`",
    ),
    Call(
        "config `no-workers-timeout`",
        """
    with dask.config.set({"distributed.scheduler.no-workers-timeout": "1s"}):
        with local(n_workers=0) as own, dd.Client(own, set_as_default=False) as c:
            error = c.submit(inc, 1, resources={"NO": 1}).exception(timeout=60)
    isinstance(error, Exception)
    """,
        """
    with daemons("--no-worker-timeout", "1s") as (c, _):
        error = c.submit(inc, 1).exception(timeout=60)
    isinstance(error, weft.NoWorker)
    """,
        "`weft scheduler --no-worker-timeout`, `submit(no_worker_timeout=)`",
    ),
    Call(
        "config `idle-timeout`",
        """
    with local(scheduler_kwargs={"idle_timeout": "1h"}) as own: found = own.scheduler.idle_timeout
    found == 3600
    """,
        """
    with daemons("--idle-timeout", "1h") as (c, _):
        found = c.scheduler_info()["workers"]
    found == {}
    """,
        "`weft scheduler --idle-timeout`",
    ),
    Call(
        "config `worker-ttl`",
        """
    with dask.config.set({"distributed.scheduler.worker-ttl": "1m"}):
        local().close()
    True
    """,
        """
    with daemons("--liveness-timeout", "60s") as (c, _):
        found = c.scheduler_info()["workers"]
    found == {}
    """,
        "`weft scheduler --liveness-timeout`",
    ),
    Call(
        "config `default-task-durations`, `unknown-task-duration`",
        """
    with dask.config.set({"distributed.scheduler.unknown-task-duration": "1s"}):
        local().close()
    True
    """,
        NOTHING,
        "durations are measured",
    ),
    Call(
        "p2p: shuffle of data frames",
        """
    frame = pandas.DataFrame({"k": numpy.arange(100) % 7, "v": 1})
    ddf = dask.dataframe.from_pandas(frame, npartitions=5)
    with dask.config.set({"dataframe.shuffle.method": "p2p"}):
        found = len(ddf.shuffle("k").compute())
    found == 100
    """,
        """
    frame = pandas.DataFrame({"k": numpy.arange(100) % 7, "v": 1})
    len(dask.dataframe.from_pandas(frame, npartitions=5).shuffle("k").compute()) == 100
    """,
        "nothing to set: [shuffles](collections.md#shuffles)",
    ),
    Call(
        "p2p: merge of data frames",
        """
    left = dask.dataframe.from_pandas(pandas.DataFrame({"k": range(50), "a": 1}), npartitions=5)
    right = dask.dataframe.from_pandas(pandas.DataFrame({"k": range(50), "b": 2}), npartitions=5)
    len(left.merge(right, on="k").compute()) == 50
    """,
    ),
    Call(
        "p2p: rechunk of arrays",
        """
    with dask.config.set({"array.rechunk.method": "p2p"}):
        x = da.ones((40, 40), chunks=(40, 5)).rechunk((5, 40))
        found = x.sum().compute()
    found == 1600
    """,
        "da.ones((40, 40), chunks=(40, 5)).rechunk((5, 40)).sum().compute() == 1600",
        "nothing to set: [shuffles](collections.md#shuffles)",
    ),
]
