"""Gives tasks of categories their memory, shortly before they can be assigned.

All tasks of a category may be submitted at once, and what the first of them use is to count for
those after. So a task whose inputs are there goes on waiting, in a class that no worker may run,
until few tasks of its category are queued. Then it gets a class with the memory that its category
gives at that moment, and is queued like any other. What is queued gets another class when its
category gives more or less; what is at a worker stays as it is. What is held back, by a queue that
is paused for instance, does not count, and gets another class when it is queued.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

from ....protocol.amounts import MEMORY
from ....protocol.wire.columns import MAX_SIZE
from ..moves.eligibility import may_run
from ..moves.transitions import enqueue, move
from ..moves.unrunnable import file_unrunnable
from ..moves.without_recipe import change_group
from ..records.tasks import (
    NO_WORKER,
    PROCESSING,
    QUEUED,
    WAITING,
    SchedulerTask,
    TaskClass,
)
from ..requests.submission import class_of
from . import stragglers
from .records import (
    Categories,
    CategoryRecord,
    Shape,
    categories_of,
    category_of,
    make_category,
)

if TYPE_CHECKING:
    from ....protocol.wire.options import TaskOptions
    from ..state import SchedulerState

#: So many tasks of a category are queued at most, whose memory may have to be chosen anew.
MAX_GIVEN: Final = 512
#: When there are as many, it is looked at no more often than this which of them are assigned.
LOOK_S: Final = 0.002


def on_submitted(state: SchedulerState, task: SchedulerTask) -> None:
    """Take over what a submission says of its category."""
    options = task.group.options
    if not options.category:
        return
    category = make_category(state, options.category["name"])
    stragglers.declare(state, category, options.category)
    if category.declare(options.category):
        review(state, category)
        # Autoscalers go by what tasks ask for that no worker can run.
        categories_of(state).must_sweep |= not state.staying


def on_ready(state: SchedulerState, task: SchedulerTask) -> None:
    """A deferred task has all its inputs, or was taken back."""
    if is_held(task):
        _wait(state, make_category(state, task.group.options.category["name"]), task)


def is_held(task: SchedulerTask) -> bool:
    """Return whether a task waits until its category gives it memory, as soon as it could run."""
    options, task_class = task.group.options, task.group.task_class
    is_of_category = bool(options.category) and not options.allotted_nbytes
    return is_of_category and task_class.key[: len(options.held_in)] == options.held_in


def _wait(state: SchedulerState, category: CategoryRecord, task: SchedulerTask) -> None:
    categories = categories_of(state)
    categories.n_waited += 1
    heappush(category.waiting, (task.priority, categories.n_waited, task))
    categories.waiting[category] = None
    state.busy[Categories] = None


def on_adopted(state: SchedulerState, task: SchedulerTask) -> None:
    """Give a task the memory that its attempt holds by the choice of an earlier scheduler.

    How much that was is not known here. With nothing learned both choose the same.
    """
    if is_held(task):
        _allot(state, make_category(state, task.group.options.category["name"]), task)


def on_unfiled(state: SchedulerState, task: SchedulerTask) -> None:
    """Note that a task may be queued that was given memory when it could not be."""
    if task.group.options.allotted_nbytes:
        categories_of(state).unfiled.append(task)
        state.busy[Categories] = None


def review(state: SchedulerState, category: CategoryRecord) -> None:
    """Have the allocations of a category chosen anew, with the next pass."""
    category.chosen.clear()
    categories_of(state).to_review[category] = None
    state.busy[Categories] = None


def settle(state: SchedulerState) -> None:
    """Give memory to tasks that could be assigned, with each assignment pass."""
    if state.awaits_peers:
        return  # a worker may come back that runs them
    categories = categories_of(state)
    if categories.must_sweep:
        _sweep(state)
    unfiled, categories.unfiled = categories.unfiled, []
    for task in unfiled:
        _note_queued(state, task)
    while categories.to_review:
        category, _ = categories.to_review.popitem()
        _give_anew(state, category)
    for category in list(categories.waiting):
        _give(state, category)
    if not categories.waiting:
        del state.busy[Categories]


def _note_queued(state: SchedulerState, task: SchedulerTask) -> None:
    """Note that a task is queued that was no_worker, and look at what it was given."""
    options = task.group.options
    category = category_of(state, options)
    if category is None or task.state != QUEUED or not options.allotted_nbytes:
        return
    category.given[task] = None
    if options.allotted_nbytes != allotment(state, category, task)[0]:
        categories_of(state).to_review[category] = None


def _give(state: SchedulerState, category: CategoryRecord) -> None:
    """Queue tasks of a category, up to the number that may be queued."""
    given = category.given
    if len(given) >= MAX_GIVEN and state.awake_s >= category.look_at:
        # What is queued lasts for longer, and each task that is assigned leads to later passes.
        category.look_at = state.awake_s + LOOK_S * len(given) / MAX_GIVEN
        category.forget_assigned()
        given = category.given
    while category.waiting and len(given) < MAX_GIVEN:
        task = heappop(category.waiting)[2]
        if not could_run(task):
            continue
        _allot(state, category, task)
        enqueue(state, task)
        if task.state == QUEUED:
            given[task] = None
    if not category.waiting:
        del categories_of(state).waiting[category]


def could_run(task: SchedulerTask) -> bool:
    """Return whether a task waits for nothing but memory."""
    return task.state == WAITING and not task.waiting_on and is_held(task)


def _give_anew(state: SchedulerState, category: CategoryRecord) -> None:
    """Let queued tasks wait again that would be given more or less than they were."""
    category.forget_assigned()
    for task in list(category.given):
        options = task.group.options
        if options.allotted_nbytes == allotment(state, category, task)[0]:
            continue
        del category.given[task]
        move(state, task, WAITING)
        hold(state, task)
        enqueue(state, task)


def _sweep(state: SchedulerState) -> None:
    """Take memory from all tasks that would be given another amount, but not while they run.

    The largest worker may have left, and others that wait, or are computed again later, would wait
    for one like it. O(tasks); it is rare that the largest worker changes.
    """
    categories = categories_of(state)
    categories.must_sweep = categories.are_stale = False
    for task in list(state.tasks.values()):
        options = task.group.options
        category = category_of(state, options)
        if category is None or not options.allotted_nbytes:
            continue
        nbytes, is_reserved = allotment(state, category, task)
        if options.allotted_nbytes == nbytes and is_reserved == (MEMORY in options.resources):
            continue
        if task.state == PROCESSING:
            categories.are_stale = True  # its worker may give it back
        elif task in state.paused:
            _allot_paused(state, category, task)
        elif task.state in (QUEUED, NO_WORKER):
            category.given.pop(task, None)
            move(state, task, WAITING)
            hold(state, task)
            enqueue(state, task)
        else:
            hold(state, task)


def _allot_paused(state: SchedulerState, category: CategoryRecord, task: SchedulerTask) -> None:
    """Give a task another amount that pauses; it goes on pausing."""
    deadline = state.paused.pop(task)
    move(state, task, WAITING)
    _allot(state, category, task)
    move(state, task, NO_WORKER)
    file_unrunnable(state, task)
    state.paused[task] = deadline


def hold(state: SchedulerState, task: SchedulerTask) -> None:
    """Give a task the class again in which it waits for memory."""
    group = task.group
    resources = {n: a for n, a in group.options.resources.items() if n != MEMORY}
    options = group.options.changed(resources=resources, allotted_nbytes=0)
    held = group.in_class(class_of(state, options))
    held.options = options
    change_group(state, task, held)


def _allot(state: SchedulerState, category: CategoryRecord, task: SchedulerTask) -> None:
    """Give a task that waits, or is about to be taken back, memory."""
    nbytes, is_reserved = allotment(state, category, task)
    group = task.group
    resources = {n: a for n, a in group.options.resources.items() if n != MEMORY}
    if is_reserved:
        resources[MEMORY] = float(nbytes)
    options = group.options.changed(resources=resources, allotted_nbytes=nbytes)
    new = group.in_class(class_of(state, options))
    new.options = options
    change_group(state, task, new)


def allot_again(state: SchedulerState, category: CategoryRecord, task: SchedulerTask) -> None:
    """Give a task the largest allocation that has used more than its first one."""
    _allot(state, category, task)
    category.given[task] = None


def allotment(
    state: SchedulerState, category: CategoryRecord, task: SchedulerTask
) -> tuple[int, bool]:
    """Return the bytes that a task may use, and whether they are reserved at its worker."""
    largest, is_reserved = largest_for(state, category, task.group.options)
    if not is_reserved:
        return largest, False
    return (largest if task in category.repeated else category.first(largest)), True


def largest_for(
    state: SchedulerState, category: CategoryRecord, options: TaskOptions
) -> tuple[int, bool]:
    """Return the most that a task may use, and whether that can be reserved.

    That is the maximum of its category, but no more than the largest worker has that may run it.
    Nothing is reserved where workers offer no memory.
    """
    maximum = category.max_nbytes
    offered = _offered(state, options)
    if offered:
        return (min(maximum, offered) if maximum else offered), True
    return maximum or MAX_SIZE, bool(maximum) and not state.staying


def _offered(state: SchedulerState, options: TaskOptions) -> int:
    """Return the memory of the largest worker that may run tasks with these options."""
    amounts = {n: round(float(a), 3) for n, a in options.resources.items() if n != MEMORY and a > 0}
    shape: Shape = (
        tuple(sorted(options.workers)),
        options.allow_other_workers,
        tuple(sorted(amounts.items())),
    )
    largest = categories_of(state).largest
    found = largest.get(shape)
    if found is None:
        found = largest[shape] = _look_for_largest(state, shape)
    return found


def _look_for_largest(state: SchedulerState, shape: Shape) -> int:
    task_class = TaskClass((), *shape)
    able = [ws for ws in state.staying.values() if may_run(ws, task_class)]
    if not able and task_class.allow_other_workers:
        able = [ws for ws in state.staying.values() if may_run(ws, task_class, strictly=False)]
    return int(max((ws.resources.get(MEMORY, 0.0) for ws in able), default=0.0))


def workers_changed(state: SchedulerState) -> None:
    """Have all allocations chosen anew if the largest worker has changed; O(workers)."""
    categories = categories_of(state)
    now = {shape: _look_for_largest(state, shape) for shape in categories.largest}
    # Without any worker the maximum of a category is asked for, and else at most what there is.
    has_workers = bool(state.staying)
    if now != categories.largest or has_workers != categories.had_workers or categories.are_stale:
        categories.largest, categories.had_workers = now, has_workers
        categories.must_sweep = True
        state.busy[Categories] = None


def why_unallotted(state: SchedulerState, task: SchedulerTask) -> str:
    """Return why a task waits whose inputs are there; "" = not for its category."""
    category = category_of(state, task.group.options)
    if category is None or not is_held(task):
        return ""
    return (
        f"for its category {category.name!r} to give it memory: {len(category.given)} of its tasks "
        "come before it, and are queued or were assigned just now"
    )
