"""Why a task is where it is: texts for display, from the predicates that decide.

`why` is the reason for one task; `explain` follows it to the task that the others wait for in the
end. What a worker lacks, whether it has room, who holds a lock: each is asked of the function by
which the scheduler decides, so an explanation cannot contradict what happens.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from ....protocol.amounts import amount_text
from ....protocol.rotation import level_of
from ....protocol.wire.question_arguments import Info
from ....protocol.wording import counted, listed, sized
from ..actors.waits import waits_at
from ..arrays.running import why_array
from ..avoidance.ending import why_too_short
from ..blocking.feature import is_barred
from ..categories.allotting import what_is_given, why_unallotted
from ..conditions.feature import why_deferred
from ..coordination import cycles
from ..coordination.kinds import blockers_of
from ..coordination.leases import LeaseRecord
from ..coordination.records import Call, objects_of
from ..gangs.seating import what_workers_hold, why_waiting
from ..job_queues.feature import why_held_by_queue
from ..memory.full import FULL_SHARE
from ..memory.records import memory_of
from ..moves.eligibility import lacks
from ..records.tasks import (
    ERRED,
    MEMORY,
    NO_WORKER,
    PROCESSING,
    QUEUED,
    RELEASED,
    WAITING,
    SchedulerTask,
    TaskClass,
)
from ..recovery.barrier import waits_for
from ..recurring.feature import why_recurring
from ..upkeep.running_limits import why_held
from .closed import why_not
from .refused_workers import explain_unrunnable
from .timings import timings_of

if TYPE_CHECKING:
    from ..records.peers import BlockedWait, WorkerHandle
    from ..state import SchedulerState

#: Tasks that an explanation follows.
MAX_STEPS: Final = 10
#: Workers that are listed for one task.
MAX_WORKERS: Final = 8
#: Tasks of a worker that are looked at for those that hold a resource.
_MAX_LOOKED_AT: Final = 1000
#: Entries of a heap that are looked at to find the place of a task.
_MAX_SEEN: Final = 10_000
_MAX_TEXT_CHARS: Final = 2000


class TaskReason(NamedTuple):
    """Why a task is in its state."""

    text: str
    #: further facts, a line each
    details: Sequence[str] = ()
    #: the task that it waits for first
    following: SchedulerTask | None = None


def explain(state: SchedulerState, task: SchedulerTask) -> Info:
    """Explain a task, and the first of those that it waits for, and so on."""
    steps: list[list[str]] = []
    details: list[str] = []
    seen: dict[SchedulerTask, None] = {}
    cause: SchedulerTask | None = task
    last = task
    while cause is not None and cause not in seen and len(steps) < MAX_STEPS:
        seen[cause] = None
        last = cause
        reason = why(state, cause)
        steps.append([cause.key, cause.state, reason.text])
        details = list(reason.details) or details
        cause = reason.following
    if task.group.prefix.result_nbytes and task.state not in (MEMORY, ERRED):
        nbytes = sized(task.group.prefix.result_nbytes)
        details.append(f"a result of {task.group.prefix.name} takes about {nbytes}")
    if task.group.options.timeout_us and task.state not in (MEMORY, ERRED):
        details.append(f"an attempt may run for {task.group.options.timeout_us / 1e6:g} s")
        details += why_too_short(state, task)
    if task.state not in (MEMORY, ERRED) and (given := what_is_given(task)):
        details.append(given)
    if cause is not None and cause in seen:
        waits = cycles.find_cycle(state, task, set(), set())
        if waits is not None:
            details.append(cycles.describe_cycle(state, waits))
    return {
        "key": task.key,
        "function": task.group.prefix.name,
        "state": task.state,
        "steps": steps,
        "details": details,
        "times": _times(state, task),
        "running_at": _running_at(last),
    }


def _running_at(task: SchedulerTask) -> list[str]:
    """Return the id and the name of the worker that may run a task now; [] = none does."""
    ws = task.worker
    if ws is None or ws.is_away or task.attempt in ws.blocked:
        return []
    return [ws.worker_id, ws.name]


def why(state: SchedulerState, task: SchedulerTask) -> TaskReason:
    """Return the reason for the state of a task."""
    kind = task.state
    if state.awaits_peers and kind in (WAITING, QUEUED, NO_WORKER):
        return TaskReason(f"the scheduler assigns nothing yet, it is {waits_for(state)}")
    if kind == WAITING:
        return _why_waiting(state, task)
    if kind == QUEUED:
        return _why_queued(state, task)
    if kind == NO_WORKER:
        return _why_no_worker(state, task)
    if kind == PROCESSING:
        return _why_processing(state, task)
    if kind == MEMORY:
        return _why_in_memory(state, task)
    if kind == ERRED:
        return TaskReason(_why_erred(task))
    assert kind == RELEASED
    return TaskReason(
        "nobody needs its result now; it is kept to compute it again for tasks that depend on it"
    )


def _named(tasks: Iterable[SchedulerTask]) -> str:
    """Name the first tasks, with their states."""
    tasks = list(tasks)
    return listed([f"{one.key} ({one.state})" for one in tasks[:3]], len(tasks))


# -- waiting, queued, or set aside -----------------------------------------------------------------
def _why_waiting(state: SchedulerState, task: SchedulerTask) -> TaskReason:
    if text := why_recurring(state, task) or why_array(state, task):
        return TaskReason(text)
    missing = task.waiting_on or {}
    first = next(iter(missing), None)
    deferred, key = why_deferred(state, task)
    if not deferred:
        gang, details = ("", []) if missing else why_waiting(state, task)
        if gang:
            return TaskReason(f"it waits {gang}", details)
        if not missing and (text := why_unallotted(state, task)):
            return TaskReason(f"it waits {text}")
        return TaskReason(f"it needs {_named(missing)}", following=first)
    inputs = f"; it needs {_named(missing)}, too" if missing else ""
    watched = None if key is None else state.tasks.get(key)
    return TaskReason(f"it waits {deferred}{inputs}", following=watched or first)


def _why_queued(state: SchedulerState, task: SchedulerTask) -> TaskReason:
    task_class = task.group.task_class
    n = len(task_class.members)
    text = (
        f"all its inputs are there; it waits for one of {n} workers ({task_class.restrictions}), "
        f"with {len(task_class.queue) - 1} other tasks of the same requirements"
    )
    details = [_place(task)]
    details += [
        f"worker {ws.name}: {_why_not_now(state, ws, task_class)}"
        for ws in islice(task_class.members, MAX_WORKERS)
    ]
    if n > MAX_WORKERS:
        details.append(f"and {n - MAX_WORKERS} more workers")
    return TaskReason(text, details)


def _place(task: SchedulerTask) -> str:
    """Return what is before a queued task."""
    queue = task.group.task_class.queue
    client = task.group.client
    n_before, is_exact = _n_before(task)
    level = level_of(task.priority)
    n_better = n_others = 0
    for (other_level, other_client), lane in queue.rotation.lanes.items():
        if other_level < level:
            n_better += lane.n
        elif other_level == level and other_client != client:
            n_others += lane.n
    about = "" if is_exact else "about "
    text = f"before it in the queue: {about}{n_before} of the same client"
    if n_better:
        text += f", {n_better} of a higher priority="
    if n_others:
        text += f"; it takes turns with {n_others} of other clients"
    return text


def _n_before(task: SchedulerTask) -> tuple[int, bool]:
    """Return how many tasks of its lane are served before a queued one, and if that is exact.

    It takes about 1 ms for a million tasks.
    """
    lanes = task.group.task_class.queue.rotation.lanes
    lane = lanes[level_of(task.priority), task.group.client]
    place = task.priority, task.ticket
    n = bisect_left(lane.run, place)
    is_small = len(lane.heap) <= _MAX_SEEN
    if is_small:
        n += sum(entry[:2] < place for entry in lane.heap)
    return n, is_small and len(lane.run) + len(lane.heap) == lane.n


def _why_not_now(state: SchedulerState, ws: WorkerHandle, task_class: TaskClass) -> str:
    """Return why a worker that may run a class gets nothing of it now."""
    if ws.closed:
        return why_not(state, ws)
    scarce = [
        (name, amount)
        for name, amount in task_class.resources
        if ws.free_resources.get(name, 0.0) < amount
    ]
    if scarce:
        return "; ".join(_taken(ws, name, amount) for name, amount in scarce)
    threads = counted(ws.nthreads, "thread")
    if ws.is_stuck(state.now):
        since = state.now - ws.last_progress
        tasks = counted(ws.n_busy, "task")
        return f"it has {threads} for {tasks}, and none has ended for {since:.3g} s"
    if not ws.has_room_for(task_class):
        return f"it has {threads}, and enough to do: {counted(ws.n_busy, 'task')}"
    return "it has room"


def _taken(ws: WorkerHandle, name: str, amount: float) -> str:
    """Return which tasks hold a resource that is too scarce."""
    holders = [
        task
        for task in islice(ws.processing.values(), _MAX_LOOKED_AT)
        if any(one == name for one, _ in task.group.task_class.resources)
    ]
    free = ws.free_resources.get(name, 0.0)
    amounts = max(free, 0.0), ws.resources.get(name, 0.0), amount
    left, total, needed = (amount_text(name, one) for one in amounts)
    text = f"{name}: {left} of {total} is free, it needs {needed}"
    if holders:
        waiting = [task for task in holders if task.attempt in ws.blocked]
        text += f"; {'held' if free >= 0.0 else 'held or waited for'} by {_named(holders)}"
        if waiting:
            text += f", of which {_named(waiting)} waits for something"
    elif ws.zombies:
        text += "; held by cancelled tasks that still run"
    return text


def _why_no_worker(state: SchedulerState, task: SchedulerTask) -> TaskReason:
    task_class = task.group.task_class
    if task in state.paused:
        left_s = max(state.paused[task].when - state.awake_s, 0.0)
        return TaskReason(
            "it has raised, taken too long, used too much memory, or asked for another worker, and "
            f"runs again within {left_s:.3g} s"
        )
    if held := why_held_by_queue(state, task) or why_held(state, task):
        return TaskReason(held)
    if task in memory_of(state).aside:
        members = [ws for ws in task_class.members if ws.closed]
        details = [f"worker {ws.name}: {why_not(state, ws)}" for ws in members[:MAX_WORKERS]]
        return TaskReason(
            f"it would add about {sized(task.group.prefix.result_nbytes)}, and the memory of each "
            f"worker that may run it is filled to {FULL_SHARE:.0%} or more; it runs when results "
            "are released, or fails when nothing makes room for it",
            details,
        )
    if task_class.members:
        text = "its inputs are at workers that cannot be reached from those that may run it"
        if task in state.out_of_reach:
            text += f", {state.out_of_reach[task][0]} attempts to fetch them failed"
        return TaskReason(f"{text}; it is tried again")
    if task_class.is_deferred:
        return TaskReason(explain_unrunnable(state, task_class), what_workers_hold(state, task))
    staying = [ws for ws in state.workers.values() if not ws.is_leaving]
    details = [
        f"worker {ws.name} {' and '.join(lacks(ws, task_class)) or 'has all that is needed'}"
        for ws in staying[:MAX_WORKERS]
    ]
    if len(staying) > MAX_WORKERS:
        details.append(f"and {len(staying) - MAX_WORKERS} more workers")
    return TaskReason(explain_unrunnable(state, task_class), details)


# -- at a worker -----------------------------------------------------------------------------------
def _why_processing(state: SchedulerState, task: SchedulerTask) -> TaskReason:
    """Return what is known of an assigned task: workers report ends, not starts."""
    ws = task.worker
    assert ws is not None
    if ws.is_away:
        return TaskReason(f"worker {ws.name} has it, whose connection is lost; it may come back")
    missing = [one for one in task.dependencies if one.state != MEMORY]
    if missing:
        text = f"it waits at worker {ws.name} for task {missing[0].key}, which is there, too"
        return TaskReason(text, following=missing[0])
    wait = ws.blocked.get(task.attempt)
    if wait is not None:
        where = f"it has begun on worker {ws.name}, and waits"
        return _why_blocked(state, wait, objects_of(state).waits.get(task.attempt), where)
    threads = counted(ws.nthreads, "thread")
    details = [f"worker {ws.name}: {why_not(state, ws)}"] if ws.is_paused or is_barred(ws) else []
    scarce = [one for one in task.group.task_class.resources if ws.free_resources[one[0]] < 0.0]
    if scarce:
        names = " and ".join(name for name, _ in scarce)
        details += [f"worker {ws.name}: {_taken(ws, name, amount)}" for name, amount in scarce]
        return TaskReason(f"worker {ws.name} runs it, or lets it wait for {names}", details)
    if ws.n_busy <= ws.nthreads:
        tasks = counted(ws.n_busy, "task")
        text = f"worker {ws.name} runs it, or fetches its inputs: it has {threads} for {tasks}"
        return TaskReason(text, details)
    others = counted(ws.n_busy - 1, "other task")
    text = f"worker {ws.name} has {threads} for it and {others}; it runs, or waits for a thread"
    return TaskReason(text, details)


def _where_it_is(task: SchedulerTask) -> str:
    names = ", ".join(ws.name for ws in task.replicas[:MAX_WORKERS])
    n_more = len(task.replicas) - MAX_WORKERS
    return f"its result is on {names}" + (f" and {n_more} others" if n_more > 0 else "")


def _why_in_memory(state: SchedulerState, task: SchedulerTask) -> TaskReason:
    node = cycles.actor_node(state, task)
    if node is None:
        return TaskReason(_where_it_is(task))
    where = f"it has made an actor on worker {node.ws.name}, a method of which waits"
    wait = waits_at(state, node.ws)[node.number].wait
    return _why_blocked(state, wait, cycles.call_of(state, node), where)


def _why_blocked(
    state: SchedulerState, wait: BlockedWait, call: Call | None, where: str
) -> TaskReason:
    """Return what a task waits for that has begun, or the thread of an actor."""
    tasks = [state.tasks[key] for key in wait.keys if key in state.tasks]
    left = [one for one in tasks if one.state not in (MEMORY, ERRED)]
    if left:
        return TaskReason(f"{where} for {_named(left)}", following=left[0])
    if wait.callees:
        actor = wait.callees[0]
        text = f"{where} for a call of actor {actor}"
        return TaskReason(text, following=state.tasks.get(actor))
    if wait.keys:
        text = f"{where} for {wait.keys[0]}, which is done: it goes on when it has a thread"
        return TaskReason(text)
    if call is not None:
        return _why_in_lane(state, call, where)
    text = "for tasks that it has submitted, or with a time limit, or it has given up its thread"
    return TaskReason(f"{where} {text}")


def _why_in_lane(state: SchedulerState, call: Call, where: str) -> TaskReason:
    """Return what a call on a lock, queue or the like waits for."""
    what = cycles.describe_object(call)
    limit = "" if call.timeout is None else f", for at most {call.timeout:g} s"
    age_s = max(state.awake_s - call.since, 0.0)
    lane = () if call.record is None else call.record.lanes.get(call.lane, ())
    n_before = next((i for i, other in enumerate(lane) if other is call), 0)
    details = [f"the wait has lasted {age_s:.3g} s, and {n_before} calls are before it"]
    record = call.record
    if isinstance(record, LeaseRecord) and record.per_s is not None:
        rate = f", {record.per_s:g} per second" if record.per_s else ""
        details.append(f"{len(record.holders)} use it; the limit is {record.limit} at once{rate}")
    blockers = blockers_of(call)
    if blockers is None:
        text = f"{where} in {call.operation} of {what}{limit}"
        return TaskReason(text, details)
    nodes = [cycles.node_of(state, *owner) for owner in blockers[0]]
    first = [cycles.describe_node(state, node) for node in nodes[:3]]
    held = listed(first, len(nodes)) or "nobody"
    following = next((node for node in nodes if isinstance(node, SchedulerTask)), None)
    return TaskReason(f"{where} for {what}{limit}, held by {held}", details, following)


# -- ended -----------------------------------------------------------------------------------------
def _why_erred(task: SchedulerTask) -> str:
    failure = task.failure or ["unknown", task.key]
    kind, key = failure[0], failure[1]
    of = "" if key == task.key else f"task {key}, which it needs, failed: "
    texts = [str(item) for item in failure[2:] if type(item) in (str, int)]
    if kind == "exception" and len(failure) > 4:
        texts = [f"{failure[3]}: {failure[4]}"]
    return f"{of}{kind}: {', '.join(texts)}"[:_MAX_TEXT_CHARS]


def _times(state: SchedulerState, task: SchedulerTask) -> Info:
    """Return where the time of a task went, in seconds; what is not known or 0 is left out."""
    submitted = task.group.submitted
    since = getattr(task, "since", submitted)
    assigned = getattr(task, "assigned", None)
    kind, attempt = task.state, task.attempt
    times = {"since it was submitted": state.now - submitted}
    if kind not in (WAITING, RELEASED):
        times["before it was ready: inputs, earlier attempts"] = since - submitted
        times["in the queue"] = state.now - since
    if kind in (PROCESSING, MEMORY, ERRED) and assigned is not None:
        times["in the queue"] = assigned - since
        if kind == PROCESSING:
            times["at the worker"] = state.now - assigned
    if kind == ERRED:
        attempt = state.failed_at[task][1] if task in state.failed_at else 0
    timing = timings_of(state).of(attempt) if kind in (MEMORY, ERRED) and attempt else None
    if timing is not None:
        times["at the worker before it began"] = timing.queued_us / 1e6
        times["of that, until its inputs were fetched"] = timing.fetched_us / 1e6
        times["run"] = timing.duration_us / 1e6
        times["since its end was reported"] = state.now - timing.reported
    return {name: seconds for name, seconds in times.items() if seconds > 0}
