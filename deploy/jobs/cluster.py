"""`JobCluster`: a scheduler of this program, and workers that somebody else starts as jobs.

It is the base class of clusters on batch systems and by ssh, and for systems of users' own: a kind
of cluster says how jobs are started and ended, and what is known of them (docs/own_cluster.md). All
else is here. One thread looks after the jobs, so that the end of one is logged with its reason, and
so that waiting for workers ends when none can come.

A job ends whole. Jobs that wait are cancelled. Of jobs with workers, the scheduler says which may
go without a loss; all workers of such a job then leave in order, and the job ends with the last.
"""

from __future__ import annotations

import abc
import asyncio
import atexit
import contextlib
import logging
import math
import os
import shutil
import sys
import threading
import time
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn

from ...client.cluster import scaling
from ...client.core.features.cluster import cluster_of
from ...client.dask.absent_names import unknown_option
from ...client.display import describing
from ...client.display.painting import FIRST_LINE_S, make_painter
from ...client.insight.cluster_info import workers_there
from ...client.modes import Mode, as_result, waits
from ...client.shell.current import close_all as close_all_clients
from ...client.shell.short_tracebacks import short_refusals, short_tracebacks
from ...protocol.durations import Duration, seconds_of
from ...protocol.errors import ConfigError, WeftError, WorkerStartTimeout
from ...protocol.host.exits import describe_exit
from ...protocol.host.stderr_logging import mark_warnings
from ...protocol.settings.kinds import parse_bytes
from .. import settings
from ..cluster import Cluster
from ..processes.in_thread import in_thread
from .arguments import choose_name, lifetime_of, texts_of, walltime_of
from .errors import JobsFailed, JobsNotReady
from .leaving import let_leave, recount
from .ledger import JobState, Ledger, WorkerJob
from .serving import OwnScheduler, make_folder
from .watching import JobWatch

if TYPE_CHECKING:
    from ...client.client import Client
    from ..adapting import Adaptation

_log = logging.getLogger("weft.cluster")

_CLOSE_TIMEOUT_S: Final = 10.0
#: How often a coroutine that waits for workers looks whether they can still come.
_WAIT_STEP_S: Final = 0.2
#: Progress is shown from this time on.
_SHOW_AFTER_S: Final = 2.0
#: Workers whose scheduler has ended end after this time: no other one comes.
_ORPHAN_LEASE_S: Final = 30
_MAX_LOG_NBYTES: Final = 64 * 1024

_open_clusters: weakref.WeakSet[JobCluster[Any]] = weakref.WeakSet()


