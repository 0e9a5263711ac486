"""Names of `dask.distributed` that weft does not have, with advice on what to do instead.

The tables serve the errors for missing attributes of `Client`, `Future`, `LocalCluster` and `weft`
and for their unknown options, and docs/client.md, whose list a test compares with them. When weft
gets one of these names, it must be removed here; a test fails while it is in both.

Each entry has several names, separated by blanks, and one advice for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple, NoReturn


class Absent(NamedTuple):
    """A name that weft does not have."""

    #: What to do instead, as a clause.
    instead: str
    #: True = weft will not have it; False = it is not written yet.
    by_design: bool = False

    def sentence(self, what: str) -> str:
        """Return the error text for `what`."""
        if self.by_design:
            return f"weft has no {what}, by design: {self.instead}"
        return f"weft has no {what} yet: {self.instead}"


Table = Mapping[str, Absent]


def _table(*groups: tuple[str, str] | tuple[str, str, str]) -> Table:
    return MappingProxyType(
        {
            name: Absent(instead, bool(mark))
            for names, instead, *mark in groups
            for name in names.split()
        }
    )


_BY_DESIGN: Final = "by design"

CLIENT: Final = _table(
    ("start", "`Client(...)` connects; `await` an asynchronous client", _BY_DESIGN),
    (
        "collections_to_dsk",
        "`client.get` takes what dask.base.collections_to_expr makes of collections",
        _BY_DESIGN,
    ),
    (
        "normalize_collection",
        "a graph that has the keys of persisted data uses these data",
        _BY_DESIGN,
    ),
    (
        "unregister_scheduler_plugin",
        "the scheduler runs no code of users, so it has no plugins",
        _BY_DESIGN,
    ),
    (
        "amm",
        "results have one copy, and one more where a task reads them; use client.replicate for "
        "others",
        _BY_DESIGN,
    ),
    ("list_workers", 'use `client.scheduler_info()["workers"]`', _BY_DESIGN),
    (
        "benchmark_hardware",
        "measure disks, memory and network by tools for that, such as fio and iperf3",
        _BY_DESIGN,
    ),
    (
        "write_scheduler_file",
        "`weft scheduler --connection-file cluster.json` writes one",
        _BY_DESIGN,
    ),
    (
        "profile",
        'use py-spy with the `pid` of `client.scheduler_info()["workers"]`, or '
        "`weft.performance_report`: a sampler in the workers would take time from their tasks",
        _BY_DESIGN,
    ),
    ("sync", "leave it out; the methods of a blocking client block", _BY_DESIGN),
    ("futures_of", "it is called `weft.futures_of`", _BY_DESIGN),
)

CLIENT_OPTIONS: Final = _table(
    ("scheduler_file", "it is called `connection_file=`", _BY_DESIGN),
    ("loop", "leave it out; `asynchronous=True` uses the running loop", _BY_DESIGN),
    ("heartbeat_interval", "leave it out; liveness needs no setting", _BY_DESIGN),
    (
        "serializers deserializers extensions",
        "leave it out; all data is pickled",
        _BY_DESIGN,
    ),
    ("direct_to_workers", "leave it out; large results always come from the workers", _BY_DESIGN),
    ("connection_limit", "leave it out", _BY_DESIGN),
)

#: Of `submit`, `map`, `get` and `gather`.
CALL_OPTIONS: Final = _table(
    (
        "actors",
        "for a graph: make each actor with `submit(cls, actor=True)`, and pass its future",
        _BY_DESIGN,
    ),
    (
        "fifo_timeout",
        "use `priority=`: without it, tasks that were submitted first run first",
        _BY_DESIGN,
    ),
    ("direct", "large results always come from the workers", _BY_DESIGN),
)

FUTURE: Final = _table(
    ("bind_client", "a future belongs to the client that made it", _BY_DESIGN),
    ("running", "a client does not know it; use `status` and `done()`", _BY_DESIGN),
    (
        "_condition",
        "concurrent.futures.wait and as_completed do not accept weft's futures: use weft.wait and "
        "weft.as_completed",
        _BY_DESIGN,
    ),
)

CLUSTER: Final = _table(
    (
        "scale_up scale_down start_worker new_worker_spec",
        "use `scale(n)` with the number that there should be",
        _BY_DESIGN,
    ),
    ("plan requested observed worker_spec", "use `n_workers` and `workers`", _BY_DESIGN),
    (
        "from_name",
        "keep the object, or start `weft scheduler` with a `--connection-file`",
        _BY_DESIGN,
    ),
    ("called_from_running_loop", "use `asynchronous`", _BY_DESIGN),
    ("scheduler scheduler_comm", "`scheduler_address` and `scheduler_info`", _BY_DESIGN),
    ("loop sync", "leave it out; the methods of a blocking cluster block", _BY_DESIGN),
)

CLUSTER_OPTIONS: Final = _table(
    (
        "scheduler_port",
        "`weft scheduler --port 8786` starts a scheduler on a port of your choice",
        _BY_DESIGN,
    ),
    ("interface", 'use `host=` with `protocol="tcp"`', _BY_DESIGN),
    ("ip", "it is called `host=`", _BY_DESIGN),
    ("loop", "leave it out; `asynchronous=True` uses the running loop", _BY_DESIGN),
    ("nthreads ncores", "it is called `threads_per_worker=`", _BY_DESIGN),
    (
        "worker_dashboard_address",
        "workers serve no pages; `dashboard_address=` is the cluster's",
        _BY_DESIGN,
    ),
    ("start", "leave it out; the cluster is started when it is made, or awaited", _BY_DESIGN),
    (
        "services worker_services service_kwargs scheduler_kwargs scheduler_sync_interval",
        "leave it out",
        _BY_DESIGN,
    ),
    (
        "worker_class nanny",
        "leave it out: each worker process has a supervisor, which starts it again; "
        "`processes=False` has threads",
        _BY_DESIGN,
    ),
    (
        "blocked_handlers",
        "tokens of a lower role, as `cluster.security.token_for` makes them, permit less",
        _BY_DESIGN,
    ),
    ("plugins", "register each with `client.register_plugin`", _BY_DESIGN),
    ("preload_argv", "modules of `preload=` read the variables of `env=`", _BY_DESIGN),
    (
        "preload_nanny preload_nanny_argv",
        "register a `weft.SupervisorPlugin` with `client.register_plugin`",
        _BY_DESIGN,
    ),
    (
        "lifetime lifetime_stagger lifetime_restart",
        "the workers live as long as the cluster, and `client.restart_workers()` replaces them; "
        "`weft worker` has `--lifetime`, for batch systems",
        _BY_DESIGN,
    ),
    (
        "death_timeout",
        "leave it out: the workers end with the cluster; `weft worker` has `--connect-timeout` and "
        "`--orphan-lease`",
        _BY_DESIGN,
    ),
    ("extensions", "register a `weft.WorkerPlugin`", _BY_DESIGN),
    ("data executor", "leave it out: a worker has one store and one pool of threads", _BY_DESIGN),
)

#: Names of Python's own queues; dask's has none of them.
QUEUE: Final = _table(
    ("get_nowait", "`get(timeout=0)` raises TimeoutError if there is no value", _BY_DESIGN),
    ("put_nowait", "`put(value, timeout=0)` raises TimeoutError if there is no room", _BY_DESIGN),
    ("empty full", "`qsize()` is how many values are in it at this moment", _BY_DESIGN),
    ("task_done join", "wait for the futures of the tasks that take the values", _BY_DESIGN),
)

MODULE: Final = _table(
    ("BaseActorFuture", "it is called `ActorFuture`", _BY_DESIGN),
    ("local_client", "it is called `worker_client`", _BY_DESIGN),
    (
        "get_task_metadata",
        "use `weft.get_task_stream` for states and times; return other facts from the task, or "
        "`weft.get_client().log_event` them",
        _BY_DESIGN,
    ),
    (
        "CancelledError",
        "it is called `weft.TaskCancelled`, a `concurrent.futures.CancelledError`",
        _BY_DESIGN,
    ),
    ("TimeoutError", "it is Python's own `TimeoutError`", _BY_DESIGN),
    ("KilledWorker", "it is called `weft.WorkerDied`", _BY_DESIGN),
    ("Security", "it is part of connection files and of clusters", _BY_DESIGN),
    (
        "Scheduler Worker Nanny Status connect rpc",
        "`weft scheduler` and `weft worker` start them",
        _BY_DESIGN,
    ),
    (
        "SchedulerPlugin",
        "the scheduler runs no code of users; client.subscribe_topic('scheduler', handler) gets "
        "its events, and a `weft.WorkerPlugin` is code in the workers",
        _BY_DESIGN,
    ),
    ("NannyPlugin", "it is called `weft.SupervisorPlugin`", _BY_DESIGN),
    (
        "CondaInstall",
        "use `weft.InstallPlugin` with a function that runs conda or mamba as you do",
        _BY_DESIGN,
    ),
    (
        "SSHCluster",
        "`weft ssh HOST...` starts a scheduler and workers on the machines",
        _BY_DESIGN,
    ),
    (
        "SpecCluster SubprocessCluster",
        "start `weft scheduler` and `weft worker` on the machines, for instance as jobs",
        _BY_DESIGN,
    ),
    ("Adaptive", "`cluster.adapt(minimum, maximum)` adapts, and takes its times", _BY_DESIGN),
    ("CompatibleExecutor", "it is called `weft.Executor`", _BY_DESIGN),
    (
        "config",
        "settings are in weft.toml, $WEFT_... variables, options and arguments; "
        "'weft config' lists them",
        _BY_DESIGN,
    ),
    ("dask sync widgets", "leave it out", _BY_DESIGN),
)


#: {option that weft lacks: dask's default}, where that is not None.
_DEFAULTS: Final[Mapping[str, object]] = {
    "connection_limit": 512,
    "extensions": {},
    "scheduler_port": 0,
    "scheduler_sync_interval": 1,
}


def is_default(name: str, value: object, cls: type) -> bool:
    """Return whether dask's default was given for an option that `cls` lacks: it has no effect."""
    if name not in _OPTIONS[cls.__name__]:
        return False
    return value is None or (value == _DEFAULTS.get(name) and value is not False)


