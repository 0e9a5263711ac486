"""A task's life: its moves, and the effects of leaving and entering each state.

    released -> waiting -> queued | no_worker -> processing -> memory | erred -> released
                                                                     released -> forgotten

`TRANSITIONS` is the whole table; a move that it lacks is a bug of weft and raises
`InvalidTransition` with the task's story. Each move touches one task and its links; the moves of
others that it makes possible are collected and done in a loop, never by recursion. The hot path
(create -> queued -> processing -> memory -> forgotten of tasks without dependents) is fused in
`submission`, `assignment` and `completion`; a property test proves each fused lane equal to the
moves of this table.

*Active* states (waiting, queued, no_worker, processing) read their dependencies: each counts in
`n_waiters` of each. So does a task in memory that keeps them for its own readers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from ....protocol.errors import InvalidTransition
from ....protocol.rotation import level_of
from ....protocol.wire import messages as m
from ....protocol.wire.failure import Failure, data_lost
from ....protocol.wire.message import MAX_ITEMS
from ....protocol.wire.payload import blob_nbytes
from ..records.failures import failure_nbytes
from ..records.peers import ClientHandle, WorkerHandle
from ..records.tasks import (
    ERRED,
    FORGOTTEN,
    MEMORY,
    NO_WORKER,
    PROCESSING,
    QUEUED,
    RELEASED,
    WAITING,
    Function,
    SchedulerTask,
    State,
    TaskClass,
)
from .unrunnable import file_unrunnable, unfile_unrunnable

if TYPE_CHECKING:
    from ..state import SchedulerState

#: (start, finish) -> why such a move happens
TRANSITIONS: Final[dict[tuple[State, State], str]] = {
    (RELEASED, WAITING): "needed, but some inputs are not in memory, or it is deferred",
    (RELEASED, QUEUED): "needed, and every input is in memory",
    (RELEASED, NO_WORKER): "needed, but no worker may run it",
    (RELEASED, ERRED): "an input failed; an input is unknown or needs this task; it was submitted "
    "without its inputs; its result is not made again, and has not come back",
    (RELEASED, MEMORY): "a worker that came back holds it",
    (RELEASED, FORGOTTEN): "no longer needed, not even as lineage",
    (WAITING, QUEUED): "the last input arrived",
    (WAITING, NO_WORKER): "the last input arrived, but no worker may run it",
    (WAITING, PROCESSING): "assigned ahead: workers run its missing inputs; or a worker that came "
    "back runs it",
    (WAITING, MEMORY): "a worker that came back holds it",
    (WAITING, ERRED): "an input failed; an input was cancelled; too many workers died under it; "
    "its inputs are at workers that cannot reach each other; it gave way in a full memory; "
    "a worker that came back has its failure; its result is not made again, and has not come back",
    (WAITING, RELEASED): "no longer needed",
    (QUEUED, PROCESSING): "assigned, or a worker that came back runs it",
    (QUEUED, MEMORY): "a worker that came back holds it",
    (QUEUED, WAITING): "an input was lost",
    (
        QUEUED,
        NO_WORKER,
    ): "the last worker that might run it left, or none can get its inputs, or has memory for it",
    (QUEUED, ERRED): "an input failed; too many workers died under it; it gave way in a full "
    "memory; a worker that came back has its failure; its result is not made again, and has not "
    "come back",
    (QUEUED, RELEASED): "no longer needed",
    (NO_WORKER, QUEUED): "a worker came that may run it, or has memory for it, or its inputs are "
    "tried again",
    (NO_WORKER, WAITING): "an input was lost",
    (NO_WORKER, PROCESSING): "a worker that came back runs it",
    (NO_WORKER, MEMORY): "a worker that came back holds it",
    (
        NO_WORKER,
        ERRED,
    ): "an input failed; too many workers died under it; its inputs are at workers "
    "that cannot reach each other; it gave way in a full memory; a worker that came back has its "
    "failure; no peer has come back with it; its only copy was lost, and no client has submitted "
    "it; its result is not made again, and has not come back",
    (NO_WORKER, RELEASED): "no longer needed",
    (PROCESSING, MEMORY): "finished",
    (PROCESSING, ERRED): "raised; took too long; an input failed; an input was cancelled; too many "
    "workers died under it; it gave way in a full memory",
    (PROCESSING, WAITING): "taken back, and an input is missing",
    (PROCESSING, QUEUED): "taken back: worker lost, returned unstarted, or to be retried",
    (PROCESSING, NO_WORKER): "taken back, and no worker may run it now",
    (PROCESSING, RELEASED): "no longer needed",
    (MEMORY, RELEASED): "the data is no longer needed, or its last copy was lost",
    (MEMORY, ERRED): "its result was unique, and its worker is lost; it gave way in a full memory; "
    "an input failed",
    (ERRED, RELEASED): "the failure is no longer wanted, or it is submitted again",
}

#: Functions that no task uses are kept up to this many bytes (and `IdleFunctions.max_n`).
MAX_IDLE_FUNCTIONS_NBYTES: Final = 16 << 20

#: One KeysErred reports so many failures at most, all but the first of at most so many bytes.
MAX_FAILURES: Final = 256
MAX_JOINED_NBYTES: Final = 64 << 10

ACTIVE: Final = frozenset((WAITING, QUEUED, NO_WORKER, PROCESSING))


# -- single moves ---------------------------------------------------------------------------------
def move(state: SchedulerState, task: SchedulerTask, finish: State) -> None:
    """Leave the present state, dropping its entries, and take the name of the next.

    The caller sets the fields of the next state right after.
    """
    start = task.state
    if (start, finish) not in TRANSITIONS:
        raise InvalidTransition(task.key, start, finish, state.story.of(task.key))
    if start == WAITING:
        task.waiting_on = None
    elif start == QUEUED:
        if task.ticket:
            task_class = task.group.task_class
            queue = task_class.queue
            queue.discard(task, task.group.client)
            level = queue.best_level() if queue else None
            if level != task_class.level:
                state.ready.remove(task_class)
                if level is not None:
                    note_ready(state, task_class, level)
    elif start == NO_WORKER:
        unfile_unrunnable(state, task)
    elif start == PROCESSING:
        _leave_processing(state, task)
    elif start == MEMORY:
        for ws in task.replicas:
            del ws.has_what[task]
            ws.nbytes -= task.nbytes
        task.replicas = ()
        task.attempt = 0
        task.delivered = False
        task.waiting_on = None
        state.counters.n_memory -= 1
    elif start == ERRED:
        assert task.failure is not None
        state.failures.remove(task.failure)
        task.failure = None
        kept = state.failed_at.pop(task, None)
        if kept is not None and state.workers.get(kept[0].peer) is kept[0]:
            drop_attempt(state, *kept)
        state.counters.n_erred -= 1
    elif start == RELEASED:
        state.counters.n_released -= 1
        if finish in ACTIVE:
            task.group.prefix.begin()
    if (moved := task.group.user.moved) is not None:
        moved.append(task)
    task.state = finish
    if finish == PROCESSING:
        task.group.prefix.n_processing += 1
        return
    if finish == RELEASED:
        state.counters.n_released += 1
    elif finish == MEMORY:
        state.counters.n_memory += 1
    elif finish == ERRED:
        state.counters.n_erred += 1
    else:
        return
    if start in ACTIVE:
        task.group.prefix.n_unfinished -= 1


def _leave_processing(state: SchedulerState, task: SchedulerTask) -> None:
    ws = task.worker
    assert ws is not None
    del ws.processing[task.attempt]
    ws.occupancy_ns -= task.estimate_ns
    if task.attempt not in ws.zombies:
        free_resources(ws, task.group.task_class.resources)
        if ws.blocked:
            ws.blocked.pop(task.attempt, None)
    task.worker = None
    task.attempt = 0
    task.estimate_ns = 0
    task.group.prefix.n_processing -= 1
    state.touched[ws] = None


def free_resources(ws: WorkerHandle, resources: tuple[tuple[str, float], ...], n: int = 1) -> None:
    """Give back the resources of their worker that n tasks held, each of them as much."""
    if resources:
        ws.hold(resources, -n)


def drop_at_workers(state: SchedulerState, task: SchedulerTask) -> None:
    """Make the workers drop this task's attempt (unstarted, running or data)."""
    if task.state == PROCESSING:
        abandon(state, task)
    elif task.state == MEMORY:
        for ws in task.replicas:
            drop_attempt(state, ws, task.attempt)


