"""`ray.init` and its options, and the end of a program."""

from __future__ import annotations

from ..calls.row import Call

START = [
    Call(
        "ray.init()",
        """
    program("import ray; ray.init(); print(ray.is_initialized())") == "True"
    """,
        """
    with connected() as other: done = other.submit(inc, 1).result()
    done == 2
    """,
        "`weft.Client()`",
    ),
    Call(
        "ray.init(num_cpus=)",
        """
    program("import ray; ray.init(num_cpus=3); print(ray.cluster_resources()['CPU'])") == "3.0"
    """,
        """
    with connected(n_workers=1, threads_per_worker=3) as other: n = sum(other.nthreads().values())
    n == 3
    """,
        "`weft.Client(n_workers=, threads_per_worker=)`",
    ),
    Call(
        "ray.init(num_gpus=, resources=)",
        """
    program('''
    import ray
    ray.init(num_gpus=2, resources={"tpu": 1})
    print(ray.cluster_resources()["GPU"], ray.cluster_resources()["tpu"])''') == "2.0 1.0"
    """,
        """
    with connected(resources={"GPU": 2, "tpu": 1}) as other:
        done = other.submit(inc, 1, resources={"GPU": 2, "tpu": 1}).result()
    done == 2
    """,
        '`weft.Client(resources={"GPU": 2, "tpu": 1})`: amounts of each worker',
    ),
    Call(
        "ray.init(object_store_memory=)",
        """
    program('''
    import ray
    ray.init(object_store_memory=100_000_000)
    print(ray.cluster_resources()["object_store_memory"])''') == "100000000.0"
    """,
        """
    with connected(memory_limit="200MB") as other:
        (worker,) = other.scheduler_info()["workers"].values()
    worker["memory_limit"] == 200_000_000
    """,
        "`weft.Client(memory_limit=)`: that of each worker, of which results have a part",
    ),
    Call(
        "ray.init(address=)",
        """
    program(f"import ray; ray.init({ADDRESS!r}); print(len(ray.nodes()))") == "1"
    """,
        """
    with weft.Client(cluster, set_as_default=False) as other: done = other.submit(inc, 1).result()
    done == 2
    """,
        "`weft.Client(address)`, `weft.Client(cluster)`, or `weft.Client(connection_file=)`",
    ),
    Call(
        "`ray.init()` with `$RAY_ADDRESS`",
        """
    program("import ray; ray.init(); print(ray.cluster_resources()['tpu'])",
        RAY_ADDRESS=ADDRESS) == "2.0"
    """,
        """
    with daemons(worker=()) as (other, path):
        code = "import weft; print(weft.Client().submit(abs, -2).result())"
        done = program(code, WEFT_CONNECTION_FILE=path)
    done == "2"
    """,
        "`weft.Client()` with `$WEFT_CONNECTION_FILE`",
    ),
    Call(
        '`ray.init("ray://host:10001")`',
        '''
    alone("""
    ray start --head --port=6399 --ray-client-server-port=10099 --include-dashboard=false
    python -c '
    import ray
    ray.init("ray://127.0.0.1:10099")
    print(ray.get(ray.remote(lambda x: -x).remote(-2)))'
    """) == "2"
    ''',
        """
    with weft.Client(cluster, set_as_default=False) as other: done = other.submit(inc, 1).result()
    done == 2
    """,
        "`weft.Client(address)`: there is one kind of client",
    ),
    Call(
        "ray.init(namespace=)",
        """
    program('''
    import ray
    print(ray.init(namespace="a") and ray.get_runtime_context().namespace)''') == "a"
    """,
        'connected(namespace="a")',
    ),
    Call(
        "ray.init(ignore_reinit_error=True)",
        "ray.init(ignore_reinit_error=True) is not None",
        """
    with connected() as other: both = {client.status, other.status}
    both == {"running"}
    """,
        "leave it out: several clients may be open",
    ),
    Call(
        "ray.init(include_dashboard=, dashboard_host=, dashboard_port=)",
        """
    program('''
    import ray
    found = ray.init(include_dashboard=True, dashboard_host="127.0.0.1", dashboard_port=8299)
    print(found.dashboard_url)''') == "127.0.0.1:8299"
    """,
        """
    with connected(processes=True, dashboard_address=":0") as other: link = other.dashboard_link
    link.startswith("http")
    """,
        '`weft.Client(dashboard_address=":0")`',
    ),
    Call(
        "ray.init(log_to_driver=)",
        """
    program('''
    import ray
    ray.init(log_to_driver=False)
    ray.get(ray.remote(lambda: print("not shown")).remote())
    print("end")''') == "end"
    """,
        """
    with connected(forward_output=False) as other: done = other.submit(inc, 1).result()
    done == 2
    """,
        "`weft.Client(forward_output=)`",
    ),
    Call(
        "ray.init(logging_level=)",
        """
    program("import ray; ray.init(logging_level='ERROR'); print('end')") == "end"
    """,
        """
    with connected(silence_logs=logging.ERROR) as other: done = other.submit(inc, 1).result()
    done == 2
    """,
        "`weft.Client(silence_logs=logging.ERROR)`",
    ),
    Call(
        'ray.init(logging_config=ray.LoggingConfig(encoding="JSON"))',
        """
    program('''
    import ray
    ray.init(logging_config=ray.LoggingConfig(encoding="JSON"))
    print(ray.get(ray.remote(lambda x: -x).remote(-2)))''') == "2"
    """,
        """
    options = "--log-format", "json"
    with daemons(*options, worker=options) as (other, _): done = other.submit(inc, 1).result()
    done == 2
    """,
        "`weft scheduler --log-format json`, `weft worker --log-format json`",
    ),
    Call(
        '`ray.init(runtime_env={"env_vars": ...})`',
        """
    program('''
    import os, ray
    ray.init(runtime_env={"env_vars": {"MODE": "a"}})
    print(ray.get(ray.remote(os.getenv).remote("MODE")))''') == "a"
    """,
        """
    with weft.Client(n_workers=1, env={"MODE": "a"}, set_as_default=False) as other:
        mode = other.submit(os.getenv, "MODE").result()
    mode == "a"
    """,
        '`weft.Client(env={"MODE": "a"})`',
    ),
    Call(
        "ray.init(_temp_dir=)",
        """
    place = tempfile.mkdtemp(prefix="ray-")
    program(f"import ray; ray.init(_temp_dir={place!r}); print(1)") == "1" and os.listdir(place)
    """,
        """
    with connected(local_directory=folder) as other:
        where = other.submit(lambda: weft.get_worker().local_directory).result()
    pathlib.Path(where).is_relative_to(folder)
    """,
        "`weft.Client(local_directory=)`",
    ),
    Call(
        "ray.init(local_mode=True)",
        """
    program("import ray; ray.init(local_mode=True); print(1)") == "1"
    """,
        """
    with connected(processes=False) as other: where = other.submit(os.getpid).result()
    where == os.getpid()
    """,
        "`weft.Client(processes=False)`: workers are threads of the program",
    ),
    Call(
        "ray.init(labels=)",
        """
    program('''
    import ray
    ray.init(labels={"zone": "a"})
    print(ray.nodes()[0]["Labels"]["zone"])''') == "a"
    """,
        """
    with connected(resources={"zone a": 1}) as other:
        done = other.submit(inc, 1, resources={"zone a": 0}).result()
    done == 2
    """,
        '`weft.Client(resources={"zone a": 1})`, of which tasks may ask for 0',
    ),
    Call(
        "with ray.init()",
        """
    program('''
    import ray
    with ray.init():
        pass
    print(ray.is_initialized())''') == "False"
    """,
        """
    with connected() as other: pass
    other.status == "closed"
    """,
        "`with weft.Client()`",
    ),
    Call(
        "ray.init().address_info, dashboard_url",
        """
    program("import ray; print(ray.init().address_info['gcs_address'])").count(":") == 1
    """,
        "client.scheduler_address",
        "`client.scheduler_address`, `client.dashboard_link`",
    ),
    Call(
        "ray.is_initialized()",
        "ray.is_initialized()",
        "weft.Client.current() is client",
        "`weft.Client.current()`, which raises `weft.ClientClosed` if there is none",
    ),
    Call(
        "ray.shutdown()",
        """
    program("import ray; ray.init(); ray.shutdown(); print(ray.is_initialized())") == "False"
    """,
        """
    other = connected()
    other.close()
    other.status == "closed"
    """,
        "`client.close()`",
    ),
    Call(
        "`f.remote()` without `ray.init()`",
        """
    program("import ray; print(ray.get(ray.remote(lambda x: -x).remote(-2)))") == "2"
    """,
        """
    with weft.Executor(1) as executor: done = executor.submit(inc, 1).result()
    done == 2
    """,
        "`weft.Executor()` starts a cluster of its own; `client.submit` needs a client",
    ),
    Call(
        "ray.__version__",
        "ray.__version__",
        "weft.__version__",
    ),
]
