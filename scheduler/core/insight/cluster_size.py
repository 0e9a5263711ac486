"""The size of the cluster, which clients are sent; at once if it is small, or at rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ....protocol.wire import messages as m
from ..feature import Feature
from ..invariants.checking import unless

if TYPE_CHECKING:
    from ..records.deadlines import Deadline
    from ..records.peers import ClientHandle, WorkerHandle
    from ..state import SchedulerState

#: Clients are sent the size at most so often, while many workers join or leave.
SIZE_PAUSE_S: Final = 0.05
#: So many workers are no many: whoever has just started a cluster waits for them.
FEW_WORKERS: Final = 4


class SentSize:
    """The size of the cluster, as clients were last sent it."""

    __slots__ = ("due", "nthreads", "sent_at")

    def __init__(self) -> None:
        #: sum over `SchedulerState.staying`
        self.nthreads = 0
        self.sent_at = float("-inf")
        #: when it is to be sent next; None = it has not changed since
        self.due: Deadline | None = None


def size_of(state: SchedulerState) -> SentSize:
    """Return what clients are sent."""
    return state.record(SentSize)


def _message(state: SchedulerState) -> m.ClusterChanged:
    return m.ClusterChanged(n_workers=len(state.staying), nthreads=size_of(state).nthreads)


def _send(state: SchedulerState) -> None:
    size_of(state).due = None
    size_of(state).sent_at = state.now
    message = _message(state)
    for client in state.clients_by_peer.values():
        state.send_client(client, message)


def _change(state: SchedulerState, n: int) -> None:
    size = size_of(state)
    size.nthreads += n
    if size.due is None:
        delay_s = size.sent_at + SIZE_PAUSE_S - state.now
        if delay_s > 0 and len(state.staying) > FEW_WORKERS:
            size.due = state.call_after(delay_s, _send)
        else:
            _send(state)


def _on_worker_joined(state: SchedulerState, ws: WorkerHandle) -> None:
    _change(state, ws.nthreads)


def _on_worker_leaving(state: SchedulerState, ws: WorkerHandle) -> None:
    _change(state, -ws.nthreads)


def _on_client_connected(state: SchedulerState, client: ClientHandle, last_epoch: int) -> None:
    state.send_client(client, _message(state))


FEATURE: Final = Feature(
    name="cluster size",
    records=(SentSize,),
    invariants={
        "nthreads is the sum over staying": lambda s: unless(
            size_of(s).nthreads == sum(ws.nthreads for ws in s.staying.values()),
            size_of(s).nthreads,
        ),
    },
    client_connected=(_on_client_connected,),
    worker_joined=(_on_worker_joined,),
    worker_leaving=(_on_worker_leaving,),
)
