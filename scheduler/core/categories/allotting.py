"""Gives tasks of categories their memory and cores, shortly before they can be assigned.

All tasks of a category may be submitted at once, and what the first of them use is to count for
those after. So a task whose inputs are there goes on waiting, in a class that no worker may run,
until few tasks of its category are queued. Then it gets a class with the amounts that its category
gives at that moment, and is queued like any other. What is queued gets another class when its
category gives more or less; what is at a worker stays as it is. What is held back, by a queue that
is paused for instance, does not count, and gets another class when it is queued.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Final

from ....protocol.amounts import BESIDE, CORES, MEMORY
from ....protocol.wire.columns import MAX_SIZE
from ....protocol.wording import sized
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
    Sizes,
    categories_of,
    category_of,
    make_category,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ....protocol.wire.options import TaskOptions
    from ..state import SchedulerState

#: So many tasks of a category are queued at most, whose amounts may have to be chosen anew.
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
    """Return whether a task waits until its category gives it amounts, as soon as it could run."""
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
    """Give a task what its attempt holds by the choice of an earlier scheduler.

    How much that was is not known here. With nothing learned both choose the same.
    """
    if is_held(task):
        _allot(state, make_category(state, task.group.options.category["name"]), task)


def on_unfiled(state: SchedulerState, task: SchedulerTask) -> None:
    """Note that a task may be queued that was given amounts when it could not be."""
    if task.group.options.allotted_nbytes:
        categories_of(state).unfiled.append(task)
        state.busy[Categories] = None


def review(state: SchedulerState, category: CategoryRecord) -> None:
    """Have the allocations of a category chosen anew, with the next pass."""
    category.chosen.clear()
    categories_of(state).to_review[category] = None
    state.busy[Categories] = None


def settle(state: SchedulerState) -> None:
    """Give amounts to tasks that could be assigned, with each assignment pass."""
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
    if not is_as_chosen(state, category, task):
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
    """Return whether a task waits for nothing but its category."""
    return task.state == WAITING and not task.waiting_on and is_held(task)


def _give_anew(state: SchedulerState, category: CategoryRecord) -> None:
    """Let queued tasks wait again that would be given more or less than they were."""
    category.forget_assigned()
    for task in list(category.given):
        if is_as_chosen(state, category, task):
            continue
        del category.given[task]
        move(state, task, WAITING)
        hold(state, task)
        enqueue(state, task)


def _sweep(state: SchedulerState) -> None:
    """Take amounts from all tasks that would be given others, but not while they run.

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
        if is_as_chosen(state, category, task):
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
    """Give a task other amounts that pauses; it goes on pausing."""
    deadline = state.paused.pop(task)
    move(state, task, WAITING)
    _allot(state, category, task)
    move(state, task, NO_WORKER)
    file_unrunnable(state, task)
    state.paused[task] = deadline


def hold(state: SchedulerState, task: SchedulerTask) -> None:
    """Give a task the class again in which it waits for its category."""
    own = own_amounts(task.group.options)
    _change(state, task, {"resources": own, "allotted_nbytes": 0, "allotted_cores": 0})


def _allot(state: SchedulerState, category: CategoryRecord, task: SchedulerTask) -> None:
    """Give a task that waits, or is about to be taken back, what its category gives."""
    _change(state, task, allotment(state, category, task))


def _change(state: SchedulerState, task: SchedulerTask, changes: Mapping[str, Any]) -> None:
    """Give a task other options, and the class that follows from them."""
    options = task.group.options.changed(**changes)
    group = task.group.in_class(class_of(state, options))
    group.options = options
    change_group(state, task, group)


def allot_again(state: SchedulerState, category: CategoryRecord, task: SchedulerTask) -> None:
    """Give a task the largest allocation that has used more than its first one."""
    _allot(state, category, task)
    category.given[task] = None


def is_as_chosen(state: SchedulerState, category: CategoryRecord, task: SchedulerTask) -> bool:
    """Return whether a task has what it would be given now."""
    options = task.group.options
    chosen = allotment(state, category, task)
    return all(getattr(options, name) == value for name, value in chosen.items())


