"""The plugins of one simulated supervisor: the product's core, with a simulated host.

What is asserted: workers of a supervisor run no task before it has set up every plugin that it is
required to have; none is started while the core holds them; a new supervisor takes the place of
one on which such a plugin fails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.protocol.wire.messages import (
    PluginDone,
    PluginsKept,
    SetUpOnSupervisor,
    TearDownOnSupervisor,
)
from weft.worker.family.hosting import (
    PATIENCE_S,
    EndFamily,
    HoldWorkers,
    Hosting,
    KillHost,
    LetHostEnd,
    Order,
    PluginJob,
    ReleaseWorkers,
    ReplaceWorkers,
    ReportJob,
    RunJob,
    StartHost,
    WatchJob,
)

if TYPE_CHECKING:
    from .supervisor_node import SupervisorNode
    from .worker_node import WorkerNode

FAILURE = ["ValueError", "no"]


class SupervisorPluginsNode:
    """Does the actions of one `Hosting`."""

    def __init__(self, supervisor: SupervisorNode) -> None:
        self.supervisor = supervisor
        self.world = supervisor.world
        self.core = Hosting()
        #: those without which a worker must run no task, until they are set up
        self.required: dict[str, None] = {}
        #: workers that are to be started when the core releases them
        self._held_back: list[WorkerNode] = []
        #: increases with each host; events of earlier ones are dropped
        self._n_hosts = 0

    def on_order(self, order: Order) -> None:
        """Do what the scheduler asks."""
        if isinstance(order, SetUpOnSupervisor) and order.is_required:
            if order.plugin not in self.core.ready:
                self.required[order.plugin] = None
        elif isinstance(order, TearDownOnSupervisor):
            self.required.pop(order.plugin, None)
        elif isinstance(order, PluginsKept):
            self.required = {p: None for p in self.required if p in order.plugins}
        self.core.on_order(self.supervisor.session.link, order)
        self.act()

    def holds(self, dead: WorkerNode) -> bool:
        """Return whether another worker in the place of this one must wait."""
        if self.core.is_holding:
            self._held_back.append(dead)
        return self.core.is_holding

    def take_held_back(self) -> list[WorkerNode]:
        """Return the workers that wait, and forget them."""
        held_back, self._held_back = self._held_back, []
        return held_back

    def check(self) -> None:
        """Assert, when a task begins, that the supervisor has what it is required to have."""
        assert not self.required, f"a worker of {self.supervisor!r} runs without {self.required}"

    def act(self) -> None:
        """Do what the core wants."""
        while self.core.actions and self.supervisor.is_alive:
            actions, self.core.actions = self.core.actions, []
            for action in actions:
                self._do(action)

    def _do(self, action: Any) -> None:
        supervisor, rng = self.supervisor, self.world.rng
        if isinstance(action, StartHost):
            self._n_hosts += 1
            self.world.at(action.pause_s + rng.random() * 0.05, self._host_started, self._n_hosts)
        elif isinstance(action, RunJob):
            delay_s = rng.choice([0.0, 0.01, 1.0, 5.0])
            self.world.at(delay_s, self._job_done, action.job, self._n_hosts)
        elif isinstance(action, WatchJob):
            self.world.at(PATIENCE_S, self._on_overdue, action.job)
        elif isinstance(action, KillHost):
            self.world.probes["supervisor plugin: hangs"] += 1
            self.world.at(0.0, self._host_ended, "killed", self._n_hosts)
        elif isinstance(action, LetHostEnd):
            self.world.at(0.01, self._host_ended, "done", self._n_hosts)
        elif isinstance(action, ReportJob):
            self._report(action)
        elif isinstance(action, HoldWorkers):
            if action.ends_running:
                self.world.probes["supervisor plugin: workers wait"] += 1
                supervisor.end_workers("they are started after a plugin")
        elif isinstance(action, ReleaseWorkers):
            for dead in self.take_held_back():
                supervisor.start_again(dead)
        elif isinstance(action, ReplaceWorkers):
            self.world.probes["supervisor plugin: workers replaced"] += 1
            supervisor.end_workers("they are replaced after a plugin")
        elif isinstance(action, EndFamily):
            self.world.probes["supervisor plugin: a new supervisor ends"] += 1
            supervisor.end()

    def _report(self, report: ReportJob) -> None:
        session = self.supervisor.session
        if report.asked.connection is session.link:  # else the scheduler asks again
            info: dict[str, Any] = {} if report.failure is None else {"failure": FAILURE}
            if report.was_ready:
                info["was_ready"] = True
            session.send([PluginDone(request=report.asked.request, info=info)])

    def _host_started(self, number: int) -> None:
        if number == self._n_hosts:
            self.core.on_host_started()
            self.act()

    def _host_ended(self, why: str, number: int) -> None:
        if number == self._n_hosts:  # it has not ended before
            self._n_hosts += 1
            self.core.on_host_ended(why, 1.0)
            self.act()

    def _on_overdue(self, job: PluginJob) -> None:
        self.core.on_overdue(job)
        self.act()

    def _job_done(self, job: PluginJob, number: int) -> None:
        if number != self._n_hosts:
            return
        sim = self.supervisor.sim
        may_fail = not sim.is_healed and sim.plan.p_plugin_fails > 0
        fails = may_fail and self.world.chance(sim.plan.p_plugin_fails)
        if may_fail and self.world.chance(0.1):
            self.world.probes["supervisor plugin: its process dies"] += 1
            self._host_ended("died", number)
            return
        if job.step == "setup" and not fails:
            self.required.pop(job.plugin, None)
        self.core.on_result(FAILURE if fails and job.step == "setup" else None, {})
        self.act()
