"""The start of a scheduler that follows another one: it waits until the peers of that are back.

In the phase *recovering* nothing is assigned: a task that looks unfinished may be running at a
worker that has not come back yet. The phase ends, at the *barrier*, when

- all expected members are back, workers with their inventories and clients with what they want,
  and no peer has registered for a moment: some may have joined too late to be on record;
- or no peer has registered for a longer moment, and some time has passed since the first;
- or it takes too long.

What comes later is merged in the same way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ...protocol.wire import messages as m
from ...protocol.wording import counted
from . import claims
from .epochs import GiveWay, StartOver
from .recipes import forget_unknown

if TYPE_CHECKING:
    from .peers import ClientHandle
    from .state import SchedulerState

#: With all expected members back: time without a new registration, seconds.
COMPLETE_QUIET_S: Final = 0.5
#: Without: the same, and the time since the first registration ...
QUIET_S: Final = 2.0
LEAST_S: Final = 3.0
#: ... and the longest time.
MOST_S: Final = 60.0
#: How often it is looked whether the phase is over.
LOOK_S: Final = 0.1
#: A scheduler that finds out so late that it follows another one, goes on without this phase.
FRESH_S: Final = 60.0


class Recovery:
    """The phase `recovering`. There is no such record when the phase is over."""

    __slots__ = ("began", "clients", "first", "gone", "last")

    def __init__(self, now: float) -> None:
        self.began = now
        #: when the first and the last peer registered; None = none has
        self.first: float | None = None
        self.last: float | None = None
        #: {client: whether it has sent all that it wants}
        self.clients: dict[ClientHandle, bool] = {}
        #: {worker_id: None} of workers whose exit was reported
        self.gone: dict[str, None] = {}


def start(state: SchedulerState) -> None:
    """Begin the life of a scheduler: with its first event."""
    state.started = state.now
    if state.expected.worker_ids or state.expected.client_ids:
        begin(state)


def begin(state: SchedulerState) -> None:
    """Begin to wait for the peers of the last scheduler."""
    state.recovery = Recovery(state.now)
    _keep_claims(state)
    state.call_after(0.0, _look_again)
    for client in state.clients_by_peer.values():
        state.send_client(client, m.Recovering(reason=waits_for(state)))


def note_registration(state: SchedulerState, last_epoch: int) -> None:
    """Note a peer that registers; one that knows an earlier scheduler shows that there was one."""
    if state.recovery is None and 0 < last_epoch < state.epoch:
        assert state.started is not None
        if state.now - state.started <= FRESH_S and not state.has_recovered:
            begin(state)
        else:
            _keep_claims(state)
            state.claims_due = state.call_after(state.client_lease_s, _end_claims)
    recovery = state.recovery
    if recovery is not None:
        recovery.last = state.now
        if recovery.first is None:
            recovery.first = state.now


def meet_later_epoch(state: SchedulerState, epoch: int) -> None:
    """Give way to another scheduler, or begin again above it if this one has just started.

    The clock of a scheduler that has just started may be behind that of the last one. One that has
    given out work, or runs for some time, was followed by another while it was suspended.
    """
    assert state.started is not None
    is_new = state.next_attempt == state.first_attempt and state.now - state.started <= FRESH_S
    if state.recovery is not None or is_new:
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


def note_client(state: SchedulerState, client: ClientHandle) -> None:
    """Note a client that has registered."""
    recovery = state.recovery
    if recovery is not None:
        recovery.clients[client] = False
        state.send_client(client, m.Recovering(reason=waits_for(state)))


def on_resubmitted(state: SchedulerState, client: ClientHandle, message: m.Resubmitted) -> None:
    """A client has sent all that it wants."""
    if state.recovery is not None:
        state.recovery.clients[client] = True


def note_exit(state: SchedulerState, worker_id: str) -> None:
    """Note that an expected worker will not come back: its supervisor reports its exit."""
    if state.recovery is not None:
        state.recovery.gone[worker_id] = None


def _look_again(state: SchedulerState) -> None:
    """Look regularly whether the phase is over: at most for a minute."""
    recovery = state.recovery
    now = state.now
    if recovery is None:
        return
    state.call_after(LOOK_S, _look_again)
    if now - recovery.began >= MOST_S:
        _end(state, recovery)
    elif recovery.last is not None and recovery.first is not None:
        if any(ws.inventory is not None for ws in state.away):
            return
        quiet_s = now - recovery.last
        is_over = quiet_s >= QUIET_S and now - recovery.first >= LEAST_S
        if is_over or (quiet_s >= COMPLETE_QUIET_S and _is_complete(state, recovery)):
            _end(state, recovery)


def waits_for(state: SchedulerState) -> str:
    """Describe what the phase waits for."""
    recovery = state.recovery
    if recovery is None:
        return ""
    workers, clients = _absent(state, recovery)
    n_workers, n_clients = len(state.expected.worker_ids), len(state.expected.client_ids)
    if not n_workers and not n_clients:
        return "recovering: workers and clients of an earlier scheduler may still come back"
    return (
        f"recovering: {n_workers - len(workers)} of {counted(n_workers, 'worker')} and "
        f"{n_clients - len(clients)} of {counted(n_clients, 'client')} are back"
    )


def _absent(state: SchedulerState, recovery: Recovery) -> tuple[list[str], list[str]]:
    """Return the ids of the expected workers and clients that are not back."""
    workers = [
        worker_id
        for worker_id in state.expected.worker_ids
        if worker_id not in recovery.gone
        and ((ws := state.workers_by_id.get(worker_id)) is None or ws.is_away)
    ]
    clients = [
        client_id
        for client_id in state.expected.client_ids
        if (client := state.clients.get(client_id)) is None or not recovery.clients.get(client)
    ]
    return workers, clients


def _is_complete(state: SchedulerState, recovery: Recovery) -> bool:
    expected = state.expected
    if not expected.worker_ids and not expected.client_ids:
        return False
    return _absent(state, recovery) == ([], [])


def _keep_claims(state: SchedulerState) -> None:
    state.keeps_claims = True
    state.deadlines.cancel(state.claims_due)
    state.claims_due = None


def _end_claims(state: SchedulerState) -> None:
    state.keeps_claims = False
    state.claims_due = None
    claims.expire(state)


def _end(state: SchedulerState, recovery: Recovery) -> None:
    """Begin to assign: what no peer has is computed, and what no peer knows is unknown."""
    state.recovery = None
    state.has_recovered = True
    state.claims_due = state.call_after(state.client_lease_s, _end_claims)
    claims.take_all(state, [key for key in state.claims if key in state.tasks])
    n_lost = forget_unknown(state)
    counters = state.counters
    counters.recoveries += 1
    n_workers, n_clients, n_tasks = len(state.workers), len(state.clients), len(state.tasks)
    took_s = state.now - recovery.began
    state.log(
        "info",
        f"recovered epoch {state.epoch}: {counted(n_workers, 'worker')}, "
        f"{counted(n_clients, 'client')}, {counted(n_tasks, 'task')}, "
        f"{counters.results_kept} results kept, {counters.attempts_adopted} running adopted, "
        f"{n_lost} lost, {took_s:.1f} s",
    )
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
