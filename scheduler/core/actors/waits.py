"""The waits of actors' threads.

The thread of an actor is none of the worker's slots, so its waits count for nothing but cycles.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from ....protocol.wire import messages as m
from ..records.peers import BlockedWait, WorkerHandle
from ..recovery.records import recovery_of
from .actors import confirm_living

if TYPE_CHECKING:
    from ..state import SchedulerState


class ActorWait(NamedTuple):
    """The wait of an actor's thread: no call of it goes on meanwhile."""

    wait: BlockedWait
    #: the actor's key
    key: str
    #: {holder: the last of its calls that has begun, as [connection, request]}
    begun: dict[str, list[int]]
    #: the texts of the calls that have begun and were not answered
    open: frozenset[str]

    def is_open(self, text: str) -> bool:
        """Return whether a call was not answered before the wait, so that it waits, too."""
        return m.is_unanswered(text, self.begun, self.open)


class WaitingActors:
    """The waits of all actors."""

    __slots__ = ("by_worker",)

    def __init__(self) -> None:
        #: {worker: {attempt that made an actor: the wait of its thread}}, of those that last
        self.by_worker: dict[WorkerHandle, dict[int, ActorWait]] = {}


_NONE: Final[Mapping[int, ActorWait]] = MappingProxyType({})


def waits_at(state: SchedulerState, ws: WorkerHandle) -> Mapping[int, ActorWait]:
    """Return the waits of the actors of a worker, by the attempts that have made them."""
    return state.record(WaitingActors).by_worker.get(ws, _NONE)


def forget_waits(state: SchedulerState, ws: WorkerHandle) -> None:
    """Forget the waits of a worker's actors, which it reports anew if it is there."""
    state.record(WaitingActors).by_worker.pop(ws, None)


def on_actors_blocked(state: SchedulerState, ws: WorkerHandle, message: m.ActorsBlocked) -> None:
    """Note what actors wait for; those of an earlier scheduler may have no task yet."""
    waits = state.record(WaitingActors).by_worker.setdefault(ws, {})
    for i, (key, attempt) in enumerate(zip(message.names, message.attempts, strict=True)):
        is_claimed = recovery_of(state).find(ws, attempt) is not None and attempt not in ws.zombies
        if not (is_claimed or confirm_living(state, ws, key, attempt)):
            state.counters.reports_stale += 1
            continue
        wait = BlockedWait(state.awake_s, message.keys[i], message.actors[i], message.calls[i])
        begun = [call for text in message.begun[i] if (call := m.call_of(text)) is not None]
        last = {holder: numbers for holder, *numbers in begun}
        waits[attempt] = ActorWait(wait, key, last, frozenset(message.open[i]))
        for attempt_blocked in state.features.attempt_blocked:
            attempt_blocked(state, ws, attempt, wait)


def on_actors_resumed(state: SchedulerState, ws: WorkerHandle, message: m.ActorsResumed) -> None:
    """Forget the waits of these actors."""
    waits = state.record(WaitingActors).by_worker.get(ws, {})
    for attempt in message.attempts:
        if waits.pop(attempt, None) is None:
            state.counters.reports_stale += 1
