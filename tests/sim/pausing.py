"""Workers that are paused for a while, again and again: as if their processes used too much memory.

In a part of the runs. What these runs need is drawn from a source of chance of their own.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from weft.protocol.wire.messages import AssignTasks

if TYPE_CHECKING:
    from weft.scheduler.core.state import SchedulerState

    from .simulation import Simulation
    from .worker_node import WorkerNode

#: Share of the runs that have pauses.
P_PAUSES = 0.3
#: Pauses of one worker, and how long each lasts at most; results give way only after longer ones.
MAX_PAUSES = 3
MAX_PAUSE_S = 3.0


def draw(rng: Random) -> Random | None:
    """Draw whether the workers of a run are paused at times."""
    return rng if rng.random() < P_PAUSES else None


class Pauses:
    """The pauses of one worker process."""

    def __init__(self, worker: WorkerNode) -> None:
        self._worker = worker
        self._rng = worker.sim.pausing
        self.is_paused = False
        if self._rng is not None:
            for _ in range(self._rng.randint(0, MAX_PAUSES)):
                worker.world.at(self._rng.expovariate(0.5), self._begin)

    def state(self) -> str:
        """Return the state that the worker reports."""
        if self._worker.core.is_leaving:
            return "leaving"
        return "paused" if self.is_paused or self._worker.spill.plan.is_paused else "running"

    def _begin(self) -> None:
        if not self.is_paused and self._worker.when_awake(self._begin):
            assert self._rng is not None
            self._worker.world.probes["paused"] += 1
            self._turn(is_paused=True)
            self._worker.world.at(self._rng.uniform(0.01, MAX_PAUSE_S), self._end)

    def _end(self) -> None:
        if self._worker.when_awake(self._end):
            self._turn(is_paused=False)

    def _turn(self, *, is_paused: bool) -> None:
        """Change the state, and report it at once; without a session its next one reports it."""
        self.is_paused = is_paused
        if self._worker.session.is_open:
            self._worker.session.send(self._worker.heartbeat())


class Assigned:
    """What a core has assigned: checked event by event, since messages are sent some events later.

    A worker may be known to be paused by then.
    """

    def __init__(self, sim: Simulation, core: SchedulerState) -> None:
        self._sim = sim
        self._core = core
        #: {peer: assignments that are to be sent}, as after the last event
        self._n_unsent: dict[int, int] = {}

    def after_event(self) -> None:
        """Check that no worker got anything that was known to be paused."""
        for peer, messages in self._core.outboxes.items():
            unsent = [message for message in messages if isinstance(message, AssignTasks)]
            n_before, self._n_unsent[peer] = self._n_unsent.get(peer, 0), len(unsent)
            ws = self._core.workers.get(peer)
            if ws is None or len(unsent) <= n_before:
                continue
            assert not ws.is_paused, f"{unsent[-1].keys} are assigned to {ws}, which is paused"
            self._sim.ends.check(self._core, ws, unsent[n_before:])
            worker = self._sim.workers.get(ws.worker_id)
            if worker is not None and worker.pauses.is_paused:
                self._sim.world.probes["assigned before the pause was known"] += 1

    def sent(self, peer: int) -> None:
        """Note that what there was for a peer is sent."""
        self._n_unsent.pop(peer, None)


def check_at_rest(sim: Simulation) -> None:
    """Check that the scheduler knows which workers are paused: those full of what cannot leave."""
    core = sim.scheduler.core
    for worker in sim.workers.values():
        assert not worker.pauses.is_paused, f"{worker!r} is paused at rest"
        is_known = core.workers_by_id[worker.worker_id].is_paused
        assert is_known is worker.spill.plan.is_paused, f"{worker!r} is known as paused: {is_known}"
        sim.world.probes["spill: paused at rest"] += is_known
