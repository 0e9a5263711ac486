"""Workers that leave, from the moment they are asked to the word that lets them go.

A leaver gets nothing new and finishes what it runs (`members/membership.py`). Meanwhile, and then,
the results that no other worker has are copied to workers that stay (`data/copies.py`, rescues).
Then it may go. It asks for the word, because only the scheduler knows what others have.

What holds it when it runs nothing: a result that is needed and that only leavers have, whether or
not any worker has room for it; a copy that is under way; an actor, which cannot be moved; results
that clients of the last scheduler may come back for. A result that its clients have got is moved
too, but where no worker has room the leaver does not wait for it: it may be computed again.

One that loses its session keeps what it has and runs, comes back, and asks again. Meanwhile what is
under way goes on, but nothing more is moved, and it is not let go.

The grace period of the worker ends the wait in any case. An order of a client has none: what ends
it is room, a worker that joins, the release of the results, or that the client lets them be
dropped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import takewhile
from typing import TYPE_CHECKING, Final

from ....protocol.wire import messages as m
from ..data import copies
from ..invariants.checking import differences, unless
from ..records.peers import WorkerHandle
from ..records.tasks import MEMORY, SchedulerTask
from ..recovery.records import recovery_of

if TYPE_CHECKING:
    from ..records.deadlines import Deadline
    from ..state import SchedulerState

#: Results are moved this long after the worker began to leave: its siblings may leave with it, and
#: would get them first.
START_S: Final = 0.05
#: Results without room are tried again so often: releases and room come without an event.
LOOK_S: Final = 0.5
#: Results of all leavers that are moved at the same time.
WINDOW: Final = 1000
#: So many are tried at once; if none of them has room, the others wait for the next look.
BATCH: Final = 100


class Leaver:
    """One worker that leaves."""

    __slots__ = (
        "drops",
        "due",
        "has_begun",
        "left",
        "lost",
        "may_go",
        "moving",
        "n_moved",
        "nbytes_moved",
        "newest",
        "request",
        "since",
        "stuck",
    )

    def __init__(self, ws: WorkerHandle, now: float) -> None:
        #: when it began to leave
        self.since = now
        #: of its `AskToLeave`; 0 = it has not asked: it is of an earlier version, and goes when it
        #: runs nothing
        self.request = 0
        #: when it ends without the word; None = it waits as long as it takes, or has not said
        self.due: float | None = None
        #: its results may be moved
        self.has_begun = False
        #: what it has and was not looked at; then those that are moved, and those for which there
        #: was no room. Each result that only leavers have is in one of the three, of one of them
        self.left: deque[SchedulerTask] = deque(sorted(ws.has_what, key=_rank))
        self.moving: dict[SchedulerTask, None] = {}
        self.stuck: list[SchedulerTask] = []
        #: the last of its results when new ones were last put into `left`
        self.newest = next(reversed(ws.has_what), None)
        #: it does not wait for room
        self.drops = False
        #: it was let go
        self.may_go = False
        #: results that were copied for it to leave, and their bytes
        self.n_moved = self.nbytes_moved = 0
        #: (key, bytes, it cannot be made again) of needed results whose last copy is lost with it
        self.lost: list[tuple[str, int, bool]] = []

    def note_new(self, ws: WorkerHandle) -> None:
        """Look at the results that it has got since, if not at all of them."""
        newest = next(reversed(ws.has_what), None)
        if newest is not self.newest:
            new = list(takewhile(lambda task: task is not self.newest, reversed(ws.has_what)))
            self.left.extend(reversed(new))
            self.newest = newest


class Leavers:
    """The workers that leave."""

    __slots__ = ("by_worker", "is_changed", "n_moved", "nbytes_moved", "next_look")

    def __init__(self) -> None:
        #: {worker: its record} of all and only registered workers that leave
        self.by_worker: dict[WorkerHandle, Leaver] = {}
        #: results that were copied for workers to leave, and their bytes, in all
        self.n_moved = self.nbytes_moved = 0
        #: the next settle looks at them
        self.is_changed = False
        #: when results without room are tried again; None = no worker leaves
        self.next_look: Deadline | None = None


def leavers_of(state: SchedulerState) -> Leavers:
    """Return the workers that leave."""
    return state.record(Leavers)


def is_needed(task: SchedulerTask) -> bool:
    """Return whether a result is missed if its last copy is lost: it runs again, or fails.

    A large argument is not that runs no task: its client has the value, and puts it again.
    """
    if task.n_waiters or task.is_without_recipe:
        return bool(task.n_waiters or task.wanted_by)
    is_put = task.group.function.function_id == m.PUT_FUNCTION
    return bool(task.wanted_by) and not (task.delivered or is_put)


def is_sole(task: SchedulerTask, ws: WorkerHandle) -> bool:
    """Return whether a leaver has a result, and no worker that stays."""
    if task.state != MEMORY or ws not in task.replicas:
        return False
    return all(holder.is_leaving for holder in task.replicas)


def _rank(task: SchedulerTask) -> tuple[bool, bool]:
    """Return a key by which those are first that cannot be made again, then those in need."""
    return (not task.is_without_recipe, not is_needed(task))


# -- events ----------------------------------------------------------------------------------------
def begin(state: SchedulerState, ws: WorkerHandle) -> None:
    """Note that a worker gets nothing more: it leaves, or is gone already."""
    if state.workers.get(ws.peer) is not ws:
        return
    leavers = leavers_of(state)
    leavers.by_worker[ws] = Leaver(ws, state.now)
    leavers.is_changed = True
    state.busy[Leavers] = None
    state.call_after(0.0, _note_changed)  # copies were on their way to it: others get them
    state.call_after(START_S, _start, ws)
    if leavers.next_look is None:
        leavers.next_look = state.call_after(LOOK_S, _look)


def _start(state: SchedulerState, ws: WorkerHandle) -> None:
    leaver = leavers_of(state).by_worker.get(ws)
    if leaver is not None:
        leaver.has_begun = leavers_of(state).is_changed = True


def let_drop(state: SchedulerState, ws: WorkerHandle) -> None:
    """Let a leaver go although what it has finds no room; others that leave keep their copies."""
    leavers = leavers_of(state)
    leavers.by_worker[ws].drops = leavers.is_changed = True
    others = {one: leaver for one, leaver in leavers.by_worker.items() if not leaver.drops}
    for task in ws.has_what if others else ():
        for holder in task.replicas:
            if holder in others:
                others[holder].left.append(task)


def on_ask_to_leave(state: SchedulerState, ws: WorkerHandle, message: m.AskToLeave) -> None:
    """Keep the request of a leaver: it is answered when it may go.

    Its first one is a reason to look at once. Later ones are not: they may be very many.
    """
    leaver = leavers_of(state).by_worker.get(ws)
    if leaver is None:
        state.counters.reports_stale += 1
        return
    leavers_of(state).is_changed |= not leaver.request
    leaver.request = message.request
    leaver.due = state.now + message.left_ms / 1000 if message.left_ms else None


def note_away(state: SchedulerState, ws: WorkerHandle) -> None:
    """Forget what a leaver has asked for: it asks again when it is back."""
    leaver = leavers_of(state).by_worker.get(ws)
    if leaver is not None:
        leaver.request, leaver.may_go = 0, False


def note_back(state: SchedulerState, ws: WorkerHandle) -> None:
    """Ask a worker again to leave that is back and has not read that, and look at what it has."""
    leaver = leavers_of(state).by_worker.get(ws)
    if leaver is not None:
        if not leaver.request:
            state.send(ws.peer, m.LeaveCluster(reason=ws.leaving_because))
        leavers_of(state).is_changed = True


def note_added(state: SchedulerState, ws: WorkerHandle, keys: list[str]) -> None:
    """Note that a worker has copies: some may be those that let a leaver go."""
    leavers_of(state).is_changed = True


def note_not_fetched(state: SchedulerState, ws: WorkerHandle, keys: list[str]) -> None:
    """Note that copies could not be made: others are asked for them first."""
    if leavers_of(state).by_worker:
        state.call_after(0.0, _note_changed)


def _note_changed(state: SchedulerState) -> None:
    leavers_of(state).is_changed = True


def note_lost(state: SchedulerState, task: SchedulerTask, ws: WorkerHandle) -> None:
    """Note that a copy is lost: perhaps only leavers have the result now."""
    leavers = leavers_of(state)
    if leavers.by_worker:
        for holder in task.replicas:
            if holder is not ws and holder in leavers.by_worker:
                leavers.by_worker[holder].left.append(task)
                leavers.is_changed = True


def note_joined(state: SchedulerState, ws: WorkerHandle) -> None:
    """Try again what there was no room for."""
    leavers = leavers_of(state)
    for leaver in leavers.by_worker.values():
        leaver.left.extend(leaver.stuck)
        leaver.stuck.clear()
    leavers.is_changed = True


def note_results_lost(state: SchedulerState, tasks: list[SchedulerTask]) -> list[SchedulerTask]:
    """Note what is lost with leavers; all of it may be computed again."""
    by_worker = leavers_of(state).by_worker
    for task in tasks if by_worker else ():
        leaver = by_worker.get(task.replicas[0])
        if leaver is not None and is_needed(task):
            leaver.lost.append((task.key, task.nbytes, task.is_without_recipe))
    return tasks


def end(state: SchedulerState, ws: WorkerHandle) -> None:
    """Forget a worker that is gone."""
    leavers = leavers_of(state)
    leavers.by_worker.pop(ws, None)
    if not leavers.by_worker:
        state.busy.pop(Leavers, None)
        state.deadlines.cancel(leavers.next_look)
        leavers.next_look = None


def _look(state: SchedulerState) -> None:
    leavers = leavers_of(state)
    leavers.next_look = state.call_after(LOOK_S, _look)
    for ws in leavers.by_worker:
        note_joined(state, ws)
        break


# -- what follows ----------------------------------------------------------------------------------
def settle(state: SchedulerState) -> None:
    """Move results and let workers go; called with each assignment pass while one leaves."""
    leavers = leavers_of(state)
    if not leavers.is_changed and not any(ws.is_leaving for ws in state.touched):
        return
    leavers.is_changed = False
    share = max(1, WINDOW // len(leavers.by_worker))
    for ws, leaver in leavers.by_worker.items():
        if leaver.may_go or ws.is_away:
            continue
        leaver.note_new(ws)
        _note_moved(state, ws, leaver)
        if leaver.has_begun:
            _move(state, ws, leaver, share)
        is_drained = not (ws.processing or ws.zombies)
        if leaver.request and is_drained and not any(_what_holds(state, ws, leaver)):
            leaver.may_go = True
            state.send(ws.peer, m.MayLeave(request=leaver.request))


def _note_moved(state: SchedulerState, ws: WorkerHandle, leaver: Leaver) -> None:
    for task in list(leaver.moving):
        if not is_sole(task, ws):
            del leaver.moving[task]
            if task.state == MEMORY and ws in task.replicas:
                for counts in (leaver, leavers_of(state)):
                    counts.n_moved += 1
                    counts.nbytes_moved += task.nbytes
        elif not copies.is_under_way(state, task):
            del leaver.moving[task]
            leaver.stuck.append(task)


def _move(state: SchedulerState, ws: WorkerHandle, leaver: Leaver, share: int) -> None:
    """Have results copied that only leavers have, so many at a time."""
    while leaver.left and len(leaver.moving) < share:
        tasks: list[SchedulerTask] = []
        failed: list[SchedulerTask] = []
        while leaver.left and len(tasks) < min(BATCH, share - len(leaver.moving)):
            task = leaver.left.popleft()
            if is_sole(task, ws):
                (failed if task.group.function.is_unique else tasks).append(task)
        copies.rescue(state, tasks)
        n_before = len(leaver.moving)
        for task in tasks:
            if copies.is_under_way(state, task):
                leaver.moving[task] = None
            else:
                failed.append(task)
        if tasks and len(leaver.moving) == n_before:  # the next ones have no room either
            leaver.stuck.extend(leaver.left)
            leaver.left.clear()
        leaver.stuck.extend(failed)


def _what_holds(state: SchedulerState, ws: WorkerHandle, leaver: Leaver) -> Iterator[object]:
    """Yield what a leaver that runs nothing waits for."""
    if state.awaits_peers:
        yield "its results are compared with those of others"
    yield from recovery_of(state).rows_at.get(ws, ())
    yield from leaver.moving
    if leaver.left:
        yield from (task for task in leaver.left if is_sole(task, ws))
    for task in leaver.stuck if not leaver.drops else ():
        if is_sole(task, ws) and (is_needed(task) or task.group.function.is_unique):
            yield task


# -- invariants ------------------------------------------------------------------------------------
def _unseen(state: SchedulerState) -> Iterator[SchedulerTask]:
    """Yield the results that only leavers have, and that none of them has to look at."""
    by_worker = leavers_of(state).by_worker
    seen = {task for one in by_worker.values() for task in (*one.left, *one.moving, *one.stuck)}
    seen |= {task for ws, one in by_worker.items() if one.may_go for task in ws.has_what}
    for ws in by_worker:
        if not ws.is_away:  # else it is looked at when it is back, and all its rows are there
            yield from (task for task in ws.has_what if task not in seen and is_sole(task, ws))


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
    "the feature is busy, and looks, while a worker leaves": lambda s: unless(
        (Leavers in s.busy)
        == (leavers_of(s).next_look is not None)
        == bool(leavers_of(s).by_worker),
        s.busy,
    ),
    "a leaver looks at each result that no worker has which stays": _unseen,
}