class JobCluster(Cluster[Mode]):
    """A scheduler in this program, and workers that are started as jobs.

    A kind of cluster defines `start_jobs`, `end_jobs` and `job_states`, and has the command of a
    job's workers from `worker_command`. These methods block; no two of them run at the same time,
    and they may be called in any thread.

    Args:
        n_workers: number of workers at the start; whole jobs are started.
        cores: threads of each job, divided among its processes.
        processes: worker processes of each job; None = one for each core.
        memory: of each job, divided among its processes: bytes, or like "16GB"; None = no limit.
        name: for display, and the beginning of the names of jobs; None = `jobs-<process>`.
        walltime: time limit of each job; its workers leave two grace periods before it. None = no
            limit.
        grace: time that running tasks get when their worker leaves for the time limit, or because
            its job gets SIGTERM. Tasks that take longer run again elsewhere.
        local_directory: where workers keep files; None = their folder for temporary files.
        log_directory: where jobs write their logs; None = a folder that is removed with the
            cluster, unless a job has failed.
        shared_temp_directory: a folder that all machines share, for the connection file and the
            logs; None = `~/.weft/jobs`.
        interface: network interface of the scheduler and of the workers, such as "ib0".
        host: address at which the scheduler listens; None = all addresses of this machine.
        dashboard_address: `host:port`, or a port, for HTTP pages; None = none.
        python: of the workers; None = the path of this one.
        worker_extra_args: more options of `weft worker`.
        poll_interval: how often at least the state of jobs is looked at.
        asynchronous: for use in an event loop.

    Raises:
        ConfigError: an argument is invalid.
        ChildFailed: the scheduler did not start; the text has its output.
    """

    shares_installation = True
    #: How many jobs there may be; None = any number.
    max_jobs: int | None = None
    #: What the name of a cluster begins with that the user does not name.
    default_name: ClassVar[str] = "jobs"

    def __init__(
        self,
        n_workers: int = 0,
        *,
        cores: int = 1,
        processes: int | None = None,
        memory: str | int | None = None,
        name: str | None = None,
        walltime: Duration | None = None,
        grace: Duration = "60s",
        local_directory: str | os.PathLike[str] | None = None,
        log_directory: str | os.PathLike[str] | None = None,
        shared_temp_directory: str | os.PathLike[str] | None = None,
        interface: str | None = None,
        host: str | None = None,
        dashboard_address: str | int | None = None,
        python: str | None = None,
        worker_extra_args: Sequence[str] = (),
        poll_interval: Duration = "10s",
        asynchronous: bool = False,
    ) -> None:
        mark_warnings()
        self.asynchronous = asynchronous
        self.status = "created"
        self.scheduler_address = ""
        self.name = choose_name(name, self.default_name)
        with short_refusals:
            self._n_at_start = settings.check_count(n_workers, "n_workers", 0)
            self.cores = settings.check_count(cores, "cores")
            self.processes = settings.check_count(processes or self.cores, "processes")
            if self.processes > self.cores:
                raise ConfigError(f"{self.cores} cores have less than one thread each", "processes")
            self.threads_per_worker = self.cores // self.processes
            #: Bytes of each job, 0 = no limit.
            self.job_memory = 0 if memory is None else parse_bytes(str(memory), "memory")
            self.memory_limit = self.job_memory // self.processes
            self.grace_s = seconds_of(grace, "grace")
            self.walltime_s = None if walltime is None else walltime_of(walltime)
            self._lifetime_s = lifetime_of(self.walltime_s, self.grace_s)
            self._poll_s = seconds_of(poll_interval, "poll_interval", 0.05)
            if host is not None and interface is not None:
                raise ConfigError("give host= or interface=, not both", "interface")
            self._host = host or "0.0.0.0"
            if interface is not None:
                self._host = settings.address_of_interface(interface, "interface")
        self._interface = interface
        self._dashboard_address = dashboard_address
        self._python = python or sys.executable
        self._local_directory = local_directory
        self._log_directory = log_directory
        self._shared_directory = shared_temp_directory
        self._extra = texts_of(worker_extra_args, "worker_extra_args")
        self._scheduler: OwnScheduler | None = None
        self._folder = Path()
        #: Where jobs write their logs.
        self.logs_folder = Path()
        self._ledger = Ledger(self.processes, self._lifetime_s, self._poll_s)
        #: Held while the ledger is used; jobs are started and ended outside of it.
        self._lock = threading.Lock()
        self._watch: JobWatch | None = None
        self._closing = threading.Lock()
        self._pid = os.getpid()
        if not asynchronous:
            with short_tracebacks:
                self._start()

    # --- For the kinds of clusters ----------------------------------------------------------------

    @abc.abstractmethod
    def start_jobs(self, names: Sequence[str]) -> Sequence[str]:
        """Start one job for each name, and return their ids, at once; they may wait in a queue.

        A job runs the command `worker_command(name)` on some machine. It has ended when that ends.
        The names are numbered on, and no name comes again.
        """

    @abc.abstractmethod
    def end_jobs(self, jobs: Sequence[str]) -> None:
        """Cancel jobs by id, whether they wait or run; those that have ended are no error."""

    @abc.abstractmethod
    def job_states(self, jobs: Sequence[str]) -> dict[str, JobState]:
        """Return what is known of jobs, by id; one that is left out is as it was."""

    def log_of(self, job: str, name: str) -> str:
        """Return what a job has written, "" if there is nothing yet."""
        with contextlib.suppress(OSError), open(self.logs_folder / f"{name}.log", "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _MAX_LOG_NBYTES))
            return file.read().decode(errors="replace")
        return ""

    def worker_command(self, name: str) -> list[str]:
        """Return the command that runs the workers of a job, on any machine, until they end."""
        command = [self._python, "-m", "weft", "worker", "--name", name]
        command += ["--connection-file", str(self.connection_file), *self.worker_options()]
        life_s = self._lifetime_s
        return command if life_s is None else [*command, "--lifetime", f"{life_s:g}s"]

    def worker_options(self) -> list[str]:
        """Return the options of `weft worker` that all jobs share."""
        options = [
            *("--nworkers", str(self.processes), "--nthreads", str(self.threads_per_worker)),
            *("--memory-limit", str(self.memory_limit) if self.memory_limit else "none"),
            *("--grace-period", f"{self.grace_s:g}s", "--orphan-lease", f"{_ORPHAN_LEASE_S}s"),
        ]
        if self._local_directory is not None:
            options += ["--local-directory", os.fspath(self._local_directory)]
        if self._interface is not None:
            options += ["--interface", self._interface]
        return [*options, *self._extra]

    @property
    def connection_file(self) -> Path:
        """The file with which workers join, of mode 0600, in a folder that machines share."""
        return self._folder / "worker.json"

    # --- Starting -------------------------------------------------------------------------------

    def _start(self) -> None:
        try:
            self._folder = make_folder(self._shared_directory, self.name)
            given = self._log_directory
            self.logs_folder = (
                self._folder if given is None else Path(given).expanduser().absolute()
            )
            self.logs_folder.mkdir(parents=True, exist_ok=True)
            self._scheduler = OwnScheduler(self.name, self._host, self._dashboard_address)
            self.scheduler_address = self._scheduler.address
            self._pages_address = self._scheduler.pages
            self.security = self._scheduler.security
            self._scheduler.connection().write(self.connection_file)
            self._watch = JobWatch(
                self.name,
                self,
                self._ledger,
                self._lock,
                self._poll_s,
                self._scheduler.child,
                lambda job: f"its log is {self.logs_folder}/{job.name}.log",
            )
            self.status = "running"
            _open_clusters.add(self)
            if n_jobs := self._jobs_for(self._n_at_start):
                self._jobs.hold(n_jobs)
                self._jobs.begin(n_jobs)
        except BaseException:
            self._close(0.5)
            raise

    @property
    def _jobs(self) -> JobWatch:
        if self._watch is None:
            raise ConfigError(f"{self.name} was not started: await it, or enter it first")
        return self._watch

    async def _open_async(self) -> JobCluster[Mode]:
        if self.status == "created":
            await in_thread(self._start)
        return self

    # --- The number of workers --------------------------------------------------------------------

    @property
    def n_workers(self) -> int:  # type: ignore[override]
        """How many workers the cluster is to have: those of all jobs that wait or run."""
        with self._lock:
            return self._ledger.n_workers

    def _n_to_await(self) -> int:
        # With those of jobs that have failed already: the wait says why they cannot come.
        with self._lock:
            if self._adaptation is not None:
                return max(self._ledger.n_workers, self._adaptation.config.minimum)
            return self._ledger.n_workers + self.processes * len(self._ledger.failures)

    def _rounded(self, n: int) -> int:
        return self._jobs_for(n) * self.processes

    def _jobs_for(self, n: int) -> int:
        n_jobs = math.ceil(n / self.processes)
        return n_jobs if self.max_jobs is None else min(n_jobs, self.max_jobs)

    async def _scale_to(self, client: Client, n: int, losses: str = "keep") -> list[str]:
        with self._lock:
            if self._ledger.has_given_up:
                raise JobsFailed(self._failed_text())
        leaving = await self._scale_jobs(client, n, losses)
        return [f"{row['name']}: {row['reason']}" for row in scaling.kept(leaving)]

    def _failed_text(self) -> str:
        failures = self._ledger.failures
        return (
            f"{len(failures)} jobs in a row have failed before their workers joined, and no more "
            f"are started until scale() is called: {failures[-1].describe()}; its log is in "
            f"{self.logs_folder}"
        )

    async def _scale_whole(self, client: Any, n: int, losses: str = "keep") -> dict[str, Any]:
        scaling.demand_admin(client._running())
        settings.check_count(n, "n", 0)
        await self._end_adaptation_on_loop()
        return await self._scale_jobs(client, n, losses)

    async def _scale_jobs(self, client: Any, n: int, losses: str) -> dict[str, Any]:
        """Have jobs for `n` workers; return what becomes of workers that are too many."""
        n_held = self._jobs_for(n) if self._adaptation is None else 0
        await in_thread(lambda: self._jobs.hold(n_held))
        await recount(client, self._ledger, self._lock)
        with self._lock:
            n_fewer = len(self._ledger.counting()) - self._jobs_for(n)
            idle = self._ledger.without_workers()[: max(n_fewer, 0)]
            for job in idle:
                job.is_ending = True
        if n_fewer < 0:
            await in_thread(lambda: self._jobs.begin(-n_fewer))
        await in_thread(lambda: self._jobs.cancel(idle))
        n_fewer -= len(idle)
        if n_fewer <= 0 and losses != "drop":
            return {}
        return await let_leave(client, self._ledger, self._lock, max(n_fewer, 0), losses)

    @waits
    def scale(
        self,
        /,
        n: int | None = None,
        memory: str | int | None = None,
        cores: int | None = None,
        *,
        jobs: int | None = None,
        drop: bool = False,
        **others: NoReturn,
    ) -> None:
        """Have `n` workers soon, in whole jobs. `wait_for_workers` waits until they have joined.

        Jobs that wait are cancelled first. Then whole jobs end whose end costs least: their workers
        finish what they run, give away what only they have, and leave. A job is kept if the others
        have no room for that, which is logged. An adaptation ends. Until the next call, jobs that
        end by their time limit are replaced.

        Args:
            n: the number of workers.
            memory: that all of them may use, in bytes or like "64GB", in place of `n`.
            cores: the number of their threads, in place of `n`.
            jobs: the number of jobs, in place of `n`.
            drop: keep no job because of results or actors, which are lost then.
            others: there are no others.

        Raises:
            ConfigError: not exactly one of them is given, or it is no such number.
        """
        for name in others:
            raise unknown_option(name, JobCluster.scale)
        with short_refusals:
            given = [name for name in (n, memory, cores) if name is not None]
            if jobs is not None and given:
                raise ConfigError("jobs= was given with another number; give exactly one", "scale")
            if jobs is not None:
                n = settings.check_count(jobs, "jobs", 0) * self.processes
        with self._lock:
            self._ledger.failures.clear()
        scaled: None = super().scale(n, memory, cores, drop=drop)
        return scaled

    def adapt(
        self,
        minimum: int = 0,
        maximum: int | None = None,
        *,
        minimum_jobs: int | None = None,
        maximum_jobs: int | None = None,
        **options: Any,
    ) -> Adaptation:
        """Let the number of jobs follow the work, from now on; `scale` ends it.

        Jobs that end by their time limit are replaced while there is work, or up to the minimum.

        Args:
            minimum: the least number of workers.
            maximum: the greatest; None = no limit.
            minimum_jobs: the least number of jobs, in place of `minimum`.
            maximum_jobs: the greatest, in place of `maximum`.
            options: `interval`, `wait_up`, `wait_down` and `target_duration` of `Cluster.adapt`.
                For a queue that is long, a longer `wait_down` keeps what was waited for.
        """
        with short_refusals:
            if minimum_jobs is not None:
                minimum = settings.check_count(minimum_jobs, "minimum_jobs", 0) * self.processes
            if maximum_jobs is not None:
                maximum = settings.check_count(maximum_jobs, "maximum_jobs") * self.processes
        self._end_adaptation()  # a step of it that is under way may hold jobs
        with self._lock:
            self._ledger.failures.clear()
            self._ledger.hold(0)
        return super().adapt(minimum, maximum, **options)

    # --- Waiting ----------------------------------------------------------------------------------

    async def _workers_there(self, client: Client, n: int, timeout_s: float | None) -> None:
        """Wait for workers; end early if no job can bring them any more. Shows progress."""
        engine = client._running()
        arriving = asyncio.ensure_future(workers_there(engine, n, timeout_s))
        begin_s = time.monotonic()
        painter, was_painted = make_painter(), False
        try:
            while not (await asyncio.wait([arriving], timeout=_WAIT_STEP_S))[0]:
                seconds = time.monotonic() - begin_s
                n_there = cluster_of(engine.core).n_workers
                if self._is_hopeless(n, n_there):
                    arriving.cancel()
                    raise WorkerStartTimeout(n, n_there, round(seconds, 1))
                with self._lock:
                    note = self._ledger.describe()
                if seconds >= _SHOW_AFTER_S:
                    painter.paint({"rows": [_progress(n_there, n, note)], "seconds": seconds})
                    was_painted = was_painted or seconds >= FIRST_LINE_S
            await arriving
            await recount(client, self._ledger, self._lock)
        except asyncio.CancelledError:
            arriving.cancel()
            raise
        if was_painted:
            painter.finish({"summary": f"{self.name}: {n} workers have joined", "seconds": 0.0})

    def _is_hopeless(self, n: int, n_there: int) -> bool:
        """Whether `n` workers cannot come: jobs have failed, and no other will bring them."""
        with self._lock:
            ledger = self._ledger
            adapts = self._adaptation is not None and not ledger.has_given_up
            return bool(ledger.failures) and not adapts and max(ledger.n_workers, n_there) < n

    async def _explained(self, error: WorkerStartTimeout) -> JobsNotReady:
        with self._lock:
            problems = self._ledger.problems()
            if self._ledger.failures:
                last = self._ledger.failures[-1]
                problems.append(f"the log of {last.name} is in {self.logs_folder}; its end:")
                problems += [f"  {line}" for line in self._last_lines(last)]
        return JobsNotReady(error.wanted, error.arrived, error.timeout_s, problems)

    def _last_lines(self, job: WorkerJob, n: int = 5) -> list[str]:
        return self.log_of(job.id, job.name).strip().splitlines()[-n:] or ["(it is empty)"]

    # --- Use --------------------------------------------------------------------------------------

    @property
    def failure(self) -> str | None:
        """The reason why the scheduler has ended for good; None while it has not."""
        kind = type(self).__name__
        if self.status == "closed":
            return f"the {kind} was closed; make a new one"
        if self._scheduler is None or self._scheduler.child.running:
            return None
        how = describe_exit(self._scheduler.child.process.returncode)
        return f"the scheduler process of the {kind} has ended ({how}); make a new cluster"

    @waits
    def get_logs(
        self, cluster: bool = True, scheduler: bool = True, workers: bool = True, jobs: bool = True
    ) -> dict[str, str]:
        """Return the latest log lines of the scheduler, of the workers, and of the jobs.

        Args:
            cluster: accepted for compatibility with dask; a cluster object logs with the program.
            scheduler: include those of the scheduler, as "Scheduler".
            workers: include those of the workers, by address.
            jobs: include what is known of each job and what it has written, by its id.
        """
        if not self.asynchronous:
            found: dict[str, str] = super().get_logs(cluster, scheduler, workers)
            return found | (self._job_logs() if jobs else {})

        async def get() -> dict[str, str]:
            logs: dict[str, str] = await super(JobCluster, self).get_logs(
                cluster, scheduler, workers
            )
            return logs | (await in_thread(self._job_logs) if jobs else {})

        return as_result(get())

    def _job_logs(self) -> dict[str, str]:
        with self._lock:
            jobs = [*self._ledger.ended, *self._ledger.jobs.values()]
        return {job.id: f"{job.describe()}\n{self.log_of(job.id, job.name)}" for job in jobs}

    def jobs(self) -> dict[str, JobState]:
        """Return what is known of the jobs, by id, those that have ended included."""
        with self._lock:
            jobs = [*self._ledger.ended, *self._ledger.jobs.values()]
            return {job.id: job.state for job in jobs}

    def __repr__(self) -> str:
        where = f" {self.scheduler_address!r}" if self.scheduler_address else ""
        with self._lock:
            jobs = self._ledger.describe()
            n = self._ledger.n_workers
        return (
            f"<{type(self).__name__} {self.name!r}{where}: {describing.cluster_status(self)}, "
            f"workers={n} threads={n * self.threads_per_worker}, {jobs}>"
        )

    # --- The end ----------------------------------------------------------------------------------

    @waits
    def close(self, timeout: Duration = _CLOSE_TIMEOUT_S) -> None:
        """Cancel the jobs that wait, end workers and scheduler. A second call does nothing.

        Args:
            timeout: time after which a scheduler that has not ended is killed.
        """
        timeout_s = min(seconds_of(timeout, "timeout"), threading.TIMEOUT_MAX)
        if self.asynchronous:
            return as_result(self._close_async(timeout_s))
        self._close(timeout_s)
        return None

    async def _close_async(self, timeout_s: float = _CLOSE_TIMEOUT_S) -> None:
        await self._end_adaptation_async()
        await in_thread(lambda: self._close(timeout_s))

    def _close(self, timeout_s: float) -> None:
        if os.getpid() != self._pid:
            return  # a fork of the owner: the jobs are not its own
        self._end_adaptation()
        with self._closing:
            self.status = "closed"
            if self._watch is not None:
                self._watch.close()
            scheduler, self._scheduler = self._scheduler, None
            if scheduler is not None:
                try:
                    self._end_all(scheduler, timeout_s)
                finally:
                    self._remove_files()

    def _end_all(self, scheduler: OwnScheduler, timeout_s: float) -> None:
        """End the jobs that wait, the workers with their scheduler, then what is left of jobs."""
        left = self._watch.left() if self._watch is not None else []
        try:
            self._cancel_left([job for job in left if job.state.phase == "waiting"])
        finally:
            scheduler.close(timeout_s)
            self._cancel_left([job for job in left if job.state.phase != "waiting"])

    def _cancel_left(self, jobs: list[WorkerJob]) -> None:
        try:
            self._jobs.cancel(jobs)
        except WeftError as error:
            text = "%s could not cancel its jobs: %s"
            _log.warning(text, self.name, error, extra={"code": "jobs-not-cancelled"})

    def _remove_files(self) -> None:
        self.connection_file.unlink(missing_ok=True)
        with self._lock:
            has_failed = any(job.state.failed and not job.is_ending for job in self._ledger.ended)
        if not has_failed:
            shutil.rmtree(self._folder, ignore_errors=True)
        elif self.logs_folder == self._folder:
            text = "%s: jobs have failed; their logs stay in %s"
            _log.warning(text, self.name, self._folder, extra={"code": "job-failed"})


def _progress(n_there: int, n: int, note: str) -> dict[str, Any]:
    row = {"name": "workers", "done": n_there, "total": n, "failed": 0, "cancelled": 0}
    return {**row, "note": note}


def _close_all() -> None:
    close_all_clients()
    for cluster in [*_open_clusters]:
        cluster._close(2.0)


atexit.register(_close_all)
