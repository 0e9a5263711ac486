"""Clients: their start and end (1.2)."""

from __future__ import annotations

from .row import Call

START = [
    Call(
        "Client(address)",
        """
    with dd.Client(cluster.scheduler_address, set_as_default=False) as other:
        done = other.submit(inc, 1).result() == 2
    done
    """,
        """
    with dd.Client(
        cluster.scheduler_address, security=cluster.security, set_as_default=False
    ) as other:
        done = other.submit(inc, 1).result() == 2
    done
    """,
        "`Client(cluster)`, `security=cluster.security`, or the cluster's connection "
        "file: each has a token",
    ),
    Call(
        "Client(cluster)",
        """
    with dd.Client(cluster, set_as_default=False) as other:
        done = other.submit(inc, 1).result() == 2
    done
    """,
    ),
    Call(
        "Client()",
        """
    with dd.Client(**QUIET) as other: done = other.submit(inc, 1).result()
    done
    """,
    ),
    Call(
        "Client(n_workers=, ...)",
        """
    with connected(n_workers=2, threads_per_worker=1) as other:
        other.wait_for_workers(2)
        n = len(other.nthreads())
    n == 2
    """,
    ),
    Call(
        "Client(address) of no scheduler, timeout=",
        'isinstance(error_of(dd.Client, "tcp://127.0.0.1:9", timeout="1s"), OSError)',
    ),
    Call(
        "Client(set_as_default=False)",
        """
    with dd.Client(cluster, set_as_default=False):
        kept = dd.default_client() is client
    kept
    """,
    ),
    Call(
        "Client(scheduler_file=)",
        """
    client.write_scheduler_file(str(folder / "cluster.json"))
    with dd.Client(scheduler_file=str(folder / "cluster.json"), set_as_default=False) as other:
        done = other.submit(inc, 1).result() == 2
    done
    """,
        """
    with daemons() as (_, path), dd.Client(scheduler_file=path, set_as_default=False) as other:
        done = other.scheduler_info()["workers"] == {}
    done
    """,
        "the same, with the file of `weft scheduler --connection-file cluster.json`",
    ),
    Call(
        "Client.write_scheduler_file(path)",
        """
    with local() as own, dd.Client(own, set_as_default=False) as other:
        other.write_scheduler_file(str(folder / "s.json"))
    (folder / "s.json").exists()
    """,
        'client.write_scheduler_file("s.json")',
    ),
    Call(
        "Client(security=True)",
        """
    with connected(security=True, processes=True, threads_per_worker=1) as other:
        done = other.submit(inc, 1).result() == 2
    done
    """,
    ),
    Call(
        "Client(asynchronous=True)",
        """
    async def main():
        async with connected(asynchronous=True) as other:
            return await other.submit(inc, 1)
    run(main()) == 2
    """,
    ),
    Call(
        "Client(name=)",
        """
    with dd.Client(cluster, name="mine", set_as_default=False) as other:
        named = other.id if "mine" in other.id else other.name
    "mine" in named
    """,
    ),
    Call(
        "Client(loop=)",
        "dd.Client(cluster, loop=client.loop, set_as_default=False).close() is None",
    ),
    Call(
        "Client(heartbeat_interval=)",
        'dd.Client(cluster, heartbeat_interval="2s", set_as_default=False).close() is None',
    ),
    Call(
        "Client(serializers=, deserializers=)",
        """
    names = ["dask", "pickle"]
    dd.Client(cluster, serializers=names, deserializers=names, set_as_default=False).close() is None
    """,
    ),
    Call(
        "Client(extensions=)",
        """
    class Extension:
        def __init__(self, client): pass
    dd.Client(cluster, extensions={"x": Extension}, set_as_default=False).close() is None
    """,
    ),
    Call(
        "Client(direct_to_workers=)",
        "dd.Client(cluster, direct_to_workers=True, set_as_default=False).close() is None",
    ),
    Call(
        "Client(connection_limit=)",
        "dd.Client(cluster, connection_limit=64, set_as_default=False).close() is None",
    ),
    Call(
        "config `scheduler-address`",
        """
    with dask.config.set({"scheduler-address": cluster.scheduler_address}):
        with dd.Client(set_as_default=False) as other:
            done = other.submit(inc, 1).result() == 2
    done
    """,
        """
    with daemons() as (_, path):
        os.environ["WEFT_CONNECTION_FILE"] = path
        with dd.Client(set_as_default=False) as other:
            done = other.scheduler_info()["workers"] == {}
        del os.environ["WEFT_CONNECTION_FILE"]
    done
    """,
        "`$WEFT_CONNECTION_FILE`",
    ),
    Call(
        "Client.start()",
        "client.start() is None",
    ),
    Call(
        "await Client(...)",
        """
    async def main():
        other = await connected(asynchronous=True)
        try:
            return other.status
        finally:
            await other.close()
    run(main()) == "running"
    """,
    ),
    Call(
        "Client.close(timeout=)",
        """
    other = connected()
    other.close(timeout=10)
    other.status == "closed"
    """,
    ),
    Call(
        "Client.shutdown()",
        """
    own = local()
    other = dd.Client(own, set_as_default=False)
    other.shutdown()
    other.status == "closed"
    """,
    ),
    Call(
        "the end of a program that has not closed its client",
        """
    code = f"import {dd.__name__} as dd; c = dd.Client(processes=False, n_workers=1, **{QUIET!r})"
    subprocess.run([sys.executable, "-c", code + "; c.submit(abs, -1).result()"]).returncode == 0
    """,
    ),
    Call(
        "Client.as_current()",
        """
    with dd.Client(cluster, set_as_default=False) as other, other.as_current():
        found = dd.Client.current() is other
    found
    """,
    ),
    Call(
        "Client.current(allow_global=)",
        """
    dd.Client.current() is client
    isinstance(error_of(dd.Client.current, allow_global=False), ValueError)
    """,
    ),
    Call(
        "Client.loop",
        "client.loop.asyncio_loop.is_running()",
        "client.loop is not None",
        "a loop of asyncio, not of tornado",
    ),
    Call(
        "Client.asynchronous",
        "client.asynchronous is False",
    ),
    Call(
        "Client.status",
        'client.status == "running"',
    ),
    Call(
        "Client.id, name",
        "isinstance(client.id, str)",
    ),
    Call(
        "Client.cluster",
        "client.cluster is cluster",
    ),
    Call(
        "Client.dashboard_link",
        """
    with connected(dashboard_address=":0", processes=True, threads_per_worker=1) as other:
        link = other.dashboard_link
    link.startswith("http")
    """,
    ),
    Call(
        "Client.futures",
        """
    future = client.submit(inc, 70)
    future.key in client.futures
    """,
    ),
    Call(
        "Client.datasets",
        """
    client.datasets["mapped"] = 1
    found = client.datasets["mapped"], list(client.datasets)
    del client.datasets["mapped"]
    found == (1, ["mapped"])
    """,
    ),
    Call(
        "the client in a notebook",
        '"<" in client._repr_html_()',
    ),
    Call(
        "Client.wait_for_workers(n)",
        "client.wait_for_workers(2) is None",
    ),
    Call(
        "Client.wait_for_workers(n, timeout=)",
        "isinstance(error_of(client.wait_for_workers, 99, timeout=0.2), TimeoutError)",
    ),
    Call(
        "Client.sync(f)",
        "client.sync(later, 3) == 3",
        """
    import distributed
    weft.compat.distributed.install()
    try:
        found = client.sync(later, 3)
    finally:
        weft.compat.distributed.uninstall()
    found == 3
    """,
        "with `weft.compat.distributed.install()`",
    ),
]
