"""A worker that leaves: it finishes what it runs, serves what it has, and ends when it is let go.

Only the scheduler knows which results have no other copy, so it gives the word. Until that comes
the worker stays, although it runs nothing: others fetch from it. What bounds the wait is the grace
period of the shell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ...protocol.wire.messages import AskToLeave, MayLeave, Unsupported, WorkerLeaving
from .events import EndWorker, Leave
from .seats import take_back

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
        for slot in state.slots:
            take_back(state, slot)
        state.to_scheduler += [WorkerLeaving(reason=event.reason), AskToLeave(request=REQUEST)]


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
