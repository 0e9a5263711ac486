"""Every invariant that the comments of `tasks`, `peers`, `state`, `transitions` state, in order.

For tests and the simulator, between two calls of `handle`; O(everything). A failure is a bug of
ours, whatever peers sent: it raises `InvalidState` with the story of the task concerned.

Must never change anything, and looks only at what the comments promise, not at how it is kept up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from ...protocol.errors import InvalidState
from ...protocol.wire.handshake import Role
from ...protocol.wire.payload import blob_nbytes
from .peers import WorkerHandle
from .placement import may_run
from .prefixes import MIN_DURATION_NS
from .priority import level_of
from .refusals import MAX_REFUSED
from .tasks import (
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
from .transitions import ACTIVE

if TYPE_CHECKING:
    from .state import SchedulerState

#: Resource amounts are floats; what is free is exact to this much.
_TOLERANCE = 1e-6


def validate(state: SchedulerState) -> None:
    """Assert every invariant.

    Raises:
        InvalidState: one does not hold; names it, what was found, and tells the task's story.
    """
    _validate_functions(state)
    _validate_classes(state)
    for key, task in state.tasks.items():
        if task.key != key:
            fail(state, f"tasks[key].key == key, {key}", task)
        _validate_links(state, task)
        _validate_task(state, task)
    _validate_acyclic(state)
    _validate_workers(state)
    _validate_clients(state)
    _validate_containers(state)
    _validate_counters(state)


def check(
    state: SchedulerState,
    holds: bool,
    text: str,
    task: SchedulerTask | None = None,
    found: Any = "",
) -> None:
    """Raise `InvalidState` unless `holds`."""
    if not holds:
        fail(state, text, task, found)


def fail(
    state: SchedulerState, text: str, task: SchedulerTask | None = None, found: Any = ""
) -> NoReturn:
    """Say which invariant does not hold, of which task, and what was found instead."""
    story = () if task is None else state.story.of(task.key)
    subject = "" if task is None else f"{task!r}: "
    raise InvalidState(f"{subject}{text}" + (f"; found {found}" if found != "" else ""), story)


# -- tasks.py -------------------------------------------------------------------------------------
def _validate_functions(state: SchedulerState) -> None:
    for name, prefix in state.prefixes.items():
        check(state, prefix.name == name, "prefixes are filed by name")
        check(state, prefix.estimate_ns >= MIN_DURATION_NS, "a duration estimate has a minimum")
    n_functions = Counter(function.prefix for function in state.functions.values())
    for prefix, n in n_functions.items():
        check(state, state.prefixes[prefix.name] is prefix, "prefixes of functions are known")
        found = prefix.n_functions
        check(state, found == n, f"n_functions of prefix {prefix.name} is {n}", found=found)
    idle_prefixes = state.prefixes.idle
    for name, prefix in state.prefixes.items():
        is_idle = prefix not in n_functions and name not in state.prefixes.shown
        check(
            state, (prefix in idle_prefixes) == is_idle, f"prefix {name}: idle iff of no function"
        )
    n_tasks = Counter(task.group.function for task in state.tasks.values())
    for function_id, function in state.functions.items():
        check(state, function.function_id == function_id, "functions are filed by id")
        n = n_tasks.pop(function, 0)
        check(state, function.n_tasks == n, f"function.n_tasks is {n}", found=function.n_tasks)
        is_idle = function in state.idle_functions
        check(state, is_idle == (n == 0), f"{function.prefix.name} is idle iff no task uses it")
        for ws in function.workers:
            check(state, state.workers.get(ws.peer) is ws, f"function.workers: {ws} is registered")
    check(state, not n_tasks, "the functions of all tasks are known", found=list(n_tasks))
    idle = state.idle_functions
    known = all(state.functions.get(f.function_id) is f for f in idle)
    check(state, known, "idle functions are known")
    check(state, len(idle) <= state.max_idle_functions, "idle functions are few", found=len(idle))
    nbytes = sum(blob_nbytes(function.blob) for function in idle)
    found = state.idle_functions_nbytes
    check(state, found == nbytes, f"idle_functions_nbytes is {nbytes}", found=found)


def _validate_classes(state: SchedulerState) -> None:
    default = state.default_class
    check(state, state.classes.get(default.key) is default, "the default class stays")
    tasks: dict[TaskClass, list[SchedulerTask]] = {}
    for task in state.tasks.values():
        tasks.setdefault(task.group.task_class, []).append(task)
    for key, task_class in state.classes.items():
        check(state, task_class.key == key, "classes are filed by key")
        members = tasks.pop(task_class, [])
        n, found = len(members), task_class.n_tasks
        check(state, found == n, f"class {task_class.restrictions}: n_tasks is {n}", found=found)
        is_kept = n > 0 or task_class is default
        check(state, is_kept, f"class {task_class.restrictions} of no task is dropped")
        _validate_queue(state, task_class, members)
        _validate_members(state, task_class)
    check(state, not tasks, "the classes of all tasks are known", found=list(tasks))


def _validate_queue(
    state: SchedulerState, task_class: TaskClass, tasks: Sequence[SchedulerTask]
) -> None:
    items = task_class.queue.items()
    check(state, len(items) == len(task_class.queue), "len(queue) counts the live entries")
    _same(state, "queue == tasks in state queued", items, [t for t in tasks if t.state == QUEUED])
    task_class.queue.validate()
    lanes = task_class.queue.rotation.lanes
    lost = [t for t in items if (level_of(t.priority), t.group.client) not in lanes]
    check(state, not lost, "each client has its own lane at each user priority", found=lost)
    aside = [t for t in tasks if t.state == NO_WORKER]
    _same(state, "unrunnable == tasks in state no_worker", task_class.unrunnable, aside)
    if task_class.members:
        odd = [t for t in aside if t not in state.out_of_reach]
        check(state, not odd, "no task is set aside while a worker may run it", found=odd)
    else:
        check(state, not items, "no task is queued while nobody may run it", found=items)
    in_ready = task_class in state.ready
    check(state, in_ready == bool(items), "ready == classes with a queued task")
    if items and task_class.open:
        text = "no task is queued while a worker has room for it"
        fail(state, text, items[0], list(task_class.open))


def _validate_members(state: SchedulerState, task_class: TaskClass) -> None:
    workers = [ws for ws in state.workers.values() if not ws.is_leaving]
    members = [ws for ws in workers if may_run(ws, task_class)]
    if not members and task_class.allow_other_workers:
        members = [ws for ws in workers if may_run(ws, task_class, strictly=False)]
    _same(state, "members == workers that stay and may run the class", task_class.members, members)
    symmetric = all(task_class in ws.classes for ws in members)
    check(state, symmetric, "members are symmetric with the classes of workers")
    with_room = [ws for ws in members if ws.has_room_for(task_class)]
    lively = [ws for ws in with_room if ws in task_class.open or not ws.is_stuck(state.now)]
    _same(state, "open == members with room, except stuck ones", task_class.open, lively)


def _validate_links(state: SchedulerState, task: SchedulerTask) -> None:
    tasks = state.tasks
    dependencies = task.dependencies
    if dependencies and len(set(dependencies)) != len(dependencies):
        fail(state, "dependencies are unique", task, dependencies)
    for dependency in dependencies:
        if tasks.get(dependency.key) is not dependency:
            fail(state, "its dependencies are known", task, dependency)
        if dependency.dependents is None or task not in dependency.dependents:
            fail(state, "its dependencies name it as dependent", task, dependency)
    n_waiters = 0
    dependents = task.dependents
    if dependents is not None:
        if not dependents:
            fail(state, "dependents: None = empty", task)
        for dependent in dependents:
            if tasks.get(dependent.key) is not dependent:
                fail(state, "its dependents are known", task, dependent)
            if task not in dependent.dependencies:
                fail(state, "its dependents name it as dependency", task, dependent)
            n_waiters += dependent.state in ACTIVE
    if task.n_waiters != n_waiters:
        fail(state, f"n_waiters is {n_waiters}", task, task.n_waiters)
    wanted_by = task.wanted_by
    if len(wanted_by) > 1 and len(set(wanted_by)) != len(wanted_by):
        fail(state, "wanted_by is unique", task, wanted_by)
    for client in wanted_by:
        if task not in client.wants or state.clients.get(client.client_id) is not client:
            fail(state, "wanted_by is symmetric with wants of clients", task, client)


def _validate_task(state: SchedulerState, task: SchedulerTask) -> None:
    name = task.state
    is_active = name in ACTIVE
    needed = task.n_waiters > 0 or len(task.wanted_by) > 0
    if is_active:
        missing = [d for d in task.dependencies if d.state != MEMORY]
        if name == WAITING:
            if not missing:
                fail(state, "a waiting task waits for something", task)
            waiting_on = task.waiting_on or ()
            if len(waiting_on) != len(missing) or any(d not in waiting_on for d in missing):
                fail(state, f"waiting_on == inputs not in memory, {missing}", task, waiting_on)
        elif name != PROCESSING and missing:
            fail(state, "a task that could run has its inputs", task, missing)
        # Else it would run for nobody, or wait for what nobody makes.
        if not needed:
            fail(state, "an active task is needed", task)
        for dependency in missing:
            if dependency.state not in ACTIVE:
                fail(state, "what an active task misses is being made", task, dependency)
    if task.waiting_on is not None and name != WAITING:
        fail(state, "waiting_on is None unless waiting", task, task.waiting_on)
    if (task.ticket > 0) != (name == QUEUED):
        fail(state, "ticket > 0 iff queued", task, task.ticket)
    if (task.worker is not None) != (name == PROCESSING):
        fail(state, "worker iff processing", task, task.worker)
    if (len(task.replicas) > 0) != (name == MEMORY):
        fail(state, "replicas iff in memory", task, task.replicas)
    if (task.failure is not None) != (name == ERRED):
        fail(state, "failure iff erred", task, task.failure)
    if (task.attempt > 0) != (name in {PROCESSING, MEMORY}):
        fail(state, "attempt > 0 iff processing or in memory", task, task.attempt)
    if task.attempt >= state.next_attempt:
        fail(state, "its attempt was given out", task, task.attempt)
    if name == PROCESSING:
        _validate_processing(state, task)
    elif task.estimate_ns:
        fail(state, "estimate_ns is 0 unless processing", task, task.estimate_ns)
    if name == MEMORY:
        for ws in task.replicas:
            if state.workers.get(ws.peer) is not ws or task not in ws.has_what:
                fail(state, "replicas are symmetric with has_what of workers", task, ws)
        if len(task.replicas) > 1 and len(set(task.replicas)) != len(task.replicas):
            fail(state, "replicas are unique", task, task.replicas)
        if not needed:
            fail(state, "data is kept while it is needed", task)
    elif name == ERRED:
        if task.n_waiters or not task.wanted_by:
            fail(state, "a failure is wanted, and nobody waits for the task", task)
    elif name == RELEASED:
        if task.n_waiters or (task.wanted_by and not task.delivered):
            fail(state, "nobody needs a released task", task)
        if not (task.dependents or task.wanted_by):
            fail(state, "a released task is the lineage of something", task)
    elif not is_active:
        fail(state, "a known task has a state", task)


def _validate_processing(state: SchedulerState, task: SchedulerTask) -> None:
    ws = task.worker
    assert ws is not None
    if state.workers.get(ws.peer) is not ws or ws.processing.get(task.attempt) is not task:
        fail(state, "its worker is registered and lists it", task, ws)
    if task.estimate_ns < MIN_DURATION_NS:
        fail(state, "estimate_ns is its share of the occupancy", task, task.estimate_ns)
    if not may_run(
        ws, task.group.task_class, strictly=not task.group.task_class.allow_other_workers
    ):
        fail(state, "its worker may run it", task, ws)


def _validate_acyclic(state: SchedulerState) -> None:
    n_missing = {task: len(task.dependencies) for task in state.tasks.values()}
    stack = [task for task, n in n_missing.items() if not n]
    n_seen = 0
    while stack:
        n_seen += 1
        for dependent in stack.pop().dependents or ():
            n_missing[dependent] -= 1
            if not n_missing[dependent]:
                stack.append(dependent)
    check(state, n_seen == len(n_missing), "the graph has no cycle")


# -- peers.py -------------------------------------------------------------------------------------
def _validate_workers(state: SchedulerState) -> None:
    for peer, ws in state.workers.items():
        check(state, ws.peer == peer, "workers are filed by peer")
        check(state, state.roles.get(peer) is Role.WORKER, f"the connection of {ws} is open")
        for attempt, task in ws.processing.items():
            if task.worker is not ws or task.attempt != attempt:
                fail(state, f"processing of {ws} lists its tasks by attempt", task, attempt)
            _known(state, task, "processing")
        occupancy_ns = sum(task.estimate_ns for task in ws.processing.values())
        found: object = ws.occupancy_ns
        check(state, found == occupancy_ns, f"occupancy of {ws} is {occupancy_ns}", found=found)
        for task in ws.has_what:
            if ws not in task.replicas:
                fail(state, f"has_what of {ws} lists only its data", task)
            _known(state, task, "has_what")
        nbytes = sum(task.nbytes for task in ws.has_what)
        check(state, ws.nbytes == nbytes, f"nbytes of {ws} is {nbytes}", found=ws.nbytes)
        _validate_resources(state, ws)
        for task_class in ws.classes:
            listed = state.classes.get(task_class.key) is task_class and ws in task_class.members
            check(state, listed, f"classes of {ws} are symmetric with members")
        is_free = not (ws.is_leaving and ws.classes)
        check(state, is_free, f"{ws} runs nothing new when it leaves", found=list(ws.classes))
        check(state, ws.alone == (ws,), f"alone of {ws} is itself")


def _validate_resources(state: SchedulerState, ws: WorkerHandle) -> None:
    held: Counter[str] = Counter()
    for task in ws.processing.values():
        for name, amount in task.group.task_class.resources:
            held[name] += amount  # type: ignore[assignment]  # a Counter of floats
    for attempt, resources in ws.zombies.items():
        check(state, attempt not in ws.processing, f"attempt {attempt} of {ws} was dropped")
        for name, amount in resources:
            held[name] += amount  # type: ignore[assignment]
    check(state, set(held) <= set(ws.resources), f"{ws} has the resources that are held there")
    for name, total in ws.resources.items():
        free = ws.free_resources[name]
        check(state, free >= 0, f"free {name} of {ws} is never negative", found=free)
        gone = abs(total - held[name] - free)
        check(state, gone < _TOLERANCE, f"free + held {name} of {ws} is {total}", found=free)


def _validate_clients(state: SchedulerState) -> None:
    for client_id, client in state.clients.items():
        check(state, client.client_id == client_id, "clients are filed by id")
        is_here = client.peer is not None
        check(state, (client.lost_at is None) == is_here, f"{client} is lost iff not connected")
        if client.peer is not None:
            filed = state.clients_by_peer.get(client.peer) is client
            check(state, filed, f"{client} is filed by its connection")
        for task in client.wants:
            if client not in task.wanted_by:
                fail(state, f"wants of {client} is symmetric with wanted_by", task)
            _known(state, task, "wants")
        check(state, client.alone == (client,), f"alone of {client} is itself")


# -- state.py -------------------------------------------------------------------------------------
def _validate_containers(state: SchedulerState) -> None:
    by_id = {ws.worker_id: ws for ws in state.workers.values()}
    check(state, state.workers_by_id == by_id, "workers_by_id == workers")
    by_address = {ws.address: ws for ws in state.workers.values()}
    check(state, state.workers_by_address == by_address, "workers_by_address == workers")
    for peer, client in state.clients_by_peer.items():
        check(state, client.peer == peer, f"clients_by_peer: {client}")
        check(state, state.roles.get(peer) is Role.CLIENT, f"the connection of {client} is open")
        check(state, state.clients.get(client.client_id) is client, f"{client} is registered")
    for peer, supervisor in state.supervisors.items():
        check(state, supervisor.peer == peer, "supervisors are filed by peer")
        is_open = state.roles.get(peer) is Role.SUPERVISOR
        check(state, is_open, "the connection of a supervisor is open")
    registered = {*state.workers, *state.clients_by_peer, *state.supervisors}
    others = [peer for peer in state.roles if peer not in registered]
    expected = [peer for peer in others if state.roles[peer] is not Role.VIEWER]
    _same(state, "strangers == open, not registered", state.strangers, expected)
    times = list(state.strangers.values())
    check(state, times == sorted(times), "strangers are in order of time", found=times)
    n_refusals = len(state.refusals)
    check(state, n_refusals <= MAX_REFUSED, "refusals are bounded", found=n_refusals)
    whens = [refusal.when for refusal in state.refusals.values()]
    check(state, whens == sorted(whens), "refusals are in order of time", found=whens)
    workers = state.workers.values()
    idle = [ws for ws in workers if not ws.n_busy and not ws.is_leaving]
    _same(state, "idle == workers that stay and process nothing", state.idle, idle)
    loaded = [
        ws for ws in workers if ws.processing and ws.n_busy > ws.nthreads and not ws.is_leaving
    ]
    _same(state, "loaded == workers with more tasks than threads", state.loaded, loaded)
    check(state, not state.ahead, "ahead is empty between events", found=list(state.ahead))
    check(state, not state.touched, "touched is empty between events", found=list(state.touched))
    for task_class in state.ready:
        known = state.classes.get(task_class.key) is task_class
        check(state, known, "ready lists known classes", found=task_class.restrictions)
    for task in state.n_exceptions:
        _known(state, task, "n_exceptions")
        most = task.group.retries
        within = 0 < state.n_exceptions[task] <= most
        check(state, within, f"an exception is retried at most {most} times", task)
    for task in state.deaths:
        _known(state, task, "deaths")
        check(state, task.state != ERRED, "what has failed starts to count deaths anew", task)
    for task in state.out_of_reach:
        _known(state, task, "out_of_reach")
    for lost, ws in [(i, entry[1]) for i, entry in state.lost_workers.items()]:
        check(state, ws.worker_id == lost, "lost_workers are filed by id")
        check(state, state.workers.get(ws.peer) is not ws, f"{ws} is lost and registered")
    check(state, state.relays.keys() == state.relay_workers.keys(), "each relay has its worker")
    for request, relay in state.relays.items():
        check(state, request in relay.waiting_for, "a relay waits for each of its requests")
        ws = state.relay_workers[request]
        check(state, state.workers.get(ws.peer) is ws, f"the relay's worker {ws} is registered")


def _validate_counters(state: SchedulerState) -> None:
    failures = [task.failure for task in state.tasks.values() if task.failure is not None]
    n_kept = len({id(failure) for failure in failures})
    found = len(state.failures)
    check(state, found == n_kept, f"failures counts {n_kept} of erred tasks", found=found)
    counters = state.counters
    n: Counter[str] = Counter(task.state for task in state.tasks.values())
    for name, found in (
        (MEMORY, counters.n_memory),
        (ERRED, counters.n_erred),
        (RELEASED, counters.n_released),
    ):
        check(state, found == n[name], f"counters.n_{name} is {n[name]}", found=found)


# -- helpers --------------------------------------------------------------------------------------
def _known(state: SchedulerState, task: SchedulerTask, where: str) -> None:
    if state.tasks.get(task.key) is not task:
        fail(state, f"{where} lists known tasks", task)


def _same(
    state: SchedulerState,
    text: str,
    found: Iterable[Any],
    expected: Iterable[Any],
    task: SchedulerTask | None = None,
) -> None:
    """Check that two collections have the same members, each once."""
    found, expected = list(found), list(expected)
    if len(found) == len(expected) and set(found) == set(expected):
        return
    odd = [item for item in found if item not in expected]
    odd += [item for item in expected if item not in found]
    about = task or next((item for item in odd if isinstance(item, SchedulerTask)), None)
    check(state, False, text, about, f"{found[:10]} instead of {expected[:10]}")
