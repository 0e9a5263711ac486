"""Rows of workers' inventories: each is merged with the task of its key, or waits for it.

A new scheduler may read of a worker's results before it reads of the tasks, because the client
comes back later. The rows wait under their keys. A submission of the key, or a client that wants
it, takes them; they are merged then as if they came in that moment. An attempt that has not started
and whose inputs are elsewhere waits until the end of the recovery, although its task is known: the
holders may come back later than its own worker. Rows that were not taken within a client's lease
after the recovery are dropped at their workers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ....protocol.wire import messages as m
from ....protocol.wire.failure import Failure
from ..moves.eligibility import may_run
from ..moves.transitions import drop_attempt
from ..records.tasks import WAITING, Function, SchedulerTask
from . import merging
from .records import ASSIGNED, FAILED, KEPT, InventoryRow, look_again, recovery_of

if TYPE_CHECKING:
    from ..records.peers import WorkerHandle
    from ..state import SchedulerState


def waits(state: SchedulerState, row: InventoryRow) -> bool:
    """Return whether a peer may still bring what a row needs: a task, its recipe, or its inputs.

    A result needs no recipe. Of an attempt that raises it is not known without one how often it may
    be run again. An unstarted attempt whose inputs are elsewhere may be started by its worker at
    any moment, because that fetches them by itself.
    """
    task = state.tasks.get(row.key)
    if task is None:
        return True
    if not state.awaits_peers:
        return False
    if task.is_without_recipe:
        return row.kind != KEPT
    return (
        row.kind == ASSIGNED
        and task.state == WAITING
        and may_run(row.ws, task.group.task_class, strictly=False)
        and not merging.is_other(task, row)
        and not merging.may_go_on(state, task, row)
    )


def bring(
    state: SchedulerState, row: InventoryRow, news: list[tuple[WorkerHandle, SchedulerTask]]
) -> bool:
    """Merge a row with its task, or let it wait; False if it is of no use.

    A task that is in memory now is appended to `news`, with the worker.
    """
    if waits(state, row):
        return _file(state, row)
    task = state.tasks[row.key]
    if row.kind == KEPT:
        return merging.merge_kept(state, task, row, news)
    if row.kind == FAILED:
        return merging.merge_failed(state, task, row)
    return merging.adopt(state, task, row)


def _file(state: SchedulerState, row: InventoryRow) -> bool:
    """Let a row wait; False if no client will come back that could want it."""
    if not state.awaits_owners:
        return False
    recovery = recovery_of(state)
    recovery.rows[row.key] = (*recovery.rows.get(row.key, ()), row)
    recovery.rows_at.setdefault(row.ws, {})[row.attempt] = row
    if row.kind == ASSIGNED:
        recovery.note_unstarted(row.ws, row.attempt)
    return True


def take_all(state: SchedulerState, keys: Iterable[str]) -> None:
    """Merge the rows that waited for these keys, as far as they have tasks now."""
    waiting = recovery_of(state).rows
    news: list[tuple[WorkerHandle, SchedulerTask]] = []
    for key in keys if waiting else ():
        if key in waiting and key in state.tasks:
            _take(state, key, news)
    merging.report(state, news)


def _take(state: SchedulerState, key: str, news: list[tuple[WorkerHandle, SchedulerTask]]) -> None:
    rows = _pop(state, key)
    # The newest attempt counts: a failure before it was followed by another attempt.
    rows.sort(key=lambda row: (row.kind, row.attempt if row.kind == FAILED else -row.attempt))
    newest = max([row.attempt for row in rows if row.kind != FAILED], default=0)
    for row in rows:
        is_over = row.kind == FAILED and row.attempt < newest and not waits(state, row)
        if is_over or not bring(state, row, news):
            drop_attempt(state, row.ws, row.attempt)


def on_ended(
    state: SchedulerState, ws: WorkerHandle, attempt: int, outcome: int | Failure | None
) -> bool:
    """Follow the end of an attempt that is not current, if it is a twin or its row waits."""
    twin = recovery_of(state).twins.get(attempt)
    if isinstance(outcome, int) and twin is not None and twin[0] is ws:
        task = recovery_of(state).twins.pop(attempt)[1]
        news: list[tuple[WorkerHandle, SchedulerTask]] = []
        row = InventoryRow(ws, task.key, attempt, KEPT, task.spec_hash or m.NO_HASH, outcome)
        is_kept = merging.merge_kept(state, task, row, news)
        merging.report(state, news)
        return is_kept
    found = recovery_of(state).find(ws, attempt)
    if found is None:
        return False
    if outcome is None:
        recovery_of(state).remove(found)
        look_again(state, ws)
        return False
    if isinstance(outcome, int):
        found.kind, found.nbytes = KEPT, outcome
    else:
        found.kind, found.failure = FAILED, outcome
    take_all(state, [found.key])
    return True


def on_function(state: SchedulerState, function: Function) -> None:
    """Note the workers that have a function which has come."""
    function.workers = recovery_of(state).functions.pop(function.function_id, {})
    for ws in function.workers:
        ws.functions[function] = None


def withdraw_all(state: SchedulerState, ws: WorkerHandle) -> None:
    """Forget what waits at a worker that is lost, or sends its inventory again."""
    recovery = recovery_of(state)
    for row in list(recovery.rows_at.get(ws, {}).values()):
        ws.zombies.pop(row.attempt, None)  # it was not dropped there, only not adopted yet
        ws.blocked.pop(row.attempt, None)
        recovery.remove(row)
    for function_id, workers in list(recovery.functions.items()):
        workers.pop(ws, None)
        if not workers:
            del recovery.functions[function_id]
    recovery.lacking.pop(ws, None)  # it asks again


def expire(state: SchedulerState) -> None:
    """Drop the rows that no client has taken, and the functions that no task uses."""
    recovery = recovery_of(state)
    n_dropped = len(recovery.rows)
    for key in list(recovery.rows):
        for row in _pop(state, key):
            drop_attempt(state, row.ws, row.attempt)
    by_worker: dict[WorkerHandle, list[bytes]] = {}
    for function_id, workers in recovery.functions.items():
        for ws in workers:
            by_worker.setdefault(ws, []).append(function_id)
    recovery.functions.clear()
    for ws, functions in by_worker.items():
        state.send(ws.peer, m.DropFunctions(functions=functions))
    if n_dropped:
        text = f"{n_dropped} keys that workers kept are dropped: no client has come back for them"
        state.log("info", text)


def _pop(state: SchedulerState, key: str) -> list[InventoryRow]:
    recovery = recovery_of(state)
    rows = list(recovery.rows[key])
    for row in rows:
        recovery.remove(row)
        look_again(state, row.ws)
    return rows
