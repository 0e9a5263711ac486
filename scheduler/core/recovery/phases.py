"""The start of a scheduler that follows another one: it waits until the peers of that are back.

In the phase *recovering* nothing is assigned: a task that looks unfinished may be running at a
worker that has not come back yet. The phase ends, at the *barrier*, when

- all expected members are back, workers with their inventories and clients with what they want,
  and no member of an earlier epoch has registered for a moment: some may have joined too late to be
  on record;
- or none of them has for a longer moment, and some time has passed since the first peer registered;
- or it takes too long.

`barrier.py` counts them. What comes later is merged in the same way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ....protocol.wire import messages as m
from ....protocol.wording import counted
from ..members.epochs import GiveWay, StartOver, is_from_the_future
from ..moves.transitions import release_unneeded
from . import barrier, rows
from .barrier import Barrier, plan_end, waits_for
from .lacking import answer_lacking
from .recipes import forget_unknown
from .records import recovery_of

if TYPE_CHECKING:
    from ..records.peers import ClientHandle
    from ..state import SchedulerState

#: A scheduler that finds out so late that it follows another one, goes on without this phase.
FRESH_S: Final = 60.0


def start(state: SchedulerState) -> None:
    """Wait for the peers of the last scheduler, if some are on record."""
    if state.expected.worker_ids or state.expected.client_ids:
        begin(state)


def begin(state: SchedulerState) -> None:
    """Begin to wait for the peers of the last scheduler."""
    state.awaits_peers = True
    recovery_of(state).barrier = Barrier(state.awake_s, state.expected, _end)
    _await_owners(state)
    plan_end(state)
    for client in state.clients_by_peer.values():
        state.send_client(client, m.Recovering(reason=waits_for(state)))


def note_registration(state: SchedulerState, member_id: str, last_epoch: int) -> None:
    """Note a peer that registers; one that knows an earlier scheduler shows that there was one."""
    if not state.awaits_peers and 0 < last_epoch < state.epoch:
        assert state.started is not None
        if state.now - state.started <= FRESH_S and not state.counters.recoveries:
            begin(state)
        else:
            _await_owners(state)
            _begin_lease(state)
    barrier.note_registration(state, member_id, last_epoch)


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
        )
        state.before.append(GiveWay(epoch))


def note_client(state: SchedulerState, client: ClientHandle, last_epoch: int) -> None:
    """Note a client that has registered."""
    if state.awaits_peers:
        barrier.note_client(state, client.client_id, is_complete=False)
        state.send_client(client, m.Recovering(reason=waits_for(state)))


def on_resubmitted(state: SchedulerState, client: ClientHandle, message: m.Resubmitted) -> None:
    """A client has sent all that it wants."""
    barrier.note_client(state, client.client_id, is_complete=True)


def _await_owners(state: SchedulerState) -> None:
    state.awaits_owners = True
    state.deadlines.cancel(recovery_of(state).lease)


def _begin_lease(state: SchedulerState) -> None:
    recovery_of(state).lease = state.call_after(state.client_lease_s, _end_lease)


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
    for recovery_ended in state.features.recovery_ended:
        recovery_ended(state)
    counters = state.counters
    counters.recoveries += 1
    n_workers, n_clients, n_tasks = len(state.workers), len(state.clients), len(state.tasks)
    took_s = counters.recovery_s = state.awake_s - phase.began
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
