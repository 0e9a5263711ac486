"""A worker that leaves: it finishes what it runs, serves what it has, and ends when it is let go.

Only the scheduler knows which results have no other copy, so it gives the word. Until that comes
the worker stays, although it runs nothing: others fetch from it. What bounds the wait is the grace
period of the shell.

A worker that loses its session while it leaves comes back, and goes on leaving: it says so before
its inventory, and asks again. It does not wait for that with tasks that it would never start, so it
gives those back by not listing them; and it ends at once if it holds and runs nothing then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ...protocol.wire.messages import AskToLeave, MayLeave, Unsupported, WorkerLeaving
from .drops import drop
from .events import EndWorker, Leave
from .seats import take_back
from .tasks import EXECUTING
from .transitions import UNFINISHED

if TYPE_CHECKING:
    from .state import WorkerState

#: The number of the one request that a worker makes of its scheduler.
REQUEST: Final = 1


def on_leave(state: WorkerState, event: Leave) -> None:
    """Start no further task.

    The scheduler asks all unstarted work back, including what is still on its way.
    """
    if not state.is_leaving:
        state.is_leaving = True
        state.leaving_because = event.reason
        state.leaves_by = state.now + event.within_s if event.within_s else None
        for slot in state.slots:
            take_back(state, slot)
        ask(state)
    elif event.within_s and state.leaves_by is None:
        state.leaves_by = state.now + event.within_s
        ask(state)


def ask(state: WorkerState) -> None:
    """Report that the worker leaves, and ask for the word: again if that has changed."""
    left_ms = 0
    if state.leaves_by is not None:
        left_ms = max(1, round((state.leaves_by - state.now) * 1000))
    state.to_scheduler += [
        WorkerLeaving(reason=state.leaving_because),
        AskToLeave(request=REQUEST, left_ms=left_ms),
    ]


def on_session_lost(state: WorkerState) -> None:
    """Give back what has not started, and end if nothing is left for which to come back."""
    for record in list(state.by_attempt.values()):
        if record.state in UNFINISHED and record.state != EXECUTING:
            drop(state, record)
    if state.may_leave or not state.by_attempt:
        end(state)


def on_may_leave(state: WorkerState, message: MayLeave | Unsupported) -> None:
    """End as soon as no task runs: the scheduler needs nothing more that is only here."""
    state.may_leave = state.is_leaving


def end_when_idle(state: WorkerState) -> None:
    """Have a worker that may leave ended if no slot executes."""
    if state.may_leave and not any(slot.n_executing for slot in state.slots):
        end(state)


def end(state: WorkerState) -> None:
    """Have a worker that leaves ended now."""
    state.has_left = True
    state.after.append(EndWorker())
