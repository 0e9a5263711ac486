"""Questions about a cluster: by functions, in a task, and by the state API."""

from __future__ import annotations

from ..calls.row import NOTHING, Call

LOOK = [
    Call(
        "ray.nodes()",
        'ray.nodes()[0]["Alive"]',
        'len(client.scheduler_info()["workers"]) == 2',
        '`client.scheduler_info()["workers"]`',
    ),
    Call(
        "ray.cluster_resources()",
        "ray.cluster_resources()['CPU'] == 4",
        "sum(client.nthreads().values()) == 4",
        "`client.nthreads()`; resources are in `client.scheduler_info()`",
    ),
    Call(
        "ray.available_resources()",
        "'tpu' in ray.available_resources()",
        """
    all("resources" in worker for worker in client.scheduler_info()["workers"].values())
    """,
        '`client.scheduler_info()["workers"]`, `client.processing()`, `weft status`',
    ),
    Call(
        "ray.timeline(filename)",
        """
    ray.get(inc.remote(1))
    ray.timeline(str(folder / "timeline.json")) is None
    """,
        """
    with weft.get_task_stream() as stream: client.submit(inc, 101).result()
    [row["function"] for row in stream.data] == ["inc"]
    """,
        "`client.get_task_stream()`, `weft timeline --chrome FILE`",
    ),
    Call(
        "ray.get_gpu_ids()",
        "ray.get(ray.remote(lambda: ray.get_gpu_ids()).options(num_gpus=1).remote()) == [0]",
        "weft.get_gpu_ids()",
    ),
    Call(
        "ray.util.get_node_ip_address()",
        'ray.util.get_node_ip_address().count(".") == 3',
        "client.submit(lambda: weft.get_worker().address).result() in client.nthreads()",
        "`weft.get_worker().address`",
    ),
    Call(
        "ray.java_function(), ray.java_actor_class()",
        'ray.java_function("A", "f") is not None',
        "weft.java_function('A', 'f')",
    ),
    Call(
        "ray.experimental.tqdm_ray.tqdm(xs)",
        """
    from ray.experimental import tqdm_ray
    list(tqdm_ray.tqdm(range(3))) == [0, 1, 2]
    """,
        """
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        found = client.gather(client.map(inc, range(3)), progress=True)
    found == [1, 2, 3]
    """,
        "`weft.progress(futures)`, `client.gather(futures, progress=True)`",
    ),
    Call(
        "`print` in a task",
        """
    program('''
    import ray
    ray.init()
    ray.get(ray.remote(lambda: print("from a task")).remote())
    import time; time.sleep(2)''').endswith("from a task")
    """,
        """
    future = client.submit(print, "from a task", output="keep", pure=False)
    future.output().stdout == "from a task\\n"
    """,
        "in notebooks, and with `Client(forward_output=True)`; `future.output()` of one call",
    ),
    Call(
        "ray.util.log_once(key)",
        '(ray.util.log_once("k1"), ray.util.log_once("k1")) == (True, False)',
        NOTHING,
        "filters of `logging` do it",
    ),
    Call(
        "`ray.util.pdb.set_trace()`, `ray debug`",
        "callable(ray.util.pdb.set_trace)",
        """
    future = client.submit(fail)
    isinstance(error_of(client.recreate_error_locally, future), ValueError)
    """,
        "`client.recreate_error_locally(future)`, under a debugger of your own",
    ),
    Call(
        "ray.util.metrics.Counter, Gauge, Histogram",
        """
    from ray.util.metrics import Counter as Metric
    Metric("rows_read", description="rows").inc(2) is None
    """,
        """
    client.log_event("rows", {"read": 2})
    until(lambda: client.get_events("rows"))
    """,
        "`client.log_event(topic, values)`; the metrics of weft itself are in `/metrics`",
    ),
]

INSIDE = [
    Call(
        "get_node_id(), get_worker_id()",
        """
    ask = ray.remote(lambda: ray.get_runtime_context().get_worker_id())
    len(ray.get(ask.remote())) > 0
    """,
        "len(client.submit(lambda: weft.get_worker().worker_id).result()) > 0",
        "`weft.get_worker().worker_id`, `name`, `address`",
    ),
    Call(
        "get_task_id(), get_task_name(), get_task_function_name()",
        """
    ask = ray.remote(lambda: ray.get_runtime_context().get_task_id())
    len(ray.get(ask.remote())) > 0
    """,
        """
    future = client.submit(lambda: weft.get_current_task())
    future.result() == future.key
    """,
        "`weft.get_current_task()`",
    ),
    Call(
        "get_job_id()",
        "len(ray.get_runtime_context().get_job_id()) > 0",
        "client.id",
        "`client.id`",
    ),
    Call(
        "get_assigned_resources()",
        """
    ask = ray.remote(lambda: ray.get_runtime_context().get_assigned_resources())
    ray.get(ask.options(num_cpus=2).remote()) == {"CPU": 2.0}
    """,
        """
    client.submit(lambda: weft.get_worker().resources["GPU"]).result() == 1
    """,
        "`weft.get_worker().resources`: those of the worker",
    ),
    Call(
        "get_accelerator_ids()",
        """
    ask = ray.remote(lambda: ray.get_runtime_context().get_accelerator_ids()["GPU"])
    ray.get(ask.options(num_gpus=1).remote()) == ["0"]
    """,
        NOTHING,
        "weft sets no devices: a worker for each, with its own `$CUDA_VISIBLE_DEVICES`",
    ),
    Call(
        "get_node_labels()",
        """
    isinstance(ray.get_runtime_context().get_node_labels(), dict)
    """,
        'client.submit(lambda: "tpu" in weft.get_worker().resources).result()',
        "`weft.get_worker().resources`, `name`",
    ),
    Call(
        "namespace, gcs_address",
        'ray.get_runtime_context().gcs_address.count(":") == 1',
        "client.scheduler_address",
        "`client.scheduler_address`",
    ),
    Call(
        "get_temp_dir(), get_session_name()",
        "os.path.isdir(ray.get_runtime_context().get_temp_dir())",
        "os.path.isdir(client.submit(lambda: weft.get_worker().local_directory).result())",
        "`weft.get_worker().local_directory`, `weft.get_scratch_directory()`",
    ),
    Call(
        "get_runtime_context()",
        "ray.get_runtime_context().get()['node_id'] is not None",
        "weft.get_runtime_context()",
    ),
]

