"""What a worker has not started goes back to the scheduler: asked for, or because it leaves."""

from __future__ import annotations

import heapq
import itertools
from typing import TYPE_CHECKING

from ...protocol.wire.messages import AttemptsReturned, ReturnAttempts, WorkerLeaving
from .events import Leave
from .ready import worst_first

if TYPE_CHECKING:
    from .state import WorkerState


def on_return_attempts(state: WorkerState, message: ReturnAttempts) -> None:
    """Give back the unstarted tasks that would run last, a task only after its dependents."""
    for slot in state.slots:
        state._take_back(slot)
    # Whatever waits for an unstarted task is unstarted too, so each is reached at last.
    heap = worst_first(itertools.chain(state.ready, state.waiting.values()))
    returned: list[int] = []
    while heap and len(returned) < message.count:
        attempt = -heapq.heappop(heap)[1]
        task = state.by_attempt[attempt]
        inputs = task.inputs
        state._drop(task)
        returned.append(attempt)
        for record in dict.fromkeys(inputs):
            if not record.pins and record.state in {"ready", "waiting"}:
                heapq.heappush(heap, (-record.priority, -record.attempt))
    state.to_scheduler.append(AttemptsReturned(attempts=returned))


def on_leave(state: WorkerState, event: Leave) -> None:
    """Start nothing any more.

    The scheduler, which may have sent work that is still on its way, asks all of it back.
    """
    if not state.is_leaving:
        state.is_leaving = True
        for slot in state.slots:
            state._take_back(slot)
        state.to_scheduler.append(WorkerLeaving(reason=event.reason))
