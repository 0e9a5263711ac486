"""Peers that come and go: registration, leases, the size of the cluster.

A connection is a *session*; identity is the uuid in the registration. A worker whose connection
ends keeps its tasks for `away_s` (see `disconnected.py`); one that comes back later is a new
handle. The wants of a client outlive its connection by `client_lease_s`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ....protocol.rotation import USER_SHIFT
from ....protocol.wire import messages as m
from ....protocol.wire.levels import Level
from ....protocol.wire.message import Message
from ....protocol.wire.roles import Role
from ....protocol.wording import counted
from ..assignment.asking_back import ask_all_back
from ..feature import Departure
from ..moves.eligibility import join_classes, leave_classes
from ..moves.transitions import release_unneeded
from ..records.peers import ClientHandle, SupervisorHandle, WorkerHandle
from ..records.users import user_of
from ..requests.wanted_keys import drop_functions, unwant
from .disconnected import answer_awaited, expect_inventory, set_away
from .epochs import is_proved, note_members, proof_of
from .liveness import note_alive
from .lost_workers import count_death, held_most, lose_worker, notify_workers_of_loss
from .task_passes import NOT_REGISTERED, pass_of, why_refused

if TYPE_CHECKING:
    from ..state import SchedulerState

Registration: TypeAlias = m.RegisterClient | m.RegisterWorker | m.RegisterSupervisor

#: The reason for the end of a worker's process is cut to so many characters.
MAX_REASON_CHARS: Final = 500
#: Threads of one worker.
MAX_NTHREADS: Final = 1 << 16
#: Workers that did not come back in time, and whose attempts are remembered.
MAX_GIVEN_UP: Final = 64


# -- registration ---------------------------------------------------------------------------------
def on_register(state: SchedulerState, peer: int, message: Registration) -> bool:
    """Open a session with the first message of a peer; False if it is refused."""
    if message.last_epoch > state.epoch:
        # An admin may stop the cluster anyway.
        if state.levels[peer] is Level.ADMIN or is_proved(
            state.epoch_key, message.last_epoch, message.epoch_proof
        ):
            for later_epoch in state.features.later_epoch:
                later_epoch(state, message.last_epoch)
            state.refuse(peer, "")
        else:
            _refuse_politely(
                state,
                peer,
                f"this peer claims to have seen epoch {message.last_epoch}, above {state.epoch}, "
                "without the proof that a scheduler of this cluster has sent with it",
            )
        return False
    pythons = _other_python(state, peer, message)
    if pythons is not None:
        mine, theirs = pythons
        reason = (
            f"Python {mine} here, Python {theirs} on the cluster: functions pickled by one can "
            "fail in the other. Use the same minor version of Python for clients and workers."
        )
        _refuse_for_good(state, peer, message, reason, f"Python {mine}, the cluster has {theirs}")
        return False
    if isinstance(message, m.RegisterClient) and (why := why_refused(state, peer, message)):
        reason, is_error = f"client {message.name} is refused: {why}", why != NOT_REGISTERED
        _refuse_politely(state, peer, reason, is_error=is_error)
        return False
    if isinstance(message, m.RegisterWorker) and _serves_no_client(state, message.facts):
        mine = _python_minor(message.facts)
        why = f"Python {mine}, and tasks wait for workers of another version"
        _note_refused(state, message, why)
        _refuse_politely(state, peer, f"worker {message.name} is refused for now: {why}")
        return False
    if isinstance(message, m.RegisterWorker) and message.nthreads > MAX_NTHREADS:
        # Sums of them must stay numbers that a message can hold.
        reason = f"{message.nthreads} threads are more than {MAX_NTHREADS}"
        _refuse_for_good(state, peer, message, reason, reason)
        return False
    user = state.strangers.pop(peer, "")
    for registering in state.features.registering:
        registering(state, _id_of(message), message.last_epoch)
    state.send(
        peer,
        m.Welcome(
            epoch=state.epoch,
            session=peer,  # the shell uses a number for one connection
            heartbeat_ms=int(state.settings.heartbeat_s * 1000),
            facts=dict(state.facts),
            epoch_proof=proof_of(state.epoch_key, state.epoch),
            task_pass=pass_of(state.epoch_key, message.worker_id)
            if isinstance(message, m.RegisterWorker)
            else "",
        ),
    )
    if isinstance(message, m.RegisterWorker):
        _refuse_other_clients(state, message.facts)
        _register_worker(state, peer, message)
        for worker_connected in state.features.worker_connected:
            worker_connected(state, state.workers[peer])
        note_alive(state, peer)
    elif isinstance(message, m.RegisterClient):
        del state.seen[peer]  # the silence of a client has no consequence
        _add_client(state, peer, message, user)
    elif isinstance(message, m.RegisterSupervisor):
        supervisor = state.supervisors[peer] = SupervisorHandle(peer, message)
        state.supervisors_by_id.setdefault(message.supervisor_id, {})[peer] = supervisor
        for supervisor_connected in state.features.supervisor_connected:
            supervisor_connected(state, supervisor)
        note_alive(state, peer)
    return True


def _id_of(message: Registration) -> str:
    if isinstance(message, m.RegisterWorker):
        return message.worker_id
    return message.client_id if isinstance(message, m.RegisterClient) else message.supervisor_id


def _refuse_politely(
    state: SchedulerState, peer: int, reason: str, *, is_error: bool = True
) -> None:
    state.send(peer, m.Refused(reason=reason))
    state.refuse(peer, reason, is_error=is_error)


def _refuse_for_good(
    state: SchedulerState, peer: int, message: Message, reason: str, why: str
) -> None:
    """Refuse a peer that can never join as it is; log the same of one worker only once."""
    state.send(peer, m.Refused(reason=reason, is_final=True))
    if not isinstance(message, m.RegisterWorker):
        state.refuse(peer, reason)
        return
    host = str(message.facts.get("host", ""))
    is_new = _note_refused(state, message, why)
    who = f"worker {message.name} on {host}" if host else f"worker {message.name}"
    state.refuse(peer, f"{who} is refused: {why}" if is_new else "")


def _note_refused(state: SchedulerState, message: m.RegisterWorker, why: str) -> bool:
    """Let the features note that a worker is refused; return whether one did not know that."""
    host = str(message.facts.get("host", ""))
    notes = [note(state, message.name, host, why) for note in state.features.worker_refused]
    return any(notes)


def _python_minor(facts: dict[str, Any]) -> str:
    return ".".join(str(facts.get("python", "")).split(".")[:2])


def _other_python(state: SchedulerState, peer: int, message: Any) -> tuple[str, str] | None:
    """Return the minor versions of Python of the peer and of the workers, if they differ.

    Code pickled by one may fail in the other.
    """
    if isinstance(message, m.RegisterSupervisor):
        return None
    ws = next(iter(state.staying.values()), None)
    return None if ws is None else _different_pythons(message.facts, ws.facts)


def _different_pythons(one: dict[str, Any], other: dict[str, Any]) -> tuple[str, str] | None:
    mine, theirs = _python_minor(one), _python_minor(other)
    return (mine, theirs) if mine and theirs and mine != theirs else None


def _serves_no_client(state: SchedulerState, facts: dict[str, Any]) -> bool:
    """Return whether tasks wait for workers, all of clients whose Python this worker has not.

    It would be the first worker, and those clients would be refused and lose their tasks.
    """
    if state.staying:
        return False
    wanting = [client for client in state.clients.values() if client.wants]
    return bool(wanting) and all(_different_pythons(c.facts, facts) for c in wanting)


def _refuse_other_clients(state: SchedulerState, facts: dict[str, Any]) -> None:
    """Refuse the clients whose functions the workers that join now cannot unpickle.

    They registered while there was no worker. One that connects again is refused with the reason.
    """
    first = next(iter(state.staying.values()), None)
    if first is not None and _python_minor(first.facts) == _python_minor(facts):
        return  # it was compared with all of them
    for client in list(state.clients.values()):
        pythons = _different_pythons(client.facts, facts)
        if pythons is None:
            continue
        mine, theirs = pythons
        if client.peer is not None:
            reason = f"client {client.name} is refused: Python {mine}, the workers have {theirs}"
            state.refuse(client.peer, reason)
        _expire(state, client)


def _add_client(state: SchedulerState, peer: int, message: m.RegisterClient, name: str) -> None:
    client = state.clients.get(message.client_id)
    if client is None:
        worker = state.workers_by_id.get(message.worker_id) if message.worker_id else None
        state.counters.clients_joined += 1
        user = user_of(state.users, name)
        number = user.number << USER_SHIFT | state.counters.clients_joined
        client = ClientHandle(message.client_id, message.name, number, worker, user=user)
        if worker is not None:
            worker.task_clients[client] = None
        state.clients[message.client_id] = client
        note_members(state)
    elif client.peer is not None:
        state.supersede(client.peer)
    client.peer = peer
    state.deadlines.cancel(client.lease)
    client.lease = None
    client.facts = message.facts
    state.clients_by_peer[peer] = client
    state.log("info", f"client {client.name} connected")
    if client.worker is None:
        state.report("client-connected", client=client.name)
    for client_connected in state.features.client_connected:
        client_connected(state, client, message.last_epoch)


def _register_worker(state: SchedulerState, peer: int, message: m.RegisterWorker) -> None:
    """Go on with the record of a worker that is back, or make a new one."""
    ws = state.workers_by_id.get(message.worker_id)
    new = WorkerHandle(peer, message, state.now)
    if ws is not None and ws.peer in state.roles:
        state.supersede(ws.peer)
        ws = state.workers_by_id.get(message.worker_id)  # one that is not waited for is gone
    if ws is None or message.last_epoch != state.epoch or not _is_same(ws, new):
        _add_worker(state, new)
        if message.last_epoch:
            expect_inventory(state, new)
        return
    del state.workers[ws.peer]
    state.outboxes.pop(ws.peer, None)
    ws.peer = peer
    ws.is_new = ws.is_new and state.awaits_peers  # nothing is assigned before the barrier
    state.workers[peer] = ws
    expect_inventory(state, ws)


def _is_same(ws: WorkerHandle, new: WorkerHandle) -> bool:
    """Return whether a worker that is back is what it was. One that leaves goes on leaving."""
    return (ws.address, ws.nthreads, ws.resources, ws.supervisor_id) == (
        new.address,
        new.nthreads,
        new.resources,
        new.supervisor_id,
    )


def _add_worker(state: SchedulerState, ws: WorkerHandle) -> None:
    # The worker that listened there before is gone, or this one could not listen there.
    for old in (state.workers_by_id.get(ws.worker_id), state.workers_by_address.get(ws.address)):
        if old is not None:
            _end_worker(state, old)
    while ws.name in state.staying:
        ws.name = f"{ws.name}-{ws.worker_id[:6]}"
    state.workers[ws.peer] = ws
    state.workers_by_id[ws.worker_id] = ws
    note_members(state)
    state.workers_by_address[ws.address] = ws
    state.idle[ws] = None
    state.lost.unreported.pop(ws.worker_id, None)  # it lives: its end is yet to be reported
    state.counters.workers_joined += 1
    text = f"worker {ws.name} joined from {ws.address} with {counted(ws.nthreads, 'thread')}"
    state.log("info", text)
    state.report("worker-joined", worker=ws.name, address=ws.address, nthreads=ws.nthreads)
    state.staying[ws.name] = ws
    join_classes(state, ws)
    for worker_joined in state.features.worker_joined:
        worker_joined(state, ws)


def _give_no_more(state: SchedulerState, ws: WorkerHandle) -> None:
    """Let a worker that leaves, or is gone, get nothing more."""
    if state.staying.get(ws.name) is not ws:
        return
    del state.staying[ws.name]
    state.idle.pop(ws, None)
    state.loaded.pop(ws, None)
    leave_classes(state, ws)
    for worker_leaving in state.features.worker_leaving:
        worker_leaving(state, ws)


# -- ends -----------------------------------------------------------------------------------------
def on_closed(state: SchedulerState, peer: int, *, for_good: bool = False) -> None:
    """Handle the end of a connection (a second report of it has no effect).

    A worker is expected back, unless the scheduler ended the connection `for_good`.
    """
    role = state.roles.pop(peer, None)
    state.levels.pop(peer, None)
    state.strangers.pop(peer, None)
    state.seen.pop(peer, None)
    if role is Role.WORKER:
        ws = state.workers.get(peer)
        if ws is None:
            return
        away_s = state.settings.away_s
        # One that leaves comes back only if it has something that others may need.
        is_over = ws.is_leaving and not (ws.processing or ws.has_what)
        if for_good or is_over or ws.worker_id in state.lost.exit_reports or not away_s:
            _remove_worker(state, ws)
        else:
            set_away(state, ws)
            ws.away_due = state.call_after(away_s, _give_up, ws)
            state.outboxes.pop(peer, None)
            state.log("info", f"the connection of worker {ws.name} has ended: it may come back")
    elif role in (Role.CLIENT, Role.TASK_CLIENT):
        client = state.clients_by_peer.pop(peer, None)
        if client is not None:
            client.peer = None
            for client_away in state.features.client_away:
                client_away(state, client)
            client.lease = state.call_after(state.settings.client_lease_s, _end_lease, client)
            state.log("info", f"client {client.name} disconnected")
    elif role is Role.SUPERVISOR:
        supervisor = state.supervisors.pop(peer, None)
        if supervisor is not None:
            same = state.supervisors_by_id[supervisor.supervisor_id]
            del same[peer]
            if not same:
                del state.supervisors_by_id[supervisor.supervisor_id]
            for supervisor_gone in state.features.supervisor_gone:
                supervisor_gone(state, supervisor)
    for peer_closed in state.features.peer_closed:
        peer_closed(state, peer)


def _give_up(state: SchedulerState, ws: WorkerHandle) -> None:
    """End the wait for a worker that has not come back in time."""
    state.lost.given_up[ws.worker_id] = dict(ws.processing)
    while len(state.lost.given_up) > MAX_GIVEN_UP:
        del state.lost.given_up[next(iter(state.lost.given_up))]
    _remove_worker(state, ws)


def _end_worker(state: SchedulerState, ws: WorkerHandle) -> None:
    """Give up a worker in whose place another one has come."""
    if ws.peer in state.roles:
        state.supersede(ws.peer)
    if state.workers.get(ws.peer) is ws:
        _remove_worker(state, ws)


def _remove_worker(
    state: SchedulerState, ws: WorkerHandle, *, left_because: str | None = None
) -> None:
    """Take a worker out of all tables, place its tasks again, and let the features follow."""
    _forget_worker(state, ws)
    _give_no_more(state, ws)
    had = dict(ws.processing)
    for client in list(ws.task_clients):
        if client.peer is not None:
            state.part(client.peer)
            on_closed(state, client.peer)
        _expire(state, client)
    is_lost = left_because is None
    has_returned = ws.is_leaving and not (is_lost or ws.return_asked)
    running = list(ws.processing.values()) if has_returned else []
    ws.is_leaving |= not is_lost
    if is_lost:
        _report_loss(state, ws)
    report = state.lost.exit_reports.get(ws.worker_id) if is_lost else None
    n_tasks, n_results = len(ws.processing), len(ws.has_what)
    most = held_most(ws) if left_because is None else []
    lose_worker(state, ws, most, had)
    departure = Departure(left_because, report, n_tasks, n_results, most, running)
    for worker_gone in state.features.worker_gone:
        worker_gone(state, ws, departure)
    answer_awaited(state, ws)
    state.outboxes.pop(ws.peer, None)
    state.touched.pop(ws, None)


def _forget_worker(state: SchedulerState, ws: WorkerHandle) -> None:
    del state.workers[ws.peer]
    note_members(state)
    if state.workers_by_id.get(ws.worker_id) is ws:
        del state.workers_by_id[ws.worker_id]
    if state.workers_by_address.get(ws.address) is ws:
        del state.workers_by_address[ws.address]
    state.deadlines.cancel(ws.away_due)
    ws.inventory = None


def _report_loss(state: SchedulerState, ws: WorkerHandle) -> None:
    state.counters.workers_lost += 1
    n_tasks, n_results = len(ws.processing), len(ws.has_what)
    state.report("worker-lost", worker=ws.name, n_tasks=n_tasks, n_results=n_results)
    notify_workers_of_loss(state, ws)


def on_worker_leaving(state: SchedulerState, ws: WorkerHandle, message: m.WorkerLeaving) -> None:
    """A worker finishes its running tasks: ask the others back, and assign no more to it."""
    if not ws.is_leaving:
        let_leave(state, ws, message.reason)


def let_leave(state: SchedulerState, ws: WorkerHandle, reason: str) -> None:
    """Let a worker finish what it runs: ask the other tasks back, and assign no more to it."""
    ws.is_leaving, ws.leaving_because = True, reason
    ask_all_back(state, ws)
    state.log("info", f"worker {ws.name} is leaving ({reason}): it gets no more tasks")
    _give_no_more(state, ws)


def on_worker_bye(state: SchedulerState, ws: WorkerHandle, message: m.Bye) -> None:
    """A worker leaves in order."""
    del state.roles[ws.peer], state.levels[ws.peer], state.seen[ws.peer]
    state.counters.workers_left += 1
    _remove_worker(state, ws, left_because=message.reason)
    # Its running tasks were not the reason for its end, whatever its supervisor reports.
    state.lost.unreported.pop(ws.worker_id, None)
    _note_ended(state, ws.worker_id)
    state.part(ws.peer)


def on_client_bye(state: SchedulerState, client: ClientHandle, message: m.Bye) -> None:
    """A client leaves for good: its wants end now."""
    assert client.peer is not None
    state.part(client.peer)
    on_closed(state, client.peer)
    _expire(state, client)
    _note_ended(state, client.client_id)


def _note_ended(state: SchedulerState, member_id: str) -> None:
    for ended in state.features.ended:
        ended(state, member_id)


def on_supervisor_bye(state: SchedulerState, supervisor: SupervisorHandle, message: m.Bye) -> None:
    """A supervisor leaves in order."""
    state.part(supervisor.peer)
    on_closed(state, supervisor.peer)


def _end_lease(state: SchedulerState, client: ClientHandle) -> None:
    state.counters.clients_expired += 1
    state.log("info", f"client {client.name} did not come back: its futures are released")
    _expire(state, client)


def _expire(state: SchedulerState, client: ClientHandle) -> None:
    if client.worker is None:
        state.report("client-left", client=client.name)
    del state.clients[client.client_id]
    if client.worker is not None:
        client.worker.task_clients.pop(client, None)
    note_members(state)
    state.deadlines.cancel(client.lease)
    tasks = list(client.wants)
    for task in tasks:
        unwant(client, task)
    tasks.reverse()
    release_unneeded(state, tasks)
    client.refused.clear()
    drop_functions(state, client)
    for client_gone in state.features.client_gone:
        client_gone(state, client)


def stop_cluster(state: SchedulerState, reason: str) -> None:
    """Stop the workers and the scheduler. Clients are sent the reason, and end too."""
    for supervisor in state.supervisors.values():
        state.send(supervisor.peer, m.Stop(reason=reason))
    for ws in state.workers.values():
        state.send(ws.peer, m.Stop(reason=reason))
    for client in list(state.clients.values()):
        state.send_client(client, m.ClusterStopped(reason=reason))
    state.stop(reason)


def on_shutdown(state: SchedulerState, client: ClientHandle, message: m.ShutdownCluster) -> None:
    """Stop the workers, the clients and the scheduler: a client asks for that."""
    state.log("info", f"client {client.name} requests the shutdown: {message.reason}")
    stop_cluster(state, message.reason)


def on_worker_exited(
    state: SchedulerState, supervisor: SupervisorHandle, message: m.WorkerExited
) -> None:
    """A worker's process ended. Its connection's end may be seen before or after this report.

    A report is kept for a registered worker only: nothing was run by one that never registered.
    """
    note_alive(state, supervisor.peer)
    worker_id = message.worker_id
    ws = state.workers_by_id.get(worker_id)
    lost = state.lost.unreported.get(worker_id)
    known = ws if ws is not None else lost.worker if lost is not None else None
    if known is not None and known.supervisor_id != supervisor.supervisor_id:
        state.counters.reports_stale += 1
        return
    if len(message.reason) > MAX_REASON_CHARS:
        reason = message.reason[:MAX_REASON_CHARS] + " [...]"
        message = replace(message, reason=reason)
    for worker_exited in state.features.worker_exited:
        worker_exited(state, message)
    if lost is not None:
        count_death(state, message)
    _note_ended(state, worker_id)
    state.lost.given_up.pop(worker_id, None)
    if ws is not None:
        state.lost.exit_reports[worker_id] = message
        if ws.peer not in state.roles:
            _remove_worker(state, ws)  # it was expected back
