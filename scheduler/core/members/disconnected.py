"""Workers whose connection is broken, or that are back and have not sent all of their inventory.

The end of a connection is not the end of a process. An *away* worker keeps its tasks and its data
in the records, gets nothing more, and is expected back within `away_s`. It is lost at once if its
supervisor reports its exit, before or after the end of the connection. Messages to it go nowhere:
its inventory shows what it has not read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....protocol.wire.session import MISSED_HEARTBEATS
from ..assignment.asking_back import ask_all_back
from ..moves.reporting import send_states
from ..moves.taking import close, reopen
from ..records.peers import AWAY, TAKES_NOTHING, Inventory, WorkerHandle
from ..reports.blocked import resume_all
from ..reports.unreached import forget_readers

if TYPE_CHECKING:
    from ..state import SchedulerState


def set_away(state: SchedulerState, ws: WorkerHandle) -> None:
    """Give a worker nothing more until it has come back and sent its inventory."""
    state.deadlines.cancel(ws.away_due)
    ws.inventory = None
    close(state, ws, AWAY)
    for worker_away in state.features.worker_away:
        worker_away(state, ws)


def expect_inventory(state: SchedulerState, ws: WorkerHandle) -> None:
    """Prepare for the inventory of a worker that has registered."""
    for function in ws.functions:
        del function.workers[ws]
    ws.functions.clear()
    ws.return_asked = False
    resume_all(ws)  # it reports anew which are blocked
    set_away(state, ws)
    ws.inventory = Inventory(ws)
    await_rows(state, ws)


def await_rows(state: SchedulerState, ws: WorkerHandle) -> None:
    """End the session of a worker that sends no row of its inventory for too long."""
    state.deadlines.cancel(ws.away_due)
    silence_s = state.settings.heartbeat_s * MISSED_HEARTBEATS
    ws.away_due = state.call_after(silence_s, _end_without_inventory, ws)


def _end_without_inventory(state: SchedulerState, ws: WorkerHandle) -> None:
    state.refuse(ws.peer, f"worker {ws.name} did not send its inventory")


def bring_back(state: SchedulerState, ws: WorkerHandle) -> None:
    """Give work to a worker again, and send what its absence has held up."""
    reopen(state, ws, AWAY)
    ws.inventory = None
    state.deadlines.cancel(ws.away_due)
    ws.last_progress = state.now
    forget_readers(ws)
    if ws.closed & TAKES_NOTHING:
        ask_all_back(state, ws)  # it may not have read that
    for worker_back in state.features.worker_back:
        worker_back(state, ws)
    answer_awaited(state, ws)


def answer_awaited(state: SchedulerState, ws: WorkerHandle) -> None:
    """Send clients the states of the keys that they could not get from a worker that was away."""
    awaited, ws.awaited = ws.awaited, {}
    for client, keys in awaited.items():
        send_states(state, client, list(keys))