# --- Errors ---------------------------------------------------------------------------------------


def missing_attribute(table: Table, of: str, name: str) -> AttributeError:
    """Return the error for an attribute that `of` (a class, or "" for weft) does not have."""
    absent = table.get(name)
    if absent is None:
        what = f"{of!r} object" if of else "module 'weft'"
        return AttributeError(f"{what} has no attribute {name!r}")
    what = f"{of}.{name}" if of else name
    return AttributeError(absent.sentence(what))


def answer_for(table: Table, of: str) -> Callable[[object, str], NoReturn]:
    """Return a `__getattr__` for a class whose AttributeError gives the advice of `table`."""

    def __getattr__(self: object, name: str) -> NoReturn:
        error = missing_attribute(table, of, name)
        if name not in table:
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


def answer_by_name(cls: type, table: Table) -> None:
    """Make the names of a table raise their advice on a class, and no other names."""
    for name in table:
        setattr(cls, name, AbsentProperty(missing_attribute(table, cls.__name__, name)))


#: {class: options that it lacks}. A client takes the options of a LocalCluster too.
_OPTIONS: Final[Mapping[str, Table]] = {
    "Client": {**CLUSTER_OPTIONS, **CLIENT_OPTIONS},
    "LocalCluster": CLUSTER_OPTIONS,
}


def options_of(cls: type) -> list[str]:
    """Return the names of a class's options, without the last parameter, `**others`."""
    import inspect

    return [*inspect.signature(cls).parameters][:-1]


def unknown_option(name: str, cls: type, *more: type) -> TypeError:
    """Return the error for an option that neither `cls` nor any class of `more` has."""
    absent = _OPTIONS[cls.__name__].get(name)
    if absent is not None:
        return TypeError(f"{cls.__name__} has no option {name!r}; {absent.instead}")
    from difflib import get_close_matches

    known = [option for each in (cls, *more) for option in options_of(each)]
    close = get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"see help(weft.{cls.__name__})"
    return TypeError(f"{cls.__name__} has no option {name!r}; {hint}")
