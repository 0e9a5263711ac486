"""The least level of token that each message to the scheduler needs.

Which role may send a message at all is decided by the tables of handlers in `state`; that a peer's
token permits its role, by the handshake. What is left are messages that a role may send, but not
with every token: so far one, the order to stop the cluster. The tasks of a worker's session need no
more than `WORKER` when they come to submit tasks of their own, since their client's token has
permitted them. Questions have a table of their own (`questions`).

A message whose level is not reached is answered by `Denied`, which fails that call at its sender;
its connection and all else go on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ...protocol.wire import messages as m
from ...protocol.wire.levels import Level
from ...protocol.wire.message import Message

if TYPE_CHECKING:
    from .state import SchedulerState

#: {message: the least level}, of all messages that registered peers and viewers may send
LEAST_LEVELS: Final[dict[type[Message], Level]] = {
    m.Heartbeat: Level.VIEW,
    m.Bye: Level.VIEW,
    m.Unsupported: Level.VIEW,
    m.GetMetrics: Level.VIEW,
    m.Ask: Level.VIEW,
    m.AttemptsFinished: Level.WORKER,
    m.AttemptsErred: Level.WORKER,
    m.InventoryHeld: Level.WORKER,
    m.InventoryUnfinished: Level.WORKER,
    m.InventoryFailed: Level.WORKER,
    m.InventoryFunctions: Level.WORKER,
    m.InventoryEnd: Level.WORKER,
    m.AttemptsEnded: Level.WORKER,
    m.AttemptsReturned: Level.WORKER,
    m.ReplicasAdded: Level.WORKER,
    m.KeysMissing: Level.WORKER,
    m.KeysData: Level.WORKER,
    m.Answer: Level.WORKER,
    m.AskFailed: Level.WORKER,
    m.WorkerLeaving: Level.WORKER,
    m.WorkerStatus: Level.WORKER,
    m.WorkersAlive: Level.WORKER,
    m.WorkerExited: Level.WORKER,
    m.Resubmitted: Level.CLIENT,
    m.SubmitTasks: Level.CLIENT,
    m.WantKeys: Level.CLIENT,
    m.ReleaseKeys: Level.CLIENT,
    m.ReleaseOthers: Level.CLIENT,
    m.CancelKeys: Level.CLIENT,
    m.FetchKeys: Level.CLIENT,
    m.ReportMissing: Level.CLIENT,
    m.Resubmitted: Level.CLIENT,
    m.ShutdownCluster: Level.ADMIN,
}


def deny(state: SchedulerState, peer: int, message: Message, needed: Level) -> None:
    """Answer a message that the peer's token does not permit."""
    state.counters.denied += 1
    kind = type(message)
    request = getattr(message, "request", 0)
    state.send(
        peer,
        m.Denied(
            denied_code=kind.code,
            request=request,
            needed=needed.label,
            level=state.levels[peer].label,
        ),
    )
