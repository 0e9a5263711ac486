"""`LocalCluster`: a scheduler and workers on this machine, as long as this process wants them.

With processes (the default) there are two families of child processes: the scheduler's, so that
user code which holds the interpreter lock here never delays an assignment, and the workers'
(`worker/family/spawn.py`). They start at the same time and end with this process, however it ends;
`watching.py` notices when one ends before.
Between them are Unix sockets in a folder that only this user can enter; `protocol="tcp"` takes
127.0.0.1. The token is made here and is in no file, argument or environment.

With `processes=False` everything lives in this process, on one event loop in a thread of its own
(an asynchronous one on its caller's), and messages are handed over without being encoded. The same
cores run in both.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import shutil
import tempfile
import threading
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, overload

from ...client.cluster import scaling
from ...client.dask import absent_names
from ...client.display import describing
from ...client.modes import Awaited, Blocking, Mode, as_result, waits
from ...client.shell.current import close_all as close_all_clients
from ...client.shell.short_tracebacks import short_refusals, short_tracebacks
from ...protocol.durations import Duration, seconds_of
from ...protocol.errors import ConfigError, NoAnswer, NotPermitted
from ...protocol.host import event_loop
from ...protocol.host.exits import describe_exit
from ...protocol.host.stderr_logging import mark_warnings
from ...protocol.settings.kinds import JournalPlace, Resources
from ...protocol.settings.scheduler import NO_WORKER_TIMEOUT
from ...protocol.settings.sources import read_settings
from ...protocol.trust.security import Security
from ...protocol.wire.levels import Level
from ...protocol.wire.message import load_coders
from .. import settings
from ..cluster import Cluster
from ..processes.child import Child, take_child
from ..processes.in_thread import in_thread
from ..processes.preloading import module_names
from ..workers.spilling import isolate_option, memory_fractions, spill_options
from . import arguments
from .log_level import QuietLogs

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ...client.client import Client
    from ...client.cluster.local_options import OptionsByName
    from ...client.shell.loop import LoopThread
    from .watching import ProcessWatch

_log = logging.getLogger("weft.cluster")

_START_TIMEOUT_S: Final = 60.0
_CLOSE_TIMEOUT_S: Final = 5.0
#: A supervisor that has just been started connects within this time.
_SUPERVISOR_TIMEOUT_S: Final = 10.0
#: The kernel's limit for the path of a socket is 108 bytes; workers' names need some of them.
_MAX_DIRECTORY_CHARS: Final = 60

#: {id: cluster}
_open_clusters: weakref.WeakValueDictionary[int, LocalCluster[Any]] = weakref.WeakValueDictionary()


class LocalCluster(Cluster[Mode]):
    """A scheduler and workers on this machine.

    Args:
        n_workers: number of workers; None = as many as there are cores for.
        threads_per_worker: tasks that one worker runs at a time; None = 1, or the cores divided
            among `n_workers`.
        processes: each worker in a process of its own; False = threads of this process.
        memory_limit: of each worker: "auto" = a fair share, a size like "4GB", a fraction of the
            machine's memory like 0.5, or None. A worker process above 95 % of it is restarted.
        name: for display; None = `local-<process>`, numbered from the second cluster on.
        protocol: "unix" (the default where there is such a thing) or "tcp"; without processes
            "inproc".
        host: listen there, with "tcp"; a loopback address. Clusters for other machines are started
            with `weft scheduler`.
        asynchronous: for use in an event loop: `async with LocalCluster(asynchronous=True)`.
        dashboard_address: `host:port`, or a port, for HTTP pages (health, metrics); None = none.
        resources: of each worker, `{name: amount}` or "GPU=2".
        local_directory: workers get a folder of their own there, and processes keep temporary files
            of their tasks in it; made if it does not exist. None = the folder for temporary files.
        silence_logs: the processes log from this level on; False = everything. Without processes,
            the level of the logger "weft" while the cluster lives, unless you have set one; False
            = the level of your program's logging.
        preload: modules, or paths of .py files, that each worker imports before its tasks; a
            function `weft_setup(worker)` in them is called then.
        env: environment variables of the worker processes, `{name: value}`.
        journal: a file, or a URL `postgresql://user@host/database`, that records detached jobs,
            with which the next cluster goes on; None = such jobs are refused. See docs/jobs.md.
        isolate: run each task in a child process of its worker, so that a crash fails that task
            only; with the bounds of `[worker]` in your settings. See docs/cluster.md.
        security: a token of your own; None or True = a new one, in memory only.
        others: there are no others, except options of dask with their default.

    Raises:
        ConfigError: an argument is invalid.
        ChildFailed: a process did not start; the text has its output.

    Example:
        >>> with weft.LocalCluster(n_workers=1, processes=False) as cluster:
        ...     with cluster.get_client() as own:
        ...         own.submit(pow, 2, 10).result()
        1024
    """

    shares_installation = True
    #: It is none of the user's, who is not warned of it.
    _is_kept = False

    @overload
    def __init__(
        self: LocalCluster[Blocking],
        n_workers: int | None = None,
        threads_per_worker: int | None = None,
        processes: bool = True,
        memory_limit: str | float | None = "auto",
        name: str | None = None,
        *,
        asynchronous: Literal[False] = False,
        security: Security | bool | None = None,
        **options: Unpack[OptionsByName],
    ) -> None: ...
    @overload
    def __init__(
        self: LocalCluster[Awaited],
        n_workers: int | None = None,
        threads_per_worker: int | None = None,
        processes: bool = True,
        memory_limit: str | float | None = "auto",
        name: str | None = None,
        *,
        asynchronous: Literal[True],
        security: Security | bool | None = None,
        **options: Unpack[OptionsByName],
    ) -> None: ...
    def __init__(
        self,
        n_workers: int | None = None,
        threads_per_worker: int | None = None,
        processes: bool = True,
        memory_limit: str | float | None = "auto",
        name: str | None = None,
        protocol: str | None = None,
        host: str | None = None,
        asynchronous: bool = False,
        dashboard_address: str | int | None = None,
        resources: str | Mapping[str, float] | None = None,
        local_directory: str | os.PathLike[str] | None = None,
        silence_logs: int | bool = logging.WARNING,
        preload: str | os.PathLike[str] | Sequence[str] | None = None,
        env: Mapping[str, str | float] | None = None,
        journal: str | os.PathLike[str] | None = None,
        isolate: bool = False,
        security: Security | bool | None = None,
        **others: Any,
    ) -> None:
        for name_of_other, value in others.items():
            if not absent_names.is_default(name_of_other, value, LocalCluster):
                raise absent_names.unknown_option(name_of_other, LocalCluster)
        mark_warnings()
        self.name = arguments.choose_name(name)
        self.asynchronous = asynchronous
        self.status = "created"
        self.processes = processes
        self.scheduler_address = ""
        #: The thread in which a cluster without processes runs, for its clients.
        self.loop_thread: LoopThread | None = None
        with short_refusals:
            counts, local_directory, dashboard_address = arguments.with_settings(
                n_workers,
                threads_per_worker,
                local_directory,
                dashboard_address,
                processes=processes,
            )
            self.memory_limit = settings.parse_memory_limit(memory_limit, counts)
            self._settings = read_settings()
            memory_fractions(self._settings)
            if isolate and not processes:
                text = "isolated tasks need workers that are processes: leave processes=False out"
                raise ConfigError(text, "isolate")
            self._isolate = isolate_option(self._settings, is_on=isolate)
            self._no_worker_timeout_s = self._settings[NO_WORKER_TIMEOUT] or 0.0
            self.resources = Resources().read(resources, "resources")
            self._journal = ""
            if journal is not None:
                self._journal = JournalPlace().read(os.fspath(journal), "journal")
            self._protocol = arguments.choose_protocol(protocol, processes, host)
            self._dashboard = arguments.parse_dashboard_address(dashboard_address, processes)
            self._log_level = arguments.choose_log_level(silence_logs)
            self.security = arguments.choose_security(security)
            self._preload = module_names(preload)
            self._environment = arguments.parse_environment(env, processes)
        self.n_workers, self.threads_per_worker = counts.n_workers, counts.nthreads
        self._host = host or "127.0.0.1"
        self._local_directory = local_directory
        #: The folder in it, while the cluster runs; "" if none was asked for.
        self._files = ""
        #: Of this process, if the cluster lives in it.
        self._quiet = QuietLogs(logging.NOTSET if silence_logs is False else self._log_level)
        #: The folder of the sockets, with processes.
        self._directory: str | None = None
        #: Workers that no client has waited for yet.
        self._n_expected = self.n_workers
        self._scheduler: Child | None = None
        self._workers: Child | None = None
        self._watch: ProcessWatch | None = None
        #: Why this cluster was given up, "" while it was not.
        self._given_up = ""
        self._pid = os.getpid()
        self._closing = threading.Lock()
        self._embedded: Any = None
        if not asynchronous:
            with short_tracebacks:
                self._start()

    # --- Starting -------------------------------------------------------------------------------

    def _start(self) -> None:
        try:
            if self.processes:
                self._start_processes()
            else:
                self._start_threads()
        except BaseException:
            self._close(0.5)
            raise
        self._note_running()

    def _note_running(self) -> None:
        self.status = "running"
        self._warn_of_another()
        _open_clusters[id(self)] = self

    def _warn_of_another(self) -> None:
        refs = _open_clusters.valuerefs()
        clusters = [c for ref in refs if (c := ref()) is not None]
        others = [
            c.name
            for c in clusters
            if c.status == "running" and c._pid == self._pid and not c._is_kept
        ]
        if len(others) == 1 and not self._is_kept:
            _log.warning(
                "a second LocalCluster, %s, was started while %s is running: both take this "
                "machine's cores and memory. weft.Client(cluster) makes a client of the first; "
                "close() of it, or of the client that started it, ends it",
                self.name,
                others[0],
                extra={"code": "second-cluster"},
            )

    def _make_files(self) -> None:
        if self._local_directory is not None:
            self._files = settings.make_local_directory(self._local_directory, "local_directory")

    def _start_threads(self) -> None:
        from ...client.shell.loop import LoopThread

        self.loop_thread = LoopThread("weft-cluster")
        self.loop_thread.start()
        self.loop_thread.run_coroutine(self._start_embedded())

    async def _start_embedded(self) -> None:
        from .threads import EmbeddedCluster

        self._make_files()
        self._quiet.begin()
        self._embedded = EmbeddedCluster(
            self.security,
            n_workers=self.n_workers,
            nthreads=self.threads_per_worker,
            memory_limit=self.memory_limit,
            resources=self.resources,
            name=self.name,
            local_directory=Path(self._files) if self._files else None,
            modules=self._preload,
            journal=self._journal,
            no_worker_timeout_s=self._no_worker_timeout_s,
        )
        self.scheduler_address = await self._embedded.start()

    def _start_processes(self) -> None:
        self._make_files()
        # Both begin to import at once, which is what takes the time.
        self._workers = take_child("workers")
        self._scheduler = take_child("scheduler")
        self._directory = _make_directory(self._protocol)
        self._configure_scheduler(
            f"unix://{self._directory}/scheduler.sock"
            if self._protocol == "unix"
            else f"tcp://{self._host}:0"
        )
        # What the client needs, while this process has nothing to do.
        event_loop.load()
        load_coders()
        ready = self._scheduler.wait_ready(_START_TIMEOUT_S)
        self.scheduler_address = ready["address"]
        self._pages_address = ready["dashboard"] or None
        # Not before the scheduler listens: workers of an embedded cluster do not wait for one.
        self._configure_workers(self.scheduler_address)
        self._workers.wait_ready(_START_TIMEOUT_S)
        from .watching import ProcessWatch

        self._watch = ProcessWatch(
            self.name, self._scheduler, self._workers, self._start_workers_again, self._give_up
        )

    def _start_workers_again(self) -> Child | None:
        """Start the workers' processes anew, in the watch's thread; None if it is over."""
        ended, self._workers = self._workers, Child("workers")
        if ended is not None:
            ended.close()
        # `_close` first marks the cluster as closed, then stops the child that it finds here.
        if self.status == "closed":
            return None
        self._configure_workers(self.scheduler_address)
        self._workers.wait_ready(_START_TIMEOUT_S)
        return self._workers

    def _give_up(self, reason: str) -> None:
        self._given_up = reason

    def _configure_scheduler(self, address: str) -> None:
        assert self._scheduler is not None
        self._scheduler.configure(
            {
                "security": self.security.to_plain(),
                "address": address,
                "name": self.name,
                "dashboard_host": self._dashboard[0],
                "dashboard_port": self._dashboard[1],
                "directory": self._directory,
                "journal": self._journal,
                "log_level": self._log_level,
                "options": {"no_worker_timeout_s": self._no_worker_timeout_s},
            }
        )

    def _spilling(self) -> dict[str, Any]:
        directory = self._files or self._directory or ""
        return spill_options(self._settings, directory, is_named=bool(self._files))

    def _configure_workers(self, scheduler_address: str) -> None:
        assert self._workers is not None
        if self._files:  # the workers' family before this one may have cleared it away
            os.makedirs(self._files, mode=0o700, exist_ok=True)
        options = {
            "nthreads": self.threads_per_worker,
            "resources": self.resources,
            "local_directory": self._files or self._directory,
            "temporary_directory": self._files,
            **self._spilling(),
            "preload": self._preload,
            "isolate": self._isolate,
            "environment": self._environment,
            "listen_address": "",
            "log_level": self._log_level,
        }

        def worker(i: int) -> dict[str, Any]:
            memory_limit = self.memory_limit
            return {"name": f"{self.name}-{i}", "memory_limit": memory_limit, "options": options}

        self._workers.configure(
            {
                # Code of users runs there: it gets no token that can do more than a worker.
                "security": self.security.lowered(Level.WORKER).to_plain(),
                "scheduler_address": scheduler_address,
                "directory": self._directory,
                "files": self._files,
                "log_level": self._log_level,
                "workers": [worker(i) for i in range(self.n_workers)],
                "first": worker(0),
            }
        )

    def _take_n_expected(self) -> int:
        """Return how many workers the first client waits for, so that it shows them; 0 later."""
        n_expected, self._n_expected = self._n_expected, 0
        return n_expected

    # --- Use ------------------------------------------------------------------------------------

    @property
    def no_pages_text(self) -> str:
        """How this cluster would have served a status page, for display where it serves none."""
        how = 'dashboard_address=":0"' + ("" if self.processes else " and processes")
        return f"none; a cluster that is started with {how} serves a status page"

    @property
    def failure(self) -> str | None:
        """The reason why the scheduler has ended for good; None while it has not."""
        if self.status == "closed":
            return "the LocalCluster was closed; start a new one"
        if self._given_up:
            return f"the LocalCluster was given up: {self._given_up}; start a new one"
        scheduler = self._scheduler
        if scheduler is None or scheduler.running:
            return None
        how = describe_exit(scheduler.process.returncode)
        return f"the scheduler process of the LocalCluster has ended ({how}); start a new cluster"

    async def _scale_to(self, client: Client, n: int, losses: str = "keep") -> list[str]:
        leaving = await self._scale_workers(client, n, losses)
        return [f"{row['name']}: {row['reason']}" for row in scaling.kept(leaving)]

    async def _scale_whole(self, client: Any, n: int, losses: str = "keep") -> dict[str, Any]:
        scaling.demand_admin(client._running())
        await self._end_adaptation_on_loop()
        return await self._scale_workers(client, n, losses)

    async def _scale_workers(self, client: Any, n: int, losses: str) -> dict[str, Any]:
        settings.check_count(n, "n", 0)
        engine = client._running()
        if self._embedded is not None:
            await self._embedded.grow(n)
        else:
            await scaling.wait_for_supervisor(engine, _SUPERVISOR_TIMEOUT_S)
        leaving = await scaling.scale_to(engine, n, losses)
        self.n_workers = n + len(scaling.kept(leaving))
        self._n_expected = 0
        if self._embedded is not None:
            self._embedded.note_leaving(
                address for address, row in leaving.items() if row["end"] != "kept"
            )
        return leaving

    async def _recount(self, client: Any) -> None:
        """Count the workers: some may have been retired, by this program or from outside."""
        with contextlib.suppress(NoAnswer, NotPermitted):
            n = await scaling.count(client._running(), 1 if self.processes else 0)
            if n is not None and self.status == "running":
                self.n_workers = n

    # --- The end --------------------------------------------------------------------------------

    @waits
    def close(self, timeout: Duration = _CLOSE_TIMEOUT_S) -> None:
        """End workers and scheduler. A second call does nothing.

        Args:
            timeout: time after which processes that have not ended are killed: seconds, "30s", ...
        """
        timeout_s = min(seconds_of(timeout, "timeout"), threading.TIMEOUT_MAX)
        if self.asynchronous:
            return as_result(self._close_async(timeout_s))
        self._close(timeout_s)
        return None

    async def _close_async(self, timeout_s: float = _CLOSE_TIMEOUT_S) -> None:
        await self._end_adaptation_async()
        if self._embedded is not None:
            embedded, self._embedded = self._embedded, None
            await embedded.stop()
        await in_thread(lambda: self._close(timeout_s))

    def _close(self, timeout_s: float) -> None:
        self.status = "closed"
        _open_clusters.pop(id(self), None)
        if os.getpid() != self._pid:
            return  # a fork of the owner: the processes are not its own
        self._end_adaptation()
        # A client that was dropped closes it in a thread, perhaps while the program ends, which
        # closes all: the second waits, and finds nothing left to do.
        with self._closing:
            self._end(timeout_s)

    def _end(self, timeout_s: float) -> None:
        if self.loop_thread is not None:
            if self._embedded is not None:
                with contextlib.suppress(TimeoutError):
                    self.loop_thread.run_coroutine(self._embedded.stop(), timeout_s)
                self._embedded = None
            self.loop_thread.stop()
        self._quiet.end()
        if self._watch is not None:
            self._watch.tell_to_stop()
            if self._workers is not None:
                self._workers.ask_to_stop()
            self._watch.stop()
            self._watch = None
        # Workers first, so that the scheduler receives their goodbyes and logs no warnings.
        for child in (self._workers, self._scheduler):
            if child is not None:
                child.close(timeout_s)
        self._workers = self._scheduler = None
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None
        if self._files:
            shutil.rmtree(self._files, ignore_errors=True)
            self._files = ""

    async def _open_async(self) -> LocalCluster[Mode]:
        if self.status == "created":
            try:
                if self.processes:
                    await in_thread(self._start)
                else:  # on the caller's own loop, where its clients are
                    await self._start_embedded()
                    self._note_running()
            except BaseException:
                await self._close_async(0.5)
                raise
        return self

    def __repr__(self) -> str:
        where = f" {self.scheduler_address!r}" if self.scheduler_address else ""
        status = describing.cluster_status(self)
        return (
            f"<LocalCluster {self.name!r}{where}: {status}, workers={self.n_workers} "
            f"threads={self.n_workers * self.threads_per_worker}>"
        )

    if not TYPE_CHECKING:  # a checker that saw it would take any name for granted
        __getattr__ = absent_names.answer_for("LocalCluster")
        # It is asked of the class, for which there is no `__getattr__`.
        from_name = absent_names.AbsentProperty(
            absent_names.missing_attribute("LocalCluster", "from_name")
        )


def _make_directory(protocol: str) -> str:
    """Make a directory, mode 0700, with a path that is short enough for sockets in it."""
    base = tempfile.gettempdir()
    if protocol == "unix" and len(os.fsencode(base)) > _MAX_DIRECTORY_CHARS:
        base = "/tmp"
    return tempfile.mkdtemp(prefix="weft-", dir=base)


def _close_all() -> None:
    # Clients would see their scheduler end, and report a lost connection.
    close_all_clients()
    # `valuerefs` copies in one step; iterating over the dictionary fails if entries are added.
    for ref in _open_clusters.valuerefs():
        cluster = ref()
        if cluster is not None:
            cluster._close(1.0)


atexit.register(_close_all)
