"""Clusters (1.7)."""

from __future__ import annotations

from .row import Call

CLUSTERS = [
    Call(
        "LocalCluster(n_workers=, threads_per_worker=)",
        """
    with local(n_workers=2, threads_per_worker=3) as own, dd.Client(own, set_as_default=False) as c:
        c.wait_for_workers(2)
        found = sorted(c.nthreads().values())
    found == [3, 3]
    """,
    ),
    Call(
        "LocalCluster(processes=False)",
        """
    with local() as own, dd.Client(own, set_as_default=False) as c:
        found = c.submit(os.getpid).result()
    found == os.getpid()
    """,
    ),
    Call(
        "LocalCluster(name=)",
        """
    with local(name="mine") as own: name = own.name
    name == "mine"
    """,
    ),
    Call(
        "LocalCluster(loop=)",
        "local(loop=client.loop).close() is None",
    ),
    Call(
        "LocalCluster(host=)",
        """
    with local(host="127.0.0.1", processes=True) as own: address = own.scheduler_address
    "127.0.0.1" in address
    """,
        """
    with local(host="127.0.0.1", protocol="tcp", processes=True) as own:
        address = own.scheduler_address
    "127.0.0.1" in address
    """,
        '`host=` with `protocol="tcp"`',
    ),
    Call(
        "LocalCluster(scheduler_port=)",
        """
    import socket
    with socket.create_server(("127.0.0.1", 0)) as free: port = free.getsockname()[1]
    with local(scheduler_port=port, processes=True) as own: address = own.scheduler_address
    address.endswith(str(port))
    """,
    ),
    Call(
        "LocalCluster(silence_logs=)",
        "local(silence_logs=logging.ERROR).close() is None",
    ),
    Call(
        "LocalCluster(dashboard_address=)",
        """
    with local(dashboard_address="127.0.0.1:0", processes=True) as own: link = own.dashboard_link
    link.startswith("http")
    """,
    ),
    Call(
        "LocalCluster(worker_dashboard_address=)",
        'local(worker_dashboard_address=":0").close() is None',
    ),
    Call(
        "LocalCluster(services=, worker_services=, service_kwargs=)",
        'local(service_kwargs={"dashboard": {"prefix": "/x"}}).close() is None',
    ),
    Call(
        "LocalCluster(asynchronous=True)",
        """
    async def main():
        async with local(asynchronous=True) as own:
            async with dd.Client(own, asynchronous=True, set_as_default=False) as c:
                return await c.submit(inc, 1)
    run(main()) == 2
    """,
    ),
    Call(
        "LocalCluster(security=)",
        "local(processes=True, security=True).close() is None",
    ),
    Call(
        "LocalCluster(protocol=)",
        """
    with local(protocol="tcp", processes=True) as own: a = own.scheduler_address
    "tcp" in a
    """,
    ),
    Call(
        "LocalCluster(blocked_handlers=)",
        'local(blocked_handlers=["feed"]).close() is None',
    ),
    Call(
        "LocalCluster(interface=)",
        'local(interface="lo", processes=True).close() is None',
    ),
    Call(
        "LocalCluster(worker_class=)",
        "local(worker_class=dd.Worker).close() is None",
        """
    from distributed import Worker
    local(worker_class=Worker).close() is None
    """,
    ),
    Call(
        "LocalCluster(scheduler_kwargs=)",
        'local(scheduler_kwargs={"idle_timeout": "1 h"}).close() is None',
    ),
    Call(
        "LocalCluster(scheduler_sync_interval=)",
        "local(scheduler_sync_interval=2).close() is None",
    ),
    Call(
        "LocalCluster(memory_limit=)",
        """
    options = dict(memory_limit="1GB", processes=True)
    with local(**options) as own, dd.Client(own, set_as_default=False) as c:
        c.wait_for_workers(1)
        found = [w["memory_limit"] for w in c.scheduler_info()["workers"].values()]
    found == [10**9]
    """,
    ),
    Call(
        "LocalCluster(resources=)",
        'local(resources={"GPU": 1}).close() is None',
    ),
    Call(
        "LocalCluster(local_directory=)",
        "local(local_directory=str(folder)).close() is None",
    ),
    Call(
        "LocalCluster(env=)",
        """
    with local(processes=True, env={"MODE": "a"}) as own, dd.Client(own, set_as_default=False) as c:
        found = c.submit(os.getenv, "MODE").result()
    found == "a"
    """,
    ),
    Call(
        "LocalCluster(preload=)",
        """
    (folder / "preloaded.py").write_text("def dask_setup(worker): worker.preloaded = 1")
    options = dict(preload=str(folder / "preloaded.py"))
    with local(processes=True, **options) as own, dd.Client(own, set_as_default=False) as c:
        found = c.submit(lambda: dd.get_worker().preloaded).result()
    found == 1
    """,
    ),
    Call(
        "LocalCluster(preload_argv=)",
        "local(processes=True, preload_argv=[]).close() is None",
    ),
    Call(
        "LocalCluster(lifetime=)",
        'local(processes=True, lifetime="1h").close() is None',
    ),
    Call(
        "LocalCluster(death_timeout=)",
        'local(processes=True, death_timeout="1m").close() is None',
    ),
    Call(
        "LocalCluster(nanny=)",
        "local(nanny=False) and True",
        "local(nanny=False)",
    ),
    Call(
        "cluster.scale(n)",
        """
    with local() as own, dd.Client(own, set_as_default=False) as c:
        own.scale(2)
        c.wait_for_workers(2)
        found = len(c.nthreads())
    found == 2
    """,
    ),
    Call(
        "cluster.scale(cores=)",
        """
    with local() as own, dd.Client(own, set_as_default=False) as c:
        own.scale(cores=2)
        c.wait_for_workers(2)
    True
    """,
    ),
    Call(
        "cluster.scale(memory=)",
        """
    with local(memory_limit="1GB") as own, dd.Client(own, set_as_default=False) as c:
        own.scale(memory="2GB")
        c.wait_for_workers(2)
    True
    """,
    ),
    Call(
        "cluster.adapt(minimum=, maximum=)",
        """
    with local(n_workers=0) as own, dd.Client(own, set_as_default=False) as c:
        own.adapt(minimum=0, maximum=2)
        found = c.submit(inc, 1).result()
    found == 2
    """,
    ),
    Call(
        "cluster.adapt(interval=, target_duration=)",
        """
    with local() as own: own.adapt(minimum=1, maximum=2, interval="500ms", target_duration="5s")
    True
    """,
    ),
    Call(
        "cluster.adapt(wait_count=)",
        """
    with local() as own: own.adapt(maximum=1, wait_count=2)
    True
    """,
    ),
    Call(
        "cluster.adapt(minimum_cores=, maximum_cores=, minimum_memory=, maximum_memory=)",
        """
    with local() as own: own.adapt(minimum_cores=1, maximum_cores=2)
    True
    """,
    ),
    Call(
        "cluster.adapt(Adaptive=)",
        """
    with local() as own: own.adapt(Adaptive=dd.Adaptive, maximum=1)
    True
    """,
        "with local() as own: own.adapt(Adaptive=object, maximum=1)",
    ),
    Call(
        "Adaptive(cluster, ...)",
        """
    with local() as own: dd.Adaptive(own, minimum=0, maximum=1).stop()
    True
    """,
    ),
    Call(
        "cluster.wait_for_workers(n)",
        "cluster.wait_for_workers(2) is None",
    ),
    Call(
        "cluster.get_logs()",
        "cluster.get_logs(cluster=True, scheduler=True, workers=True) is not None",
    ),
    Call(
        "cluster.get_client()",
        """
    with local() as own, own.get_client() as c: done = c.submit(inc, 1).result() == 2
    done
    """,
    ),
    Call(
        "cluster.close(timeout=)",
        """
    own = local()
    own.close(timeout=10)
    str(own.status).endswith("closed")
    """,
    ),
    Call(
        "cluster.scheduler_address, dashboard_link, scheduler_info",
        """
    isinstance(cluster.scheduler_address, str) and len(cluster.scheduler_info["workers"]) == 2
    """,
    ),
    Call(
        "cluster.plan, requested, observed",
        "len(cluster.plan) == len(cluster.observed) == 2",
    ),
    Call(
        "cluster.workers, name, status, asynchronous",
        'len(cluster.workers) == 2 and str(cluster.status).endswith("running")',
    ),
    Call(
        "a cluster in a notebook",
        '"<" in cluster._repr_html_()',
    ),
    Call(
        "LocalCluster.from_name(name)",
        "callable(dd.LocalCluster.from_name)",
    ),
    Call(
        "SpecCluster(workers, scheduler)",
        """
    spec = {0: {"cls": dd.Worker, "options": {"nthreads": 1}}}
    with dd.SpecCluster(spec, {"cls": dd.Scheduler, "options": {"dashboard": False}}) as own:
        with dd.Client(own, set_as_default=False) as c:
            found = c.submit(inc, 1).result()
    found == 2
    """,
        """
    class Processes(weft.deploy.JobCluster):
        running = {}
        def start_jobs(self, names):
            new = [subprocess.Popen(self.worker_command(name)) for name in names]
            self.running |= {str(process.pid): process for process in new}
            return [str(process.pid) for process in new]
        def end_jobs(self, jobs):
            for job in jobs:
                self.running[job].terminate()
        def job_states(self, jobs):
            ended = {job: self.running[job].poll() is not None for job in jobs}
            return {job: weft.deploy.JobState("ended" if ended[job] else "running") for job in jobs}
    with Processes(1, host="127.0.0.1") as own, dd.Client(own, set_as_default=False) as c:
        found = c.submit(inc, 1).result()
    for process in Processes.running.values():
        process.wait()
    found == 2
    """,
        "[`weft.deploy.JobCluster`](own_cluster.md)",
    ),
    Call(
        "SubprocessCluster(...)",
        """
    options = dict(n_workers=1, **QUIET)
    with dd.SubprocessCluster(**options) as own, dd.Client(own, set_as_default=False) as c:
        found = c.submit(inc, 1).result()
    found == 2
    """,
        """
    with dd.LocalCluster(n_workers=1) as own, dd.Client(own, set_as_default=False) as c:
        found = c.submit(inc, 1).result()
    found == 2
    """,
        "`LocalCluster`: its scheduler and workers are processes",
    ),
    Call(
        "SSHCluster(hosts, ...): the name alone",
        """
    callable(dd.SSHCluster)
    """,
        "callable(weft.deploy.SSHCluster)",
        "[`weft.deploy.SSHCluster`](ssh.md)",
    ),
    Call(
        "Nanny: a worker that dies is replaced",
        """
    with local(processes=True) as own, dd.Client(own, set_as_default=False) as c:
        c.wait_for_workers(1)
        before = list(c.run(os.getpid).values())
        dead = c.submit(die)
        failed = dead.exception() is not None
        c.wait_for_workers(1)
        after = list(c.run(os.getpid).values())
    failed and before != after
    """,
    ),
    Call(
        "Nanny: one thread for each numerical library",
        'set(client.run(os.getenv, "OMP_NUM_THREADS").values()) == {"1"}',
    ),
    Call(
        "Scheduler(...), Worker(...), Nanny(...) as objects",
        """
    async def main():
        async with dd.Scheduler(dashboard=False, port=0) as s, dd.Worker(s.address, nthreads=1):
            async with dd.Client(s.address, asynchronous=True, set_as_default=False) as c:
                return await c.submit(inc, 1)
    run(main()) == 2
    """,
    ),
]
