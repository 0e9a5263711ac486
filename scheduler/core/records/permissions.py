"""The answers to messages that their sender may not send.

Which roles may send a message, and with which level of token at least, is declared with it; that a
peer's token permits its role, is decided by the handshake. What is left are messages that a role
may send, but not with every token: so far one, the order to stop the cluster. What a question
needs is declared with it.

A message whose level is not reached is answered by `Denied`, which fails that call at its sender;
its connection and all else go on. That is so, too, if the peer's role may not send it: what it
lacks is a token of that level. With one it is a breach, which ends the connection.

Clients in tasks have a token of a worker only. They have a role of their own, and each of their
submissions is checked (`delegation`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....protocol.wire import messages as m
from ....protocol.wire.levels import Level
from ....protocol.wire.message import Message, Unknown
from ....protocol.wire.roles import Role

if TYPE_CHECKING:
    from ..state import SchedulerState


def answer_unhandled(state: SchedulerState, peer: int, role: Role, message: Message) -> bool:
    """Answer a message that the peer's role may not send; False if that ended the connection."""
    kind = type(message)
    if isinstance(message, Unknown):  # its sender runs a later version
        state.send(peer, m.unsupported(message))
        return True
    if kind.least_level > state.levels[peer]:
        deny(state, peer, message, kind.least_level)
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
