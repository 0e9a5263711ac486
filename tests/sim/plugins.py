"""Plugins in the simulator: users register and unregister them, and processes set them up or fail.

What is asserted: a worker runs no task before it has set up every plugin that its present session
requires it to have; an unused worker is required to have what there is when it joins, and what is
registered before the barrier; every question of a user who is still there is answered, once; and at
rest each worker has what the scheduler holds, which is what users have registered as far as one of
them is still there. Supervisors have a module of their own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from weft.client.core.features.plugins import plugins_of as kept_plugins
from weft.client.core.features.questions import AskScheduler
from weft.client.core.tasks import Watcher
from weft.protocol.wire.messages import AskFailed, PluginDone, SetUpPlugin, TearDownPlugin
from weft.scheduler.core.plugins.records import plugins_of

if TYPE_CHECKING:
    from weft.scheduler.core.state import SchedulerState

    from .client_node import ClientNode
    from .links import Link
    from .simulation import Simulation
    from .worker_node import WorkerNode

NAMES = ("p", "q", "r")
FAILURE = ["ValueError", "no"]


class PluginWatcher(Watcher):
    """Waits for the answer to one question of a user."""

    __slots__ = ("answers", "arguments", "client", "question")

    def __init__(self, client: ClientNode, question: str, arguments: dict[str, Any]) -> None:
        super().__init__(wants_data=False)
        self.client = client
        self.question = question
        self.arguments = arguments
        self.answers: list[Any] = []

    def on_ready(self, items: list[Any]) -> None:
        """See `Watcher`."""
        self.answers += items


def act(sim: Simulation) -> None:
    """Let a user register or unregister a plugin, or a supervisor end."""
    rng = sim.world.rng
    if sim.supervisors and not sim.plan.executes_once and sim.world.chance(0.1):
        sim.world.probes["supervisor replaced"] += 1
        rng.choice(sim.supervisors).end()
        return
    clients = [client for client in sim.clients if client.is_alive]
    if not clients:
        return
    client, name = rng.choice(clients), rng.choice(NAMES)
    arguments: dict[str, Any] = {"name": name}
    question = "unregister_plugin" if sim.world.chance(0.3) else "register_plugin"
    if question == "register_plugin":
        arguments["plugin"] = f"{name}-{rng.randrange(2)}"
        if _are_supervisors_known(sim) and sim.world.chance(0.4):
            question = "register_supervisor_plugin"
            arguments["plugin"] += "-supervisor"
            arguments["restart"] = not sim.plan.executes_once and sim.world.chance(0.3)
    watcher = PluginWatcher(client, question, arguments)
    sim.plugin_watchers.append(watcher)
    client.post(AskScheduler(watcher, question, arguments, blobs=[b"pickle"]))


def _are_supervisors_known(sim: Simulation) -> bool:
    """Return whether a plugin may come to supervisors.

    A supervisor that registers for the first time is to have it before its workers run anything.
    Its workers may have registered before it, and are ended. Where no worker fails, no such one is
    left.
    """
    known = [bool(one.session.machine.epoch) for one in sim.supervisors]
    return all(known) if known and sim.plan.executes_once else bool(known)


class WorkerPluginsNode:
    """The plugins of one worker."""

    def __init__(self, worker: WorkerNode) -> None:
        self.worker = worker
        self.world = worker.world
        self.ready: dict[str, None] = {}
        #: those without which the worker must run no task in this session
        self.required: dict[str, None] = {}
        self._jobs: deque[tuple[Link | None, Any]] = deque()

    def on_message(self, message: SetUpPlugin | TearDownPlugin) -> None:
        """Do what the scheduler asks, after what it has asked before."""
        if isinstance(message, SetUpPlugin) and message.is_required:
            self.required[message.plugin] = None
        if isinstance(message, TearDownPlugin):
            self.required.pop(message.plugin, None)
        self._jobs.append((self.worker.session.link, message))
        if len(self._jobs) == 1:
            self._begin()

    def on_lost(self) -> None:
        """Forget what the session required: the next scheduler may not have it."""
        self.required.clear()

    def _begin(self) -> None:
        """Begin the next job. What an ended session has asked to set up is not begun."""
        while self._jobs:
            link, message = self._jobs[0]
            if isinstance(message, TearDownPlugin) or link is self.worker.session.link:
                self.world.at(self.world.rng.choice([0.0, 0.01, 1.0]), self._end)
                return
            self.world.probes["plugin: order of an ended session"] += 1
            self._jobs.popleft()

    def _end(self) -> None:
        worker = self.worker
        if not worker.when_awake(self._end):
            return
        link, message = self._jobs.popleft()
        info: dict[str, Any] = {}
        if isinstance(message, TearDownPlugin):
            self.ready.pop(message.plugin, None)
        elif message.plugin not in self.ready:
            plan = worker.sim.plan
            if not worker.sim.is_healed and self.world.chance(plan.p_plugin_fails):
                info = {"failure": FAILURE}
            else:
                self.ready[message.plugin] = None
        if link is worker.session.link:  # else the scheduler asks again
            worker.session.send([PluginDone(request=message.request, info=info)])
            if info and message.is_required:
                self.world.probes["plugin: a new worker ends"] += 1
                worker.kill("a plugin failed")
                return
        self._begin()

    def check(self) -> None:
        """Assert, when a task begins, that the worker has what it is required to have."""
        missing = [plugin for plugin in self.required if plugin not in self.ready]
        assert not missing, f"{self.worker!r} runs a task without the plugins {missing}"
        if self.worker.supervisor is not None:
            self.worker.supervisor.plugins.check()


def check_unused(core: SchedulerState, peers: Iterable[int]) -> None:
    """Assert that workers which have had nothing to do get nothing before their plugins."""
    plugins = plugins_of(core)
    for ws in (core.workers[peer] for peer in peers if peer in core.workers):
        awaited = [plugin for plugin in plugins.kept.values() if ws in plugin.waiting]
        assert not awaited or ws in plugins.preparing, f"{ws!r} does not wait for {awaited}"


def check(sim: Simulation) -> None:
    """Check, at rest, the answers, and what workers have."""
    probes = sim.world.probes
    for watcher in sim.plugin_watchers:
        if watcher.client.is_alive:
            what = f"{watcher.client!r}: {watcher.question} {watcher.arguments}"
            assert len(watcher.answers) == 1, f"{what} has the answers {watcher.answers}"
            (answer,) = watcher.answers
            if isinstance(answer, AskFailed):
                assert "have no plugin" in answer.text, answer.text
            else:
                end = "failed" if answer.info["n_failed"] else "done"
                probes[f"plugin: {watcher.question} {end}"] += 1
    plugins = plugins_of(sim.scheduler.core)
    assert not plugins.ending, plugins.ending
    assert not plugins.preparing, plugins.preparing
    for plugin in plugins.kept.values():
        assert not plugin.waiting, plugin
        assert not plugin.renewing, plugin
        probes["plugin: set aside"] += plugin.is_aside
    registered = {plugin.plugin_id for plugin in plugins.kept.values()}
    aside = {p.plugin_id for p in plugins.kept.values() if p.is_aside}
    for_supervisors = {p.plugin_id for p in plugins.kept.values() if p.is_for_supervisors}
    # On a process that was there before, a plugin that is stated again may have failed.
    for worker in sim.workers.values():
        missing = registered - for_supervisors - aside - {*worker.plugins.ready}
        assert not missing or sim.plan.p_plugin_fails, f"{worker!r} has not {missing}"
    for supervisor in sim.supervisors:
        missing = for_supervisors - {*supervisor.plugins.core.ready}
        assert not missing or sim.plan.p_plugin_fails, f"{supervisor!r} has not {missing}"
        assert not supervisor.plugins.core.is_holding, supervisor
    kept = {
        name for client in sim.clients if client.is_alive for name in kept_plugins(client.core).kept
    }
    assert kept <= registered or sim.plan.p_plugin_fails, (kept, registered)
