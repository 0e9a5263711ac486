"""Starts, ends and looks at the jobs of one cluster, and logs the end of each with its reason.

One thread looks at them: soon after some were started or ended, then every `poll_s` at least. The
methods of a kind of cluster (`JobSource`) are called by one thread at a time.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from ...protocol.errors import ConfigError, WeftError
from ...protocol.host.exits import describe_exit
from ...protocol.wording import counted
from ..processes.child import Child
from .ledger import JobState, Ledger, WorkerJob

_log = logging.getLogger("weft.cluster")

#: The first look at jobs after some were started; each next one comes later by half.
_FIRST_LOOK_S: Final = 0.5
_LATER: Final = 1.5


class JobSource(Protocol):
    """What a kind of cluster does with jobs; see `JobCluster`."""

    def start_jobs(self, names: Sequence[str]) -> Sequence[str]: ...
    def end_jobs(self, jobs: Sequence[str]) -> None: ...
    def job_states(self, jobs: Sequence[str]) -> dict[str, JobState]: ...


class JobWatch:
    """The jobs of a cluster, until `close`. Any thread may call any method.

    Args:
        name: of the cluster.
        source: starts and ends them.
        ledger: of its jobs.
        lock: held while the ledger is used; jobs are started and ended outside of it.
        poll_s: how often they are looked at, when nothing changes.
        scheduler: the process without which jobs are of no use.
        where: returns where the log of a job is, for display.
    """

    def __init__(
        self,
        name: str,
        source: JobSource,
        ledger: Ledger,
        lock: threading.Lock,
        poll_s: float,
        scheduler: Child,
        where: Callable[[WorkerJob], str],
    ) -> None:
        self._ledger = ledger
        self._lock = lock
        self._name = name
        self._source = source
        self._poll_s = poll_s
        self._scheduler = scheduler
        self._where = where
        self._is_closed = False
        #: Held while jobs are started, ended or looked at.
        self._acting = threading.Lock()
        self._wake = threading.Event()
        self._next_look_s = poll_s
        self._thread = threading.Thread(target=self._run, name="weft-jobs", daemon=True)
        self._thread.start()

    def begin(self, n: int) -> None:
        """Start jobs."""
        with self._acting:
            if self._is_closed:
                raise ConfigError(f"{self._name} is closed; make a new cluster")
            self._start(n)
        self._look_soon()

    def _start(self, n: int) -> None:
        with self._lock:
            names = self._ledger.names(self._name, n)
        ids = [str(one) for one in self._source.start_jobs(names)]
        with self._lock:
            self._ledger.add(names, ids)

    def hold(self, n: int) -> None:
        """Replace jobs that end by their time limit from now on, up to so many; 0 = none."""
        with self._acting, self._lock:  # no job is being replaced
            self._ledger.hold(n)

    def _replace(self) -> None:
        """Start jobs in the place of those that have ended by their time limit."""
        with self._acting:
            with self._lock:
                n = 0 if self._is_closed else self._ledger.n_to_replace
            if not n:
                return
            _log.info("%s: %s at the time limit, replaced", self._name, counted(n, "job"))
            self._start(n)
        self._look_soon()

    def cancel(self, jobs: Iterable[WorkerJob]) -> None:
        """End jobs that have no workers, or whose workers have been ended."""
        ids = [job.id for job in jobs]
        if ids:
            with self._acting:
                self._source.end_jobs(ids)
            self._look_soon()

    def left(self) -> list[WorkerJob]:
        """Return all jobs that have not ended, and expect their ends."""
        with self._lock:
            jobs = [*self._ledger.jobs.values()]
            for job in jobs:
                job.is_ending = True
        return jobs

    def close(self) -> None:
        """End the thread; jobs are not ended."""
        with self._acting:
            self._is_closed = True
        self._wake.set()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _look_soon(self) -> None:
        self._next_look_s = min(_FIRST_LOOK_S, self._poll_s)
        self._wake.set()

    def _run(self) -> None:
        complaint = ""
        while not self._is_closed:
            if self._wake.wait(self._next_look_s):
                self._wake.clear()
                continue
            self._next_look_s = min(self._next_look_s * _LATER, self._poll_s)
            if not self._scheduler.running:
                self._on_scheduler_ended(self._scheduler.process.returncode)
                return
            try:
                self._look()
                self._replace()
                complaint = ""
            except Exception as error:
                if str(error) != complaint:  # it is the same at each look
                    complaint = str(error)
                    _log.warning(
                        "%s cannot look at its jobs, or replace them: %s",
                        self._name,
                        complaint,
                        extra={"code": "jobs-unknown"},
                    )

    def _look(self) -> None:
        """Look at the jobs once; log those that have ended, and those that will not start."""
        with self._lock:
            jobs = [*self._ledger.jobs]
            hinted = {job.state.hint for job in self._ledger.jobs.values()}
        if not jobs:
            return
        with self._acting:
            if self._is_closed:
                return
            states = self._source.job_states(jobs)
        with self._lock:
            over = self._ledger.note(states, time.monotonic())
            stuck = {job.state.hint: job for job in self._ledger.jobs.values() if job.state.hint}
        for job in over:
            if job.is_ending or not job.state.failed:
                _log.info("%s: %s", self._name, job.describe())
            else:
                _log.warning(
                    "%s: %s; %s",
                    self._name,
                    job.describe(),
                    self._where(job),
                    extra={"code": "job-failed"},
                )
        for hint, job in stuck.items():
            if hint not in hinted:
                _log.warning("%s: %s", self._name, job.describe(), extra={"code": "job-stuck"})

    def _on_scheduler_ended(self, code: int) -> None:
        if code:
            _log.error(
                "the scheduler process of %s ended unexpectedly (%s); the cluster is lost, with "
                "all results that it had",
                self._name,
                describe_exit(code),
                extra={"code": "scheduler-lost"},
            )
        with contextlib.suppress(WeftError):
            self.cancel(self.left())
