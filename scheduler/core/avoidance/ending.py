"""Workers that end at a time that is known, and tasks that may take longer than until then.

The workers of a batch job end with it, and report how much time they have left. A task with a limit
(`timeout=`, or the `max_wall_time` of its category) avoids those that have less: an attempt there
may be cut off, and run again elsewhere. If no worker has enough, it runs on any.

Tasks with one limit share a class, and no task is touched as time passes. When a worker has become
too short for a limit, it leaves the classes of that limit; what waits there behind other tasks is
asked back. Limits are taken as they are while there are few, others are rounded up in steps of the
root of two. So the classes, and the times at which there is something to do, are few.

Nothing of this is done before the first worker with an end has joined. Tasks that have come before
are then filed again in slices.
"""

from __future__ import annotations

from heapq import heappop, heappush
from math import ceil, inf, log2
from typing import TYPE_CHECKING, Any, Final

from ....protocol.reported import TIME_LEFT
from ....protocol.wire import messages as m
from ....protocol.wire.message import MAX_ITEMS
from ....protocol.wording import lasting
from ..feature import Departure, Feature
from ..invariants.checking import is_due, unless
from ..moves.eligibility import leave_class, may_run
from ..moves.transitions import enqueue, move
from ..moves.without_recipe import change_group
from ..records.peers import WorkerHandle
from ..records.tasks import (
    FORGOTTEN,
    NO_WORKER,
    NONE_AVOIDED,
    QUEUED,
    WAITING,
    SchedulerTask,
    TaskClass,
    TaskGroup,
)
from .avoided import Avoided, TimeNeeded, class_avoiding, left_by, limit_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ....protocol.wire.options import TaskOptions
    from ..records.deadlines import Deadline
    from ..state import SchedulerState

#: So many limits are taken as they are.
MAX_EXACT: Final = 16
#: Which workers have become too short is looked at no more often than this, seconds.
LOOK_S: Final = 0.25
#: A time left that is longer than this counts as no end, seconds: ten years.
MAX_LEFT_S: Final = 315_360_000.0
#: Of the tasks that came before the first worker with an end, so many are looked at, and so many
#: are filed again, in one slice; the next one comes after this time.
MAX_SEEN: Final = 20_000
MAX_FILED: Final = 1000
SLICE_S: Final = 0.02
#: Workers that are named in an explanation.
MAX_NAMED: Final = 8


class WorkerEnds:
    """The ends of workers, and the limits of tasks."""

    __slots__ = ("by_worker", "crossings", "filing", "groups", "limits", "n_made", "next_look")

    def __init__(self) -> None:
        #: {worker id: when it ends} of registered workers that have an end
        self.by_worker: dict[str, float] = {}
        #: {microseconds: limit}; None until the first worker with an end has joined
        self.limits: dict[int, TimeNeeded] | None = None
        #: heap of (when, number, worker id, limit): from then on the worker is too short for it;
        #: one of the two may be gone by then
        self.crossings: list[tuple[float, int, str, TimeNeeded]] = []
        self.n_made = 0  #: entries of that heap so far
        #: pending while there is a crossing
        self.next_look: Deadline | None = None
        #: tasks that may have to be filed again, the next one last; and the new groups of their
        #: old ones
        self.filing: list[SchedulerTask] = []
        self.groups: dict[TaskGroup, TaskGroup] = {}


def worker_ends_of(state: SchedulerState) -> WorkerEnds:
    """Return the ends of workers."""
    return state.record(WorkerEnds)


# -- limits ----------------------------------------------------------------------------------------
def _avoided_by(state: SchedulerState, options: TaskOptions) -> Mapping[str, str]:
    """Return the workers that tasks with these options avoid."""
    if worker_ends_of(state).limits is None or not options.timeout_us:
        return NONE_AVOIDED
    return Avoided((), _limit(state, options.timeout_us))


def _limit(state: SchedulerState, timeout_us: int) -> TimeNeeded:
    """Return the limit of tasks with this timeout."""
    ends = worker_ends_of(state)
    assert ends.limits is not None
    step_us = ceil(2 ** (ceil(2 * log2(timeout_us)) / 2))
    for limit_us in (timeout_us, step_us):
        if (known := ends.limits.get(limit_us)) is not None:
            return known
    if len(ends.limits) >= MAX_EXACT:
        used = {limit_of(task_class): None for task_class in state.classes.values()}
        ends.limits = {us: one for us, one in ends.limits.items() if one in used}
    limit_us = timeout_us if len(ends.limits) < MAX_EXACT else step_us
    limit = ends.limits[limit_us] = TimeNeeded(limit_us / 1e6)
    for worker_id, end in ends.by_worker.items():
        if end - limit.limit_s <= state.now:
            limit.short[worker_id] = None
        else:
            _expect(ends, worker_id, limit)
    _plan_look(state)
    return limit


