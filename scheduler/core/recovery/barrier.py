"""The barrier of a scheduler that follows another one: until then it waits for the peers of that.

In the phase *recovering* nothing is assigned: a task that looks unfinished may be running at a
worker that has not come back yet. The phase ends, at the *barrier*, when

- all expected members are back, workers with their inventories and clients with what they want,
  and no member of an earlier epoch has registered for a moment: some may have joined too late to be
  on record;
- or none of them has for so long that each that lives has tried again;
- or it takes too long.

What comes later is merged in the same way. The members of the last epoch are counted as they come
back, so that neither a peer that registers nor the wait itself costs more with more members. A peer
that nobody expects and that has never met an earlier scheduler does not put off the barrier: it has
nothing to merge.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ....protocol.wire import messages as m
from ....protocol.wire.session import MOST_DELAY_S
from ....protocol.wording import counted
from ..journal.reading import note_resubmitted
from ..members.epochs import GiveWay, StartOver, is_from_the_future
from ..moves.transitions import release_unneeded
from . import rows
from .lacking import answer_lacking
from .recipes import forget_unknown
from .records import recovery_of

if TYPE_CHECKING:
    from ..records.deadlines import Deadline
    from ..records.peers import ClientHandle, WorkerHandle
    from ..records.presence import Members
    from ..state import SchedulerState

#: A scheduler that finds out so late that it follows another one, goes on without this phase.
FRESH_S: Final = 60.0
#: With all expected members back: time without a new registration, seconds.
COMPLETE_QUIET_S: Final = 0.5
#: With members missing: the same. By then each that lives has made an attempt, and a client in
#: tasks one after its worker was back.
QUIET_S: Final = MOST_DELAY_S + 1.0
#: The longest time.
MOST_S: Final = 60.0


class Barrier:
    """The phase before the barrier. There is no such record when the phase is over."""

    __slots__ = (
        "absent_clients",
        "absent_workers",
        "began",
        "due",
        "expected_clients",
        "expected_workers",
        "has_record",
        "knows_all",
        "last",
        "sending",
    )

    def __init__(self, now: float, expected: Members) -> None:
        #: all times are waking times
        self.began = now
        #: when the first peer registered, or the last one that puts off the end; None = none has
        self.last: float | None = None
        #: {id: None} of the members that may still come back
        self.expected_workers = dict.fromkeys(expected.worker_ids)
        self.expected_clients = dict.fromkeys(expected.client_ids)
        #: workers that are not registered, or away; clients that have not sent all that they want
        self.absent_workers = dict(self.expected_workers)
        self.absent_clients = dict(self.expected_clients)
        self.has_record = bool(expected.worker_ids or expected.client_ids)
        #: there is a record, and no client of an earlier scheduler has come that is not on it: that
        #: one joined too late for it, and so may others have done
        self.knows_all = self.has_record
        #: {worker: None} of those whose inventory has not ended
        self.sending: dict[WorkerHandle, None] = {}
        #: when the phase ends, unless another peer comes
        self.due: Deadline | None = None

    @property
    def is_complete(self) -> bool:
        """True if members were expected, and all of them are back."""
        return self.has_record and not self.absent_workers and not self.absent_clients

    @property
    def awaits_clients(self) -> bool:
        """True unless all clients that may come back are known and have sent what they want."""
        return not self.knows_all or bool(self.absent_clients)


def start(state: SchedulerState) -> None:
    """Wait for the peers of the last scheduler, if some are on record."""
    expected = state.kept_members.expected
    if expected.worker_ids or expected.client_ids:
        begin(state)


def begin(state: SchedulerState) -> None:
    """Begin to wait for the peers of the last scheduler."""
    state.awaits_peers = True
    recovery_of(state).barrier = Barrier(state.awake_s, state.kept_members.expected)
    for ws in state.workers.values():
        note_worker(state, ws)  # one of this scheduler may be sending its inventory
    _await_owners(state)
    _plan_end(state)
    for client in state.clients_by_peer.values():
        state.send_client(client, m.Recovering(reason=waits_for(state)))


def _plan_end(state: SchedulerState) -> None:
    """Let the phase end when it is time, as far as it is known now."""
    barrier = recovery_of(state).barrier
    if barrier is None:
        return
    due = barrier.began + MOST_S
    if barrier.last is not None and not barrier.sending:
        quiet_s = COMPLETE_QUIET_S if barrier.is_complete else QUIET_S
        due = min(due, barrier.last + quiet_s)
    if barrier.due is not None:
        if barrier.due.when == due:
            return
        state.deadlines.cancel(barrier.due)
    barrier.due = state.call_after(max(due - state.awake_s, 0.0), _end)


# -- peers ----------------------------------------------------------------------------------------
def note_registration(state: SchedulerState, member_id: str, last_epoch: int) -> None:
    """Note a peer that registers; one that knows an earlier scheduler shows that there was one.

    One that was a member before puts off the end.
    """
    was_member = 0 < last_epoch < state.epoch
    if was_member and not state.awaits_peers:
        assert state.started is not None
        if state.now - state.started <= FRESH_S and not recovery_of(state).n_ended:
            begin(state)
        else:
            _await_owners(state)
            _begin_lease(state)
    barrier = recovery_of(state).barrier
    if barrier is None:
        return
    is_expected = member_id in barrier.expected_workers or member_id in barrier.expected_clients
    if barrier.last is None or was_member or is_expected:
        barrier.last = state.awake_s
    _plan_end(state)


def note_client(state: SchedulerState, client: ClientHandle, last_epoch: int) -> None:
    """Note a client that has registered, and has not sent what it wants."""
    barrier = recovery_of(state).barrier
    if barrier is None:
        return
    if client.client_id in barrier.expected_clients:
        barrier.absent_clients[client.client_id] = None
        _plan_end(state)
    elif 0 < last_epoch < state.epoch:
        barrier.knows_all = False
    state.send_client(client, m.Recovering(reason=waits_for(state)))


def on_resubmitted(state: SchedulerState, client: ClientHandle, message: m.Resubmitted) -> None:
    """A client has sent all that it wants."""
    note_resubmitted(state, client)
    barrier = recovery_of(state).barrier
    if barrier is not None:
        barrier.absent_clients.pop(client.client_id, None)
        _plan_end(state)


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
    _plan_end(state)


def note_gone(state: SchedulerState, member_id: str) -> None:
    """Note that a worker or client has ended, so that it will not come back."""
    barrier = recovery_of(state).barrier
    if barrier is not None:
        barrier.expected_workers.pop(member_id, None)
        barrier.absent_workers.pop(member_id, None)
        barrier.absent_clients.pop(member_id, None)
        _plan_end(state)


def waits_for(state: SchedulerState) -> str:
    """Describe what the phase waits for."""
    barrier = recovery_of(state).barrier
    if barrier is None:
        return ""
    expected = state.kept_members.expected
    n_workers, n_clients = len(expected.worker_ids), len(expected.client_ids)
    if not n_workers and not n_clients:
        return "recovering: workers and clients of an earlier scheduler may still come back"
    return (
        f"recovering: {n_workers - len(barrier.absent_workers)} of "
        f"{counted(n_workers, 'worker')} and {n_clients - len(barrier.absent_clients)} of "
        f"{counted(n_clients, 'client')} are back"
    )


def meet_later_epoch(state: SchedulerState, epoch: int) -> None:
    """Give way to another scheduler, or begin again above it if this one has just started.

    The clock of a scheduler that has just started may be behind that of the last one. One that has
    given out work, or runs for some time, was followed by another while it was suspended; unless
    its clock has not reached that epoch yet. Then its clock is behind, it started later, and may be
    the only one: nothing would start another one if it ended (`is_from_the_future`).
    """
    assert state.started is not None
    age_s = state.now - state.started
    is_new = state.next_attempt == state.first_attempt and age_s <= FRESH_S
    if state.awaits_peers or is_new or is_from_the_future(epoch, state.epoch, age_s):
        text = f"a peer has seen epoch {epoch}, above {state.epoch}: starting over above it"
        state.log("info", text)
        state.before.append(StartOver(epoch))
    else:
        state.log(
            "error",
            f"this scheduler ends: a peer has seen epoch {epoch}, and this one is {state.epoch}, "
            "so another scheduler of this cluster has taken over",
            "scheduler-superseded",
        )
        state.before.append(GiveWay(epoch))


# -- the ends of the phase, and of the lease after it ----------------------------------------------
def _await_owners(state: SchedulerState) -> None:
    state.awaits_owners = True
    state.deadlines.cancel(recovery_of(state).lease)


def _begin_lease(state: SchedulerState) -> None:
    recovery_of(state).lease = state.call_after(state.settings.client_lease_s, _end_lease)


def _end_lease(state: SchedulerState) -> None:
    """Keep no longer what no client has come back for."""
    state.awaits_owners = False
    rows.expire(state)
    recovery = recovery_of(state)
    kept, recovery.kept = recovery.kept, {}
    release_unneeded(state, [*kept])
    answer_lacking(state)


def _end(state: SchedulerState) -> None:
    """Begin to assign: what no peer has is computed, and what no peer knows is unknown."""
    recovery = recovery_of(state)
    phase, recovery.barrier = recovery.barrier, None
    assert phase is not None
    state.awaits_peers = False
    _begin_lease(state)
    rows.take_all(state, [*recovery.rows])
    n_lost = forget_unknown(state)
    answer_lacking(state)
    for assignment_begun in state.features.assignment_begun:
        assignment_begun(state)
    counters = state.counters
    recovery.n_ended += 1
    n_workers, n_clients, n_tasks = len(state.workers), len(state.clients), len(state.tasks)
    took_s = recovery.took_s = state.awake_s - phase.began
    state.log(
        "info",
        f"recovered epoch {state.epoch}: {counted(n_workers, 'worker')}, "
        f"{counted(n_clients, 'client')}, {counted(n_tasks, 'task')}, "
        f"{counted(counters.results_kept, 'result')} kept, "
        f"{counted(counters.attempts_adopted, 'unfinished task')} adopted, "
        f"{n_lost} lost, {took_s:.1f} s",
    )
    state.report("recovered", n_workers=n_workers, n_tasks=n_tasks, n_lost=n_lost)
    recovered = m.Recovered(
        n_workers=n_workers,
        n_clients=n_clients,
        n_tasks=n_tasks,
        n_kept=counters.results_kept,
        n_adopted=counters.attempts_adopted,
        n_lost=n_lost,
    )
    for client in state.clients_by_peer.values():
        state.send_client(client, recovered)
