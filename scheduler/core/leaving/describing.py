"""Describes workers that leave, for pages, explanations and metrics.

It is asked for on request only. A leaver may have very many results, so the first ones are looked
at, and stand for the others.
"""

from __future__ import annotations

from itertools import chain, islice
from typing import TYPE_CHECKING, Final, NamedTuple

from ....protocol.wire.message import MAX_NUMBER
from ....protocol.wire.question_arguments import Info
from ....protocol.wording import counted, lasting, sized
from .leavers import Leaver, is_needed, is_sole, leavers_of

if TYPE_CHECKING:
    from ..records.peers import WorkerHandle
    from ..state import SchedulerState

#: Results of a leaver that are looked at.
MAX_SEEN: Final = 1000
#: A worker that has begun to leave so long ago is shown among the lines of health.
LONG_S: Final = 60.0


class Remainder(NamedTuple):
    """What a leaver has that no worker has which stays; an estimate where it is much."""

    n: int
    nbytes: int
    #: of these, needed results for which no worker had room, and actors
    n_stuck: int


def remainder(ws: WorkerHandle, leaver: Leaver) -> Remainder:
    """Return what is to be moved from a leaver, or cannot be."""
    if leaver.may_go:
        return Remainder(0, 0, 0)
    n_all = len(leaver.stuck) + len(leaver.moving) + len(leaver.left)
    seen = list(islice(chain(leaver.stuck, leaver.moving, leaver.left), MAX_SEEN))
    sole = [task for task in seen if is_sole(task, ws)]
    factor = n_all / len(seen) if seen else 0.0
    stuck = [task for task in islice(leaver.stuck, MAX_SEEN) if is_sole(task, ws)]
    kept = [task for task in stuck if is_needed(task) or task.group.function.is_unique]
    share = len(leaver.stuck) / max(1, min(len(leaver.stuck), MAX_SEEN))
    nbytes = int(sum(task.nbytes for task in sole) * factor)
    return Remainder(round(len(sole) * factor), min(nbytes, MAX_NUMBER), round(len(kept) * share))


def facts_of(state: SchedulerState, ws: WorkerHandle) -> Info:
    """Describe a worker as one that leaves; {} = it does not."""
    leaver = leavers_of(state).by_worker.get(ws)
    if leaver is None:
        return {}
    left = remainder(ws, leaver)
    return {
        "reason": ws.leaving_because,
        "since_s": state.now - leaver.since,
        "n_left": left.n,
        "nbytes_left": left.nbytes,
        "n_stuck": left.n_stuck,
        "n_moved": leaver.n_moved,
        "nbytes_moved": min(leaver.nbytes_moved, MAX_NUMBER),
        # None = it waits as long as it takes
        "ends_in_s": None if leaver.due is None else max(0.0, leaver.due - state.now),
    }


def describe(state: SchedulerState, ws: WorkerHandle) -> str:
    """Describe how far a worker is that leaves: since when, what it still has, and its end."""
    facts = facts_of(state, ws)
    if not facts:  # it is gone, or about to be
        return "it is leaving"
    parts = []
    if ws.processing:
        parts.append(f"it has {counted(len(ws.processing), 'task')}")
    if facts["n_left"]:
        one = facts["n_left"] == 1
        results = f"{counted(facts['n_left'], 'result')} ({sized(facts['nbytes_left'])})"
        parts.append(f"{results} {'is' if one else 'are'} only there")
    if facts["n_stuck"]:
        parts.append(f"no other worker has room for {facts['n_stuck']} of them")
    if facts["ends_in_s"] is not None:
        parts.append(f"it ends within {lasting(facts['ends_in_s'])} in any case")
    why = f" ({facts['reason']})" if facts["reason"] else ""
    text = f"it is leaving{why}, for {lasting(facts['since_s'])}"
    return f"{text}: {', '.join(parts)}" if parts else text


def held_up(state: SchedulerState) -> list[WorkerHandle]:
    """Return the workers that leave and cannot: others have no room, or it has taken long."""
    found = []
    for ws, leaver in leavers_of(state).by_worker.items():
        if state.now - leaver.since >= LONG_S or remainder(ws, leaver).n_stuck:
            found.append(ws)
    return found


def n_left(state: SchedulerState) -> int:
    """Return how many results only workers have that leave."""
    return sum(remainder(*item).n for item in leavers_of(state).by_worker.items())


def nbytes_left(state: SchedulerState) -> int:
    """Return the bytes of these."""
    rest = sum(remainder(*item).nbytes for item in leavers_of(state).by_worker.items())
    return min(rest, MAX_NUMBER)