# -- workers ---------------------------------------------------------------------------------------
def _on_worker_joined(state: SchedulerState, ws: WorkerHandle) -> None:
    """Note when a worker ends that has just joined; it may be too short from the beginning."""
    ends = worker_ends_of(state)
    left_s: Any = ws.facts.get(TIME_LEFT)
    if type(left_s) in (int, float) and 0 <= left_s <= MAX_LEFT_S:
        if ends.limits is None:
            ends.limits = {}
            ends.filing = [*reversed(state.tasks.values())]
            _file_slice(state)
        ends.by_worker[ws.worker_id] = state.now + left_s
        for limit in ends.limits.values():
            _expect(ends, ws.worker_id, limit)
        _cross(state)
    for task_class in list(state.classes.values()) if ends.limits else ():
        known = limit_of(task_class)
        if known is not None and [*task_class.members] == [ws] and may_run(ws, task_class):
            # It is the first with enough time: those before it ran the class for want of it.
            for other in map(state.workers_by_id.__getitem__, known.short):
                _ask_back(state, other, task_class)


def _on_worker_gone(state: SchedulerState, ws: WorkerHandle, departure: Departure) -> None:
    ends = worker_ends_of(state)
    if ends.by_worker.pop(ws.worker_id, None) is not None:
        for limit in (ends.limits or {}).values():
            limit.short.pop(ws.worker_id, None)


# -- as time passes --------------------------------------------------------------------------------
def _expect(ends: WorkerEnds, worker_id: str, limit: TimeNeeded) -> None:
    ends.n_made += 1
    when = ends.by_worker[worker_id] - limit.limit_s
    heappush(ends.crossings, (when, ends.n_made, worker_id, limit))


def _plan_look(state: SchedulerState) -> None:
    """Let the next crossing be looked at."""
    ends = worker_ends_of(state)
    if not ends.crossings:
        return
    delay_s = max(ends.crossings[0][0] - state.now, LOOK_S)
    known = ends.next_look
    if known is None or not known.is_pending or known.when > state.awake_s + delay_s:
        state.deadlines.cancel(known)
        ends.next_look = state.call_after(delay_s, _cross)


def _cross(state: SchedulerState) -> None:
    """Take workers out of the classes for which they have become too short."""
    ends = worker_ends_of(state)
    crossed: dict[TimeNeeded, dict[WorkerHandle, None]] = {}
    known = dict.fromkeys((ends.limits or {}).values())
    while ends.crossings and ends.crossings[0][0] <= state.now:
        _, _, worker_id, limit = heappop(ends.crossings)
        ws = state.workers_by_id.get(worker_id)
        if ws is None or limit not in known or worker_id not in ends.by_worker:
            continue
        if ends.by_worker[worker_id] - limit.limit_s <= state.now:  # else it has joined anew
            crossed.setdefault(limit, {})[ws] = None  # once, also if it is in the heap twice
    _plan_look(state)
    if not crossed:
        return
    # Members that may not run a class have taken it because none may: they stay.
    leaving = [
        (task_class, ws)
        for task_class in state.classes.values()
        if not task_class.is_unbound and (of_class := limit_of(task_class)) is not None
        for ws in crossed.get(of_class, ())
        if ws in task_class.members and may_run(ws, task_class)
    ]
    for limit, workers in crossed.items():
        limit.short.update((ws.worker_id, None) for ws in workers)
    for task_class, ws in leaving:
        leave_class(state, task_class, ws)
    for task_class, ws in leaving:
        if ws not in task_class.members:
            _ask_back(state, ws, task_class)


def _ask_back(state: SchedulerState, ws: WorkerHandle, task_class: TaskClass) -> None:
    """Ask for the tasks of a class that wait at a worker behind others; those that run stay."""
    if ws.is_away or ws not in state.loaded:
        return
    attempts = [a for a, task in ws.processing.items() if task.group.task_class is task_class]
    if attempts:
        state.send(ws.peer, m.WithdrawAttempts(attempts=attempts[-MAX_ITEMS:]))