def allotment(
    state: SchedulerState, category: CategoryRecord, task: SchedulerTask
) -> dict[str, Any]:
    """Return the options by which a task has what its category gives.

    Cores are given only to a task that names none, and no more than a worker has that offers the
    memory, too.
    """
    options = task.group.options
    amounts = own_amounts(options)
    sizes = _sizes(state, options, amounts)
    nbytes, is_reserved = _largest(state, category, sizes)
    cores = 0
    if is_reserved:
        if task not in category.repeated:
            nbytes = category.first(MEMORY, nbytes)
        amounts[MEMORY] = float(nbytes)
    if amounts.keys().isdisjoint((CORES, BESIDE)):
        reserved = nbytes if is_reserved else 0
        most = max((n for size, n in sizes if size >= reserved), default=0)
        learned = category.first(CORES, most)
        if learned > 1:
            amounts[CORES] = cores = learned
    return {"resources": amounts, "allotted_nbytes": nbytes, "allotted_cores": cores}


def own_amounts(options: TaskOptions) -> dict[str, float]:
    """Return what a task asks for itself, whatever its category gives it."""
    given = (MEMORY, CORES) if options.allotted_cores else (MEMORY,)
    return {name: amount for name, amount in options.resources.items() if name not in given}


def largest_for(
    state: SchedulerState, category: CategoryRecord, options: TaskOptions
) -> tuple[int, bool]:
    """Return the most memory that a task may use, and whether that can be reserved.

    That is the maximum of its category, but no more than the largest worker has that may run it.
    Nothing is reserved where workers offer no memory.
    """
    return _largest(state, category, _sizes(state, options, own_amounts(options)))


def _largest(state: SchedulerState, category: CategoryRecord, sizes: Sizes) -> tuple[int, bool]:
    maximum = category.max_nbytes
    offered = sizes[0][0] if sizes else 0
    if offered:
        return (min(maximum, offered) if maximum else offered), True
    return maximum or MAX_SIZE, bool(maximum) and not state.staying


def _sizes(state: SchedulerState, options: TaskOptions, own: Mapping[str, float]) -> Sizes:
    """Return what the largest workers have that may run tasks that ask for this themselves."""
    shape: Shape = (
        tuple(sorted(options.workers)),
        options.allow_other_workers,
        tuple(sorted((n, round(float(a), 3)) for n, a in own.items() if a > 0)),
    )
    largest = categories_of(state).largest
    found = largest.get(shape)
    if found is None:
        found = largest[shape] = _look_for_largest(state, shape)
    return found


def _look_for_largest(state: SchedulerState, shape: Shape) -> Sizes:
    task_class = TaskClass((), *shape)
    able = [ws for ws in state.staying.values() if may_run(ws, task_class)]
    if not able and task_class.allow_other_workers:
        able = [ws for ws in state.staying.values() if may_run(ws, task_class, strictly=False)]
    found = {(ws.resources.get(MEMORY, 0.0), ws.resources.get(CORES, 0.0)) for ws in able}
    sizes: Sizes = []
    for nbytes, cores in sorted(found, reverse=True):
        if not sizes or cores > sizes[-1][1]:
            sizes.append((int(nbytes), int(cores)))
    return sizes


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
        f"for its category {category.name!r} to give it memory and cores: {len(category.given)} of "
        "its tasks come before it, and are queued or were assigned just now"
    )


def what_is_given(task: SchedulerTask) -> str:
    """Return what a task was given by its category; "" = nothing yet, or it has none."""
    options = task.group.options
    if not options.allotted_nbytes:
        return ""
    is_limited = options.allotted_nbytes < MAX_SIZE
    nbytes = [f"{sized(options.allotted_nbytes)} of memory"] if is_limited else []
    cores = [f"{options.allotted_cores} cores"] if options.allotted_cores else []
    given = " and ".join(nbytes + cores)
    return given and f"its category {options.category['name']!r} gives it {given}"