def abandon(state: SchedulerState, task: SchedulerTask) -> None:
    """Make the worker drop a processing attempt. Until it answers, its thread counts as busy."""
    ws = task.worker
    assert ws is not None
    ws.zombies[task.attempt] = task.group.task_class.resources
    for attempt_abandoned in state.features.attempt_abandoned:
        attempt_abandoned(state, ws, task)
    state.touched[ws] = None
    drop_attempt(state, ws, task.attempt)
    if state.abandoned is not None:
        state.abandoned.setdefault(ws, {})[task.attempt] = task.key


def assigned_behind(tasks: Iterable[SchedulerTask], ws: WorkerHandle) -> dict[SchedulerTask, None]:
    """Return the tasks assigned ahead to a worker because these tasks, or their data, are there.

    They may depend on them indirectly. Some of `tasks` are among them if they depend on others.
    """
    behind: dict[SchedulerTask, None] = {}
    stack = list(tasks)
    while stack:
        for dependent in stack.pop().dependents or ():
            if dependent.worker is ws and dependent not in behind:
                behind[dependent] = None
                stack.append(dependent)
    return behind


def note_attempt_ended(
    state: SchedulerState,
    ws: WorkerHandle,
    attempt: int,
    end: int = m.NOT_BEGUN,
    *,
    outcome: int | Failure | None = None,
) -> bool:
    """Note that an attempt has ended that is not current.

    It was abandoned, perhaps its report has crossed the DropAttempts. Return whether the worker is
    to keep the outcome: the size of a result, or a failure.
    """
    resources = ws.zombies.pop(attempt, None)
    if resources is not None:
        if state.busy:
            for dropped_ended in state.features.dropped_ended:
                dropped_ended(state, attempt, end)
        free_resources(ws, resources)
        ws.blocked.pop(attempt, None)
        ws.last_progress = state.now
        state.touched[ws] = None
    return any(ended(state, ws, attempt, outcome) for ended in state.features.stale_ended)


