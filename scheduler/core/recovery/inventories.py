"""Merges what a worker has, row by row, when it comes back: after its connection broke, or from the
scheduler before this one.

A row says that a worker holds a result, runs or was assigned an attempt, or keeps a failure. It is
merged with the task of its key under its own attempt number. The state that is further wins:
waiting < processing < memory or erred. So the order in which workers and clients come back does not
matter, and a row that comes twice changes nothing. A row whose key has no task waits (`rows.py`).
What is not wanted is dropped at the worker.

A worker lists an attempt in one row (`_new_rows`): one that has finished does not run, has not
failed, and is of one key. All that is merged, filed or dropped here relies on that.

Until `InventoryEnd` the worker counts as away. What the scheduler believed to be there and no row
has named is not there: assignments that never arrived are placed again, copies are lost. It is sent
no drop of an attempt before its row (`moves.transitions.drop_attempt`).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat
from typing import TYPE_CHECKING, Any

from ....protocol.wire import messages as m
from ....protocol.wording import counted
from ..interruption.interrupted import interruptions_of
from ..members.disconnected import await_rows, bring_back
from ..moves.transitions import drop_attempt, note_attempt_ended, take_back_from
from ..records.peers import Inventory, WorkerHandle
from ..records.tasks import SchedulerTask
from ..reports.missing import lose_replica, replace_lost
from .merging import report
from .records import ASSIGNED, FAILED, KEPT, RUNNING, InventoryRow, recovery_of
from .rows import bring

if TYPE_CHECKING:
    from ..state import SchedulerState


# -- messages -------------------------------------------------------------------------------------
def on_kept(state: SchedulerState, ws: WorkerHandle, message: m.InventoryKept) -> None:
    """Results, and copies of results, that the worker holds."""
    inventory = _open(state, ws, message)
    if inventory is None:
        return
    rows = _new_rows(state, ws, inventory, message, message.keys, message.nbytes)
    news: list[tuple[WorkerHandle, SchedulerTask]] = []
    for key, attempt, spec_hash, nbytes in rows:
        _end_zombie(state, ws, inventory, attempt)
        task = state.tasks.get(key)
        if task is not None:
            inventory.has_what.pop(task, None)
            if task.attempt == attempt and ws in task.replicas:
                inventory.n_kept += 1
                continue
        if bring(state, InventoryRow(ws, key, attempt, KEPT, spec_hash, nbytes), news):
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
            if phase != m.DROPPED and attempt not in recovery_of(state).twins:
                drop_attempt(state, ws, attempt)  # the first drop may be lost
            if attempt in interruptions_of(state):
                state.send(ws.peer, m.InterruptAttempts(attempts=[attempt]))
            continue
        ws.zombies[attempt] = ()  # it may hold a thread, whatever becomes of it
        state.touched[ws] = None
        if phase == m.DROPPED:
            continue
        kind = RUNNING if phase == m.RUNNING else ASSIGNED
        if bring(state, InventoryRow(ws, key, attempt, kind, spec_hash, n_raised=n_raised), []):
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
        _end_zombie(state, ws, inventory, attempt)
        inventory.processing.pop(attempt, None)
        row = InventoryRow(ws, key, attempt, FAILED, spec_hash, 0, failure, n_raised)
        if not bring(state, row, []):
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
        elif state.awaits_owners:
            recovery_of(state).functions.setdefault(function_id, {})[ws] = None
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
    gone = [task for task in inventory.has_what if task in ws.has_what]
    replace_lost(state, [task for task in gone if lose_replica(state, task, ws)])
    if not any(admitting(state, ws) for admitting in state.features.admitting):
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


def _end_zombie(
    state: SchedulerState, ws: WorkerHandle, inventory: Inventory, attempt: int
) -> None:
    """End a dropped attempt that has an outcome, before the row of that can wait for a task."""
    inventory.zombies.pop(attempt, None)
    if attempt in ws.zombies:  # it may have been dropped since the session began
        note_attempt_ended(state, ws, attempt)


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
    message: m.InventoryKept | m.InventoryUnfinished | m.InventoryFailed,
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
        if before is not None or inventory.lists(attempt):
            text = f"worker {ws.name} lists attempt {attempt} in two rows that differ"
            state.refuse(ws.peer, text)
            return ()
        here[attempt] = value
        left.append(row)
    return left


def _counts(message: m.InventoryUnfinished | m.InventoryFailed) -> list[int]:
    """Return how many exceptions there were before each attempt, as far as its worker knows."""
    return message.n_raised or [0] * len(message.attempts)
