"""Waits of the threads of actors that have lasted for a while, as the scheduler is to know of them.

An actor has no slot and no seat, so its wait changes nothing else here. It is reported when it
comes, and again to each scheduler that the worker returns to.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ....protocol.wire.messages import ActorsBlocked, ActorsResumed

if TYPE_CHECKING:
    from ..events import ActorBlocked, ActorResumes
    from ..state import WorkerState


def on_blocked(state: WorkerState, event: ActorBlocked) -> None:
    """Report a wait."""
    state.actor_waits[event.attempt] = event
    state.to_scheduler.append(report([event]))


def on_resumes(state: WorkerState, event: ActorResumes) -> None:
    """Report the end of a wait, if the wait was."""
    if state.actor_waits.pop(event.attempt, None) is not None:
        state.to_scheduler.append(ActorsResumed(attempts=[event.attempt]))


def report(waits: Iterable[ActorBlocked]) -> ActorsBlocked:
    """Return the report of these waits."""
    rows = [*waits]
    return ActorsBlocked(
        names=[row.key for row in rows],
        attempts=[row.attempt for row in rows],
        keys=[row.keys for row in rows],
        actors=[row.actors for row in rows],
        calls=[row.calls for row in rows],
        begun=[row.begun for row in rows],
        open=[row.open for row in rows],
    )
