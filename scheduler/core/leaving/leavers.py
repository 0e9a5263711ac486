"""Workers that leave, from the moment they are asked to the word that lets them go.

A leaver gets nothing new and finishes what it runs (`members/membership.py`). Then it asks for the
word to go, because only the scheduler knows whether others have what it has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from ....protocol.wire import messages as m
from ..records.checking import differences, unless
from ..records.peers import WorkerHandle

if TYPE_CHECKING:
    from ..state import SchedulerState

#: The name of the feature, which is busy while a worker leaves.
BUSY: Final = "retiring"


class Leaver:
    """One worker that leaves."""

    __slots__ = ("may_go", "request")

    def __init__(self) -> None:
        #: of its `AskToLeave`; 0 = it has not asked: it is of an earlier release, and goes when it
        #: runs nothing
        self.request = 0
        #: it was let go
        self.may_go = False


class Leavers:
    """The workers that leave."""

    __slots__ = ("by_worker", "is_changed")

    def __init__(self) -> None:
        #: {worker: its record} of all and only registered workers that leave
        self.by_worker: dict[WorkerHandle, Leaver] = {}
        #: the next settle looks at them
        self.is_changed = False


def leavers_of(state: SchedulerState) -> Leavers:
    """Return the workers that leave."""
    return state.record(Leavers)


def begin(state: SchedulerState, ws: WorkerHandle) -> None:
    """Note that a worker gets nothing more: it leaves, or is gone already."""
    if state.workers.get(ws.peer) is ws:
        leavers_of(state).by_worker[ws] = Leaver()
        leavers_of(state).is_changed = True
        state.busy[BUSY] = None


def on_ask_to_leave(state: SchedulerState, ws: WorkerHandle, message: m.AskToLeave) -> None:
    """Keep the request of a leaver: it is answered when it may go."""
    leaver = leavers_of(state).by_worker.get(ws)
    if leaver is None:
        state.counters.reports_stale += 1
        return
    leaver.request = message.request
    leavers_of(state).is_changed = True


def end(state: SchedulerState, ws: WorkerHandle) -> None:
    """Forget a worker that is gone."""
    leavers = leavers_of(state)
    leavers.by_worker.pop(ws, None)
    if not leavers.by_worker:
        state.busy.pop(BUSY, None)


def settle(state: SchedulerState) -> None:
    """Let workers go that may; called with each assignment pass while one leaves."""
    leavers = leavers_of(state)
    if leavers.is_changed or any(ws.is_leaving for ws in state.touched):
        leavers.is_changed = False
        for ws, leaver in leavers.by_worker.items():
            if leaver.request and not (leaver.may_go or ws.processing or ws.zombies):
                leaver.may_go = True
                state.send(ws.peer, m.MayLeave(request=leaver.request))


# -- invariants ------------------------------------------------------------------------------------
#: {what holds: what breaks it}
LEAVER_INVARIANTS: Final[dict[str, Callable[[SchedulerState], Iterable[object]]]] = {
    "leavers are the registered workers that leave": lambda s: differences(
        leavers_of(s).by_worker, [ws for ws in s.workers.values() if ws.is_leaving]
    ),
    "a worker that may leave has no task": lambda s: [
        ws
        for ws, leaver in leavers_of(s).by_worker.items()
        if leaver.may_go and (ws.processing or ws.zombies)
    ],
    "the feature is busy while a worker leaves": lambda s: unless(
        (BUSY in s.busy) == bool(leavers_of(s).by_worker), s.busy
    ),
}
