"""Promised inputs: a task goes to a worker while other workers still run what it reads.

Its row names the attempt and the worker of each such input. The reader asks that worker itself,
which answers when the attempt has ended. So one message lies between two dependent tasks, where a
report, an assignment, a request and an answer did.

A promise binds nobody. If the attempt ends without a result, or its worker is lost, the reader
reports the key as missing, as it does with any input; the task that waits is placed again. If the
reader's worker runs nothing for some time, the tasks that only wait there are placed again.

Only tasks have one that are known to be short and to have small results, and only as long as their
worker has little to do: one that is busy does not wait for the messages. No task has one while some
function is known to have large results: workers are then chosen by their memory, too. A chain that
stays on one worker, and a map, never come here: the kernel names only tasks whose inputs are at
several workers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..assignment.asking_back import ask_all_back
from ..assignment.assignment import Draft, assign
from ..assignment.placement import LATENCY_NS
from ..feature import Feature
from ..records.peers import TAKES_NOTHING, WorkerHandle
from ..records.tasks import MEMORY, WAITING, SchedulerTask

if TYPE_CHECKING:
    from ..state import SchedulerState

#: For longer tasks it matters more that they go where a thread is free by then.
LONGEST_NS: Final = 800_000
#: So many tasks of a function have ended before its time and its results count as known.
LEAST_FINISHED: Final = 1
#: A task that may not run where its inputs are may wait at any of so many workers.
MANY_MEMBERS: Final = 4
#: A worker that has work for so long, for each thread, gets none. With more, the workers of a
#: stencil drift apart; with less, a stencil of 100 us tasks waits for messages.
ENOUGH_NS: Final = 10_000_000
#: An input at a worker counts as much as so many tasks less in its backlog. With fewer, a stencil
#: does not stay where it is; with more, all tasks of a random graph follow one.
INPUT_TASKS: Final = 5
#: A task waits no longer than about this at a worker that has nothing else to do, seconds.
PATIENCE_S: Final = 0.03


class Promised(dict[SchedulerTask, int]):
    """{task: its attempt} of those that were assigned so, and some that have ended since."""


def place(state: SchedulerState, drafts: dict[WorkerHandle, Draft]) -> None:
    """Assign waiting tasks whose missing inputs all run; those behind them may follow."""
    if state.full or state.prefixes.has_large:
        return
    promised = state.record(Promised)
    while state.ahead:
        split, state.ahead = state.ahead, {}
        for task in split:
            ws = decide_reader(state, task) if task.state == WAITING else None
            if ws is None:
                continue
            missing = [d for d in task.waiting_on or () if d.worker is not ws]
            assign(state, drafts, task, ws)
            message = drafts[ws].message
            for dependency in missing:
                assert dependency.worker is not None
                message.promised_keys.append(dependency.key)
                message.promised_attempts.append(dependency.attempt)
                message.promised_holders.append(dependency.worker.address)
            if not promised:
                state.call_after(PATIENCE_S, _look)
            promised[task] = task.attempt


def decide_reader(state: SchedulerState, task: SchedulerTask) -> WorkerHandle | None:
    """Return the worker that has, or runs, most inputs of a waiting task; None: it is to wait."""
    group = task.group
    if group.task_class.resources or not group.task_class.takes_thread or not is_short(task):
        return None
    holders: dict[WorkerHandle, int] = {}
    for dependency in task.dependencies:
        for ws in dependency.replicas or (dependency.worker,):
            if ws is None:
                return None
            holders[ws] = holders.get(ws, 0) + 1
    members = group.task_class.members
    if not any(ws in members for ws in holders) and len(members) <= MANY_MEMBERS:
        holders = dict.fromkeys(members, 0)
    best: WorkerHandle | None = None
    best_cost = 0
    input_ns = max(LATENCY_NS, INPUT_TASKS * group.prefix.estimate_ns)
    for ws, n in holders.items():
        cost = ws.occupancy_ns - n * input_ns
        if ws in members and (best is None or cost < best_cost):
            best, best_cost = ws, cost
    if best is None or not best.has_room or best.is_stuck(state.now):
        return None
    if best.occupancy_ns >= ENOUGH_NS * best.nthreads:
        return None
    for dependency in task.waiting_on or ():
        if dependency.worker in best.unreachable or not is_promised(state, dependency):
            return None
    return best


def is_short(task: SchedulerTask) -> bool:
    """Return whether a task is known to be short, and its result to be small."""
    prefix = task.group.prefix
    return (
        prefix.n_finished >= LEAST_FINISHED
        and prefix.estimate_ns <= LONGEST_NS
        and not prefix.result_nbytes
        and not task.group.function.is_unique
    )


def is_promised(state: SchedulerState, task: SchedulerTask) -> bool:
    """Return whether a worker has the task, and its result may be promised to others."""
    ws = task.worker
    if ws is None or ws.closed & TAKES_NOTHING or ws.is_stuck(state.now):
        return False
    return task.attempt not in ws.blocked and task.group.task_class.takes_thread and is_short(task)


def _look(state: SchedulerState) -> None:
    """Ask for tasks back that wait at workers which have nothing else to do."""
    promised = state.record(Promised)
    overdue: dict[WorkerHandle, None] = {}
    for task, attempt in list(promised.items()):
        ws = task.worker
        is_over = ws is None or task.attempt != attempt
        if is_over or all(d.state == MEMORY for d in task.dependencies):
            del promised[task]
        elif ws is not None and ws.is_stuck(state.now) and not ws.return_asked:
            overdue[ws] = None
    for ws in overdue:
        ask_all_back(state, ws)  # its answer is exact: some may have begun
    if promised:
        state.call_after(PATIENCE_S, _look)


FEATURE: Final = Feature(
    name="promised inputs",
    records=(Promised,),
    notes=(Promised,),
    placing_split=(place,),
)
