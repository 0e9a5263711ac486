"""Merges one row of an inventory with the task of its key; attempts that run twice.

The state that is further wins: waiting < processing < memory or erred. `rows` calls this for
rows that come, and for rows that have waited for their task.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ....protocol.wire import messages as m
from ....protocol.wire.failure import RESCHEDULE, after_attempts
from ....protocol.wire.payload import Blob
from ..assignment.placement import ahead_worker
from ..ends.attempt_ends import note_raised, note_raised_before
from ..moves.eligibility import may_run
from ..moves.locating import located
from ..moves.reporting import report_results
from ..moves.transitions import (
    ACTIVE,
    abandon,
    assigned_behind,
    drop_attempt,
    enqueue,
    err,
    free_resources,
    move,
    release_unneeded,
    stop_waiting,
    take_back,
    take_back_from,
)
from ..records.peers import WorkerHandle
from ..records.tasks import (
    ERRED,
    MEMORY,
    NO_WORKER,
    PROCESSING,
    QUEUED,
    RELEASED,
    WAITING,
    SchedulerTask,
)
from .records import RUNNING, InventoryRow, Recovery, look_again, recovery_of

if TYPE_CHECKING:
    from ..state import SchedulerState

#: States of a task that an attempt under way may be adopted for.
_ADOPTING: Final = frozenset((WAITING, QUEUED, NO_WORKER))


# -- one row and its task -------------------------------------------------------------------------
def is_other(task: SchedulerTask, row: InventoryRow) -> bool:
    """Return whether a row is of a task of the same name with other content.

    Workers of an earlier version do not know the hashes of copies that they fetched: the attempt
    must be the same then.
    """
    known = task.spec_hash
    if not known or known in (m.NO_HASH, row.spec_hash):
        return False
    return row.spec_hash != m.NO_HASH or task.state != MEMORY or task.attempt != row.attempt


def merge_kept(
    state: SchedulerState,
    task: SchedulerTask,
    row: InventoryRow,
    news: list[tuple[WorkerHandle, SchedulerTask]],
) -> bool:
    """Note that a worker holds the result of a task; False if it is not wanted.

    A task that is in memory now is appended to `news`, with the worker.
    """
    ws = row.ws
    if task.state == MEMORY and task.attempt == row.attempt:
        if ws in task.replicas:
            return True
        if task.group.function.is_unique and row.attempt >= state.first_attempt:
            return False  # its maker has reported to this scheduler, so this is a copy
        task.replicas = (*task.replicas, ws)
        _note_kept(state, task, ws)
        return True
    if task.state in (MEMORY, ERRED) or is_other(task, row):
        return False
    if task.group.options.keeps_inputs:
        return False  # it is made again at once, for what is where now
    if task.state == RELEASED and not (task.wanted_by or task.group.function.is_unique):
        return False  # what is unique may be kept for others: `report` looks at that
    _finish(state, task, row)
    news.append((ws, task))
    return True


def _note_kept(state: SchedulerState, task: SchedulerTask, ws: WorkerHandle) -> None:
    """Note that a worker has the result of a task: it may be full now, or leave with it."""
    ws.has_what[task] = None
    ws.nbytes += task.nbytes
    state.touched[ws] = None


def _finish(state: SchedulerState, task: SchedulerTask, row: InventoryRow) -> None:
    """Move a task to memory, because a worker turns out to hold its result."""
    ws = row.ws
    behind: list[SchedulerTask] = []
    if task.state == PROCESSING and (task.worker is not ws or task.attempt != row.attempt):
        assert task.worker is not None
        # They would wait there for this attempt, which is dropped.
        behind += assigned_behind([task], task.worker)
        for other in behind:
            abandon(state, other)
        abandon(state, task)
    was_active = task.state in ACTIVE
    delivered = task.delivered
    move(state, task, MEMORY)
    task.delivered = delivered
    task.attempt = row.attempt
    task.replicas = ws.alone
    task.nbytes = row.nbytes
    _note_kept(state, task, ws)
    state.out_of_reach.pop(task, None)
    for dependent in task.dependents or ():
        if dependent.state == WAITING:
            missing = dependent.waiting_on
            assert missing is not None
            missing.pop(task, None)
            if not missing:
                enqueue(state, dependent)
            else:
                state.ahead[dependent] = None
    take_back(state, behind)
    unneeded: list[SchedulerTask] = []
    if was_active:
        stop_waiting(task, unneeded)
    release_unneeded(state, unneeded)


def report(state: SchedulerState, news: list[tuple[WorkerHandle, SchedulerTask]]) -> None:
    """Notify clients of results that workers turned out to hold; drop those of no use."""
    if state.threadless:
        for values_stored in state.features.values_stored:
            values_stored(state, [task for _, task in news])
    by_worker: dict[WorkerHandle, list[tuple[SchedulerTask, Blob | None]]] = {}
    for ws, task in news:
        if task.state == MEMORY and not task.delivered:
            by_worker.setdefault(ws, []).append((task, None))
    for ws, rows in by_worker.items():
        report_results(state, ws, rows)
    release_unneeded(state, [task for _, task in reversed(news)])
    added: dict[WorkerHandle, list[str]] = {}
    for ws, task in news:
        added.setdefault(ws, []).append(task.key)
    for ws, keys in added.items():  # what was waited for or wished for before it was lost
        for replicas_added in state.features.replicas_added:
            replicas_added(state, ws, keys)


def adopt(state: SchedulerState, task: SchedulerTask, row: InventoryRow) -> bool:
    """Let an attempt go on that a worker runs, or was assigned; False if it is not wanted.

    It is among the zombies of the worker: it occupies that, and the scheduler waits for its end.
    """
    if is_other(task, row):
        return False
    ws, attempt = row.ws, row.attempt
    if row.n_raised and attempt < state.first_attempt and task.state in ACTIVE:
        _note_exceptions(state, task, row.n_raised)
    if task.state == PROCESSING:
        if row.kind != RUNNING or task.worker is ws or task.group.task_class.is_deferred:
            return False  # what begins together with others runs once
        # It runs twice: the first result counts, and the other attempt is dropped then.
        recovery_of(state).twins[attempt] = (ws, task)
        state.busy[Recovery] = None
        return True
    if task.state not in _ADOPTING or not may_go_on(state, task, row):
        return False
    move(state, task, PROCESSING)
    free_resources(ws, ws.zombies.pop(attempt))  # a twin has some
    task.worker, task.attempt, task.assigned = ws, attempt, state.now
    for adopted in state.features.adopted:
        adopted(state, task)
    task.estimate_ns = 0 if attempt in ws.blocked else task.group.prefix.estimate_ns
    ws.occupancy_ns += task.estimate_ns
    ws.processing[attempt] = task
    ws.hold(task.group.task_class.resources)
    state.touched[ws] = None
    state.story.note(state.now, f"goes on at {ws.name}", [task.key])
    if row.kind != RUNNING:
        follow_unstarted(state, ws, task)
        task_class = task.group.task_class
        is_bound = task.is_without_recipe or task_class.is_deferred or ws in task_class.members
        if not is_bound:  # it is to run elsewhere, unless it has begun since the row was sent
            state.send(ws.peer, m.WithdrawAttempts(attempts=[attempt]))
    return True


def follow_unstarted(state: SchedulerState, ws: WorkerHandle, task: SchedulerTask) -> None:
    """Name the holders of inputs: the worker may have asked when they were not back.

    What else the attempt waits for there is answered when the worker asks (`lacking`).
    """
    recovery_of(state).note_unstarted(ws, task.attempt)
    look_again(state, ws)
    there = [d for d in task.dependencies if d.state == MEMORY and ws not in d.replicas]
    if there:
        state.send(ws.peer, located(ws, there, [d.replicas for d in there]))
        for dependency in there:
            recovery_of(state).lacking.get(ws, {}).pop(dependency.key, None)


def may_go_on(state: SchedulerState, task: SchedulerTask, row: InventoryRow) -> bool:
    """Return whether the worker of an unfinished attempt may run the task."""
    ws, task_class = row.ws, task.group.task_class
    # A worker that leaves is in no class, and finishes what it runs. It starts nothing.
    if ws.is_leaving and row.kind != RUNNING:
        return False
    # A restriction that binds only while others may run it ends no attempt that may have begun.
    is_fit = may_run(ws, task_class, strictly=False)
    # Its conditions were met when it was assigned; of those that begin together, perhaps not all.
    is_open = task_class.is_deferred and not task.group.options.gang
    is_fit = is_fit or is_open or (task_class.is_deferred and row.kind == RUNNING)
    if not is_fit and not task.is_without_recipe:
        return False
    if row.kind == RUNNING or task.state != WAITING:
        return True
    if ahead_worker(task) is ws or (is_open and not task.waiting_on):
        return True
    is_elsewhere = not (task_class.is_deferred or ws in task_class.members)
    return is_elsewhere and all(d.worker is ws for d in task.waiting_on or ())


def _note_exceptions(state: SchedulerState, task: SchedulerTask, n_raised: int) -> None:
    """Count the exceptions that an earlier scheduler has counted."""
    n_before = state.n_exceptions.get(task, 0)
    note_raised_before(state, task, n_raised - n_before)
    n_now = min(max(n_before, n_raised), task.group.options.retries)
    if n_now:
        state.n_exceptions[task] = n_now


def merge_failed(state: SchedulerState, task: SchedulerTask, row: InventoryRow) -> bool:
    """Count a failure that a worker has kept; False if the worker need not keep it any more.

    One of an earlier scheduler counts by its place, so that a row which comes twice counts once.
    """
    ws, attempt, failure = row.ws, row.attempt, row.failure
    assert failure is not None
    if state.failed_at.get(task) == (ws, attempt):
        return True
    is_current = task.worker is ws and task.attempt == attempt
    is_earlier = attempt < state.first_attempt
    if not is_current:
        given_up = state.lost.given_up.get(ws.worker_id, {}).pop(attempt, None) is task
        is_open = task.state in _ADOPTING and (given_up or is_earlier)
        if not is_open or is_other(task, row):
            return False
    if failure[0] == RESCHEDULE:
        note_raised(state, task, ws.name, failure)
        if is_current:
            take_back_from(state, ws, {task: None})
        return False
    n_before = state.n_exceptions.get(task, 0)
    n_now = max(n_before, row.n_raised + 1) if is_earlier else n_before + 1
    if n_now > n_before:
        if is_earlier:
            note_raised_before(state, task, n_now - n_before - 1)
        note_raised(state, task, ws.name, failure)
    if n_now <= task.group.options.retries:
        state.n_exceptions[task] = n_now
        state.counters.tasks_retried += n_now > n_before
        if is_current:
            take_back_from(state, ws, {task: None})
        return False
    if n_now > 1 and failure[0] == "exception":
        failure = after_attempts(failure, n_now)
    err(state, task, state.failures.fit(failure), reported=is_current)
    if task.state != ERRED:
        return False
    state.failed_at[task] = (ws, attempt)
    return True


def go_on(state: SchedulerState, ws: WorkerHandle, task: SchedulerTask, attempt: int) -> None:
    """Let an attempt that runs at a worker be the current one of its task, or drop it."""
    row = InventoryRow(ws, task.key, attempt, RUNNING, task.spec_hash or m.NO_HASH)
    if not adopt(state, task, row):
        drop_attempt(state, ws, attempt)


# -- attempts that run twice ----------------------------------------------------------------------
def run_beside(state: SchedulerState, ws: WorkerHandle, task: SchedulerTask) -> None:
    """Let the current attempt go on at its worker beside the next one, which the caller begins.

    The first result counts, and the other attempt is dropped then.
    """
    ws.zombies[task.attempt] = task.group.task_class.resources
    recovery_of(state).twins[task.attempt] = (ws, task)
    state.busy[Recovery] = None


def on_erred(state: SchedulerState, ws: WorkerHandle, message: m.AttemptsErred) -> None:
    """Let the other attempt of a task go on where the current one has raised: it takes no retry."""
    twins = recovery_of(state).twins
    for attempt, failure in zip(message.attempts, message.failures, strict=True) if twins else ():
        task = ws.processing.get(attempt)
        other = next((a for a, (_, of) in twins.items() if of is task), None) if task else None
        if task is None or other is None:
            continue
        note_raised(state, task, ws.name, failure)
        ws.zombies[attempt] = task.group.task_class.resources  # until the report is looked at
        take_back_from(state, ws, {task: None})
        _go_on_alone(state, twins.pop(other)[0], task, other)


def end_twin(state: SchedulerState, ws: WorkerHandle, attempt: int) -> bool:
    """Drop an attempt that takes too long, if it is a twin: the other one has a time of its own."""
    twin = recovery_of(state).twins.get(attempt)
    if twin is None or twin[0] is not ws:
        return False
    del recovery_of(state).twins[attempt]
    drop_attempt(state, ws, attempt)
    return True


def settle_twins(state: SchedulerState) -> None:
    """End the attempts that run beside the current ones, where these have ended or are gone."""
    for attempt, (ws, task) in list(recovery_of(state).twins.items()):
        if state.workers.get(ws.peer) is not ws or attempt not in ws.zombies:
            del recovery_of(state).twins[attempt]
        elif task.state == PROCESSING:
            continue
        else:
            del recovery_of(state).twins[attempt]
            _go_on_alone(state, ws, task, attempt)


def _go_on_alone(
    state: SchedulerState, ws: WorkerHandle, task: SchedulerTask, attempt: int
) -> None:
    """Let the other attempt of a task be the current one, unless it has not begun.

    It may wait for an input that was lost while it was not the current one: nobody took it back.
    """
    go_on(state, ws, task, attempt)
    if task.attempt == attempt and not ws.is_away:
        state.send(ws.peer, m.WithdrawAttempts(attempts=[attempt]))
