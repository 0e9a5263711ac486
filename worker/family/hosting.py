"""Decides about the plugins of a supervisor, whose code runs in a process beside it, the host.

A core: it has no I/O, clock or threads. Each call appends to `actions`, which the shell
(`plugin_link`) takes away and does, in order.

- The scheduler's orders are *jobs*, done one after the other. The host is started with the first
  one, and ends when it has nothing more.
- A job that is *required* comes to a supervisor that is new to the cluster: its workers must be
  started after it. Those that were started before are ended first, and no other one is started
  until the job is done. If it fails, the family ends.
- A host that dies takes with it what its plugins have made (processes, attributes). They are set up
  again in the next one; meanwhile no worker is started, and those that run go on.
- A set-up that goes on for `PATIENCE_S` after its plugin was ended may never return: the host is
  ended, and with it that set-up fails.
- The answer to an order goes to the connection on which it came, because requests of another
  scheduler have the same numbers. A scheduler that has got no answer asks again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from ...protocol.restarting import Restarting
from ...protocol.wire.messages import (
    PluginsKept,
    RenewWorkers,
    SetUpOnSupervisor,
    TearDownOnSupervisor,
)
from ...protocol.wire.payload import Blob

#: A set-up whose plugin is ended meanwhile has this long to return, seconds.
PATIENCE_S: Final = 3.0


@dataclass(slots=True)
class Asked:
    """The scheduler's question that an action answers."""

    connection: Any
    request: int


@dataclass(slots=True, kw_only=True)
class PluginJob:
    """One plugin to be set up or torn down.

    Attributes:
        asked: None = by nobody: the host has died, and the plugin is set up in the next one.
        is_required: no worker is started before it is done.
        ends_workers: those that run are ended before it begins.
    """

    step: Literal["setup", "teardown"]
    plugin: str
    name: str = ""
    blob: Blob | None = None
    asked: Asked | None = None
    is_required: bool = False
    ends_workers: bool = False


Order: TypeAlias = SetUpOnSupervisor | TearDownOnSupervisor | RenewWorkers | PluginsKept

# --- Actions --------------------------------------------------------------------------------------


@dataclass(slots=True)
class StartHost:
    """Start the process, after a pause."""

    pause_s: float


@dataclass(slots=True)
class LetHostEnd:
    """Let the process tear down what it has, and end."""


@dataclass(slots=True)
class WatchJob:
    """Call `on_overdue` with the job after `PATIENCE_S`."""

    job: PluginJob


@dataclass(slots=True)
class KillHost:
    """End the process at once."""


@dataclass(slots=True)
class RunJob:
    """Give a job to the process."""

    job: PluginJob


@dataclass(slots=True)
class ReportJob:
    """Answer the scheduler. A failure is a packed exception, or a text."""

    asked: Asked
    name: str
    failure: list[Any] | str | None = None
    was_ready: bool = False


@dataclass(slots=True)
class HoldWorkers:
    """Start no worker until `ReleaseWorkers`; end those that run, if it says so."""

    ends_running: bool


@dataclass(slots=True)
class ReleaseWorkers:
    """Start the workers that were held back."""


@dataclass(slots=True)
class ReplaceWorkers:
    """End the processes of all workers that run, and start others."""


@dataclass(slots=True)
class EndFamily:
    """The machine cannot do without a plugin that has failed."""

    reason: str


Action: TypeAlias = (
    StartHost
    | LetHostEnd
    | WatchJob
    | KillHost
    | RunJob
    | ReportJob
    | HoldWorkers
    | ReleaseWorkers
    | ReplaceWorkers
    | EndFamily
)


# --- The core -------------------------------------------------------------------------------------


