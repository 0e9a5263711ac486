"""Names of `dask.distributed` and Ray that weft does not have, with advice on what to do instead.

The names of dask for what is here under another name are in `names.py`. The tables serve the
errors for missing attributes of `Client`, `Future`, `LocalCluster` and `weft` and for their unknown
options, and docs/client.md, whose list a test compares with them. When weft gets one of these
names, it must be removed here; a test fails while it is in both.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn

from ...protocol.wording import did_you_mean

#: {name that weft does not have: what to do instead, as a clause}
Table = Mapping[str, str]

#: {class, module, or call with "()": {names, separated by blanks: the advice for all of them}}
_ADVICE: Final[Mapping[str, Table]] = {
    "Client": {
        "start": "`Client(...)` connects; `await` an asynchronous client",
        "collections_to_dsk": "`client.get` takes what dask.base.collections_to_expr makes of "
        "collections",
        "normalize_collection": "a graph that has the keys of persisted data uses these data",
        "unregister_scheduler_plugin": "the scheduler runs no code of users, so it has no plugins",
        "amm": "results have one copy, and one more where a task reads them; use client.replicate "
        "for others",
        "list_workers": 'use `client.scheduler_info()["workers"]`',
        "benchmark_hardware": "measure disks, memory and network by tools for that, such as fio "
        "and iperf3",
        "write_scheduler_file": "`weft scheduler --connection-file cluster.json` writes one",
        "sync": "leave it out; the methods of a blocking client block",
        "futures_of": "it is called `weft.futures_of`",
        "scheduler": "use `client.scheduler_address`; what the scheduler knows is asked by "
        "methods of the client, such as `client.scheduler_info()`",
    },
    "Client()": {
        "loop": "leave it out; `asynchronous=True` uses the running loop",
        "heartbeat_interval": "leave it out; liveness needs no setting",
        "serializers deserializers extensions": "leave it out; all data is pickled",
        "direct_to_workers": "leave it out; large results always come from the workers",
        "connection_limit": "leave it out",
        # Of Ray's `init`.
        "num_cpus": "`n_workers=` is the number of processes, `threads_per_worker=` that of the "
        "threads in each",
        "num_gpus labels": 'workers have resources: `resources={"GPU": 1}`',
        "object_store_memory": "`memory_limit=` is the memory of a worker, of which results have "
        "a part",
        "namespace": "names are those of the whole cluster: make it a part of each name",
        "ignore_reinit_error": "leave it out; several clients may be open",
        "include_dashboard dashboard_host dashboard_port": '`dashboard_address=":0"` has the '
        "cluster serve pages",
        "log_to_driver": "`forward_output=` shows here what tasks print",
        "logging_level logging_config": "`silence_logs=` is the level up to which nothing is shown",
        "runtime_env": "`env=` has variables for the workers; `client.register_plugin` and "
        "`client.upload_file` bring packages and files",
        "local_mode": "`processes=False` has the tasks run in this process",
    },
    # And of `map`, `get` and `gather`.
    "submit()": {
        "actors": "for a graph: make each actor with `submit(cls, actor=True)`, and pass its "
        "future",
        "fifo_timeout": "use `priority=`: without it, tasks that were submitted first run first",
        "direct": "large results always come from the workers",
    },
    "profile()": {
        "key": "function= is the name of a function",
        "start stop": "workers sample only while they are asked: seconds= is how long",
        "merge_workers": "workers= are those whose samples are added up",
        "plot filename": "the result shows itself, and its `save(path)` writes a flame graph",
        "server scheduler": "only the threads of tasks are sampled",
    },
    "Future": {
        "bind_client": "a future belongs to the client that made it",
        "running": "a client does not know it; use `status` and `done()`",
        "_condition": "concurrent.futures.wait and as_completed do not accept weft's futures: use "
        "weft.wait and weft.as_completed",
        "remove_done_callback": "asyncio.wait takes futures of asyncio only: use `await "
        "weft.wait(...)`, or wrap each by asyncio.ensure_future",
    },
    "LocalCluster": {
        "scale_up scale_down start_worker new_worker_spec": "use `scale(n)` with the number that "
        "there should be",
        "plan requested observed worker_spec": "use `n_workers` and `workers`",
        "from_name": "keep the object, or start `weft scheduler` with a `--connection-file`",
        "called_from_running_loop": "use `asynchronous`",
        "scheduler scheduler_comm": "`scheduler_address` and `scheduler_info`",
        "loop sync": "leave it out; the methods of a blocking cluster block",
    },
    "LocalCluster()": {
        "scheduler_port": "`weft scheduler --port 8786` starts a scheduler on a port of your "
        "choice",
        "interface": 'use `host=` with `protocol="tcp"`',
        "ip": "it is called `host=`",
        "loop": "leave it out; `asynchronous=True` uses the running loop",
        "nthreads ncores": "it is called `threads_per_worker=`",
        "worker_dashboard_address": "workers serve no pages; `dashboard_address=` is the cluster's",
        "start": "leave it out; the cluster is started when it is made, or awaited",
        "services worker_services service_kwargs scheduler_kwargs scheduler_sync_interval": "leave "
        "it out",
        "worker_class nanny": "leave it out: each worker process has a supervisor, which starts "
        "it again; `processes=False` has threads",
        "blocked_handlers": "tokens of a lower role, as `cluster.security.token_for` makes them, "
        "permit less",
        "plugins": "register each with `client.register_plugin`",
        "preload_argv": "modules of `preload=` read the variables of `env=`",
        "preload_nanny preload_nanny_argv": "register a `weft.SupervisorPlugin` with "
        "`client.register_plugin`",
        "lifetime lifetime_stagger lifetime_restart": "the workers live as long as the cluster, "
        "and `client.restart_workers()` replaces them; `weft worker` has `--lifetime`, for batch "
        "systems",
        "death_timeout": "leave it out: the workers end with the cluster; `weft worker` has "
        "`--connect-timeout` and `--orphan-lease`",
        "extensions": "register a `weft.WorkerPlugin`",
        "data executor": "leave it out: a worker has one store and one pool of threads",
    },
    "adapt()": {
        "min": "did you mean minimum=?",
        "max": "did you mean maximum=?",
        "wait_count": "wait_down= is a time",
        "minimum_jobs minimum_cores minimum_memory": "minimum= is a number of workers",
        "maximum_jobs maximum_cores maximum_memory": "maximum= is a number of workers",
        "Adaptive": "there is one way to adapt, with these options",
    },
    "scale()": {
        "jobs": "n= is the number of workers; there are no jobs",
        "n_workers": "did you mean n=?",
        "worker_group": "all workers of a cluster are scaled together",
    },
    "ActorFuture": {
        "cancel": "a call is run once it is sent; let the method look at a `weft.Event` now and "
        "then",
    },
    # Of dask's semaphores.
    "Lock": {
        "get_value": "`locked()` returns whether a client holds it",
        "register": "leave it out: a lock is there with its first use",
        "close": "leave it out: a lock that nobody holds takes no memory",
    },
    "Event": {
        "close": "leave it out, or use `clear()`: an event that is not set takes no memory",
    },
    "Variable": {
        "close": "it is called `delete()`",
    },
    # Of Python's own queues; dask's has none of them.
    "Queue": {
        "get_nowait": "`get(timeout=0)` raises TimeoutError if there is no value",
        "put_nowait": "`put(value, timeout=0)` raises TimeoutError if there is no room",
        "empty full": "`qsize()` is how many values are in it at this moment",
        "task_done join": "wait for the futures of the tasks that take the values",
    },
    "weft": {
        "get_task_metadata": "use `weft.get_task_stream` for states and times; return other facts "
        "from the task, or `weft.get_client().log_event` them",
        "Security": "leave `security=` out: each cluster makes its token and its certificate, and "
        "`weft.Client(connection_file=...)` has those of one that runs",
        "Scheduler Worker Nanny": "`weft.LocalCluster` starts them in a program, `weft scheduler` "
        "and `weft worker` in a terminal",
        "connect rpc": "use the methods of `weft.Client(address)`",
        "SchedulerPlugin": "the scheduler runs no code of users; "
        "client.subscribe_topic('scheduler', handler) gets its events, and a `weft.WorkerPlugin` "
        "is code in the workers",
        "CondaInstall": "use `weft.InstallPlugin` with a function that runs conda or mamba as you "
        "do",
        "SSHCluster": "`weft.deploy.SSHCluster` starts workers on the machines, "
        "`weft ssh HOST...` a scheduler as well",
        "SpecCluster SubprocessCluster": "use `weft.deploy.JobCluster`, the base class of clusters "
        "of your own, or `weft.deploy.SlurmCluster` and its kin",
        "Adaptive": "`cluster.adapt(minimum, maximum)` adapts, and takes its times",
        "CompatibleExecutor": "use `client.get_executor()`, or `weft.Executor`",
        "Pub Sub": "dask has removed them as well: use `weft.Queue` between tasks, or "
        "`client.log_event` and `client.subscribe_topic`",
        "config": "settings are in weft.toml, $WEFT_... variables, options and arguments; 'weft "
        "config' lists them",
        "dask sync widgets": "leave it out",
    },
    # `weft.get` and `weft.wait` are here, with the meaning of dask.
    "Ray": {
        "init": "`weft.Client()` starts a cluster on this machine, `weft.Client(address)` "
        "connects to one",
        "remote": "functions need no decorator: `client.submit(f, x)` runs `f(x)` on a worker, "
        "and `client.submit(cls, actor=True)` makes an actor",
        "put": "arguments need no call; `client.scatter(value)` copies a large value to the "
        "workers once",
        "ObjectRef": "it is called `weft.Future`; `future.result()` waits for its value",
        "cancel": "use `client.cancel(futures)`",
        "kill": "an actor ends when its last handle is gone",
        "shutdown": "use `client.close()`",
        "is_initialized": "`weft.Client.current()` raises `weft.ClientClosed` if no client is open",
        "nodes cluster_resources available_resources": "use `client.scheduler_info()`",
        "method": "methods have no options: one returns one value, which may be a tuple",
        "get_actor": "a `weft.Variable` keeps the future of an actor under a name",
        "actor": "an actor ends with the last that holds it, and cannot end itself",
        "get_gpu_ids": "weft sets no devices: start a worker for each, with a "
        "`$CUDA_VISIBLE_DEVICES` of its own",
        "get_runtime_context": "`weft.get_worker()` describes the worker and the task",
        "ObjectRefGenerator DynamicObjectRefGenerator": "a task puts its items into a `weft.Queue`",
        "java_function java_actor_class cpp_function": "tasks are Python; a `weft.Command` runs "
        "any other program",
        "exceptions": "use `weft.errors`",
        "runtime_env": "use `weft.Environ`, `weft.PipInstall` and `client.upload_file`",
        "util": "use `weft.Queue`, `client.get_executor`, `client.submit_gang`, and "
        '`joblib.parallel_config("weft")`',
        "data train tune serve rllib": "there is none: weft runs functions and actors",
    },
    # Of `submit` and `map`, where the function does not take such a keyword itself.
    "Ray()": {
        "num_cpus": "cores= is how many threads a task takes; an actor has a thread of its own",
        "num_gpus accelerator_type": 'resources={"GPU": 1} takes one of a worker that was started '
        "with such a resource",
        "label_selector fallback_strategy": "resources= and workers= choose workers, with "
        "allow_other_workers=True if others will do",
        "scheduling_strategy": "workers= names the workers, and `client.submit_gang` begins calls "
        "together; else the scheduler chooses",
        "placement_group placement_group_bundle_index placement_group_capture_child_tasks": "the "
        "calls of `client.submit_gang` begin together, and what they submit is placed as any task",
        "num_returns": "a task has one result: return a tuple, or put the items into a "
        "`weft.Queue`",
        "max_retries": "retries= is how often it runs again if it raises; if its worker dies, it "
        "runs again by itself",
        "retry_exceptions": "retries= holds for all exceptions: catch those in the function that "
        "are to be final",
        "max_calls": "`weft worker --isolate --max-tasks 100` ends a process after 100 tasks",
        "enable_task_events": "leave it out; events cost nothing while nobody looks",
        "runtime_env": "workers are prepared for all tasks, by `weft.Environ`, `weft.PipInstall` "
        "and `client.upload_file`; a `weft.Command` has env= and cwd=",
        "lifetime get_if_exists": "key= names an actor, and a `weft.Variable` holds it when its "
        "client is gone",
        "max_restarts max_task_retries": "an actor is not made again by itself, because it would "
        "have forgotten its state: catch `weft.ActorLost`, and make another one",
        "max_concurrency concurrency_groups allow_out_of_order_execution": "an actor runs one "
        "call at a time; coroutine methods run beside each other",
        "max_pending_calls": "a `weft.Semaphore` limits how many calls are under way",
    },
}

#: {class, module, or call: its table}
ABSENT: Final[Mapping[str, Table]] = {
    owner: {name: instead for names, instead in advice.items() for name in names.split()}
    for owner, advice in _ADVICE.items()
}
#: {option that weft lacks: dask's default}, where that is not None.
_DEFAULTS: Final[Mapping[str, object]] = {
    "connection_limit": 512,
    "extensions": {},
    "scheduler_port": 0,
    "scheduler_sync_interval": 1,
}


def is_default(name: str, value: object, cls: type) -> bool:
    """Return whether dask's default was given for an option that `cls` lacks: it has no effect."""
    if name not in _options(cls.__name__):
        return False
    return value is None or (value == _DEFAULTS.get(name) and value is not False)


