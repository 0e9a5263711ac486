"""The invariants that the comments of `tasks`, `peers`, `state` and `transitions` state, by name.

For tests and the simulator, between two calls of `handle`; O(everything). An invariant returns the
items that break it. A failure is a bug of weft, whatever peers sent. Nothing here changes the
state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, get_args

from ....protocol.errors import InvalidState
from ....protocol.reported import QUEUES_RESOURCES
from ....protocol.wire.roles import Role
from ..moves.eligibility import may_run
from ..moves.transitions import ACTIVE
from ..plugins.plugins import is_preparing
from ..records.peers import TAKES_NOTHING, ClientHandle, WorkerHandle
from ..records.prefixes import MIN_DURATION_NS
from ..records.tasks import (
    ERRED,
    FORGOTTEN,
    MEMORY,
    NO_WORKER,
    PROCESSING,
    QUEUED,
    RELEASED,
    WAITING,
    SchedulerTask,
    State,
)
from ..recovery.records import recovery_of
from .checking import differences, in_order, tasks_in, unless
from .classes import CLASS_INVARIANTS
from .functions import FUNCTION_INVARIANTS
from .users import USER_INVARIANTS

if TYPE_CHECKING:
    from ..state import SchedulerState

#: Resource amounts are floats; free amounts are exact to this much.
_TOLERANCE: Final = 1e-6
#: An error has the stories of at most this many tasks.
_MAX_STORIES: Final = 10


def validate(state: SchedulerState) -> None:
    """Check every invariant.

    Raises:
        InvalidState: some do not hold. The text names each, with the item that breaks it; the
            story is that of the tasks concerned.
    """
    broken = list(violations(state))
    if broken:
        tasks = dict.fromkeys(task for _, item in broken for task in _tasks_in(item))
        story = [line for task in [*tasks][:_MAX_STORIES] for line in state.story.of(task.key)]
        raise InvalidState("; ".join(f"{name}: found {item!r}" for name, item in broken), story)


def violations(state: SchedulerState) -> Iterator[tuple[str, object]]:
    """Yield the name of each invariant that does not hold, with each item that breaks it."""
    for name, broken_by in (*INVARIANTS.items(), *state.features.invariants.items()):
        for item in broken_by(state):
            yield name, item


def _tasks_in(item: object) -> list[SchedulerTask]:
    items = item if isinstance(item, tuple) else (item,)
    return [task for task in items if isinstance(task, SchedulerTask)]


def _unknown(state: SchedulerState, tasks: Iterable[SchedulerTask]) -> list[SchedulerTask]:
    return [task for task in tasks if state.tasks.get(task.key) is not task]


def _repeated(items: Sequence[object]) -> bool:
    return len(items) > 1 and len(set(items)) != len(items)


def _is_needed(task: SchedulerTask) -> bool:
    return task.n_waiters > 0 or len(task.wanted_by) > 0


def _is_registered(state: SchedulerState, ws: WorkerHandle | None) -> bool:
    return ws is not None and state.workers.get(ws.peer) is ws


def _missing(task: SchedulerTask) -> list[SchedulerTask]:
    return [dependency for dependency in task.dependencies if dependency.state != MEMORY]


def _dependents(state: SchedulerState) -> list[tuple[SchedulerTask, SchedulerTask]]:
    return [(task, d) for task in state.tasks.values() for d in task.dependents or ()]


def _dependencies(state: SchedulerState) -> list[tuple[SchedulerTask, SchedulerTask]]:
    return [(task, d) for task in state.tasks.values() for d in task.dependencies]


def _wanting(state: SchedulerState) -> list[tuple[SchedulerTask, ClientHandle]]:
    return [(task, client) for task in state.tasks.values() for client in task.wanted_by]


def _processing(state: SchedulerState) -> list[tuple[WorkerHandle, int, SchedulerTask]]:
    workers = state.workers.values()
    return [(ws, attempt, task) for ws in workers for attempt, task in ws.processing.items()]


def _copies(state: SchedulerState) -> list[tuple[WorkerHandle, SchedulerTask]]:
    return [(ws, task) for ws in state.workers.values() for task in ws.has_what]


def _in_cycles(state: SchedulerState) -> list[SchedulerTask]:
    n_left = {task: len(task.dependencies) for task in state.tasks.values()}
    stack = [task for task, n in n_left.items() if not n]
    while stack:
        task = stack.pop()
        del n_left[task]
        for dependent in task.dependents or ():
            if dependent in n_left:
                n_left[dependent] -= 1
                if not n_left[dependent]:
                    stack.append(dependent)
    return [*n_left]


def _unlike_waiting_on(task: SchedulerTask) -> bool:
    missing, waiting_on = _missing(task), task.waiting_on or ()
    return len(waiting_on) != len(missing) or any(d not in waiting_on for d in missing)


# -- resources ----------------------------------------------------------------------
def _asking(ws: WorkerHandle) -> list[tuple[tuple[str, float], ...]]:
    of_tasks = [task.group.task_class.resources for task in ws.processing.values()]
    return [*of_tasks, *ws.zombies.values()]


def _overdrawn(ws: WorkerHandle) -> list[str]:
    return [name for name, n in ws.free_resources.items() if n < 0]


def _held(ws: WorkerHandle) -> dict[str, float]:
    held: dict[str, float] = {}
    for resources in _asking(ws):
        for name, amount in resources:
            held[name] = held.get(name, 0.0) + amount
    return held


def _misheld(state: SchedulerState) -> list[object]:
    found: list[object] = []
    for ws in state.workers.values():
        held = _held(ws)
        for name, total in ws.resources.items():
            free = ws.free_resources.get(name, 0.0)
            if abs(total - held.get(name, 0.0) - free) >= _TOLERANCE:
                found.append((ws, name, free))
    return found


# -- containers -----------------------------------------------------------------------------------
def _strangers(state: SchedulerState) -> list[int]:
    registered = {*state.workers, *state.clients_by_peer, *state.supervisors}
    roles = state.roles.items()
    return [peer for peer, role in roles if role is not Role.VIEWER and peer not in registered]


def _loaded(state: SchedulerState) -> list[WorkerHandle]:
    takers = [ws for ws in state.workers.values() if not ws.closed & TAKES_NOTHING]
    return [ws for ws in takers if ws.processing and (ws.n_busy > ws.nthreads or ws.n_behind)]


def _miscounted_states(state: SchedulerState) -> list[tuple[str, int, int]]:
    counters = state.counters
    n: Counter[str] = Counter(task.state for task in state.tasks.values())
    counted = {
        MEMORY: counters.n_memory,
        ERRED: counters.n_erred,
        RELEASED: counters.n_released,
    }
    return [(name, found, n[name]) for name, found in counted.items() if found != n[name]]


def _n_failures(state: SchedulerState) -> int:
    failures = (task.failure for task in state.tasks.values())
    return len({id(failure) for failure in failures if failure is not None})


# -- the invariants -------------------------------------------------------------------------------
#: {what holds: what breaks it}
#: Those of the kernel; features have their own.
INVARIANTS: Final[dict[str, Callable[[SchedulerState], Iterable[object]]]] = {
    **FUNCTION_INVARIANTS,
    **CLASS_INVARIANTS,
    **USER_INVARIANTS,
    # Links between tasks, and between tasks and clients.
    "tasks are filed by key": lambda s: [t for key, t in s.tasks.items() if t.key != key],
    "dependencies are unique": lambda s: [t for t in tasks_in(s) if _repeated(t.dependencies)],
    "dependencies are known": lambda s: _unknown(s, (d for _, d in _dependencies(s))),
    "a dependency has the task among its dependents": lambda s: [
        (t, d) for t, d in _dependencies(s) if t not in (d.dependents or ())
    ],
    "dependents are None if empty": lambda s: [t for t in tasks_in(s) if t.dependents in ({}, ())],
    "dependents are known": lambda s: _unknown(s, (d for _, d in _dependents(s))),
    "a dependent has the task among its dependencies": lambda s: [
        (t, d) for t, d in _dependents(s) if t not in d.dependencies
    ],
    "the graph has no cycle": _in_cycles,
    "n_waiters counts the active dependents": lambda s: [
        (t, t.n_waiters)
        for t in tasks_in(s)
        if t.n_waiters != sum(d.state in ACTIVE or d.is_keeping for d in t.dependents or ())
    ],
    "wanted_by is unique": lambda s: [t for t in tasks_in(s) if _repeated(t.wanted_by)],
    "clients of wanted_by are known": lambda s: [
        (t, client)
        for t, client in _wanting(s)
        if client.receive is None and s.clients.get(client.client_id) is not client
    ],
    "a client of wanted_by has the task among its wants": lambda s: [
        (t, client) for t, client in _wanting(s) if t not in client.wants
    ],
    # States of tasks.
    "a known task has a state, and is not forgotten": lambda s: [
        t for t in tasks_in(s) if t.state not in get_args(State) or t.state == FORGOTTEN
    ],
    "a waiting task waits for a dependency": lambda s: [
        t for t in tasks_in(s, WAITING) if not (_missing(t) or t.group.task_class.is_deferred)
    ],
    "waiting_on holds the dependencies that are not in memory": lambda s: [
        (t, t.waiting_on) for t in tasks_in(s, WAITING) if _unlike_waiting_on(t)
    ],
    "waiting_on is None unless waiting": lambda s: [
        t
        for t in tasks_in(s)
        if t.waiting_on is not None
        and t.state != WAITING
        and (t.state, t.waiting_on) != (MEMORY, {})
    ],
    "a task that could run has its inputs": lambda s: [
        (t, *_missing(t)) for t in tasks_in(s, QUEUED, NO_WORKER) if _missing(t)
    ],
    # An unneeded one would run although no client or task reads its result.
    "an active task is needed": lambda s: [t for t in tasks_in(s, *ACTIVE) if not _is_needed(t)],
    "an input that an active task lacks is being made": lambda s: [
        (t, d) for t in tasks_in(s, *ACTIVE) for d in _missing(t) if d.state not in ACTIVE
    ],
    "a ticket iff queued": lambda s: [
        t for t in tasks_in(s) if (t.ticket != 0) != (t.state == QUEUED)
    ],
    "worker iff processing": lambda s: [
        t for t in tasks_in(s) if (t.worker is not None) != (t.state == PROCESSING)
    ],
    "replicas iff in memory": lambda s: [
        t for t in tasks_in(s) if (len(t.replicas) > 0) != (t.state == MEMORY)
    ],
    "failure iff erred": lambda s: [
        t for t in tasks_in(s) if (t.failure is not None) != (t.state == ERRED)
    ],
    "attempt > 0 iff processing or in memory": lambda s: [
        (t, t.attempt) for t in tasks_in(s) if (t.attempt > 0) != (t.state in {PROCESSING, MEMORY})
    ],
    "the attempt of a task was given out": lambda s: [
        (t, t.attempt) for t in tasks_in(s) if t.attempt >= s.next_attempt
    ],
    "the worker of a processing task is registered": lambda s: [
        (t, t.worker) for t in tasks_in(s, PROCESSING) if not _is_registered(s, t.worker)
    ],
    "the worker of a processing task lists it": lambda s: [
        (t, t.worker)
        for t in tasks_in(s, PROCESSING)
        if t.worker is not None and t.worker.processing.get(t.attempt) is not t
    ],
    "the worker of a processing task may run it": lambda s: [
        (t, t.worker)
        for t in tasks_in(s, PROCESSING)
        if t.worker is not None
        and not (t.is_without_recipe or t.group.task_class.is_deferred)
        and not may_run(t.worker, t.group.task_class, strictly=not t.group.task_class.is_loose)
    ],
    "the estimate of a processing task has a minimum": lambda s: [
        (t, t.estimate_ns)
        for ws, attempt, t in _processing(s)
        if (t.estimate_ns == 0) != (attempt in ws.blocked) or 0 < t.estimate_ns < MIN_DURATION_NS
    ],
    "estimate_ns is 0 unless processing": lambda s: [
        (t, t.estimate_ns) for t in tasks_in(s) if t.estimate_ns and t.state != PROCESSING
    ],
    "replicas are at registered workers": lambda s: [
        (t, ws) for t in tasks_in(s, MEMORY) for ws in t.replicas if not _is_registered(s, ws)
    ],
    "a worker of replicas has the task in has_what": lambda s: [
        (t, ws) for t in tasks_in(s, MEMORY) for ws in t.replicas if t not in ws.has_what
    ],
    "replicas are unique": lambda s: [t for t in tasks_in(s, MEMORY) if _repeated(t.replicas)],
    "data is kept only while it is needed": lambda s: [
        t for t in tasks_in(s, MEMORY) if not (_is_needed(t) or t in recovery_of(s).kept)
    ],
    "a failure is kept only while it is wanted": lambda s: [
        t for t in tasks_in(s, ERRED) if not t.wanted_by
    ],
    "no task waits for a failed one": lambda s: [t for t in tasks_in(s, ERRED) if t.n_waiters],
    "no task and no client needs a released task": lambda s: [
        t for t in tasks_in(s, RELEASED) if t.n_waiters or (t.wanted_by and not t.delivered)
    ],
    "a released task is known as lineage, or as wanted": lambda s: [
        t for t in tasks_in(s, RELEASED) if not (t.dependents or t.wanted_by)
    ],
    # Workers.
    "workers are filed by peer": lambda s: [ws for p, ws in s.workers.items() if ws.peer != p],
    "the connection of a worker is open": lambda s: [
        ws
        for peer, ws in s.workers.items()
        if s.roles.get(peer) is not Role.WORKER and not ws.is_away
    ],
    "an away worker is waited for, or prepares, and no other": lambda s: [
        ws
        for ws in s.workers.values()
        if (ws.away_due is not None and ws.away_due.is_pending)
        != (ws.is_away and not is_preparing(s, ws))
    ],
    "only a worker that is away sends an inventory, or is waited for": lambda s: [
        ws
        for ws in s.workers.values()
        if not ws.is_away and (ws.inventory is not None or ws.awaited)
    ],
    "failed_at lists failed tasks": lambda s: [t for t in s.failed_at if t.state != ERRED],
    "processing files the tasks of a worker by attempt": lambda s: [
        item
        for item in _processing(s)
        if item[2].worker is not item[0] or item[2].attempt != item[1]
    ],
    "processing lists known tasks": lambda s: _unknown(s, (t for _, _, t in _processing(s))),
    "occupancy_ns is the sum over processing": lambda s: [
        (ws, ws.occupancy_ns)
        for ws in s.workers.values()
        if ws.occupancy_ns != sum(task.estimate_ns for task in ws.processing.values())
    ],
    "blocked lists attempts of its worker": lambda s: [
        (ws, attempt)
        for ws in s.workers.values()
        for attempt in ws.blocked
        if attempt not in ws.processing and attempt not in ws.zombies
    ],
    "has_what lists only data of its worker": lambda s: [
        (t, ws) for ws, t in _copies(s) if ws not in t.replicas
    ],
    "has_what lists known tasks": lambda s: _unknown(s, (t for _, t in _copies(s))),
    "nbytes of a worker is the sum over has_what": lambda s: [
        (ws, ws.nbytes)
        for ws in s.workers.values()
        if ws.nbytes != sum(task.nbytes for task in ws.has_what)
    ],
    "a dropped attempt is not processed": lambda s: [
        (ws, a) for ws in s.workers.values() for a in ws.zombies if a in ws.processing
    ],
    "a worker has the resources that are held there": lambda s: [
        (ws, name) for ws in s.workers.values() for name in _held(ws) if name not in ws.resources
    ],
    "free resources are negative only where tasks may wait for them": lambda s: [
        (ws, name)
        for ws in s.workers.values()
        for name, n in ws.free_resources.items()
        if n < 0
        and not ws.facts.get(QUEUES_RESOURCES)
        and not (recovery_of(s).n_ended or s.lost.given_up)
    ],
    "n_asking counts the tasks of a worker by resource": lambda s: [
        (ws, name)
        for ws in s.workers.values()
        for name, n in ws.n_asking.items()
        if n != sum(name == one for amounts in _asking(ws) for one, _ in amounts)
    ],
    "no more tasks wait for resources than ask for them": lambda s: [
        (ws, ws.n_behind)
        for ws in s.workers.values()
        if not 0 <= ws.n_behind <= max([0, *(ws.n_asking[name] - 1 for name in _overdrawn(ws))])
    ],
    "a task waits for resources where more are asked for than there are": lambda s: [
        ws for ws in s.workers.values() if _overdrawn(ws) and not ws.n_behind
    ],
    "free and held resources of a worker are all that it has": _misheld,
    "a class of a worker has it among its members": lambda s: [
        (ws, c.restrictions)
        for ws in s.workers.values()
        for c in ws.classes
        if s.classes.get(c.key) is not c or ws not in c.members
    ],
    "a worker that leaves is in no class": lambda s: [
        ws for ws in s.workers.values() if ws.is_leaving and ws.classes
    ],
    "alone of a worker is itself": lambda s: [ws for ws in s.workers.values() if ws.alone != (ws,)],
    "workers_by_id files the workers": lambda s: differences(
        s.workers_by_id.items(), [(ws.worker_id, ws) for ws in s.workers.values()]
    ),
    "workers_by_address files the workers": lambda s: differences(
        s.workers_by_address.items(), [(ws.address, ws) for ws in s.workers.values()]
    ),
    "idle are the workers that take tasks and process nothing": lambda s: differences(
        s.idle, [ws for ws in s.workers.values() if not (ws.n_busy or ws.closed)]
    ),
    "loaded are the workers with tasks that wait for threads or resources": lambda s: differences(
        s.loaded, _loaded(s)
    ),
    "lost workers are filed by id": lambda s: [
        lost for lost, entry in s.lost.unreported.items() if entry.worker.worker_id != lost
    ],
    "a lost worker is not registered": lambda s: [
        entry.worker for entry in s.lost.unreported.values() if _is_registered(s, entry.worker)
    ],
    "exit reports are of registered workers": lambda s: [
        worker_id for worker_id in s.lost.exit_reports if worker_id not in s.workers_by_id
    ],
    "unreachable lists registered workers": lambda s: [
        (ws, other)
        for ws in s.workers.values()
        for other in ws.unreachable
        if not _is_registered(s, other)
    ],
    "unreachable_from is the inverse of unreachable": lambda s: differences(
        [(other, ws) for ws in s.workers.values() for other in ws.unreachable_from],
        [(ws, other) for ws in s.workers.values() for other in ws.unreachable],
    ),
    "failed fetches count at least one, and the first is not after the last": lambda s: [
        failed
        for ws in s.workers.values()
        for failed in ws.unreachable.values()
        if failed.n < 1 or failed.first > failed.last
    ],
    "functions of a worker are those that have it among their workers": lambda s: differences(
        [(f, ws) for ws in s.workers.values() for f in ws.functions],
        [(f, ws) for f in s.functions.values() for ws in f.workers],
    ),
    "staying are the workers that do not leave, by name": lambda s: differences(
        s.staying.items(), [(ws.name, ws) for ws in s.workers.values() if not ws.is_leaving]
    ),
    # Clients and other peers.
    "clients are filed by id": lambda s: [c for id, c in s.clients.items() if c.client_id != id],
    "the lease of a client ends iff it is not connected": lambda s: [
        c
        for c in s.clients.values()
        if (c.lease is not None and c.lease.is_pending) == (c.peer is not None)
    ],
    "a connected client is filed by its connection": lambda s: [
        c
        for c in s.clients.values()
        if c.peer is not None and s.clients_by_peer.get(c.peer) is not c
    ],
    "clients_by_peer files known clients by peer": lambda s: [
        c
        for peer, c in s.clients_by_peer.items()
        if c.peer != peer or s.clients.get(c.client_id) is not c
    ],
    "the connection of a client is open": lambda s: [
        c
        for peer, c in s.clients_by_peer.items()
        if s.roles.get(peer) not in (Role.CLIENT, Role.TASK_CLIENT)
    ],
    "wants of a client is symmetric with wanted_by": lambda s: [
        (t, c) for c in s.clients.values() for t in c.wants if c not in t.wanted_by
    ],
    "wants lists known tasks": lambda s: _unknown(
        s, (t for c in s.clients.values() for t in c.wants)
    ),
    "alone of a client is itself": lambda s: [c for c in s.clients.values() if c.alone != (c,)],
    "supervisors are filed by peer": lambda s: [
        peer for peer, supervisor in s.supervisors.items() if supervisor.peer != peer
    ],
    "supervisors are filed by id as well": lambda s: differences(
        [(id, u) for id, same in s.supervisors_by_id.items() for u in same.values() or (None,)],
        [(u.supervisor_id, u) for u in s.supervisors.values()],
    ),
    "the connection of a supervisor is open": lambda s: [
        peer for peer in s.supervisors if s.roles.get(peer) is not Role.SUPERVISOR
    ],
    "the level of each open connection is known": lambda s: differences(s.levels, s.roles),
    "strangers are open and not registered": lambda s: differences(s.strangers, _strangers(s)),
    "strangers, workers and supervisors are seen": lambda s: differences(
        s.seen, [*s.strangers, *(p for p in s.workers if p in s.roles), *s.supervisors]
    ),
    "seen is in order of time": lambda s: in_order(s.seen.values()),
    "silence is looked for while a peer may be silent": lambda s: unless(
        (s.seen.check is not None and s.seen.check.is_pending) or not s.seen, s.seen
    ),
    "clients are to be notified while tasks are unrunnable for a short time": lambda s: [
        c.restrictions
        for c in s.classes.values()
        if c.unrunnable_notice is not None and c.unrunnable_notice.is_pending and not c.unrunnable
    ],
    "n_pending counts the pending deadlines": lambda s: unless(
        s.deadlines.n_pending == s.deadlines.count(), s.deadlines.n_pending
    ),
    # Relays, counts, and containers that are empty between events.
    "ahead is empty between events": lambda s: s.ahead,
    "touched is empty between events": lambda s: s.touched,
    "n_exceptions lists known tasks": lambda s: _unknown(s, s.n_exceptions),
    "a task is retried at most so often as it may": lambda s: [
        (t, n) for t, n in s.n_exceptions.items() if not 0 < n <= t.group.options.retries
    ],
    "deaths lists known tasks": lambda s: _unknown(s, s.deaths),
    "a task that failed starts to count deaths anew": lambda s: [
        t for t in s.deaths if t.state == ERRED
    ],
    "what pauses could run now": lambda s: [t for t in s.paused if t.state != NO_WORKER],
    "a pause ends": lambda s: [t for t, end in s.paused.items() if not end.is_pending],
    "out_of_reach lists known tasks": lambda s: _unknown(s, s.out_of_reach),
    "failures counts those of erred tasks": lambda s: unless(
        len(s.failures) == _n_failures(s), len(s.failures)
    ),
    "counters count the tasks in memory, erred and released": _miscounted_states,
}
