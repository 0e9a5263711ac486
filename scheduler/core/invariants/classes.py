"""The invariants of the task classes and of their queues, by name; `validate.py` checks them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from ....protocol.rotation import level_of
from ..job_queues.feature import is_held_by_queue
from ..memory.records import memory_of
from ..moves.eligibility import may_run
from ..records.peers import WorkerHandle
from ..records.queues import ReadyQueue
from ..records.tasks import NO_WORKER, QUEUED, SchedulerTask, State, TaskClass
from ..upkeep.running_limits import is_held
from .checking import differences, tasks_in, unless

if TYPE_CHECKING:
    from ..state import SchedulerState


def _members(state: SchedulerState, task_class: TaskClass) -> list[WorkerHandle]:
    workers = [ws for ws in state.workers.values() if not ws.is_leaving]
    members = [ws for ws in workers if may_run(ws, task_class, strictly=not task_class.is_unbound)]
    if not members and task_class.is_loose:
        members = [ws for ws in workers if may_run(ws, task_class, strictly=False)]
    return members


def _lively(state: SchedulerState, task_class: TaskClass) -> list[WorkerHandle]:
    if task_class.resources:
        return []
    with_room = [ws for ws in _members(state, task_class) if ws.has_room_for(task_class)]
    known = {**task_class.open, **task_class.partly}
    return [ws for ws in with_room if ws in known or not ws.is_stuck(state.now)]


def _fitting(state: SchedulerState, task_class: TaskClass) -> list[WorkerHandle]:
    if not task_class.resources:
        is_plain = len([*state.ready]) == 1 and task_class.queue.is_plain
        return [*task_class.open, *(() if is_plain else task_class.partly)]
    seen = [ws for ws in task_class.members if ws not in state.takers and ws.wants_more]
    # Tasks that wait for resources may look as if it took less time when a function is measured.
    fitting = [ws for ws in seen if ws.has_room_for(task_class, at_once=True)]
    return [ws for ws in fitting if not ws.is_stuck(state.now)]


def _of_class(
    state: SchedulerState,
    found: Callable[[TaskClass], Iterable[Any]],
    expected: Callable[[TaskClass], Iterable[Any]],
) -> list[tuple[TaskClass, object]]:
    """Return the differences between two collections of each class."""
    classes = state.classes.values()
    return [(c, item) for c in classes for item in differences(found(c), expected(c))]


def _by_class(state: SchedulerState, name: State) -> Callable[[TaskClass], list[SchedulerTask]]:
    tasks: dict[TaskClass, list[SchedulerTask]] = {}
    for task in tasks_in(state, name):
        tasks.setdefault(task.group.task_class, []).append(task)
    return lambda task_class: tasks.get(task_class, [])


def _miscounted_classes(state: SchedulerState) -> list[tuple[str, int, int]]:
    n = Counter(task.group.task_class for task in state.tasks.values())
    classes = state.classes.values()
    return [(c.restrictions, c.n_tasks, n[c]) for c in classes if c.n_tasks != n[c]]


def validate_queue(queue: ReadyQueue[Any]) -> None:
    """Assert the invariants that the comments of a queue state."""
    queue.rotation.validate()
    for lane in queue.rotation.lanes.values():
        entries = [*lane.run, *lane.heap]
        assert lane.n == sum(ticket == item.ticket for _, ticket, item in entries)
        places = [entry[:2] for entry in lane.run]
        assert places == sorted(places)
    assert queue.n == sum(lane.n for lane in queue.rotation.lanes.values())


def _broken_queues(state: SchedulerState) -> Iterator[object]:
    for task_class in state.classes.values():
        try:
            validate_queue(task_class.queue)
        except AssertionError as error:
            yield task_class.restrictions, error


def _broken_turns(state: SchedulerState) -> Iterator[object]:
    try:
        state.ready.asking.validate()
    except AssertionError as error:
        yield error
    yield from (c.restrictions for c in state.ready.asking if not c.resources)


def _without_lane(state: SchedulerState) -> list[SchedulerTask]:
    return [
        task
        for task_class in state.classes.values()
        for task in task_class.queue.items()
        if (level_of(task.priority), task.group.client) not in task_class.queue.rotation.lanes
    ]


#: {what holds: what breaks it}
CLASS_INVARIANTS: Final[dict[str, Callable[[SchedulerState], Iterable[object]]]] = {
    "the default class stays": lambda s: unless(
        s.classes.get(s.default_class.key) is s.default_class, s.classes
    ),
    "classes are filed by key": lambda s: [key for key, c in s.classes.items() if c.key != key],
    "classes of tasks are known": lambda s: [
        t for t in tasks_in(s) if s.classes.get(t.group.task_class.key) is not t.group.task_class
    ],
    "class.n_tasks counts the tasks of a class": _miscounted_classes,
    "a class without tasks is dropped, but for the default class": lambda s: [
        c.restrictions for c in s.classes.values() if not c.n_tasks and c is not s.default_class
    ],
    "the queue of a class holds its queued tasks, once": lambda s: _of_class(
        s, lambda c: c.queue.items(), _by_class(s, QUEUED)
    ),
    "len(queue) counts the live entries": lambda s: [
        (c.restrictions, len(c.queue))
        for c in s.classes.values()
        if len(c.queue) != len(c.queue.items())
    ],
    "lanes of a queue are sorted, counted and in the rotation": _broken_queues,
    "each client has a lane of its own at each user priority": _without_lane,
    "unrunnable holds the tasks of a class in state no_worker": lambda s: _of_class(
        s, lambda c: c.unrunnable, _by_class(s, NO_WORKER)
    ),
    "no task is set aside while a worker may run it and reach its inputs": lambda s: [
        t
        for t in tasks_in(s, NO_WORKER)
        if t.group.task_class.members
        and not any(t in waiting for waiting in (s.out_of_reach, s.paused, memory_of(s).aside))
        and not (is_held(s, t) or is_held_by_queue(s, t))
    ],
    "no task is queued while no worker may run it": lambda s: [
        c.restrictions for c in s.classes.values() if c.queue and not c.members
    ],
    "no task is queued while a worker has room for it and wants it": lambda s: [
        (*c.queue.items()[:1], *found)
        for c in s.classes.values()
        if c.queue and not s.awaits_peers and (found := _fitting(s, c))
    ],
    "the level of a class is that of its best queued task": lambda s: [
        c.restrictions
        for c in s.ready
        if c.queue and c.level != min(level_of(task.priority) for task in c.queue.items())
    ],
    "ready lists the classes with a queued task": lambda s: [
        c.restrictions for c in s.classes.values() if (c in s.ready) != bool(c.queue)
    ],
    "ready lists known classes": lambda s: [
        c.restrictions for c in s.ready if s.classes.get(c.key) is not c
    ],
    "members are the workers that stay and may run the class": lambda s: _of_class(
        s, lambda c: c.members, lambda c: _members(s, c)
    ),
    "a member of a class has the class among its own": lambda s: [
        (ws, c.restrictions)
        for c in s.classes.values()
        for ws in c.members
        if (c in ws.classes) == bool(c.resources)
    ],
    "ready has the classes with resources in turns": _broken_turns,
    "takers are registered and have resources": lambda s: [
        ws for ws in s.takers if not ws.resources or s.workers.get(ws.peer) is not ws
    ],
    "open and partly are the members with room, except stuck ones": lambda s: _of_class(
        s, lambda c: [*c.open, *c.partly], lambda c: _lively(s, c)
    ),
    "partly are members that do not want more": lambda s: [
        (c.restrictions, ws) for c in s.classes.values() for ws in c.partly if ws.wants_more
    ],
}
