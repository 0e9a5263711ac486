"""Waits of the threads of actors that have lasted for a while, as the scheduler is to know of them.

An actor has no slot and no seat, so its wait changes nothing else here. It is reported when it
comes, and again to each scheduler that the worker returns to.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ....protocol.wire.messages import ActorsBlocked, ActorsResumed
from ..events import WorkerEvent
from ..feature import WorkerFeature

if TYPE_CHECKING:
    from ..state import WorkerState


@dataclass(slots=True)
class ActorBlocked(WorkerEvent):
    """The thread of an actor has waited for so long that the scheduler is to know of it.

    The fields are those of a row of `ActorsBlocked`.
    """

    key: str
    attempt: int  #: that has made the actor
    keys: list[str]
    actors: list[str]
    calls: list[str]
    begun: list[str]
    open: list[str]


@dataclass(slots=True)
class ActorResumes(WorkerEvent):
    """The thread of an actor goes on."""

    attempt: int


class LongActorWaits(dict[int, ActorBlocked]):
    """{attempt that made an actor: the wait of its thread}, of those that last."""


def _on_blocked(state: WorkerState, event: ActorBlocked) -> None:
    """Report a wait."""
    state.record(LongActorWaits)[event.attempt] = event
    state.to_scheduler.append(_report([event]))


def _on_resumes(state: WorkerState, event: ActorResumes) -> None:
    """Report the end of a wait, if the wait was."""
    if state.record(LongActorWaits).pop(event.attempt, None) is not None:
        state.to_scheduler.append(ActorsResumed(attempts=[event.attempt]))


def _report_all(state: WorkerState) -> None:
    waits = state.record(LongActorWaits)
    if waits:
        state.to_scheduler.append(_report(waits.values()))


def _report(waits: Iterable[ActorBlocked]) -> ActorsBlocked:
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


FEATURE: Final = WorkerFeature(
    name="actor waits",
    records=(LongActorWaits,),
    events={ActorBlocked: _on_blocked, ActorResumes: _on_resumes},
    waits=(lambda state, attempt: attempt in state.record(LongActorWaits),),
    session_back=(_report_all,),
)
