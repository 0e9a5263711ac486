"""Merges what a worker has, row by row, when it comes back: after its line broke, or from the
scheduler before this one.

A row says that a worker holds a result, runs or was assigned an attempt, or keeps a failure. It is
merged with the task of its key under its own attempt number. The state that is further wins:
waiting < processing < memory or erred. So the order in which workers and clients come back does not
matter, and a row that comes twice changes nothing. A key without a task is a claim (`claims.py`).
What is not wanted is dropped at the worker.

A worker lists an attempt in one row (`_new_rows`): one that has finished does not run, has not
failed, and is of one key. All that is merged, filed or dropped here relies on that.

Until `InventoryEnd` the worker counts as away. What the scheduler believed to be there and no row
has named is not there: assignments that never arrived are placed again, copies are lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final

from ...protocol.wire import messages as m
from ...protocol.wire.failure import Failure, after_attempts
from ...protocol.wire.payload import Blob
from ...protocol.wording import counted
from . import claims
from .attempts import note_raised, note_raised_before
from .away import await_rows, bring_back
from .locating import located
from .missing import lose_replica, replace_lost
from .peers import RESOURCE_DIGITS, Inventory, WorkerHandle
from .placement import ahead_worker
from .reporting import report_results
from .tasks import (
    ERRED,
    MEMORY,
    NO_WORKER,
    PROCESSING,
    QUEUED,
    RELEASED,
    WAITING,
    SchedulerTask,
)
from .transitions import (
    ACTIVE,
    abandon,
    assigned_behind,
    drop_attempt,
    enqueue,
    err,
    move,
    note_attempt_ended,
    release_unneeded,
    stop_waiting,
    take_back,
    take_back_from,
)

if TYPE_CHECKING:
    from .state import SchedulerState

#: States of a task that an attempt under way may be adopted for.
_ADOPTING: Final = frozenset((WAITING, QUEUED, NO_WORKER))


# -- messages -------------------------------------------------------------------------------------
def on_held(state: SchedulerState, ws: WorkerHandle, message: m.InventoryHeld) -> None:
    """Results, and copies of results, that the worker holds."""
    inventory = _open(state, ws, message)
    if inventory is None:
        return
    rows = _new_rows(state, ws, inventory, message, message.keys, message.nbytes)
    news: list[tuple[WorkerHandle, SchedulerTask]] = []
    for key, attempt, spec_hash, nbytes in rows:
        task = state.tasks.get(key)
        if task is None:
            row = claims.Claim(ws, attempt, claims.HELD, spec_hash, nbytes)
            is_kept = claims.file(state, key, row)
        else:
            inventory.held.pop(task, None)
            is_kept = merge_held(state, ws, task, attempt, spec_hash, nbytes, news)
        if is_kept:
            inventory.n_kept += 1
        else:
            inventory.n_dropped += 1
            drop_attempt(state, ws, attempt)
    report(state, news)


def on_unfinished(state: SchedulerState, ws: WorkerHandle, message: m.InventoryUnfinished) -> None:
    """Attempts that the worker runs, or was assigned and has not started."""
    inventory = _open(state, ws, message)
    if inventory is None:
        return
    phases = message.phases
    values = list(zip(message.keys, phases, strict=True))
    rows = _new_rows(state, ws, inventory, message, values, phases, _counts(message))
    for key, attempt, spec_hash, phase, n_raised in rows:
        inventory.zombies.pop(attempt, None)
        current = ws.processing.get(attempt)
        if current is not None:
            inventory.processing.pop(attempt, None)
            if phase == m.DROPPED:
                # It was dropped there, and has not ended: its thread is not free.
                ws.zombies[attempt] = current.group.task_class.resources
                take_back_from(state, ws, {current: None})
            else:
                inventory.n_adopted += 1
            continue
        if attempt in ws.zombies:
            if phase != m.DROPPED and attempt not in state.twins:
                drop_attempt(state, ws, attempt)  # the first drop may be lost
            continue
        ws.zombies[attempt] = ()  # it may hold a thread, whatever becomes of it
        state.touched[ws] = None
        if phase == m.DROPPED:
            continue
        task = state.tasks.get(key)
        kind = claims.RUNNING if phase == m.RUNNING else claims.ASSIGNED
        row = claims.Claim(ws, attempt, kind, spec_hash, n_raised=n_raised)
        if task is None or _waits_for_recipe(state, task) or waits_for_inputs(state, task, row):
            is_kept = claims.file(state, key, row)
        else:
            is_running = phase == m.RUNNING
            is_kept = adopt(state, ws, task, attempt, spec_hash, n_raised, is_running=is_running)
        if is_kept:
            inventory.n_adopted += 1
        else:
            inventory.n_dropped += 1
            drop_attempt(state, ws, attempt)


def on_failed(state: SchedulerState, ws: WorkerHandle, message: m.InventoryFailed) -> None:
    """Failures that the worker keeps. The scheduler may have read of them, or not."""
    inventory = _open(state, ws, message)
    if inventory is None:
        return
    failures = message.failures
    rows = _new_rows(state, ws, inventory, message, message.keys, failures, _counts(message))
    for key, attempt, spec_hash, failure, n_raised in rows:
        inventory.processing.pop(attempt, None)
        task = state.tasks.get(key)
        if task is None or _waits_for_recipe(state, task):
            row = claims.Claim(ws, attempt, claims.FAILED, spec_hash, 0, failure, n_raised)
            is_kept = claims.file(state, key, row)
        else:
            is_kept = merge_failed(state, ws, task, attempt, spec_hash, failure, n_raised)
        if not is_kept:
            inventory.n_dropped += 1
            drop_attempt(state, ws, attempt)


def on_functions(state: SchedulerState, ws: WorkerHandle, message: m.InventoryFunctions) -> None:
    """Functions that the worker has, and so need not be sent again."""
    if _open(state, ws, message) is None:
        return
    unknown = []
    for function_id in message.functions:
        function = state.functions.get(function_id)
        if function is not None:
            function.workers[ws] = None
            ws.functions[function] = None
        elif state.keeps_claims:
            state.unclaimed_functions.setdefault(function_id, {})[ws] = None
        else:
            unknown.append(function_id)
    if unknown:
        state.send(ws.peer, m.DropFunctions(functions=unknown))


def on_end(state: SchedulerState, ws: WorkerHandle, message: m.InventoryEnd) -> None:
    """No row follows: what none has named is not there, and the worker gets work again."""
    inventory = _open(state, ws, message)
    if inventory is None:
        return
    if inventory.n_rows != message.n_rows:
        text = f"worker {ws.name} announced {message.n_rows} rows and sent {inventory.n_rows}"
        state.refuse(ws.peer, text)
        return
    for attempt in (*inventory.zombies, *inventory.processing):
        note_attempt_ended(state, ws, attempt)  # of those processing: it was dropped meanwhile
    processing = inventory.processing.items()
    absent = {task: None for attempt, task in processing if ws.processing.get(attempt) is task}
    take_back_from(state, ws, absent)
    gone = [task for task in inventory.held if task in ws.has_what]
    replace_lost(state, [task for task in gone if lose_replica(state, task, ws)])
    bring_back(state, ws)
    state.send(
        ws.peer,
        m.Reconciled(
            n_kept=inventory.n_kept, n_adopted=inventory.n_adopted, n_dropped=inventory.n_dropped
        ),
    )
    state.counters.results_kept += inventory.n_kept
    state.counters.attempts_adopted += inventory.n_adopted
    state.log(
        "info",
        f"worker {ws.name} is back with {counted(inventory.n_kept, 'result')} and "
        f"{counted(inventory.n_adopted, 'unfinished task')}; {counted(len(absent), 'other task')} "
        f"{'is' if len(absent) == 1 else 'are'} placed again",
    )


def _open(state: SchedulerState, ws: WorkerHandle, message: Any) -> Inventory | None:
    """Return the inventory to which a message belongs; None if the worker is closed for it."""
    inventory = ws.inventory
    if inventory is None:
        state.refuse(ws.peer, f"worker {ws.name} sends an inventory in the middle of its session")
        return None
    await_rows(state, ws)
    return inventory


def _new_rows(
    state: SchedulerState,
    ws: WorkerHandle,
    inventory: Inventory,
    message: m.InventoryHeld | m.InventoryUnfinished | m.InventoryFailed,
    values: list[Any],
    *columns: list[Any],
) -> Iterable[Any]:
    """Return the rows `(key, attempt, spec hash, *columns)` of a message; none if it is a breach.

    An attempt is listed once. A row that comes again, with the same one of `values`, is left out.
    """
    attempts = message.attempts
    inventory.n_rows += len(attempts)
    if not attempts:
        return ()
    least, most = min(attempts), max(attempts)
    if least < 1 or most >= state.next_attempt:
        wrong = most if least else least
        text = f"worker {ws.name} lists attempt {wrong}, which no scheduler has given out"
        state.refuse(ws.peer, text)
        return ()
    hashes = message.spec_hashes or repeat(m.NO_HASH, len(attempts))
    rows = zip(message.keys, attempts, hashes, *columns, strict=True)
    kind = type(message)
    here = inventory.listed.setdefault(kind, {})
    new = dict(zip(attempts, values, strict=True))
    if len(new) == len(attempts) and all(
        new.keys().isdisjoint(some.keys()) for some in inventory.listed.values()
    ):
        here.update(new)
        return rows
    left = []
    for row, value in zip(rows, values, strict=True):
        attempt = row[1]
        before = here.get(attempt)
        if before == value:
            continue
        if before is not None or any(attempt in some for some in inventory.listed.values()):
            text = f"worker {ws.name} lists attempt {attempt} in two rows that differ"
            state.refuse(ws.peer, text)
            return ()
        here[attempt] = value
        left.append(row)
    return left


def _waits_for_recipe(state: SchedulerState, task: SchedulerTask) -> bool:
    """Return whether a row waits, because the options of its task are not known yet."""
    return task.is_without_recipe and state.recovery is not None


def waits_for_inputs(state: SchedulerState, task: SchedulerTask, row: claims.Claim) -> bool:
    """Return whether an unstarted attempt waits until the workers that hold its inputs are back.

    Its worker may start it at any moment, because it fetches them from there by itself.
    """
    return (
        state.recovery is not None
        and row.kind == claims.ASSIGNED
        and task.state == WAITING
        and row.ws in task.group.task_class.members
        and not is_other(task, row.attempt, row.spec_hash)
        and not _may_go_on(state, row.ws, task, is_running=False)
    )


def _counts(message: m.InventoryUnfinished | m.InventoryFailed) -> list[int]:
    """Return how many exceptions there were before each attempt, as far as its worker knows."""
    return message.n_raised or [0] * len(message.attempts)


# -- one row and its task -------------------------------------------------------------------------
def is_other(task: SchedulerTask, attempt: int, spec_hash: bytes) -> bool:
    """Return whether a row of this hash is of a task of the same name with other content.

    Workers of an earlier release do not know the hashes of copies that they fetched: the attempt
    must be the same then.
    """
    known = task.spec_hash
    if not known or known in (m.NO_HASH, spec_hash):
        return False
    return spec_hash != m.NO_HASH or task.state != MEMORY or task.attempt != attempt


def merge_held(
    state: SchedulerState,
    ws: WorkerHandle,
    task: SchedulerTask,
    attempt: int,
    spec_hash: bytes,
    nbytes: int,
    news: list[tuple[WorkerHandle, SchedulerTask]],
) -> bool:
    """Note that a worker holds the result of a task; False if it is not wanted.

    A task that is in memory now is appended to `news`, with the worker.
    """
    if task.state == MEMORY and task.attempt == attempt:
        if ws not in task.replicas:
            task.replicas = (*task.replicas, ws)
            ws.has_what[task] = None
            ws.nbytes += task.nbytes
        return True
    if task.state in (MEMORY, ERRED) or is_other(task, attempt, spec_hash):
        return False
    if task.state == RELEASED and not task.wanted_by:
        return False
    finish(state, ws, task, attempt, nbytes)
    news.append((ws, task))
    return True


def finish(
    state: SchedulerState, ws: WorkerHandle, task: SchedulerTask, attempt: int, nbytes: int
) -> None:
    """Move a task to memory, because a worker turns out to hold its result."""
    behind: list[SchedulerTask] = []
    if task.state == PROCESSING and (task.worker is not ws or task.attempt != attempt):
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
    task.attempt = attempt
    task.replicas = ws.alone
    task.nbytes = nbytes
    ws.has_what[task] = None
    ws.nbytes += nbytes
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
    by_worker: dict[WorkerHandle, list[tuple[SchedulerTask, Blob | None]]] = {}
    for ws, task in news:
        if task.state == MEMORY and not task.delivered:
            by_worker.setdefault(ws, []).append((task, None))
    for ws, rows in by_worker.items():
        report_results(state, ws, rows)
    release_unneeded(state, [task for _, task in reversed(news)])


def adopt(
    state: SchedulerState,
    ws: WorkerHandle,
    task: SchedulerTask,
    attempt: int,
    spec_hash: bytes,
    n_raised: int,
    *,
    is_running: bool,
) -> bool:
    """Let an attempt go on that a worker runs, or was assigned; False if it is not wanted.

    It is among the zombies of `ws`: it occupies the worker, and the scheduler waits for its end.
    """
    if is_other(task, attempt, spec_hash):
        return False
    if n_raised and attempt < state.first_attempt and task.state in ACTIVE:
        _note_exceptions(state, task, n_raised)
    if task.state == PROCESSING:
        if not is_running or task.worker is ws:
            return False
        # It runs twice: the first result counts, and the other attempt is dropped then.
        state.twins[attempt] = (ws, task)
        return True
    if task.state not in _ADOPTING or not _may_go_on(state, ws, task, is_running=is_running):
        return False
    move(state, task, PROCESSING)
    del ws.zombies[attempt]
    task.worker = ws
    task.attempt = attempt
    task.estimate_ns = task.group.prefix.estimate_ns
    ws.occupancy_ns += task.estimate_ns
    ws.processing[attempt] = task
    for name, amount in task.group.task_class.resources:
        # Below zero if others were assigned before its client came back: both run there.
        ws.free_resources[name] = round(ws.free_resources[name] - amount, RESOURCE_DIGITS)
    state.touched[ws] = None
    state.story.note(state.now, f"goes on at {ws.name}", [task.key])
    if not is_running:
        _locate_inputs(state, ws, task)
    return True


def _locate_inputs(state: SchedulerState, ws: WorkerHandle, task: SchedulerTask) -> None:
    """Name the holders of inputs: the worker may have asked when they were not back."""
    there = [d for d in task.dependencies if d.state == MEMORY and ws not in d.replicas]
    if there:
        state.send(ws.peer, located(there, [d.replicas for d in there]))


def _may_go_on(
    state: SchedulerState, ws: WorkerHandle, task: SchedulerTask, *, is_running: bool
) -> bool:
    if ws not in task.group.task_class.members and not task.is_without_recipe:
        return False
    return is_running or task.state != WAITING or ahead_worker(task) is ws


def _note_exceptions(state: SchedulerState, task: SchedulerTask, n_raised: int) -> None:
    """Count the exceptions that an earlier scheduler has counted."""
    n_before = state.n_exceptions.get(task, 0)
    note_raised_before(state, task, n_raised - n_before)
    n_now = min(max(n_before, n_raised), task.group.retries)
    if n_now:
        state.n_exceptions[task] = n_now


def merge_failed(
    state: SchedulerState,
    ws: WorkerHandle,
    task: SchedulerTask,
    attempt: int,
    spec_hash: bytes,
    failure: Failure,
    n_raised: int,
) -> bool:
    """Count a failure that a worker has kept; False if the worker need not keep it any more.

    One of an earlier scheduler counts by its place, so that a row which comes twice counts once.
    """
    if state.failed_at.get(task) == (ws, attempt):
        return True
    is_current = task.worker is ws and task.attempt == attempt
    is_earlier = attempt < state.first_attempt
    if not is_current:
        given_up = state.given_up.get(ws.worker_id, {}).pop(attempt, None) is task
        is_open = task.state in _ADOPTING and (given_up or is_earlier)
        if not is_open or is_other(task, attempt, spec_hash):
            return False
    n_before = state.n_exceptions.get(task, 0)
    n_now = max(n_before, n_raised + 1) if is_earlier else n_before + 1
    if n_now > n_before:
        if is_earlier:
            note_raised_before(state, task, n_now - n_before - 1)
        note_raised(state, task, ws.name, failure)
    if n_now <= task.group.retries:
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


# -- attempts that run twice ----------------------------------------------------------------------
def settle_twins(state: SchedulerState) -> None:
    """End the attempts that run beside the current ones, where these have ended or are gone."""
    for attempt, (ws, task) in list(state.twins.items()):
        if state.workers.get(ws.peer) is not ws or attempt not in ws.zombies:
            del state.twins[attempt]
        elif task.state == PROCESSING:
            continue
        else:
            del state.twins[attempt]
            spec_hash = task.spec_hash or m.NO_HASH
            if not adopt(state, ws, task, attempt, spec_hash, 0, is_running=True):
                drop_attempt(state, ws, attempt)


def finish_stale(state: SchedulerState, ws: WorkerHandle, attempt: int, nbytes: int) -> bool:
    """Keep the result of an attempt that is not current, if it is a twin or a claim."""
    twin = state.twins.pop(attempt, None)
    if twin is not None and twin[0] is ws:
        news: list[tuple[WorkerHandle, SchedulerTask]] = []
        task = twin[1]
        is_kept = merge_held(state, ws, task, attempt, task.spec_hash or m.NO_HASH, nbytes, news)
        report(state, news)
        return is_kept
    return claims.finish(state, ws, attempt, nbytes)
