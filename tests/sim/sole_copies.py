"""No result that is needed is given up with its last copy: checked event by event."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.protocol.wire.messages import DropAttempts, MayLeave
from weft.scheduler.core.leaving.leavers import is_needed, leavers_of
from weft.scheduler.core.records.tasks import MEMORY

if TYPE_CHECKING:
    from weft.scheduler.core.records.peers import WorkerHandle
    from weft.scheduler.core.state import SchedulerState

    from .simulation import Simulation


class SoleCopies:
    """What a core has workers drop, and which ones it lets go."""

    def __init__(self, sim: Simulation, core: SchedulerState) -> None:
        self._probes = sim.world.probes
        self._executions = sim.executions
        self._core = core
        #: {peer: {attempt: None}} of those that are to be dropped, and that were looked at
        self._dropped: dict[int, dict[int, None]] = {}
        #: {peer: None} of those that were let go, and looked at
        self._let_go: dict[int, None] = {}

    def after_event(self) -> None:
        """Look at what the last event has sent."""
        for peer, messages in self._core.outboxes.items():
            ws = self._core.workers.get(peer)
            for message in messages if ws is not None else ():
                assert ws is not None
                if isinstance(message, DropAttempts):
                    self._check_dropped(peer, ws, message)
                elif isinstance(message, MayLeave) and peer not in self._let_go:
                    self._let_go[peer] = None  # a later event may report that a disk failed
                    self._check_let_go(ws)

    def _check_dropped(self, peer: int, ws: WorkerHandle, message: DropAttempts) -> None:
        seen = self._dropped.setdefault(peer, {})
        new = {attempt: None for attempt in message.attempts if attempt not in seen}
        seen |= new
        for task in self._core.tasks.values() if new else ():
            if task.state == MEMORY and task.attempt in new:
                self._probes["a copy of several is dropped"] += 1
                assert task.replicas, f"the last copy of {task!r} is dropped at {ws}"
                assert ws not in task.replicas, f"{task!r} is dropped at {ws}, and counted there"

    def _check_let_go(self, ws: WorkerHandle) -> None:
        """Check that what a worker has is elsewhere, perhaps at a leaver that is held by it."""
        by_worker = leavers_of(self._core).by_worker
        leaver = by_worker.get(ws)
        if leaver is None or leaver.drops:
            return
        going = [one for one, other in by_worker.items() if other.may_go or other.drops]
        last = [task for task in ws.has_what if all(one in going for one in task.replicas)]
        sole = [task for task in last if is_needed(task)]
        assert not sole, f"{ws} is let go, and nobody else has {sole}"
        if all(one.is_leaving for one in self._core.workers.values()):
            # None could take what each client has got: who wants it later has it run again.
            self._executions.lose(task.attempt for task in last)

    def sent(self, peer: int) -> None:
        """Note that what there was for a peer is sent."""
        self._dropped.pop(peer, None)
        self._let_go.pop(peer, None)
