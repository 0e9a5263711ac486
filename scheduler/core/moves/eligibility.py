"""The workers that may run the tasks of each class.

A worker that joins costs O(classes), and one that leaves; nothing is done
per other worker, except where a loose restriction (`allow_other_workers`) begins or ceases to bind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....protocol.amounts import lacking_text
from ..records.peers import WorkerHandle
from ..records.tasks import NO_WORKER, TaskClass
from .transitions import enqueue, move
from .unrunnable import file_unrunnable

if TYPE_CHECKING:
    from ..state import SchedulerState


def may_run(ws: WorkerHandle, task_class: TaskClass, *, strictly: bool = True) -> bool:
    """Return whether a worker satisfies a class's restrictions (and resources, at full amounts).

    Unless `strictly`, those are left out that bind only while a worker satisfies them.
    """
    return not lacks(ws, task_class, strictly=strictly)


def lacks(ws: WorkerHandle, task_class: TaskClass, *, strictly: bool = True) -> list[str]:
    """Return why a worker may not run a class; [] = it may. See `may_run`."""
    reasons = []
    for name, amount in task_class.resources:
        if (offered := ws.resources.get(name, 0.0)) < amount:
            reasons.append(lacking_text(name, offered, amount))
    if strictly and ws.worker_id in task_class.avoided:
        reasons.append(task_class.avoided[ws.worker_id])
    wanted = task_class.workers
    is_bound = strictly or not task_class.allow_other_workers
    if wanted and is_bound and not ws.is_named(wanted):
        reasons.append(f"is not {' or '.join(wanted)}")
    return reasons


def join_classes(state: SchedulerState, ws: WorkerHandle) -> None:
    """Let a worker that joins run all classes that it may; queue what can run now."""
    for task_class in list(state.classes.values()):
        _extend_class(state, task_class, ws)
        if task_class.members and task_class.unrunnable:
            for task in list(task_class.unrunnable):
                if task not in state.paused:
                    enqueue(state, task)


def leave_classes(state: SchedulerState, ws: WorkerHandle) -> None:
    """Take a worker out of all classes; set aside what no other worker may run.

    It is out of `state.workers` already, or leaving.
    """
    state.takers.pop(ws, None)
    for task_class in [c for c in state.classes.values() if ws in c.members]:
        leave_class(state, task_class, ws)


def leave_class(state: SchedulerState, task_class: TaskClass, ws: WorkerHandle) -> None:
    """Take a member out of a class that it may not run any more; set aside what none may run."""
    del task_class.members[ws]
    ws.classes.pop(task_class, None)
    task_class.open.pop(ws, None)
    task_class.partly.pop(ws, None)
    if not task_class.members:
        if task_class.is_loose:
            fill_class(state, task_class)
        if not task_class.members:
            task_class.unrunnable_since = state.now  # some may have been set aside before
            for task in task_class.queue.items():
                move(state, task, NO_WORKER)
                file_unrunnable(state, task)


def _extend_class(state: SchedulerState, task_class: TaskClass, ws: WorkerHandle) -> None:
    """Let a worker that joins run a class, if it may: O(1), unless it ends a loose restriction."""
    is_loose = task_class.is_loose
    first = next(iter(task_class.members), None)
    has_others = task_class.is_unbound or (
        is_loose and first is not None and not may_run(first, task_class)
    )
    if may_run(ws, task_class):
        if has_others:
            task_class.is_unbound = False
            fill_class(state, task_class)
            return
    elif (
        not is_loose
        or not (first is None or has_others)
        or not may_run(ws, task_class, strictly=False)
    ):
        return
    task_class.members[ws] = None
    if task_class.resources:
        state.takers[ws] = state.ready.asking.n_turns
        return
    ws.classes[task_class] = None
    others = task_class.open
    is_behind_idle = not others or not next(reversed(others)).processing
    others[ws] = None
    if not is_behind_idle:
        others.move_to_end(ws, last=False)


def fill_class(state: SchedulerState, task_class: TaskClass) -> None:
    """Find the members of a class anew (O(workers)): it is new, or its loose restriction changes.

    Loose ones (`allow_other_workers`, avoided workers) bind only while a worker satisfies them, and
    not while the class is unbound.
    """
    for ws in task_class.members:
        ws.classes.pop(task_class, None)
    staying = [ws for ws in state.workers.values() if not ws.is_leaving]
    members = [ws for ws in staying if may_run(ws, task_class, strictly=not task_class.is_unbound)]
    if not members and task_class.is_loose:
        members = [ws for ws in staying if may_run(ws, task_class, strictly=False)]
    task_class.members = dict.fromkeys(members)
    task_class.open.clear()
    task_class.partly.clear()
    if task_class.resources:
        state.takers.update(dict.fromkeys(members, state.ready.asking.n_turns))
        return
    for ws in members:
        ws.classes[task_class] = None
    with_room = [ws for ws in members if ws.has_room_for(task_class)]
    task_class.open.update((ws, None) for ws in with_room if not ws.processing)
    task_class.open.update((ws, None) for ws in with_room if ws.processing)
