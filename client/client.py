"""`Client`, the class that users call. Its methods block, or are awaited (`asynchronous=True`).

There is one implementation: the work of a method is a coroutine, which an asynchronous client hands
to the caller. A blocking one runs it in the caller's thread, where its waits block
(`shell/both_ways.py`); or, if it asks several processes at once, in its loop's thread (`life.py`).
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal, overload

from ..graphs.cluster_client import ClusterClient
from ..protocol.host.stderr_logging import mark_warnings
from ..protocol.settings import client as defaults
from ..protocol.settings.sources import read_settings
from ..protocol.trust.page_access import link_into
from ..protocol.trust.security import Security
from ..protocol.wire.keys import Key, key_of
from .calls import arrays, calls, copies, detaching, gangs, scattering
from .cluster import log_forwarding, registering, restarting, retiring, retrying, running, scaling
from .cluster.locating import ClusterLike, Location, check_options, check_own_options
from .coordination import datasets, metadata, topics
from .coordination.datasets import Datasets
from .core.tasks import FutureState
from .dask import absent_names, collections
from .display import describing
from .display.output import TaskOutputs
from .executor import Executor
from .insight import (
    blocking,
    cluster_info,
    dumping,
    explaining,
    inspecting,
    job_queues,
    jobs,
    outputs,
    profiling,
    reproducing,
    task_stream,
)
from .insight.cell_dashboard import Dashboard
from .life import ClientLife
from .modes import Awaited, Blocking, Mode, OfMode
from .results import cancelling, gathering
from .shell.current import find_current, made_current
from .shell.engine import Engine
from .shell.short_tracebacks import short_refusals, short_tracebacks

if TYPE_CHECKING:
    import asyncio

    from typing_extensions import Unpack

    from ..protocol.durations import Duration
    from .cluster.local_options import ClusterOptions


class Client(OfMode[Mode], ClientLife, ClusterClient):
    """A connection to a weft cluster, and the way to run functions on it.

    Args:
        address: `tcp://host:port` or another address of a scheduler; or a cluster object with the
            attributes `scheduler_address` and `security`. None: see `connection_file`.
        connection_file: the scheduler's connection file. Without it and without an address,
            `$WEFT_CONNECTION_FILE` is used if set; else a `LocalCluster` is started, and closed
            with the client.
        timeout: time to wait for the scheduler, also for one that is being started: while no
            process listens at the address, or the connection file is missing. Seconds, "30s",
            "1 min" or a timedelta, as all times. None: the setting `client.timeout`, 10 s.
        asynchronous: the methods return awaitables, for the event loop that runs now; use
            `async with Client(...)` or `await Client(...)`.
        name: for display, in `weft info` and logs.
        set_as_default: make it the one that `Client.current` returns; and, if it blocks, the one
            on which `x.compute()` runs dask's collections.
        security: token and certificate, if they are not in a connection file. True is allowed if
            the client starts a cluster, which has a new token.
        reconnect_timeout: time to reconnect after the scheduler was lost, before all pending
            futures fail. None: the setting `client.reconnect-timeout`, 60 s.
        recovery_memory: bytes, or a size such as "1GiB", that this client may use to submit tasks
            again to a scheduler that was started again; what is beyond goes into a temporary file.
            While there is no scheduler, `submit` and `map` wait when calls of this size wait. None:
            the setting `client.recovery-memory`, 256 MiB.
        forward_output: show here what tasks of this client print and log; None = in notebooks and
            interactive sessions. With False, `weft.print` in tasks shows nothing here either. See
            docs/notebooks.md.
        scheduler_file: dask's name for `connection_file`.
        cluster_options: for `LocalCluster`: n_workers, threads_per_worker, processes,
            memory_limit, ...

    Example:
        >>> with weft.Client(n_workers=2) as client:
        ...     futures = client.map(abs, [-1, -2, -3])
        ...     client.submit(sum, futures).result()
        6
    """

    @overload
    def __init__(
        self: Client[Blocking],
        address: str | ClusterLike | None = None,
        *,
        connection_file: str | os.PathLike[str] | None = None,
        timeout: Duration | None = None,
        asynchronous: Literal[False] = False,
        name: str | None = None,
        set_as_default: bool = True,
        security: Security | bool | None = None,
        reconnect_timeout: Duration | None = None,
        recovery_memory: int | str | None = None,
        forward_output: bool | None = None,
        scheduler_file: str | os.PathLike[str] | None = None,
        **cluster_options: Unpack[ClusterOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: Client[Awaited],
        address: str | ClusterLike | None = None,
        *,
        connection_file: str | os.PathLike[str] | None = None,
        timeout: Duration | None = None,
        asynchronous: Literal[True],
        name: str | None = None,
        set_as_default: bool = True,
        security: Security | bool | None = None,
        reconnect_timeout: Duration | None = None,
        recovery_memory: int | str | None = None,
        forward_output: bool | None = None,
        scheduler_file: str | os.PathLike[str] | None = None,
        **cluster_options: Unpack[ClusterOptions],
    ) -> None: ...
    def __init__(
        self,
        address: str | ClusterLike | None = None,
        *,
        connection_file: str | os.PathLike[str] | None = None,
        timeout: Duration | None = None,
        asynchronous: bool = False,
        name: str | None = None,
        set_as_default: bool = True,
        security: Security | bool | None = None,
        reconnect_timeout: Duration | None = None,
        recovery_memory: int | str | None = None,
        forward_output: bool | None = None,
        scheduler_file: str | os.PathLike[str] | None = None,
        **cluster_options: Any,
    ) -> None:
        mark_warnings()
        with short_refusals:
            check_own_options(name, asynchronous)
            check_options(cluster_options, Client)
            if scheduler_file is not None:
                if connection_file is not None:
                    raise TypeError("give connection_file= or scheduler_file=, not both")
                connection_file = scheduler_file
            found = read_settings()
            timeout_s = found.choose(timeout, defaults.TIMEOUT)
            reconnect_timeout_s = found.choose(reconnect_timeout, defaults.RECONNECT_TIMEOUT)
            recovery_nbytes = found.choose(recovery_memory, defaults.RECOVERY_MEMORY)
            location = Location(address, connection_file, security, cluster_options, found)
        self._shown = TaskOutputs(forward_output)
        self._set_as_default = set_as_default
        self.asynchronous = asynchronous
        self._prepare(location, name, timeout_s, reconnect_timeout_s, recovery_nbytes)
        if not asynchronous:
            with short_tracebacks:
                self._open()

    # --- Which client -----------------------------------------------------------------------------

    @staticmethod
    def current(allow_global: bool = True) -> Client[Mode]:
        """Return the client of the innermost `as_current`, or else (`allow_global`) the default.

        Raises:
            ClientClosed: there is none.
        """
        return find_current(allow_global=allow_global)

    def as_current(self) -> AbstractContextManager[Client[Mode]]:
        """Make this the client that `Client.current` returns, in this thread or task."""
        return made_current(self)

    # --- Submitting -------------------------------------------------------------------------------

    submit = calls.submit
    map = calls.map
    submit_gang = gangs.submit_gang
    submit_array = arrays.submit_array

    # --- Waiting, cancelling ----------------------------------------------------------------------

    gather = gathering.gather

    def _usable(self) -> Engine:
        """Return the engine, even of a closed client: results in this process can be read."""
        return self._engine if self._engine is not None else self._running()

    cancel = cancelling.cancel

    # --- The cluster ------------------------------------------------------------------------------

    @property
    def futures(self) -> dict[Key, FutureState]:
        """The keys of which this client has futures now: `{key: state}`; a state has a `status`."""
        return {key_of(state.key): state for state in self._usable().table.snapshot()}

    @property
    def cluster(self) -> Any:
        """The cluster object that this client was given or has started, if any."""
        return self._location.cluster

    @property
    def scheduler_address(self) -> str:
        """The address at which the scheduler was found, "" before that."""
        link = self._engine.link if self._engine is not None else None
        return link.address if link is not None else ""

    @property
    def dashboard_link(self) -> str | None:
        """A link to the scheduler's status page; None if there are no pages.

        It signs a browser in, once and within ten minutes; each look at this property makes a new
        one. A `LocalCluster` has pages if it is started with `dashboard_address=":0"`.
        """
        link = self._engine.link if self._engine is not None else None
        found = link.facts.get("dashboard") if link is not None else None
        if link is None or not isinstance(found, str):
            return None
        return link_into(found, link.security)

    @property
    def dashboard(self) -> Dashboard:
        """A live view of the cluster, in the cell of a notebook whose last line this is.

        It comes through the kernel: the browser need not reach the cluster.
        """
        return Dashboard(self)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop that the connections live in."""
        return self._usable().loop

    # --- Data, graphs and collections of dask -----------------------------------------------------

    scatter = scattering.scatter
    replicate = copies.replicate
    rebalance = copies.rebalance
    compute = collections.compute
    persist = collections.persist
    get = collections.get
    _get_for_dask = collections.get_for_dask
    _run_graph = collections.run_graph
    _run_in_blocks = collections.run_in_blocks
    _future_of = collections.future_of

    def get_executor(self: Client[Blocking], **submit_options: Any) -> Executor:
        """Return an executor of this cluster: a `concurrent.futures.Executor`.

        Args:
            submit_options: see `weft.Executor`.

        Example:
            >>> with client.get_executor() as executor:
            ...     list(executor.map(pow, [1, 2, 3], [2, 2, 2]))
            [1, 4, 9]
        """
        return Executor(client=self, **submit_options)

    # --- What the cluster is and does, and code beside the tasks ----------------------------------

    wait_for_workers = cluster_info.wait_for_workers
    scheduler_info = cluster_info.scheduler_info
    nthreads = inspecting.nthreads
    ncores = inspecting.nthreads
    get_versions = inspecting.get_versions
    who_has = inspecting.who_has
    has_what = inspecting.has_what
    processing = inspecting.processing
    nbytes = inspecting.nbytes
    story = inspecting.story
    call_stack = inspecting.call_stack
    profile = profiling.profile
    explain = explaining.explain
    job = jobs.job
    job_counts = jobs.job_counts
    job_result = jobs.job_result
    job_output = outputs.job_output
    cancel_job = jobs.cancel_job
    retry_job = jobs.retry_job
    forget_job = jobs.forget_job
    pause_queue = job_queues.pause_queue
    resume_queue = job_queues.resume_queue
    paused_queues = job_queues.paused_queues
    jobs = jobs.jobs
    wait_recorded = detaching.wait_recorded
    reproduce = reproducing.reproduce
    recreate_error_locally = reproducing.recreate_error_locally
    recreate_task_locally = reproducing.recreate_error_locally
    get_task_stream = task_stream.read_task_stream
    dump_cluster_state = dumping.dump_cluster_state
    get_scheduler_logs = inspecting.get_scheduler_logs
    get_worker_logs = inspecting.get_worker_logs
    retire_workers = retiring.retire_workers
    scale = scaling.scale
    run = running.run
    run_on_scheduler = running.run_on_scheduler
    retry = retrying.retry
    block_workers = blocking.block_workers
    unblock_workers = blocking.unblock_workers
    blocked_workers = blocking.blocked_workers
    restart_workers = restarting.restart_workers
    restart = restarting.restart
    register_plugin = registering.register_plugin
    register_worker_plugin = registering.register_worker_plugin
    register_scheduler_plugin = registering.register_scheduler_plugin
    unregister_plugin = registering.unregister_plugin
    unregister_worker_plugin = registering.unregister_worker_plugin
    register_worker_callbacks = registering.register_worker_callbacks
    upload_file = registering.upload_file
    forward_logging = log_forwarding.forward_logging
    unforward_logging = log_forwarding.unforward_logging

    # --- What the scheduler keeps by name ---------------------------------------------------------

    publish_dataset = datasets.publish_dataset
    unpublish_dataset = datasets.unpublish_dataset
    list_datasets = datasets.list_datasets
    get_dataset = datasets.get_dataset
    set_metadata = metadata.set_metadata
    get_metadata = metadata.get_metadata
    delete_metadata = metadata.delete_metadata
    log_event = topics.log_event
    get_events = topics.get_events
    subscribe_topic = topics.subscribe_topic
    unsubscribe_topic = topics.unsubscribe_topic

    @property
    def datasets(self) -> Datasets:
        """The datasets as a mapping, which can be changed; for blocking clients."""
        return Datasets(self)

    # --- Display, without a request to the scheduler ----------------------------------------------

    def __repr__(self) -> str:
        return describing.line_of(self)

    def _repr_html_(self) -> str:
        return describing.of_client(self)

    if not TYPE_CHECKING:  # a checker that saw it would take any name for granted
        __getattr__ = absent_names.answer_for("Client")

    def __reduce__(self) -> Any:
        raise TypeError(
            "a client cannot be pickled: it belongs to this process. A task that submits gets "
            "one with weft.get_client()"
        )
