"""Claims: rows of workers' inventories whose keys have no task yet.

A new scheduler may read of a worker's results before it reads of the tasks, because the client
comes back later. The rows wait under their keys. A submission of the key, or a client that wants
it, takes them; they are merged then as if they came in that moment. An attempt that has not started
and whose inputs are elsewhere is such a row until the end of the recovery, although its task is
known: the holders may come back later than its own worker. Rows that were not taken within
a client's lease after the recovery are dropped at their workers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from ....protocol.wire import messages as m
from ....protocol.wire.failure import Failure
from ..moves.transitions import drop_attempt
from ..records.tasks import WAITING, Function, SchedulerTask
from . import merging

if TYPE_CHECKING:
    from ..records.peers import WorkerHandle
    from ..state import SchedulerState

#: The kinds of rows, in the order in which those of one key are merged.
HELD: Final = 0
RUNNING: Final = 1
ASSIGNED: Final = 2
FAILED: Final = 3


class Claim:
    """One row of a worker's inventory."""

    __slots__ = ("attempt", "failure", "kind", "n_raised", "nbytes", "spec_hash", "ws")

    def __init__(
        self,
        ws: WorkerHandle,
        attempt: int,
        kind: int,
        spec_hash: bytes,
        nbytes: int = 0,
        failure: Failure | None = None,
        n_raised: int = 0,
    ) -> None:
        self.ws = ws
        self.attempt = attempt
        self.kind = kind
        self.spec_hash = spec_hash
        #: of a held result
        self.nbytes = nbytes
        #: of a failed attempt
        self.failure = failure
        #: exceptions before an unfinished or a failed attempt
        self.n_raised = n_raised

    def __repr__(self) -> str:
        return f"<Claim {self.attempt} kind {self.kind} {self.ws!r}>"


def file(state: SchedulerState, key: str, claim: Claim) -> bool:
    """Let a row wait for its task; False if no client will come back that could want it."""
    if not state.keeps_claims:
        return False
    state.claims[key] = (*state.claims.get(key, ()), claim)
    claim.ws.claims[claim.attempt] = key
    return True


def waits_for_inputs(state: SchedulerState, task: SchedulerTask, row: Claim) -> bool:
    """Return whether an unstarted attempt waits until the workers that hold its inputs are back.

    Its worker may start it at any moment, because it fetches them from there by itself.
    """
    return (
        state.recovery is not None
        and row.kind == ASSIGNED
        and task.state == WAITING
        and row.ws in task.group.task_class.members
        and not merging.is_other(task, row.attempt, row.spec_hash)
        and not merging.may_go_on(state, row.ws, task, is_running=False)
    )


def take(state: SchedulerState, task: SchedulerTask) -> list[tuple[WorkerHandle, SchedulerTask]]:
    """Merge the rows that waited for a task; return it, with its worker, if it is in memory now.

    A task without recipe takes only results while its client may still submit it: of an attempt
    that raises it is not known how often it may be run again.
    """
    is_early = task.is_without_recipe and state.recovery is not None
    rows = _pop(state, task.key, is_early)
    # The newest attempt counts: a failure before it was followed by another attempt.
    rows.sort(key=lambda row: (row.kind, row.attempt if row.kind == FAILED else -row.attempt))
    newest = max([row.attempt for row in rows if row.kind != FAILED], default=0)
    news: list[tuple[WorkerHandle, SchedulerTask]] = []
    for row in rows:
        ws = row.ws
        if row.kind == HELD:
            is_kept = merging.merge_held(
                state, ws, task, row.attempt, row.spec_hash, row.nbytes, news
            )
        elif waits_for_inputs(state, task, row):
            is_kept = file(state, task.key, row)
        elif row.kind != FAILED:
            is_running = row.kind == RUNNING
            is_kept = merging.adopt(
                state, ws, task, row.attempt, row.spec_hash, row.n_raised, is_running=is_running
            )
        elif row.attempt < newest:
            is_kept = False
        else:
            assert row.failure is not None
            is_kept = merging.merge_failed(
                state, ws, task, row.attempt, row.spec_hash, row.failure, row.n_raised
            )
        if not is_kept:
            drop_attempt(state, ws, row.attempt)
    return news