@dataclass(slots=True)
class Hosting:
    """The plugins of one supervisor."""

    actions: list[Action] = field(default_factory=list)
    #: {id: the job that has set it up}, in order; all in the host that runs
    ready: dict[str, PluginJob] = field(default_factory=dict)
    #: variables with which workers are started, as the plugins have them
    environment: dict[str, str] = field(default_factory=dict)
    #: no worker may be started
    is_holding: bool = False
    _jobs: deque[PluginJob] = field(default_factory=deque)
    #: the one that the host does
    _current: PluginJob | None = None
    _host: Literal["absent", "starting", "running", "ending"] = "absent"
    _restarting: Restarting = field(default_factory=Restarting)
    #: ids of worker processes that run
    _workers: dict[str, None] = field(default_factory=dict)
    #: (question, ids of the workers that it replaces and that have not ended)
    _renewals: list[tuple[Asked, dict[str, None]]] = field(default_factory=list)
    #: nothing more is done: the family ends
    _is_over: bool = False

    def on_order(self, connection: Any, order: Order) -> None:
        """Do what the scheduler asks, after what it has asked before."""
        if isinstance(order, SetUpOnSupervisor):
            self._order_set_up(connection, order)
        elif isinstance(order, TearDownOnSupervisor):
            self._order_tear_down(order.plugin, Asked(connection, order.request))
        elif isinstance(order, PluginsKept):
            setting_up = [job.plugin for job in self._all_jobs() if job.step == "setup"]
            for plugin in dict.fromkeys([*self.ready, *setting_up]):
                if plugin not in order.plugins:
                    self._order_tear_down(plugin, None)
        else:
            self._renewals.append((Asked(connection, order.request), dict(self._workers)))
            if self._workers:
                self.actions.append(ReplaceWorkers())
            self._look_at_renewals()
        self._go_on()

    def _order_set_up(self, connection: Any, order: SetUpOnSupervisor) -> None:
        (blob,) = order.blobs
        is_required = order.is_required and order.plugin not in self.ready
        if is_required:
            self._hold(ends_running=bool(self._workers))
        self._jobs.append(
            PluginJob(
                step="setup",
                plugin=order.plugin,
                name=order.name,
                blob=blob,
                asked=Asked(connection, order.request),
                is_required=is_required,
                ends_workers=is_required,
            )
        )

    def _order_tear_down(self, plugin: str, asked: Asked | None) -> None:
        self._jobs.append(PluginJob(step="teardown", plugin=plugin, asked=asked))
        current = self._current
        if current is not None and (current.plugin, current.step) == (plugin, "setup"):
            self.actions.append(WatchJob(current))

    def on_overdue(self, job: PluginJob) -> None:
        """End the host if it still does a job whose plugin was ended."""
        if self._current is job:
            self.actions.append(KillHost())

    # --- Workers ----------------------------------------------------------------------------------

    def on_worker_started(self, worker_id: str) -> None:
        """Note that a worker was requested."""
        self._workers[worker_id] = None

    def on_worker_ended(self, worker_id: str) -> None:
        """Note that the process of a worker has ended."""
        self._workers.pop(worker_id, None)
        for _, left in self._renewals:
            left.pop(worker_id, None)
        self._look_at_renewals()
        self._go_on()

    def _look_at_renewals(self) -> None:
        for asked, left in self._renewals:
            if not left:
                self.actions.append(ReportJob(asked, "", None))
        self._renewals = [(asked, left) for asked, left in self._renewals if left]

    # --- The host ---------------------------------------------------------------------------------

    def on_host_started(self) -> None:
        """Note that the process runs, and takes jobs."""
        self._host = "running"
        if self._is_over:
            self.close()
        self._go_on()

    def on_result(self, failure: list[Any] | None, environment: dict[str, str]) -> None:
        """Take the result of the job that the host was given."""
        job, self._current = self._current, None
        assert job is not None
        self.environment = environment
        if job.step == "teardown":
            self.ready.pop(job.plugin, None)
        elif failure is None:
            self.ready[job.plugin] = job
        self._end_job(job, failure)
        self._go_on()

    def on_host_ended(self, why: str, lived_s: float) -> None:
        """Note that the process has ended, or could not be started, for this reason."""
        was_wanted = self._host == "ending"
        self._host = "absent"
        self.environment = {}
        job, self._current = self._current, None
        lost, self.ready = self.ready, {}
        if self._is_over:
            return
        if job is not None and job.step == "teardown":
            lost.pop(job.plugin, None)
            self._end_job(job, None)
        if lost:
            self._hold(ends_running=False)
        for plugin in reversed(lost.values()):
            again = PluginJob(
                step="setup",
                plugin=plugin.plugin,
                name=plugin.name,
                blob=plugin.blob,
                is_required=True,
            )
            self._jobs.appendleft(again)
        if job is not None and job.step == "setup":
            self._end_job(job, f"the process of this machine's plugins has ended: {why}")
        self._go_on(0.0 if was_wanted else self._restarting.died(lived_s))

    def _end_job(self, job: PluginJob, failure: list[Any] | str | None) -> None:
        if job.asked is not None:
            self.actions.append(ReportJob(job.asked, job.name, failure))
        if failure is not None and job.is_required and not self._is_given_up(job):
            self._is_over = True
            self.actions.append(EndFamily(f"plugin {job.name!r} could not be set up here"))

    def _is_given_up(self, job: PluginJob) -> bool:
        """Whether the plugin is to be torn down anyway."""
        return any(later.plugin == job.plugin and later.step == "teardown" for later in self._jobs)

    def close(self) -> None:
        """Let the host tear down everything and end; nothing is answered any more."""
        self._is_over = True
        self._jobs.clear()
        self._renewals.clear()
        if self._host == "running":
            self._host = "ending"
            self.actions.append(LetHostEnd())

    # --- Going on ---------------------------------------------------------------------------------

    def _go_on(self, pause_s: float = 0.0) -> None:
        """Give the host its next job, or what comes before."""
        if self._is_over:
            return
        self._drop_what_is_done()
        if self.is_holding and not any(job.is_required for job in self._all_jobs()):
            self.is_holding = False
            self.actions.append(ReleaseWorkers())
        if self._current is not None or self._host in ("starting", "ending"):
            return
        if not self._jobs:
            if self._host == "running" and not self.ready:
                self._host = "ending"
                self.actions.append(LetHostEnd())
            return
        if self._jobs[0].ends_workers and self._workers:
            return
        if self._host == "absent":
            self._host = "starting"
            self.actions.append(StartHost(pause_s))
            return
        self._current = self._jobs.popleft()
        self.actions.append(RunJob(self._current))

    def _drop_what_is_done(self) -> None:
        """Answer the next jobs as long as there is nothing to do for them."""
        while self._current is None and self._jobs:
            job = self._jobs[0]
            if (job.step == "setup") != (job.plugin in self.ready):
                return
            self._jobs.popleft()
            if job.asked is not None:
                was_ready = job.step == "setup"
                self.actions.append(ReportJob(job.asked, job.name, None, was_ready))

    def _all_jobs(self) -> Iterable[PluginJob]:
        return self._jobs if self._current is None else (self._current, *self._jobs)

    def _hold(self, *, ends_running: bool) -> None:
        if ends_running or not self.is_holding:
            self.is_holding = True
            self.actions.append(HoldWorkers(ends_running))
