"""Liveness: heartbeats, and peers that are silent.

Liveness is judged by the socket first, then by the worker's supervisor, which answers even while
user code holds the interpreter lock: a worker that is merely silent is lost only when its
supervisor is silent (or absent), too. Clients are not judged: a program that is suspended, or
computes in the loop of its client, keeps what it wants for as long as its connection lasts.

Heartbeats cost the scheduler most when they come one by one: each wakes it, for 200 to 350 us of
its CPU; of 50 that come together each costs 50 to 80. So an answer has the time of the peer's next
heartbeat: peers come in groups, and the more there are, the longer are the pauses
(docs/design/members.md). What counts as silence stays the same.

`SchedulerState.seen` is in the order of the last signs of life, so a sign costs O(1), and a look
for silent peers costs what they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from ....protocol.wire import messages as m
from ....protocol.wire.session import MISSED_HEARTBEATS
from ..records.peers import ClientHandle, SupervisorHandle, WorkerHandle

if TYPE_CHECKING:
    from ..state import SchedulerState

#: Up to this number of peers they send heartbeats at the interval that was configured.
_FEW_PEERS: Final = 200
#: With more of them the intervals grow in proportion, up to this many times the configured one.
_LONGEST: Final = 5
#: The number of peers that send their heartbeats together.
_GROUP: Final = 50
#: A peer that has less than this left is silent (a sum of times is not exact).
_LEAST_WAIT_S: Final = 0.001


def note_alive(state: SchedulerState, peer: int) -> None:
    """Note a sign of life of a stranger, worker or supervisor."""
    state.seen[peer] = state.awake_s
    state.seen.move_to_end(peer)
    if state.seen.check is None:
        state.seen.check = state.call_after(_silence_s(state), _end_silent)


def _silence_s(state: SchedulerState) -> float:
    return state.settings.heartbeat_s * MISSED_HEARTBEATS


def note_unread(state: SchedulerState, unread: Sequence[int]) -> None:
    """Count peers whose messages wait as alive: their heartbeats stand behind these."""
    for peer in unread:
        if peer in state.seen:
            note_alive(state, peer)


def _end_silent(state: SchedulerState) -> None:
    """End the sessions of peers that have sent nothing for too long."""
    state.seen.check = None
    silence_s = _silence_s(state)
    while state.seen:
        peer, since = next(iter(state.seen.items()))
        left_s = since + silence_s - state.awake_s
        if left_s > _LEAST_WAIT_S:
            state.seen.check = state.call_after(left_s, _end_silent)
            return
        del state.seen[peer]
        if peer in state.strangers:
            role = state.roles[peer].name.lower().replace("_", " ")
            state.refuse(peer, f"the {role} did not register within {silence_s:g} s")
        elif peer in state.supervisors:
            state.refuse(peer, f"the supervisor was silent for {silence_s:g} s")
        else:
            state.workers[peer].is_silent = True
            name = state.workers[peer].name
            text = f"worker {name} and its supervisor were silent for {silence_s:g} s"
            state.refuse(peer, text)


def on_heartbeat(state: SchedulerState, who: Any, message: m.Heartbeat) -> None:
    """Note that a peer is alive, and answer, so that it knows the same of the scheduler."""
    if isinstance(who, (WorkerHandle, SupervisorHandle)):
        note_alive(state, who.peer)
        answer_heartbeat(state, who.peer)
    elif isinstance(who, ClientHandle):
        assert who.peer is not None, "messages come over connections"
        answer_heartbeat(state, who.peer)


def on_worker_status(state: SchedulerState, ws: WorkerHandle, message: m.WorkerStatus) -> None:
    """Keep what a worker reports about itself."""
    ws.status = message
    _note_measured(state, ws, message.resident_nbytes)
    for numbers_reported in state.features.numbers_reported:
        numbers_reported(state, ws, message.numbers)


def _note_measured(state: SchedulerState, ws: WorkerHandle, resident_nbytes: int) -> None:
    ws.resident_nbytes, ws.measured_nbytes = resident_nbytes, ws.nbytes
    for worker_measured in state.features.worker_measured:
        worker_measured(state, ws)


def heartbeat_interval_s(state: SchedulerState) -> float:
    """Return the time between two heartbeats of a peer, as of now."""
    times = min(max(len(state.roles) / _FEW_PEERS, 1.0), _LONGEST)
    return state.settings.heartbeat_s * times


def answer_heartbeat(state: SchedulerState, peer: int, n_per_interval: int = 1) -> None:
    """Answer a heartbeat with the time until the peer's next one, which is that of its group."""
    n_peers = len(state.roles)
    interval_s = heartbeat_interval_s(state) / n_per_interval
    n_groups = max(n_peers // _GROUP, 1)
    next_s = (interval_s * (peer % n_groups) / n_groups - state.now) % interval_s
    if next_s < interval_s / 8:  # it is early, or new in this group
        next_s += interval_s
    state.send(peer, m.Heartbeat(next_ms=max(round(next_s * 1000), 1)))


def on_workers_alive(
    state: SchedulerState, supervisor: SupervisorHandle, message: m.WorkersAlive
) -> None:
    """Note that a supervisor's workers are alive, even those that cannot report it themselves."""
    # Twice per interval, so that they are reported in time even if one report is late.
    answer_heartbeat(state, supervisor.peer, 2)
    for worker_id, rss in zip(message.worker_ids, message.rss, strict=True):
        ws = state.workers_by_id.get(worker_id)
        if ws is not None and ws.peer in state.roles:
            note_alive(state, ws.peer)
            # A worker whose task holds the interpreter lock sends no heartbeats.
            _note_measured(state, ws, rss)
    note_alive(state, supervisor.peer)
    for numbers_reported in state.features.numbers_reported:
        numbers_reported(state, supervisor, message.numbers)


def reassure(state: SchedulerState, receiving: Sequence[int]) -> None:
    """Send a heartbeat to peers whose frame takes long: their own wait behind it."""
    if state.now < state.seen.next_reassurance:
        return
    if state.seen.next_reassurance != float("-inf"):
        for peer in receiving:
            if peer in state.roles and peer not in state.strangers:
                state.send(peer, m.Heartbeat())
    state.seen.next_reassurance = state.now + state.settings.heartbeat_s
