"""Actions that the shell is asked for, beside sending. Features have actions of their own."""

from __future__ import annotations

from dataclasses import dataclass


class Action:
    """Something that the shell does."""

    __slots__ = ()


@dataclass(slots=True)
class CloseConnection(Action):
    """Send the peer's out-box, then close.

    `reason` is logged, at warning if `is_error`; an empty one was logged before.
    """

    peer: int
    reason: str
    is_error: bool


@dataclass(slots=True)
class CutOff(Action):
    """Close the connection of a peer that does not read; nothing more reaches it."""

    peer: int
    reason: str


@dataclass(slots=True)
class StopServer(Action):
    """All peers were sent the shutdown; end the process."""

    reason: str


@dataclass(slots=True)
class LogLine(Action):
    """A cluster change for the log: the name of a logging level, and the code of a warning."""

    level: str
    text: str
    code: str = ""
