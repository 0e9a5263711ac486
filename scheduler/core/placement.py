"""The choice of a worker for a task, and the workers that may run a class of tasks.

`decide_worker` is earliest start: the time until a worker has worked off what it holds, plus the
time to bring the missing inputs there. As in dask's worker objective; it differs in looking only at
holders of inputs and at one worker with room (the caller's), so that its cost is O(inputs x
copies), not O(workers). A slow version that looks at every worker lives in the tests as the
reference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .peers import WorkerHandle
from .tasks import SchedulerTask, TaskClass

if TYPE_CHECKING:
    from .state import SchedulerState

#: Cost of fetching anything at all from a peer.
LATENCY_NS: Final = 500_000
#: Assumed until measured: 1 GB/s, a byte a nanosecond.
BANDWIDTH_BYTES_PER_NS: Final = 1
#: A holder that could not be reached is not counted on for so long, seconds ...
UNREACHABLE_S: Final = 30.0
#: ... and an input that only such holders have costs this.
OUT_OF_REACH_NS: Final = 60_000_000_000
#: Copies of one input that are looked at.
MAX_REPLICAS_SEEN: Final = 4


def start_cost_ns(ws: WorkerHandle, task: SchedulerTask, now: float) -> int:
    """Estimate when `task` could start on `ws`, ns from now."""
    missing = 0
    n_missing = 0
    for dependency in task.dependencies:
        if ws not in dependency.replicas and dependency.worker is not ws:
            missing += dependency.nbytes
            n_missing += 1
            if ws.unreachable and not reachable(ws, dependency, now):
                missing += OUT_OF_REACH_NS * BANDWIDTH_BYTES_PER_NS
    cost = queue_cost_ns(ws, now)
    if n_missing:
        cost += LATENCY_NS + missing // BANDWIDTH_BYTES_PER_NS
    return cost


def reachable(ws: WorkerHandle, task: SchedulerTask, now: float) -> list[WorkerHandle]:
    """Return the holders of a task's data that `ws` has not failed to reach lately."""
    unreachable = ws.unreachable
    return [
        holder
        for holder in task.replicas
        if now - unreachable.get(holder, float("-inf")) > UNREACHABLE_S
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
    best = with_room
    best_cost = -1
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
                best_cost = start_cost_ns(with_room, task, now)
            seen[ws] = None
            if ws not in task_class.members or not _has_resources(ws, task_class):
                continue
            cost = start_cost_ns(ws, task, now)
            if cost < best_cost:
                best, best_cost = ws, cost
    return best


def _has_resources(ws: WorkerHandle, task_class: TaskClass) -> bool:
    free = ws.free_resources
    return all(free.get(name, 0.0) >= amount for name, amount in task_class.resources)


# -- workers that may run a class ----------------------------------------------------------------
def may_run(ws: WorkerHandle, task_class: TaskClass, *, strictly: bool = True) -> bool:
    """Return whether a worker satisfies a class's restrictions (and resources, at full amounts)."""
    for name, amount in task_class.resources:
        if ws.resources.get(name, 0.0) < amount:
            return False
    wanted = task_class.workers
    if not wanted or not strictly:
        return True
    return ws.name in wanted or ws.address in wanted or ws.host in wanted


def extend_class(state: SchedulerState, task_class: TaskClass, ws: WorkerHandle) -> None:
    """Let a worker that joins run a class, if it may: O(1), unless it ends a loose restriction."""
    is_loose = task_class.allow_other_workers
    first = next(iter(task_class.members), None)
    has_others = is_loose and first is not None and not may_run(first, task_class)
    if may_run(ws, task_class):
        if has_others:
            fill_class(state, task_class)
            return
    elif (
        not is_loose
        or not (first is None or has_others)
        or not may_run(ws, task_class, strictly=False)
    ):
        return
    task_class.members[ws] = None
    ws.classes[task_class] = None
    if task_class.resources:
        state.takers[ws] = None
        return
    others = task_class.open
    is_behind_idle = not others or not next(reversed(others)).processing
    others[ws] = None
    if not is_behind_idle:
        others.move_to_end(ws, last=False)


def fill_class(state: SchedulerState, task_class: TaskClass) -> None:
    """Find a class's members anew, after a cluster change (O(workers)).

    Loose restrictions (`allow_other_workers`) bind only while a worker satisfies them.
    """
    for ws in task_class.members:
        ws.classes.pop(task_class, None)
    staying = [ws for ws in state.workers.values() if not ws.is_leaving]
    members = [ws for ws in staying if may_run(ws, task_class)]
    if not members and task_class.allow_other_workers:
        members = [ws for ws in staying if may_run(ws, task_class, strictly=False)]
    task_class.members = dict.fromkeys(members)
    task_class.open.clear()
    for ws in members:
        ws.classes[task_class] = None
    if task_class.resources:
        state.takers.update(task_class.members)
        return
    with_room = [ws for ws in members if ws.has_room_for(task_class)]
    task_class.open.update((ws, None) for ws in with_room if not ws.processing)
    task_class.open.update((ws, None) for ws in with_room if ws.processing)