def drop_attempt(state: SchedulerState, ws: WorkerHandle, attempt: int) -> None:
    """Append one attempt to the worker's last DropAttempts, or open one.

    What the inventory of a worker has not named yet is left to its row. That may be on its way and
    would cross the drop: a task that is needed again by then would take what is being dropped.
    """
    if ws.inventory is not None and not ws.inventory.lists(attempt):
        return
    outbox = state.outboxes.get(ws.peer)
    last = outbox[-1] if outbox else None
    if type(last) is m.DropAttempts and len(last.attempts) < MAX_ITEMS:
        last.attempts.append(attempt)
    else:
        state.send(ws.peer, m.DropAttempts(attempts=[attempt]))


def send_erred(
    state: SchedulerState, client: ClientHandle, keys: list[str], failure: Failure
) -> None:
    """Append failed keys to the client's last KeysErred, or open one, unless it is away."""
    outbox = None if client.peer is None else state.outboxes.get(client.peer)
    last = outbox[-1] if outbox else None
    # A message of many large failures would be packed several times to find where to cut it.
    if (
        type(last) is m.KeysErred
        and len(last.failures) < MAX_FAILURES
        and len(last.keys) + len(keys) <= MAX_ITEMS
        and failure_nbytes(failure) <= MAX_JOINED_NBYTES
    ):
        if last.failures[-1] is not failure:
            last.failures.append(failure)
        last.keys += keys
        last.failure_of += [len(last.failures) - 1] * len(keys)
    else:
        state.send_client(
            client, m.KeysErred(keys=keys, failure_of=[0] * len(keys), failures=[failure])
        )


def enqueue(state: SchedulerState, task: SchedulerTask) -> None:
    """Queue a task whose inputs are in memory, or set it aside; a deferred one goes on waiting."""
    task_class = task.group.task_class
    if task.state != NO_WORKER:  # else it has been waiting for a worker since then
        task.since = state.now
    if task_class.members and not (
        task.group.is_limited and any(holds(state, task) for holds in state.features.holding)
    ):
        move(state, task, QUEUED)
        task_class.queue.push(task, task.group.client)
        note_ready(state, task_class, level_of(task.priority))
    elif task_class.is_deferred:
        if task.state != WAITING:
            move(state, task, WAITING)
        task.waiting_on = {}
        for deferred_ready in state.features.deferred_ready:
            deferred_ready(state, task)
    elif task.state != NO_WORKER:
        move(state, task, NO_WORKER)
        file_unrunnable(state, task)
        if task.is_without_recipe:
            for recipe_needed in state.features.recipe_needed:
                recipe_needed(state, task)


def note_ready(state: SchedulerState, task_class: TaskClass, level: int) -> None:
    """Let a class be visited, as it has queued a task of the given level."""
    if not task_class.turn or level < task_class.level:
        state.ready.put(task_class, level)
        if task_class.resources:
            state.takers.update(dict.fromkeys(task_class.members, state.ready.asking.n_turns))


