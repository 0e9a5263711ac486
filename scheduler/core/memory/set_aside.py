"""Tasks that would add to full workers: they are set aside, and taken up where there is room.

After the usual lanes, which full workers are not open to, each full worker with an idle thread gets
queued tasks that add nothing there: they read what it holds and let it be dropped, or have small
results. A task that would add to each full worker which may run it comes out of the queue, so that
those behind it are met; it is no_worker, and among `Memory.aside`. It goes back to its place in the
queue when a worker that may run it has room, or when it adds nothing to a full one any more, since
others have read its inputs. That is looked at once a second, and then it is judged whether to wait
helps (`relief`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from ..invariants.checking import unless
from ..moves.transitions import enqueue, move, note_ready
from ..moves.unrunnable import file_unrunnable
from ..records.peers import TAKES_NOTHING
from ..records.tasks import NO_WORKER, SchedulerTask, TaskClass
from . import relief
from .admission import take_stock
from .full import FULL_INVARIANTS, adds_to, look_at_full, note_assigned
from .records import Memory, memory_of

if TYPE_CHECKING:
    from ..records.peers import WorkerHandle
    from ..state import SchedulerState

#: Tasks that one pass sets aside, and those of a class that one look may take up.
MAX_ASIDE: Final = 1000
#: Tasks that are taken up for each thread of a worker with room.
N_PER_THREAD: Final = 2
#: Full workers that do not hold an input which are tried for a task.
MAX_TRIED: Final = 4


def set_aside(state: SchedulerState, task: SchedulerTask) -> None:
    """Let a task that is out of its queue wait for memory."""
    move(state, task, NO_WORKER)
    file_unrunnable(state, task)
    memory_of(state).aside.add(task)
    state.busy[Memory] = None
    look_later(state)


def look_later(state: SchedulerState) -> None:
    """Let what waits for memory be looked at in a while."""
    if memory_of(state).look is None:
        memory_of(state).look = state.call_after(relief.LOOK_S, _look)


def settle(state: SchedulerState) -> None:
    """See, with each assignment pass, who has room again, and what fits there."""
    memory = memory_of(state)
    if memory.stocked:
        take_stock(state)
    if state.full:
        look_at_full(state)
    if memory.aside:
        take_up(state)
    elif not (state.full or memory.stocked):
        del state.busy[Memory]


def discard(state: SchedulerState, task: SchedulerTask) -> None:
    """Set a task aside no longer: it is queued again, or dropped."""
    memory_of(state).aside.discard(task)


def take_up(state: SchedulerState) -> None:
    """Queue tasks again, for the workers that have room and whose load has changed."""
    aside = memory_of(state).aside
    for ws in state.touched:
        if ws.closed or ws.peer not in state.workers:
            continue
        has_room = ws.has_room and ws.wants_more
        n_left = N_PER_THREAD * ws.nthreads
        for task_class in [c for c in aside.by_class if ws in c.members]:
            if not has_room and task_class.takes_thread:
                continue  # scattered data needs no thread
            tasks = aside.by_class[task_class]
            for task in list(islice(tasks, n_left)):
                _queue_again(state, task)
                n_left -= 1
            if tasks:  # it is the turn of the others
                aside.by_class[task_class] = aside.by_class.pop(task_class)
            if not n_left:
                break
        if not aside:
            return


def _look(state: SchedulerState) -> None:
    """Take up what fits by now, and see whether to wait helps the others."""
    memory = memory_of(state)
    memory.look = None
    for task_class in list(memory.aside.by_class):
        if not task_class.members:  # they wait for a worker, as others do
            del memory.aside.by_class[task_class]
        elif task_class.takes_thread:
            _take_up_at_full(state, task_class)
    if memory.aside:
        state.touched.update((ws, None) for ws in state.staying.values() if not ws.closed)
    relief.judge(state)
    if memory.aside or memory.paused or relief.unbound_classes(state):
        look_later(state)


def _take_up_at_full(state: SchedulerState, task_class: TaskClass) -> None:
    """Queue tasks again that add nothing to a full worker any more."""
    members = _full_members(state, task_class)
    n_left = sum(ws.nthreads - ws.n_busy for ws in members)
    for task in list(islice(memory_of(state).aside.by_class[task_class], MAX_ASIDE)):
        if n_left <= 0:
            return
        if _where_it_adds_nothing(state, task, members) is not None:
            _queue_again(state, task)
            n_left -= 1


def _queue_again(state: SchedulerState, task: SchedulerTask) -> None:
    enqueue(state, task)
    if task.state == NO_WORKER:  # another feature holds it back from now on
        discard(state, task)


def _full_members(state: SchedulerState, task_class: TaskClass) -> list[WorkerHandle]:
    """Return the full workers that could run a task of a class at once."""
    return [
        ws for ws in state.full if ws in task_class.members and _has_free_thread(ws, task_class)
    ]


def _has_free_thread(ws: WorkerHandle, task_class: TaskClass) -> bool:
    """Return whether one more task of this class could run at once, if it takes no memory."""
    if ws.closed & TAKES_NOTHING or ws.n_busy >= ws.nthreads:
        return False
    return ws.has_resources_for(task_class)


def assign_to_full(
    state: SchedulerState, give: Callable[[SchedulerTask, WorkerHandle], None]
) -> None:
    """Give queued tasks that add nothing to full workers with idle threads; set others aside."""
    n_left = MAX_ASIDE
    for task_class in list(state.ready):
        if not task_class.takes_thread:
            continue  # it needs no thread, and was placed
        if not _is_offered(state, task_class):
            continue  # the next pass may find one that is not full
        members = _full_members(state, task_class)
        n_before = task_class.queue.n
        while members and n_left and (task := task_class.queue.pop()) is not None:
            task_class.queue.left_ns -= task.group.prefix.estimate_ns
            ws = _where_it_adds_nothing(state, task, members)
            if ws is None:
                set_aside(state, task)
                n_left -= 1
                continue
            give(task, ws)
            note_assigned(state, ws, task)
            if not _has_free_thread(ws, task_class):
                members.remove(ws)
        _note_popped(state, task_class, n_before)
        if not n_left:
            state.call_after(0.0, _do_nothing)
            return


def _is_offered(state: SchedulerState, task_class: TaskClass) -> bool:
    """Return whether passes have offered the tasks of a class to all that might take one."""
    return not task_class.resources or all(turn < task_class.turn for turn in state.takers.values())


def place_scattered(
    state: SchedulerState,
    task_class: TaskClass,
    give: Callable[[SchedulerTask, WorkerHandle], None],
) -> None:
    """Give queued scattered data to the workers with the fewest bytes that are not full, in turns.

    It waits where all are full.
    """
    members = [ws for ws in task_class.members if not ws.is_away]
    members.sort(key=lambda ws: (len(ws.processing), ws.nbytes))
    is_any = bool(members)
    members = [ws for ws in members if not ws.closed]
    while is_any and (task := task_class.queue.pop()) is not None:
        task_class.queue.left_ns -= task.group.prefix.estimate_ns
        if not members:
            set_aside(state, task)
            continue
        ws = members.pop(0)
        give(task, ws)
        note_assigned(state, ws, task)
        if not ws.closed:
            members.append(ws)


def _where_it_adds_nothing(
    state: SchedulerState, task: SchedulerTask, members: list[WorkerHandle]
) -> WorkerHandle | None:
    """Return a holder of an input, or else any of these workers, to which a task adds nothing."""
    for dependency in task.dependencies:
        for ws in dependency.replicas:
            if ws in members and not adds_to(state, task, ws):
                return ws
    return next((ws for ws in members[:MAX_TRIED] if not adds_to(state, task, ws)), None)


def _note_popped(state: SchedulerState, task_class: TaskClass, n_before: int) -> None:
    n = task_class.queue.n
    if not n:
        state.ready.remove(task_class)
    elif n < n_before:
        state.ready.remove(task_class)
        note_ready(state, task_class, task_class.queue.best_level())


def _do_nothing(state: SchedulerState) -> None:
    """An assignment pass follows every event."""


# -- invariants ------------------------------------------------------------------------------------
#: {what holds: what breaks it}
ASIDE_INVARIANTS: Final[dict[str, Callable[[SchedulerState], Iterable[Any]]]] = {
    **FULL_INVARIANTS,
    "what waits for memory is set aside": lambda s: [
        task for task in memory_of(s).aside if task.state != NO_WORKER
    ],
    "classes are listed while tasks of them wait for memory": lambda s: [
        c.restrictions for c, tasks in memory_of(s).aside.by_class.items() if not tasks
    ],
    "what waits for memory is looked at": lambda s: [
        waiting
        for waiting in (*memory_of(s).aside, *memory_of(s).paused)
        if memory_of(s).look is None
    ],
    "a class that is unbound is loose, and is looked at": lambda s: [
        c
        for c in s.classes.values()
        if c.is_unbound and (memory_of(s).look is None or not c.is_loose)
    ],
    "memory is busy while a worker is full or a task is set aside": lambda s: unless(
        Memory in s.busy or not (s.full or memory_of(s).aside), s.busy
    ),
}
