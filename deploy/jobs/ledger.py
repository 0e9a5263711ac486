"""The jobs of a cluster: which there are, what is known of each, and which should end first.

A pure core: it starts and ends nothing. A job has a name, which the names of its workers begin
with, and an id of the system that runs it. What that system reports of a job comes in by `note`,
and the workers that have joined by `note_workers`.

A job *counts* as long as it will bring workers, or has them: until it has ended, is being ended, or
all its workers have left. One that has ended by its time limit is replaced while a number of jobs
is held (`n_held`); any other only by a call that scales.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from ...protocol.wording import counted

#: Jobs in a row that end before their workers have joined, after which no more are started.
MAX_FAILURES: Final = 3
#: Jobs that are kept after their end, for logs.
_N_ENDED: Final = 100
#: Reasons and jobs of a text.
_N_SHOWN: Final = 3

Phase = Literal["waiting", "running", "ended"]


@dataclass(frozen=True)
class JobState:
    """What is known of a job.

    Attributes:
        phase: "waiting", "running" or "ended".
        reason: why it waits or has ended, in the words of the system that runs it; "" = unknown.
        failed: it has ended otherwise than with success; None = that is not known, so it counts as
            a failure if its workers have not joined.
        hint: what to do about a job that will not start by itself; "" = nothing.
    """

    phase: Phase
    reason: str = ""
    failed: bool | None = False
    hint: str = ""


WAITING: Final = JobState("waiting")
RUNNING: Final = JobState("running")


@dataclass(slots=True)
class WorkerJob:
    """One job.

    Attributes:
        id: by which the system knows it.
        name: of its workers: `name`, or `name-0`, `name-1` and so on.
        state: as it was seen last.
        workers: {name: (address, supervisor)} of those that are in the cluster and do not leave.
        has_joined: a worker of it was seen in the cluster.
        is_ending: this cluster has asked for its end.
        began: when it was first seen to run; None = it was not.
    """

    id: str
    name: str
    state: JobState = WAITING
    workers: dict[str, tuple[str, str]] = field(default_factory=dict)
    has_joined: bool = False
    is_ending: bool = False
    began: float | None = None

    @property
    def counts(self) -> bool:
        """Whether it brings workers."""
        return not self.is_ending and (bool(self.workers) or not self.has_joined)

    def describe(self) -> str:
        """Return its name, its id, and what is known of it."""
        verb = {"waiting": "waits", "running": "runs", "ended": "has ended"}[self.state.phase]
        if self.is_ending and self.state.phase == "ended":
            return f"job {self.id} ({self.name}) was ended by this cluster"
        if self.state.failed:
            verb = "has failed"
        reason = f": {self.state.reason}" if self.state.reason else ""
        hint = f" ({self.state.hint})" if self.state.hint else ""
        return f"job {self.id} ({self.name}) {verb}{reason}{hint}"


class Ledger:
    """All jobs of a cluster.

    Args:
        n_processes: how many workers each has.
        lifetime_s: how long workers live, after which their job ends; None = there is no limit.
        poll_s: how late a change of a job may be seen.
    """

    def __init__(
        self, n_processes: int, lifetime_s: float | None = None, poll_s: float = 0.0
    ) -> None:
        self.n_processes = n_processes
        #: A job that ends when it was seen for so long has ended by its time limit.
        self._expired_s = (
            math.inf if lifetime_s is None else max(lifetime_s - poll_s, lifetime_s / 2)
        )
        #: The number of jobs up to which expired ones are replaced; 0 = none are.
        self.n_held = 0
        #: Expired jobs that have not been replaced.
        self._n_expired = 0
        #: {id: job} of those that have not ended, oldest first
        self.jobs: dict[str, WorkerJob] = {}
        #: the latest ones that have
        self.ended: deque[WorkerJob] = deque(maxlen=_N_ENDED)
        #: that failed in a row before their workers had joined, since the last call that scaled
        self.failures: list[WorkerJob] = []
        self._n_named = 0

    def names(self, prefix: str, n: int) -> list[str]:
        """Return the names of `n` new jobs; they are numbered on."""
        self._n_named += n
        return [f"{prefix}-{i}" for i in range(self._n_named - n + 1, self._n_named + 1)]

    def add(self, names: Sequence[str], ids: Sequence[str]) -> None:
        """Add jobs that were started."""
        assert len(names) == len(ids), "each job has an id"
        self.jobs |= {job: WorkerJob(job, name) for name, job in zip(names, ids, strict=True)}
        self._n_expired = max(0, self._n_expired - len(ids))

    def note(self, states: Mapping[str, JobState], now: float = 0.0) -> list[WorkerJob]:
        """Note what the system reports now; return the jobs that have ended since the last time.

        A job of which it reports nothing is as it was.
        """
        over = []
        for job_id, state in states.items():
            job = self.jobs.get(job_id)
            if job is None:
                continue
            if state.failed is None:
                state = replace(state, failed=not job.has_joined)
            job.state = state
            if state.phase == "running" and job.began is None:
                job.began = now
            if state.phase == "ended":
                del self.jobs[job_id]
                job.workers.clear()
                self.ended.append(job)
                over.append(job)
        for job in over:
            if job.state.failed and not job.is_ending and not job.has_joined:
                self.failures.append(job)
            is_old = job.began is not None and now - job.began >= self._expired_s
            self._n_expired += is_old and not job.is_ending
        return over

    def hold(self, n: int) -> None:
        """Have expired jobs replaced from now on, up to so many jobs; 0 = none."""
        self.n_held = n
        self._n_expired = 0

    @property
    def n_to_replace(self) -> int:
        """The number of jobs to be started in the place of expired ones."""
        if self.has_given_up:
            return 0
        return max(0, min(self._n_expired, self.n_held - len(self.counting())))

    def note_workers(self, workers: Mapping[str, tuple[str, str]]) -> None:
        """Note which workers are in the cluster and do not leave: {name: (address, supervisor)}."""
        for job in self.jobs.values():
            own = {name: workers[name] for name in self.names_of(job) if name in workers}
            job.workers = own
            if own:
                job.has_joined = True
                self.failures.clear()

    def names_of(self, job: WorkerJob) -> list[str]:
        """Return the names of the workers of a job."""
        if self.n_processes == 1:
            return [job.name]
        return [f"{job.name}-{i}" for i in range(self.n_processes)]

    def counting(self) -> list[WorkerJob]:
        """Return the jobs that bring workers, oldest first."""
        return [job for job in self.jobs.values() if job.counts]

    @property
    def n_workers(self) -> int:
        """The number of workers of all jobs that count."""
        return self.n_processes * len(self.counting())

    def without_workers(self) -> list[WorkerJob]:
        """Return those that can end without a loss: the newest ones that wait, then that start."""
        idle = [job for job in reversed(self.counting()) if not job.workers]
        return sorted(idle, key=lambda job: job.state.phase != "waiting")

    def with_workers(self, order: Iterable[str]) -> list[WorkerJob]:
        """Return the others, those first whose end costs least.

        `order` has the names of workers, those first whose end costs least. A job ends whole, so
        the most expensive of its workers counts.
        """
        place = {name: i for i, name in enumerate(order)}
        jobs = [job for job in self.counting() if job.workers]
        return sorted(
            jobs, key=lambda job: max(place.get(name, len(place)) for name in job.workers)
        )

    @property
    def has_given_up(self) -> bool:
        """Whether so many jobs have failed in a row that starting more would not help."""
        return len(self.failures) >= MAX_FAILURES

    def describe(self) -> str:
        """Return the numbers of jobs in one line: `3 jobs: 1 runs, 2 wait (Resources)`."""
        jobs = [job for job in self.jobs.values() if not job.is_ending]
        parts = []
        for phase, one, more in (("running", "runs", "run"), ("waiting", "waits", "wait")):
            these = [job for job in jobs if job.state.phase == phase]
            if these:
                why = Counter(job.state.reason for job in these if job.state.reason)
                shown = ", ".join(reason for reason, _ in why.most_common(_N_SHOWN))
                verb = one if len(these) == 1 else more
                parts.append(f"{len(these)} {verb}{f' ({shown})' if shown else ''}")
        n_ending = len(self.jobs) - len(jobs)
        parts += [f"{n_ending} more {'leaves' if n_ending == 1 else 'leave'}"] if n_ending else []
        parts += [f"{len(self.failures)} failed"] if self.failures else []
        head = counted(len(jobs), "job") if jobs else "no jobs"
        return f"{head}: {', '.join(parts)}" if parts else head

    def problems(self) -> list[str]:
        """Return a line for each job that waits or has failed, of many alike the first ones."""
        waiting = [job for job in self.jobs.values() if job.state.phase == "waiting"]
        lines = [job.describe() for job in [*self.failures[-_N_SHOWN:], *waiting[:_N_SHOWN]]]
        n_more = max(0, len(waiting) - _N_SHOWN)
        return [*lines, f"and {counted(n_more, 'more job')} that wait"] if n_more else lines