def take_all(state: SchedulerState, keys: Iterable[str]) -> None:
    """Merge the rows that waited for these keys, as far as they have tasks now."""
    news = []
    for key in keys:
        if key in state.claims:
            task = state.tasks.get(key)
            if task is not None:
                news += take(state, task)
    merging.report(state, news)


def on_ended(
    state: SchedulerState, ws: WorkerHandle, attempt: int, outcome: int | Failure | None
) -> bool:
    """Follow the end of an attempt that is not current, if it is a twin or a claim."""
    if outcome is None:
        withdraw(state, ws, attempt)
        return False
    if type(outcome) is int and state.twins.get(attempt, (None,))[0] is ws:
        _, twin = state.twins.pop(attempt)
        news: list[tuple[WorkerHandle, SchedulerTask]] = []
        spec_hash = twin.spec_hash or m.NO_HASH
        is_kept = merging.merge_held(state, ws, twin, attempt, spec_hash, outcome, news)
        merging.report(state, news)
        return is_kept
    row = _find(state, ws, attempt)
    if row is None:
        return False
    key = ws.claims[attempt]
    if type(outcome) is int:
        row.kind, row.nbytes = HELD, outcome
        take_all(state, [key])
        return True
    row.kind, row.failure = FAILED, outcome
    task = state.tasks.get(key)
    if task is not None and not (task.is_without_recipe and state.recovery is not None):
        take_all(state, [key])
    return True


def on_function(state: SchedulerState, function: Function) -> None:
    """Note the workers that have a function which has come."""
    function.workers = state.unclaimed_functions.pop(function.function_id, {})
    for ws in function.workers:
        ws.functions[function] = None


def withdraw(state: SchedulerState, ws: WorkerHandle, attempt: int) -> None:
    """Forget the row of an attempt that its worker has not any more."""
    key = ws.claims.pop(attempt, None)
    if key is not None:
        rows = [row for row in state.claims[key] if row.ws is not ws or row.attempt != attempt]
        if rows:
            state.claims[key] = tuple(rows)
        else:
            del state.claims[key]


def withdraw_all(state: SchedulerState, ws: WorkerHandle) -> None:
    """Forget all rows of a worker that is lost, or sends its inventory again."""
    for attempt in list(ws.claims):
        ws.zombies.pop(attempt, None)  # it was not dropped there, only not adopted yet
        ws.blocked.pop(attempt, None)
        withdraw(state, ws, attempt)
    for function_id, workers in list(state.unclaimed_functions.items()):
        workers.pop(ws, None)
        if not workers:
            del state.unclaimed_functions[function_id]


def expire(state: SchedulerState) -> None:
    """Drop the rows that no client has taken, and the functions that no task uses."""
    n_dropped = len(state.claims)
    for key in list(state.claims):
        for row in _pop(state, key):
            drop_attempt(state, row.ws, row.attempt)
    by_worker: dict[WorkerHandle, list[bytes]] = {}
    for function_id, workers in state.unclaimed_functions.items():
        for ws in workers:
            by_worker.setdefault(ws, []).append(function_id)
    state.unclaimed_functions.clear()
    for ws, functions in by_worker.items():
        state.send(ws.peer, m.DropFunctions(functions=functions))
    if n_dropped:
        text = f"{n_dropped} keys that workers kept are dropped: no client has come back for them"
        state.log("info", text)


def has_use(state: SchedulerState, key: str, spec_hash: bytes) -> bool:
    """Return whether rows wait that may be of a task of this name and hash (NO_HASH = any)."""
    return any(
        m.NO_HASH in (spec_hash, row.spec_hash) or row.spec_hash == spec_hash
        for row in state.claims.get(key, ())
    )


def _pop(state: SchedulerState, key: str, only_held: bool = False) -> list[Claim]:
    rows = list(state.claims.pop(key, ()))
    if only_held:
        left = tuple(row for row in rows if row.kind != HELD)
        if left:
            state.claims[key] = left
        rows = [row for row in rows if row.kind == HELD]
    for row in rows:
        del row.ws.claims[row.attempt]
    return rows


def _find(state: SchedulerState, ws: WorkerHandle, attempt: int) -> Any:
    key = ws.claims.get(attempt)
    rows = () if key is None else state.claims[key]
    return next((row for row in rows if row.ws is ws and row.attempt == attempt), None)