STATE = [
    Call(
        "list_tasks()",
        """
    ray.get(inc.remote(1))
    until(lambda: any(task.name == "inc" for task in state.list_tasks()))
    """,
        """
    with weft.get_task_stream() as stream: client.submit(inc, 102).result()
    [row["function"] for row in stream.data] == ["inc"]
    """,
        "`client.get_task_stream()` of the latest; `client.processing()` of those at workers",
    ),
    Call(
        'list_tasks(filters=[("state", "=", "RUNNING")])',
        """
    runs = hold.remote(gate())
    until(lambda: state.list_tasks(filters=[("state", "=", "RUNNING"), ("name", "=", "hold")]))
    """,
        """
    path = gate()
    runs = client.submit(hold, path)
    until(lambda: os.path.exists(path + "-begun"))
    any(runs.key in keys for keys in client.processing().values())
    """,
        "`client.processing()`, `client.call_stack()`",
    ),
    Call(
        "list_tasks(detail=True), get_task(id)",
        """
    ref = inc.remote(1)
    ray.get(ref)
    until(lambda: state.get_task(ref.task_id().hex()))
    """,
        """
    future = client.submit(inc, 103)
    future.result()
    [end for _, end in future.attempts()] == ["finished"]
    """,
        "`future.attempts()`, `client.story(future)`, `future.explain()`",
    ),
    Call(
        "why a task waits",
        """
    asked = inc.options(resources={"moon": 1}).remote(1)
    kind = "PENDING_NODE_ASSIGNMENT"
    until(lambda: any(task.state == kind for task in state.list_tasks()))
    """,
        """
    asked = client.submit(inc, 1, resources={"moon": 1}, pure=False)
    until(lambda: "moon" in asked.explain().reason)
    """,
        "`future.explain()`",
    ),
    Call(
        "list_actors(), get_actor(id)",
        """
    counter = Counter.remote()
    ray.get(counter.add.remote())
    until(lambda: any(a.class_name == "Counter" for a in state.list_actors()))
    """,
        """
    counter = client.submit(Counter, actor=True, pure=False)
    counter.result()
    [len(where) for where in client.who_has([counter]).values()] == [1]
    """,
        "`client.who_has([future])`: where an actor is",
    ),
    Call(
        "list_objects(), get_objects(id)",
        """
    ref = ray.put(bytes(1_000_000))
    until(lambda: state.list_objects())
    """,
        """
    future = client.submit(bytes, 1_000_000)
    weft.wait([future])
    client.nbytes(summary=False)[future.key] >= 1_000_000
    """,
        "`client.nbytes()`, `client.who_has()`, `client.has_what()`",
    ),
    Call(
        "list_nodes(), list_workers(), get_node(), get_worker()",
        "state.list_nodes()[0].state == 'ALIVE' and len(state.list_workers()) > 0",
        'len(client.scheduler_info()["workers"]) == 2',
        "`client.scheduler_info()`",
    ),
    Call(
        "list_placement_groups(), get_placement_group(id)",
        """
    with group([{"CPU": 1}]) as made:
        found = until(lambda: state.list_placement_groups())
    found
    """,
        """
    gang = client.submit_gang(hold, 99, gate())
    until(lambda: "gang" in gang[0].explain().reason)
    """,
        "`future.explain()` of a gang",
    ),
    Call(
        "list_jobs(), get_job(id)",
        "len(state.list_jobs()) > 0",
        'len(client.scheduler_info()["clients"]) > 0',
        '`client.scheduler_info()["clients"]`; `client.jobs()` of detached jobs',
    ),
    Call(
        "list_runtime_envs()",
        "isinstance(state.list_runtime_envs(), list)",
        """
    client.submit(lambda: list(weft.get_worker().plugins)).result() == []
    """,
        "`weft.get_worker().plugins`",
    ),
    Call(
        "list_cluster_events()",
        "isinstance(state.list_cluster_events(), list)",
        "len(client.get_events('scheduler')) >= 0",
        '`client.get_events("scheduler")`, `weft events`',
    ),
    Call(
        "list_logs(), get_log()",
        """
    until(lambda: state.list_logs(node_id=ray.get_runtime_context().get_node_id()))
    """,
        "len(client.get_worker_logs()) == 2",
        "`client.get_worker_logs()`, `client.get_scheduler_logs()`",
    ),
    Call(
        "summarize_tasks()",
        """
    ray.get(inc.remote(1))
    until(lambda: "inc" in str(state.summarize_tasks()))
    """,
        """
    client.submit(inc, 104).result()
    client.scheduler_info()["tasks"]
    """,
        '`client.scheduler_info()["tasks"]`; `weft top` by function',
    ),
    Call(
        "summarize_actors(), summarize_objects()",
        "isinstance(state.summarize_objects(), dict)",
        """
    kept = client.submit(bytes, 1000)
    weft.wait([kept])
    sum(client.nbytes().values()) > 0
    """,
        "`client.nbytes()`: bytes by function",
    ),
]
