"""The barrier: a new scheduler waits for the members of the last epoch, up to a limit.

The members of the last epoch are counted as they come back, so that neither a peer that registers
nor the wait itself costs more with more members. A peer that nobody expects and that has never met
an earlier scheduler does not put off the barrier: it has nothing to merge.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ....protocol.wording import counted
from .records import recovery_of

if TYPE_CHECKING:
    from ..members.epochs import Members
    from ..records.deadlines import Deadline
    from ..records.peers import WorkerHandle
    from ..state import SchedulerState

#: With all expected members back: time without a new registration, seconds.
COMPLETE_QUIET_S: Final = 0.5
#: With members missing: time without a new registration, time since the first one ...
QUIET_S: Final = 2.0
LEAST_S: Final = 3.0
#: ... and the longest time.
MOST_S: Final = 60.0


class Barrier:
    """The phase before the barrier. There is no such record when the phase is over."""

    __slots__ = (
        "absent_clients",
        "absent_workers",
        "began",
        "due",
        "end",
        "expected_clients",
        "expected_workers",
        "first",
        "has_record",
        "last",
        "sending",
    )

    def __init__(
        self, now: float, expected: Members, end: Callable[[SchedulerState], None]
    ) -> None:
        #: all times are waking times
        self.began = now
        #: when the first peer registered, and the last one that puts off the end; None = none has
        self.first: float | None = None
        self.last: float | None = None
        #: {id: None} of the members that may still come back
        self.expected_workers = dict.fromkeys(expected.worker_ids)
        self.expected_clients = dict.fromkeys(expected.client_ids)
        #: those that are not registered, or away; those that have not sent all that they want
        self.absent_workers = dict(self.expected_workers)
        self.absent_clients = dict(self.expected_clients)
        self.has_record = bool(expected.worker_ids or expected.client_ids)
        #: {worker: None} of those whose inventory has not ended
        self.sending: dict[WorkerHandle, None] = {}
        #: when the phase ends, unless another peer comes
        self.due: Deadline | None = None
        self.end = end

    @property
    def is_complete(self) -> bool:
        """True if members were expected, and all of them are back."""
        return self.has_record and not self.absent_workers and not self.absent_clients

    @property
    def awaits_clients(self) -> bool:
        """True unless all clients that may come back are known and have sent what they want."""
        return not self.has_record or bool(self.absent_clients)


def plan_end(state: SchedulerState) -> None:
    """Let the phase end when it is time, as far as it is known now."""
    barrier = recovery_of(state).barrier
    if barrier is None:
        return
    due = barrier.began + MOST_S
    if barrier.first is not None and barrier.last is not None and not barrier.sending:
        due = min(due, max(barrier.last + QUIET_S, barrier.first + LEAST_S))
        if barrier.is_complete:
            due = min(due, barrier.last + COMPLETE_QUIET_S)
    if barrier.due is not None:
        if barrier.due.when == due:
            return
        state.deadlines.cancel(barrier.due)
    barrier.due = state.call_after(max(due - state.awake_s, 0.0), barrier.end)


def note_registration(state: SchedulerState, member_id: str, last_epoch: int) -> None:
    """Note a peer that registers; one that was a member before puts off the end."""
    barrier = recovery_of(state).barrier
    if barrier is None:
        return
    if barrier.first is None:
        barrier.first = barrier.last = state.awake_s
    if (
        0 < last_epoch < state.epoch
        or member_id in barrier.expected_workers
        or member_id in barrier.expected_clients
    ):
        barrier.last = state.awake_s
    plan_end(state)


def note_worker(state: SchedulerState, ws: WorkerHandle) -> None:
    """Note that a worker has come, is away, sends its inventory, has sent it, or is lost."""
    barrier = recovery_of(state).barrier
    if barrier is None:
        return
    if ws.inventory is not None:
        barrier.sending[ws] = None
    else:
        barrier.sending.pop(ws, None)
    worker_id = ws.worker_id
    if worker_id in barrier.expected_workers:
        known = state.workers_by_id.get(worker_id)
        if known is None or known.is_away:
            barrier.absent_workers[worker_id] = None
        else:
            barrier.absent_workers.pop(worker_id, None)
    plan_end(state)


def note_gone(state: SchedulerState, member_id: str) -> None:
    """Note that a worker or client has ended, so that it will not come back."""
    barrier = recovery_of(state).barrier
    if barrier is not None:
        barrier.expected_workers.pop(member_id, None)
        barrier.absent_workers.pop(member_id, None)
        barrier.absent_clients.pop(member_id, None)
        plan_end(state)


def note_client(state: SchedulerState, client_id: str, *, is_complete: bool) -> None:
    """Note that a client has registered, or (`is_complete`) has sent all that it wants."""
    barrier = recovery_of(state).barrier
    if barrier is None or client_id not in barrier.expected_clients:
        return
    if is_complete:
        barrier.absent_clients.pop(client_id, None)
    else:
        barrier.absent_clients[client_id] = None
    plan_end(state)


def waits_for(state: SchedulerState) -> str:
    """Describe what the phase waits for."""
    barrier = recovery_of(state).barrier
    if barrier is None:
        return ""
    n_workers, n_clients = len(state.expected.worker_ids), len(state.expected.client_ids)
    if not n_workers and not n_clients:
        return "recovering: workers and clients of an earlier scheduler may still come back"
    return (
        f"recovering: {n_workers - len(barrier.absent_workers)} of "
        f"{counted(n_workers, 'worker')} and {n_clients - len(barrier.absent_clients)} of "
        f"{counted(n_clients, 'client')} are back"
    )
