"""Workers that are paused: their processes use too much memory, as they report themselves.

Such a worker gets nothing from the message on that reports it, and what it has not started is asked
back. It goes on to serve what it has, and takes part again as soon as it reports that it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from ..assignment.asking_back import ask_all_back
from ..invariants.checking import differences
from ..moves.taking import close, reopen
from ..records.peers import PAUSED, WorkerHandle
from .records import Pause, memory_of
from .set_aside import look_later

if TYPE_CHECKING:
    from ..state import SchedulerState

#: The state that such a worker reports, `WorkerStatus.state`.
PAUSED_STATE: Final = "paused"


def note_state(state: SchedulerState, ws: WorkerHandle) -> None:
    """Note what a worker reports: that it is paused, or not any more."""
    is_paused = ws.status is not None and ws.status.state == PAUSED_STATE
    if is_paused is ws.is_paused:
        pause = memory_of(state).paused.get(ws)
        if pause is not None and ws.status is not pause.status:
            pause.status = ws.status
            pause.n_reports += 1
        return
    if not is_paused:
        reopen(state, ws, PAUSED)
        del memory_of(state).paused[ws]
        for worker_opened in state.features.worker_opened:
            worker_opened(state, ws)
        return
    close(state, ws, PAUSED)
    memory_of(state).paused[ws] = Pause(ws)
    look_later(state)
    ask_all_back(state, ws)


def forget_worker(state: SchedulerState, ws: WorkerHandle) -> None:
    """Forget a worker that is gone."""
    memory_of(state).paused.pop(ws, None)
    ws.is_paused = False


# -- invariants ------------------------------------------------------------------------------------
#: {what holds: what breaks it}
PAUSED_INVARIANTS: Final[dict[str, Callable[[SchedulerState], Iterable[Any]]]] = {
    "paused lists the workers that are paused": lambda s: differences(
        memory_of(s).paused, [ws for ws in s.workers.values() if ws.is_paused]
    ),
    "a worker is paused while its last report says so": lambda s: [
        ws
        for ws in s.workers.values()
        if ws.is_paused != (ws.status is not None and ws.status.state == PAUSED_STATE)
    ],
}
