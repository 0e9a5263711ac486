"""A supervisor process: it reports which of its workers are alive, and why others died."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.protocol.wire.message import Message
from weft.protocol.wire.messages import (
    EndWorkers,
    PluginsKept,
    RegisterSupervisor,
    RenewWorkers,
    SetUpOnSupervisor,
    TearDownOnSupervisor,
    WorkerExited,
    WorkersAlive,
)
from weft.protocol.wire.roles import Role
from weft.worker.family.exit_reports import ExitReports
from weft.worker.family.restarts import memory_verdict
from weft.worker.family.supervisor_link import SupervisorPolicy

from .session import SimulatedSession
from .supervisor_plugins import SupervisorPluginsNode

if TYPE_CHECKING:
    from .simulation import Simulation
    from .worker_node import WorkerNode


def _rss(worker: WorkerNode) -> int:
    return 1 << 20 if worker.memory is None else worker.memory.resident_nbytes()


class SupervisorNode:
    """Watches workers: reports that they are alive and why they died, and starts others."""

    def __init__(self, sim: Simulation, supervisor_id: str) -> None:
        self.sim = sim
        self.world = sim.world
        self.supervisor_id = supervisor_id
        self.workers: dict[str, WorkerNode] = {}
        self._reports = ExitReports()
        self.plugins = SupervisorPluginsNode(self)
        self.is_alive = True
        self.user = ""
        self.session = SimulatedSession(sim, self, Role.SUPERVISOR, SupervisorPolicy())
        if sim.limits is not None:
            self._look(sim.limits.look_s)

    def __repr__(self) -> str:
        return self.supervisor_id

    def watch(self, worker: WorkerNode) -> None:
        """Watch a worker."""
        self.workers[worker.worker_id] = worker
        worker.supervisor = self
        self.plugins.core.on_worker_started(worker.worker_id)

    def on_exit(self, worker: WorkerNode, reason: str, running: list[int]) -> None:
        """Handle the end of a worker's process."""
        del self.workers[worker.worker_id]
        self._reports.add(WorkerExited(worker_id=worker.worker_id, reason=reason, running=running))
        self.world.at(self.world.rng.random() * 0.1, self._report)
        if not worker.is_leaving:
            self.world.at(self.world.rng.random() * 0.5, self.start_again, worker)
        self.plugins.core.on_worker_ended(worker.worker_id)
        self.plugins.act()

    def end_workers(self, reason: str) -> None:
        """End the processes of all workers; others are started in their places."""
        for worker in list(self.workers.values()):
            worker.kill(reason, on_request=True)

    def end(self) -> None:
        """End with all workers; a new supervisor starts others in their places."""
        self.is_alive = False
        self.session.abort()
        self.successor = SupervisorNode(self.sim, self.sim.new_id("supervisor"))
        self.sim.supervisors[self.sim.supervisors.index(self)] = self.successor
        self.end_workers("their supervisor ends")
        for dead in self.plugins.take_held_back():
            self.start_again(dead)

    def start_again(self, dead: WorkerNode) -> None:
        """Start a worker in the place of another one."""
        if not self.is_alive:
            self.successor.start_again(dead)
            return
        if self.plugins.holds(dead):
            return
        address = dead.address
        if address in self.sim.by_address or not self.world.chance(self.sim.plan.p_same_address):
            address = self.sim.new_address()
        name = dead.name
        if self.sim.is_healed and not dead.resources.get("mem", 0) > 1:
            name = self.sim.new_id("spare")  # its name is now that of a worker that may run all
        worker = self.sim.add_worker(name, address, dead.resources, dead.host, self)
        self.world.note(f"{self!r} starts", worker)

    def _look(self, look_s: float) -> None:
        """Kill the workers that use too much memory, now and again after some time."""
        for worker in list(self.workers.values()):
            memory = worker.memory
            assert memory is not None
            reason = memory_verdict(memory.resident_nbytes(), memory.limit)
            if reason and not self.sim.plan.executes_once:
                self.world.probes["memory: killed"] += 1
                worker.kill(reason)
        if self.is_alive:
            self.world.at(look_s, self._look, look_s, is_work=False)

    def _report(self) -> None:
        if self.session.is_open:
            self.session.send([*self._reports.take()])

    # -- the session ------------------------------------------------------------------------------
    def when_awake(self, what: Any, *args: Any) -> bool:
        """See `SessionOwner`: a supervisor is never stopped, but it may end."""
        return self.is_alive

    def registration(self, number: int, last_epoch: int) -> Message:
        """See `SessionOwner`."""
        return RegisterSupervisor(
            supervisor_id=self.supervisor_id, session=number, last_epoch=last_epoch, facts={}
        )

    def heartbeat(self) -> list[Message]:
        """See `SessionOwner`."""
        ids = list(self.workers)
        alive = WorkersAlive(worker_ids=ids, rss=[_rss(w) for w in self.workers.values()])
        held_up = [w.held_up() for w in self.workers.values() if w.is_frozen and any(w.running)]
        self._reports.on_answers(self.session.machine.n_answered)
        return [*self._reports.beat(), alive, *held_up]

    def on_welcome(self) -> None:
        """See `SessionOwner`."""
        self._reports.on_session()

    def on_messages(self, messages: list[Message]) -> None:
        """See `SessionOwner`."""
        for message in messages:
            if isinstance(message, EndWorkers):
                for worker_id in message.worker_ids:
                    worker = self.workers.get(worker_id)
                    if worker is not None:
                        self.world.probes["ended for a task"] += 1
                        worker.sim.executions.lose(worker.core.by_attempt)
                        worker.sim.executions.lose(worker.core.cancelled)
                        worker.kill(message.reason, on_request=True)
            elif isinstance(
                message, (SetUpOnSupervisor, TearDownOnSupervisor, RenewWorkers, PluginsKept)
            ):
                self.plugins.on_order(message)

    def on_lost(self) -> None:
        """See `SessionOwner`."""
        self._reports.on_answers(self.session.machine.n_answered)
