"""The choice of a worker for a task.

`decide_worker` is earliest start: the time until a worker has worked off what it holds, plus the
time to bring the missing inputs there. As in dask's worker objective; it differs in looking only at
holders of inputs and at one worker with room (the caller's), so that its cost is O(inputs x
copies), not O(workers). A slow version that looks at every worker lives in the tests as the
reference.

A busy worker begins no long fetch while others are queued: with each that has room doing so, the
same inputs would cross one link many times.
"""

from __future__ import annotations

from math import inf
from typing import Final

from ..records.peers import TAKES_NOTHING, WorkerHandle
from ..records.tasks import MEMORY, SchedulerTask

#: Cost of fetching anything at all from a peer.
LATENCY_NS: Final = 500_000
#: A holder that could not be reached is not counted on for so long, seconds ...
UNREACHABLE_S: Final = 30.0
#: ... and an input that only such holders have costs this.
OUT_OF_REACH_NS: Final = 60_000_000_000
#: Copies of one input that are looked at.
MAX_REPLICAS_SEEN: Final = 4
#: Assignment ahead looks at tasks with at most so many missing inputs.
AHEAD_MAX_MISSING: Final = 4
#: A longer fetch is left to workers that are idle.
LONG_FETCH_NS: Final = 10_000_000
#: A shorter task takes less time than the message that would place it when its inputs are there.
WORTH_WAITING_NS: Final = 100_000


def start_cost_ns(ws: WorkerHandle, task: SchedulerTask, now: float) -> int:
    """Estimate when `task` could start on `ws`, ns from now."""
    return queue_cost_ns(ws, now) + fetch_cost_ns(ws, task, now)


def fetch_cost_ns(ws: WorkerHandle, task: SchedulerTask, now: float) -> int:
    """Estimate how long it takes to bring the inputs of `task` to `ws`."""
    missing = n_missing = cost = 0
    for dependency in task.dependencies:
        if ws not in dependency.replicas and dependency.worker is not ws:
            missing += dependency.nbytes
            n_missing += 1
            if ws.unreachable and not reachable(ws, dependency, now):
                cost += OUT_OF_REACH_NS
    if n_missing:
        cost += LATENCY_NS + (missing * ws.fetch_ns_per_mib >> 20)
    return cost


def reachable(ws: WorkerHandle, task: SchedulerTask, now: float) -> list[WorkerHandle]:
    """Return the holders of a task's data that `ws` has not failed to reach lately."""
    unreachable = ws.unreachable
    return [
        holder
        for holder in task.replicas
        if holder not in unreachable or now - unreachable[holder].last > UNREACHABLE_S
    ]


def queue_cost_ns(ws: WorkerHandle, now: float) -> int:
    """Estimate how long the tasks of `ws` keep it busy.

    The estimate is the predicted time, or the time for which it has been stuck if that is longer.
    """
    if ws.n_busy < ws.nthreads:
        return 0
    stuck_ns = int((now - ws.last_progress) * 1e9)
    return max(ws.occupancy_ns // ws.nthreads, stuck_ns)


def decide_worker(task: SchedulerTask, with_room: WorkerHandle, now: float) -> WorkerHandle:
    """Choose among the holders of the task's inputs and one worker that has room."""
    task_class = task.group.task_class
    best, best_cost = with_room, -1.0
    seen: dict[WorkerHandle, None] | None = None
    for dependency in task.dependencies:
        replicas = dependency.replicas
        if len(replicas) == 1 and replicas[0] is best and best_cost < 0:
            continue
        for ws in replicas[:MAX_REPLICAS_SEEN]:
            if ws is with_room or (seen is not None and ws in seen):
                continue
            if seen is None:
                seen = {}
                fetch_ns = fetch_cost_ns(with_room, task, now)
                best_cost = queue_cost_ns(with_room, now) + fetch_ns
                if fetch_ns > LONG_FETCH_NS and _has_others(with_room, task):
                    best_cost = inf
            seen[ws] = None
            may_run = ws in task_class.members and not ws.closed & TAKES_NOTHING
            if not (may_run and ws.has_resources_for(task_class, at_once=False)):
                continue
            cost = start_cost_ns(ws, task, now)
            if cost < best_cost:
                best, best_cost = ws, cost
    return best


def _has_others(ws: WorkerHandle, task: SchedulerTask) -> bool:
    """Return whether a worker is busy without a task that is to be placed, and others are queued.

    False also if the task before it brings one of its inputs there.
    """
    if ws.n_busy < ws.nthreads or not task.group.task_class.queue.n:
        return False
    last = next(reversed(ws.processing.values()), task)
    return last is task or not any(d in last.dependencies for d in task.dependencies)


def ahead_worker(
    task: SchedulerTask, split: dict[SchedulerTask, None] | None = None
) -> WorkerHandle | None:
    """Return the worker on which all missing inputs of a task run or queue, if it may run there.

    None if one of these waits for other tasks, or if most inputs are in memory elsewhere: all that
    follows would be drawn to this worker, though others are free. Only very short tasks go there in
    any case. A task whose inputs are at several workers, or may not run at theirs, joins `split`.
    """
    missing = task.waiting_on
    if missing is None or len(missing) > AHEAD_MAX_MISSING or task.group.is_limited:
        return None
    found = None
    for dependency in missing:
        ws = dependency.worker
        if ws is None or (ws.blocked and dependency.attempt in ws.blocked):
            return None  # what a blocked one waits for needs the room, perhaps
        if found is not None and ws is not found:
            break
        found = ws
    else:
        task_class = task.group.task_class
        if found is None or task_class.resources or not task_class.takes_thread:
            return None  # what takes no thread is brought, which is made of finished inputs
        if found in task_class.members:
            inputs = task.dependencies
            if len(missing) == len(inputs) or task.group.prefix.estimate_ns < WORTH_WAITING_NS:
                return found
            n_elsewhere = sum(d.state == MEMORY and found not in d.replicas for d in inputs)
            if n_elsewhere * 2 <= len(inputs):
                return found
    if split is not None:
        split[task] = None
    return None
