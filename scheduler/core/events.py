"""The events that the shell gives to the state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ...protocol.wire.levels import Level
from ...protocol.wire.message import Message
from ...protocol.wire.roles import Role


@dataclass(frozen=True, slots=True)
class Load:
    """Measurements of the scheduler's process over the last seconds.

    Attributes:
        cpu_share: part of the time in which it computed.
        loop_lag_s: the latest that it came to do what was due.
        clock_behind_s: how far the clock of the machine is behind the epoch and the time since;
            below 0 = it is ahead, as after the machine was suspended.
    """

    cpu_share: float = 0.0
    loop_lag_s: float = 0.0
    clock_behind_s: float = 0.0


@dataclass(slots=True)
class PeerConnected:
    """A peer has proved its token, of this level; `role` is what it proved to be."""

    peer: int
    role: Role
    level: Level
    #: whose name the token carries; "" = none
    user: str = ""


@dataclass(slots=True)
class PeerSent:
    """One frame's messages, in order."""

    peer: int
    messages: Sequence[Message]


@dataclass(slots=True)
class PeerClosed:
    """A connection is gone, for any reason."""

    peer: int


@dataclass(slots=True)
class SchedulerTick:
    """Time has passed: `SchedulerState.next_deadline` has come, or the shell has news."""

    #: measurements of the shell (bytes, refused handshakes), which are only shown; none = those of
    #: the last tick that had some
    measurements: dict[str, Any] = field(default_factory=dict)
    #: peers that have sent something which was not handled yet: they are not silent
    unread: Sequence[int] = ()
    #: peers with an out-box whose connection takes nothing more now
    unwritable: Sequence[int] = ()
    #: peers that are in the middle of sending a frame; only looked at, so only needed, in a tick
    #: at or after `SignsOfLife.next_reassurance`
    receiving: Sequence[int] = ()
    #: the load of the process, for the overview; None = as before
    load: Load | None = None
    journal: Sequence[object] = ()  #: what the shell's journal reports (`journal/entries.py`)


Event = PeerConnected | PeerSent | PeerClosed | SchedulerTick
