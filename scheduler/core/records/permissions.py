"""The least level of token that each message to the scheduler needs.

Which role may send a message at all is decided by the tables of handlers in `state`; that a peer's
token permits its role, by the handshake. What is left are messages that a role may send, but not
with every token: so far one, the order to stop the cluster. Questions have a table of their own
(`questions`).

A message whose level is not reached is answered by `Denied`, which fails that call at its sender;
its connection and all else go on. That is so, too, if the peer's role may not send it: what it
lacks is a token of that level. With one it is a breach, which ends the connection.

Clients in tasks have a token of a worker only. Their role has a table of its own, and each of their
submissions is checked (`delegation`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ....protocol.wire import messages as m
from ....protocol.wire.handshake import Role
from ....protocol.wire.levels import Level
from ....protocol.wire.message import Message, Unknown

if TYPE_CHECKING:
    from ..state import SchedulerState

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
    m.AttemptsOverdue: Level.WORKER,
    m.AttemptsReturned: Level.WORKER,
    m.AttemptsBlocked: Level.WORKER,
    m.AttemptsResumed: Level.WORKER,
    m.ActorsBlocked: Level.WORKER,
    m.ActorsResumed: Level.WORKER,
    m.AttemptsWithdrawn: Level.WORKER,
    m.ReplicasAdded: Level.WORKER,
    m.KeysMissing: Level.WORKER,
    m.KeysData: Level.WORKER,
    m.Answer: Level.WORKER,
    m.AskFailed: Level.WORKER,
    m.WorkerLeaving: Level.WORKER,
    m.WorkerStatus: Level.WORKER,
    m.TaskOutput: Level.WORKER,
    m.LogRecords: Level.WORKER,
    m.AttemptTimes: Level.WORKER,
    m.PluginDone: Level.WORKER,
    m.WorkersAlive: Level.WORKER,
    m.WorkerExited: Level.WORKER,
    m.WorkerHeldUp: Level.WORKER,
    m.Put: Level.CLIENT,
    m.PutFailed: Level.CLIENT,
    m.SubmitTasks: Level.CLIENT,
    m.WantKeys: Level.CLIENT,
    m.ReleaseKeys: Level.CLIENT,
    m.ReleaseOthers: Level.CLIENT,
    m.CancelKeys: Level.CLIENT,
    m.WithdrawKeys: Level.CLIENT,
    m.RetryKeys: Level.CLIENT,
    m.FetchKeys: Level.CLIENT,
    m.ReportMissing: Level.CLIENT,
    m.Resubmitted: Level.CLIENT,
    m.WantOutput: Level.CLIENT,
    m.Operate: Level.CLIENT,
    m.ShutdownCluster: Level.ADMIN,
}


def answer_unhandled(state: SchedulerState, peer: int, role: Role, message: Message) -> bool:
    """Answer a message that the peer's role may not send; False if that ended the connection."""
    kind = type(message)
    if isinstance(message, Unknown):  # its sender runs a later release
        state.send(peer, m.unsupported(message))
        return True
    least = LEAST_LEVELS.get(kind)
    if least is not None and least > state.levels[peer]:
        deny(state, peer, message, least)
        return True
    state.refuse(peer, f"a {role.name.lower().replace('_', ' ')} may not send {kind.__name__}")
    return False


def deny(state: SchedulerState, peer: int, message: Message, needed: Level) -> None:
    """Answer a message that the peer's token does not permit."""
    state.counters.denied += 1
    request = getattr(message, "request", 0)
    state.send(
        peer,
        m.Denied(
            request=request,
            needed=needed.label,
            level=state.levels[peer].label,
        ),
    )
