"""How each invariant of recovery is broken, for `test_validate.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.scheduler.core.records.presence import Members
from weft.scheduler.core.recovery.barrier import Barrier
from weft.scheduler.core.recovery.records import KEPT, InventoryRow, recovery_of


def let_wait(b: Any, key: str) -> None:
    row = InventoryRow(b.w, key, 77, KEPT, b"")
    recovery_of(b.state).rows[key] = (row,)
    recovery_of(b.state).rows_at[b.w] = {77: row}


def await_peers(b: Any, members: Members) -> Barrier:
    b.state.awaits_peers = True
    barrier = recovery_of(b.state).barrier = Barrier(0.0, members)
    return barrier


#: {invariant: what breaks it}, of a `Broken` board
RECOVERY_BREAKAGES: dict[str, Callable[[Any], object]] = {
    "peers are awaited before the barrier": lambda b: setattr(b.state, "awaits_peers", True),
    "who awaits peers awaits owners": lambda b: await_peers(b, Members()),
    "the recovery counts the workers that are absent or send inventories": lambda b: await_peers(
        b, Members(("id of nobody",))
    ).absent_workers.clear(),
    "rows are filed at their workers": lambda b: (
        let_wait(b, "nobody's") or recovery_of(b.state).rows.clear()
    ),
    "rows wait at registered workers": lambda b: (
        let_wait(b, "nobody's") or b.state.workers_by_id.clear()
    ),
    "a row waits for a task, or for its recipe, or for inputs": lambda b: let_wait(b, "memory"),
    "what is unneeded is kept only for clients that may come back": lambda b: recovery_of(
        b.state
    ).kept.update({b.task("memory"): None}),
    "unstarted attempts, and what is lacking, are of registered workers": lambda b: (
        recovery_of(b.state).note_unstarted(b.w, 3) or b.state.workers_by_id.clear()
    ),
    "functions that no task uses are unknown": lambda b: recovery_of(b.state).functions.update(
        {key: {} for key in b.state.functions}
    ),
    "a twin runs beside the current attempt": lambda b: recovery_of(b.state).twins.update(
        {77: (b.w, b.task("processing"))}
    ),
    "recovery is busy while attempts run twice": lambda b: recovery_of(b.state).twins.update(
        {77: (b.w, b.task("processing"))}
    ),
}
