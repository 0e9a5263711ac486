"""The errors of actors."""

from __future__ import annotations

from .base import WeftError


class ActorLost(WeftError):
    """An actor is gone, or cannot be reached; the call that raises this has not run.

    The state of an actor is on one worker only, and ends with it. Make a new actor with
    `client.submit(cls, ..., actor=True)`, from what was saved elsewhere.

    Args:
        key: that of the task that made the actor.
        text: what happened to it.
    """

    def __init__(self, key: str, text: str) -> None:
        super().__init__(key, text)
        self.key = key
        self.text = text

    def __str__(self) -> str:
        return f"actor {self.key!r} {self.text}"


class ActorCallInDoubt(ActorLost):
    """The connection to an actor ended before the answer of a call: it may have run, or not.

    weft never repeats such a call, since it may have changed the state of the actor. If the actor
    is alive, ask it what it has done, and call again if that is right.
    """