# --- Errors ---------------------------------------------------------------------------------------


def missing_attribute(of: str, name: str) -> AttributeError:
    """Return the error for an attribute that `of`, a class or "weft", does not have."""
    instead = ABSENT[of].get(name)
    if of == "weft":
        instead = instead or ABSENT["Ray"].get(name)
    if instead is None:
        what = f"{of!r} object" if of != "weft" else "module 'weft'"
        return AttributeError(f"{what} has no attribute {name!r}")
    what = f"{of}.{name}" if of != "weft" else name
    return AttributeError(f"weft has no {what}: {instead}")


def answer_for(of: str) -> Callable[[object, str], NoReturn]:
    """Return a `__getattr__` for a class whose AttributeError gives the advice for a name."""

    def __getattr__(self: object, name: str) -> NoReturn:
        error = missing_attribute(of, name)
        if name not in ABSENT[of]:
            # For "did you mean" in tracebacks.
            error.name, error.obj = name, self
        raise error

    return __getattr__


class AbsentProperty(property):
    """A missing name of a class on which `__getattr__` would make every other attribute slower."""

    def __init__(self, error: AttributeError) -> None:
        super().__init__()
        self._text = self.__doc__ = str(error)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        raise AttributeError(self._text)


def answer_by_name(cls: type) -> None:
    """Make the missing names of a class raise their advice, and no other names."""
    for name in ABSENT[cls.__name__]:
        setattr(cls, name, AbsentProperty(missing_attribute(cls.__name__, name)))


def _options(call: str) -> Table:
    """Return the options that a call lacks. A client takes those of a LocalCluster too."""
    more = ABSENT["LocalCluster()"] if call == "Client" else {}
    return {**more, **ABSENT[f"{call}()"]}


def options_of(call: Callable[..., Any]) -> list[str]:
    """Return the names of a call's options, without the last parameter, `**others`."""
    names = inspect.signature(call).parameters
    return [name for name in names if name not in ("self", "engine")][:-1]


def unknown_option(name: str, call: Callable[..., Any], *more: Callable[..., Any]) -> TypeError:
    """Return the error for an option that neither `call` nor any of `more` has."""
    known = [option for each in (call, *more) for option in options_of(each)]
    of = "LocalCluster." if ".deploy." in call.__module__ else "Client."
    where, shown = ("", "{!r}") if isinstance(call, type) else (of, "{}=")
    hint = _options(call.__name__).get(name) or did_you_mean(
        name, known, shown, f"see help(weft.{where}{call.__name__})"
    )
    return TypeError(f"{call.__name__} has no option {name!r}; {hint}")