# -- what follows from them -----------------------------------------------------------------------
def activate(state: SchedulerState, task: SchedulerTask) -> None:
    """Make a needed task, and every released task that it needs, wait or run."""
    stack = [task]
    while stack:
        task = stack.pop()
        if task.state != RELEASED:
            continue
        if not task.n_waiters and not task.wanted_by:
            # The task that needed it has failed since it came onto the stack.
            release_unneeded(state, [task])
            continue
        if (needed_again := task.group.needed_again) is not None:
            needed_again(state, task)
        failed = next((d for d in task.dependencies if d.state == ERRED), None)
        if failed is not None:
            assert failed.failure is not None
            err(state, task, failed.failure, inherited=True)
            continue
        if task.args is None and not task.is_without_recipe:
            err(state, task, data_lost(task.key, "it was submitted without what it depends on"))
            continue
        for dependency in task.dependencies:
            dependency.n_waiters += 1
        wait_or_enqueue(state, task, stack)


def wait_or_enqueue(state: SchedulerState, task: SchedulerTask, stack: list[SchedulerTask]) -> None:
    """Move an (already counted) task to waiting or to the queue; released inputs go on `stack`."""
    missing = {d: None for d in task.dependencies if d.state != MEMORY}
    if missing:
        move(state, task, WAITING)
        task.waiting_on = missing
        stack.extend(d for d in missing if d.state == RELEASED)
    else:
        enqueue(state, task)


def take_back(state: SchedulerState, tasks: list[SchedulerTask]) -> None:
    """Place processing tasks again that lose their worker or their turn. This sends no message."""
    released: list[SchedulerTask] = []
    for task in tasks:
        wait_or_enqueue(state, task, released)
    # They are active all the time: what they read is needed, so if it is lost it runs again.
    assert not released, f"{released[0]} is read by a task that was processing, and is released"


def take_back_from(
    state: SchedulerState, ws: WorkerHandle, tasks: dict[SchedulerTask, None]
) -> None:
    """Place again tasks that a worker does not have any more, and those assigned behind them.

    The worker still holds the latter, which wait for inputs that may be made elsewhere now.
    """
    behind = [task for task in assigned_behind(tasks, ws) if task not in tasks]
    for task in behind:
        abandon(state, task)
    take_back(state, [*tasks, *behind])


def err(
    state: SchedulerState,
    task: SchedulerTask,
    failure: Failure,
    *,
    reported: bool = False,
    inherited: bool = False,
) -> None:
    """Fail a task and all that read it; notify each client that wants some, once.

    Args:
        state: the scheduler's.
        task: fails by itself; it is counted by the kind of its failure.
        failure: why.
        reported: the task's worker sent it; the attempt is over there and needs no dropping.
        inherited: the task does not fail by itself, it depends on one that has failed before.
    """
    if not inherited:
        state.counters.count_failed(failure[0])
        task.group.prefix.n_failed += 1
        ws = task.worker
        for task_failed in state.features.task_failed:
            task_failed(state, task, failure, "" if ws is None else ws.name)
    keys_by_client: dict[ClientHandle, list[str]] = {}
    unneeded: list[SchedulerTask] = []
    over = task if reported else None
    stack = [task]
    keys = []
    while stack:
        task = stack.pop()
        if task.state == ERRED:
            continue
        was_active = task.state in ACTIVE or task.is_keeping
        if task is not over:
            drop_at_workers(state, task)
        move(state, task, ERRED)
        task.failure = failure
        state.failures.add(failure)
        keys.append(task.key)
        state.n_exceptions.pop(task, None)
        state.deaths.pop(task, None)
        state.out_of_reach.pop(task, None)
        for client in task.wanted_by:
            keys_by_client.setdefault(client, []).append(task.key)
        if was_active:
            stop_waiting(task, unneeded)
        stack.extend(d for d in task.dependents or () if d.state in ACTIVE or d.is_keeping)
        unneeded.append(task)
    state.story.note(state.now, "erred", keys)
    for client, erred in keys_by_client.items():
        send_erred(state, client, erred, failure)
    release_unneeded(state, unneeded)