# -- tasks that came before the first worker with an end -------------------------------------------
def _file_slice(state: SchedulerState) -> None:
    """File tasks with a limit again, some at a time."""
    ends = worker_ends_of(state)
    n_seen = n_filed = 0
    while ends.filing and n_seen < MAX_SEEN and n_filed < MAX_FILED:
        task = ends.filing.pop()
        n_seen += 1
        if task.group.options.timeout_us and task.state != FORGOTTEN:
            n_filed += 1
            _file(state, task)
    if ends.filing:
        state.call_after(SLICE_S, _file_slice)
    else:
        ends.groups = {}


def _file(state: SchedulerState, task: SchedulerTask) -> None:
    """Give a task the class of its limit.

    One that is set aside for a moment keeps its class, and avoids no worker for its limit.
    """
    old = task.group
    task_class = old.task_class
    is_plain = task_class.has_recipes and task_class.takes_thread and not task_class.is_deferred
    if not is_plain or limit_of(task_class) is not None:
        return
    is_aside = task.state == NO_WORKER
    if is_aside and (task in state.paused or (task_class.members and not old.is_limited)):
        return
    new = worker_ends_of(state).groups.get(old)
    if new is None or state.classes.get(new.task_class.key) is not new.task_class:
        avoided = Avoided(left_by(task_class), _limit(state, old.options.timeout_us))
        new = old.in_class(class_avoiding(state, task_class, avoided))
        worker_ends_of(state).groups[old] = new
    if not (is_aside or task.state == QUEUED):
        change_group(state, task, new)
        return
    since = getattr(task, "since", old.submitted)
    move(state, task, WAITING)
    change_group(state, task, new)
    enqueue(state, task)
    task.since = since


# -- what users are shown --------------------------------------------------------------------------
def time_left_s(state: SchedulerState, ws: WorkerHandle) -> float | None:
    """Return for how long a worker may still run tasks, seconds; None = it has no end."""
    end = worker_ends_of(state).by_worker.get(ws.worker_id)
    return None if end is None else max(end - state.now, 0.0)


def why_too_short(state: SchedulerState, task: SchedulerTask) -> list[str]:
    """Return a line for each worker that a task avoids because it ends too early, for the first."""
    limit = limit_of(task.group.task_class)
    if limit is None:
        return []
    timeout_s = task.group.options.timeout_us / 1e6
    takes = f"the task may take {lasting(timeout_s)}"
    if limit.limit_s > timeout_s:
        takes += f", which counts as {lasting(limit.limit_s)}"
    short = [ws for one in limit.short if (ws := state.workers_by_id.get(one)) is not None]
    lines = [
        f"worker {ws.name} has {lasting(left_s)} left, and {takes}"
        for ws in short[:MAX_NAMED]
        if (left_s := time_left_s(state, ws)) is not None
    ]
    if lines and len(short) >= len(state.staying):
        lines.append("no worker has more, so it may run on these")
    return lines


# -- invariants ------------------------------------------------------------------------------------
def _limits(state: SchedulerState) -> Iterable[TimeNeeded]:
    return (worker_ends_of(state).limits or {}).values()


FEATURE: Final = Feature(
    name="workers that end",
    records=(WorkerEnds,),
    avoiding=(_avoided_by,),
    worker_joined=(_on_worker_joined,),
    worker_gone=(_on_worker_gone,),
    invariants={
        "ends are those of registered workers": lambda s: [
            one for one in worker_ends_of(s).by_worker if one not in s.workers_by_id
        ],
        "a worker that is too short for a limit has less time left": lambda s: [
            (limit.limit_s, one)
            for limit in _limits(s)
            for one in limit.short
            if worker_ends_of(s).by_worker.get(one, inf) - limit.limit_s > s.now
        ],
        "a worker that has enough time for a limit will be looked at": lambda s: [
            (limit.limit_s, one)
            for limit in _limits(s)
            for one in worker_ends_of(s).by_worker
            if one not in limit.short
            and not any(row[2:] == (one, limit) for row in worker_ends_of(s).crossings)
        ],
        "the next crossing is looked at": lambda s: unless(
            not worker_ends_of(s).crossings or is_due(worker_ends_of(s).next_look),
            worker_ends_of(s).crossings,
        ),
        "limits of classes are known": lambda s: [
            c.restrictions
            for c in s.classes.values()
            if (limit := limit_of(c)) is not None and limit not in _limits(s)
        ],
    },
)