def stop_waiting(task: SchedulerTask, unneeded: list[SchedulerTask]) -> None:
    """Stop counting a task that left the active states as a reader of its dependencies."""
    for dependency in task.dependencies:
        dependency.n_waiters -= 1
        if not dependency.n_waiters and not dependency.wanted_by:
            unneeded.append(dependency)


def release_unneeded(state: SchedulerState, stack: list[SchedulerTask]) -> None:
    """Drop the data and the work of tasks that may not be needed any more.

    Those that are not needed as lineage either are forgotten. Features may keep a result for
    clients that may come back.
    """
    keeping = state.features.keeps_unneeded if state.awaits_owners else ()
    while stack:
        task = stack.pop()
        if task.wanted_by or task.n_waiters or task.state == FORGOTTEN:
            continue
        if task.group.task_class.is_deferred and any(
            keeps(state, task) for keeps in state.features.keeps_deferred
        ):
            continue
        if task.state == MEMORY:  # the same as below, in one step
            if keeping and any(keeps(state, task) for keeps in keeping):
                continue
            for ws in task.replicas:
                del ws.has_what[task]
                ws.nbytes -= task.nbytes
                drop_attempt(state, ws, task.attempt)
            if task.waiting_on is not None:
                task.waiting_on = None
                stop_waiting(task, stack)
            task.state = RELEASED
            task.replicas = ()
            task.attempt = 0
            task.delivered = False
            state.counters.n_memory -= 1
            state.counters.n_released += 1
        elif task.state != RELEASED:
            was_active = task.state in ACTIVE
            drop_at_workers(state, task)
            move(state, task, RELEASED)
            if was_active:
                stop_waiting(task, stack)
        if not task.dependents:
            forget(state, task, stack)


def forget(state: SchedulerState, task: SchedulerTask, stack: list[SchedulerTask]) -> None:
    """Remove a released task from all tables; its dependencies may follow (they go on `stack`)."""
    if task.state != RELEASED:
        raise InvalidTransition(task.key, task.state, FORGOTTEN, state.story.of(task.key))
    task.state = FORGOTTEN
    state.counters.n_released -= 1
    del state.tasks[task.key]
    for notes in state.notes:
        if notes:
            notes.pop(task, None)
    for dependency in task.dependencies:
        dependents = dependency.dependents
        if isinstance(dependents, dict):
            del dependents[task]
        if not dependents or isinstance(dependents, tuple):
            dependency.dependents = None
            stack.append(dependency)
    task.dependencies = ()
    group = task.group
    user = group.user
    user.n_rows -= 1
    if (args := task.args) is not None:
        user.nbytes -= len(args)
        task.args = None
    function = group.function
    function.n_tasks -= 1
    if not function.n_tasks:
        retire_function(state, function)
    task_class = group.task_class
    task_class.n_tasks -= 1
    if not task_class.n_tasks:
        drop_class(state, task_class)


def drop_class(state: SchedulerState, task_class: TaskClass) -> None:
    """Forget a class that has no task (the default class stays)."""
    if task_class.n_tasks or task_class is state.default_class:
        return
    state.classes.pop(task_class.key, None)
    state.threadless.pop(task_class, None)
    for ws in task_class.members:
        ws.classes.pop(task_class, None)


def retire_function(state: SchedulerState, function: Function) -> None:
    """Keep a function without tasks for a while: the next task often uses it.

    Clients do not count on that (they send the blob again), workers keep what they have unpickled.
    """
    idle = state.idle_functions
    idle[function] = None
    idle.nbytes += blob_nbytes(function.blob)
    while len(idle) > idle.max_n or idle.nbytes > MAX_IDLE_FUNCTIONS_NBYTES:
        oldest = next(iter(idle))
        revive_function(state, oldest)
        drop_function(state, oldest)


def revive_function(state: SchedulerState, function: Function) -> None:
    """Take a function from the idle ones: it is used again, or dropped next."""
    del state.idle_functions[function]
    state.idle_functions.nbytes -= blob_nbytes(function.blob)


def drop_function(state: SchedulerState, function: Function) -> None:
    """Forget a function, here and at the workers."""
    del state.functions[function.function_id]
    state.prefixes.give_back(function.prefix)
    for ws in function.workers:
        del ws.functions[function]
        outbox = state.outboxes.get(ws.peer)
        last = outbox[-1] if outbox else None
        if type(last) is m.DropFunctions and len(last.functions) < MAX_ITEMS:
            last.functions.append(function.function_id)
        else:
            state.send(ws.peer, m.DropFunctions(functions=[function.function_id]))
    function.workers.clear()
