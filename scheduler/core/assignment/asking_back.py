"""Unstarted work is asked back from loaded workers while others are idle and nothing is queued.

The answer of a worker is exact: what it gives back has not begun there, and is placed again.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Final

from ....protocol.wire import messages as m
from ..moves.transitions import note_attempt_ended, take_back_from
from ..records.peers import RETURN_INTERVAL_S, WorkerHandle
from ..records.tasks import MEMORY, SchedulerTask
from .placement import queue_cost_ns

if TYPE_CHECKING:
    from ..state import SchedulerState

#: Backlog that is worked off sooner than this (per thread) is not worth asking back.
WORTH_RETURNING_NS: Final = 5_000_000
#: A worker that should have finished its work is looked at when it has reported nothing for this
#: long: the machine may be busy, and what it gives back must be sent and fetched again.
SILENCE_S: Final = 0.01
#: Tasks of a loaded worker that are looked at before it is asked.
MAX_RETURNED_SEEN: Final = 4096
#: Time passes before workers are looked at for this again, seconds.
LEAST_WAIT_S: Final = 0.001
#: Loaded workers looked at in one pass, and idle ones, for their resources.
MAX_LOADED_SEEN: Final = 8


def ask_back(state: SchedulerState) -> None:
    """Ask for unstarted work back: a worker is idle and nothing is queued.

    Let loaded workers return half of what they have not started, and all of it if they are stuck.
    """
    n_wanted = len(state.idle)
    wait_s = inf
    for ws in list(islice(state.loaded, MAX_LOADED_SEEN)):
        left_s = _time_to_ask(ws, state.now)
        if left_s <= 0 and not _has_movable(state, ws):
            ws.last_asked = state.now
            left_s = RETURN_INTERVAL_S
        if left_s > 0:
            # Others get their turn at the next pass.
            del state.loaded[ws]
            state.loaded[ws] = None
            wait_s = min(wait_s, left_s)
            continue
        ws.return_asked = True
        ws.last_asked = state.now
        ws.n_fruitless += 1
        surplus = len(ws.processing)
        if not ws.is_stuck(state.now):
            surplus = max(1, (surplus - min(ws.nthreads, ws.n_busy)) // 2)
        state.send(ws.peer, m.ReturnAttempts(count=surplus))
        n_wanted -= 1
        if n_wanted <= 0:
            break
    if len(state.loaded) > MAX_LOADED_SEEN:
        wait_s = min(wait_s, RETURN_INTERVAL_S / 2)
    if wait_s < inf:  # else an answer is the next event
        look_again(state, max(wait_s, LEAST_WAIT_S))


def ask_all_back(state: SchedulerState, ws: WorkerHandle) -> None:
    """Ask for all that a worker has not started: it takes nothing from now on.

    The request comes after all earlier messages, so the answer leaves only running tasks there.
    """
    if ws.processing:
        ws.return_asked = True
        ws.last_asked = state.now
        state.send(ws.peer, m.ReturnAttempts(count=len(ws.processing)))


def _time_to_ask(ws: WorkerHandle, now: float) -> float:
    """Return in how many seconds a loaded worker may be asked for work; inf = after its answer."""
    left_s = ws.may_be_asked_in(now)
    if queue_cost_ns(ws, now) < WORTH_RETURNING_NS:
        # It counts as busy for at least the time that has passed since it finished something.
        left_s = max(left_s, ws.last_progress + SILENCE_S - now)
    return left_s


def _has_movable(state: SchedulerState, ws: WorkerHandle) -> bool:
    """Return whether a worker holds more tasks that could start elsewhere than it runs.

    A chain that was assigned ahead has one: the rest of it could start nowhere else.
    """
    n_left = min(ws.nthreads, ws.n_busy) + len(ws.blocked)
    others = [other for other in islice(state.idle, MAX_LOADED_SEEN) if other is not ws]
    for task in islice(ws.processing.values(), MAX_RETURNED_SEEN):
        task_class = task.group.task_class
        if task_class.resources and not any(
            other in task_class.members and other.has_resources_for(task_class) for other in others
        ):
            continue
        if all(dependency.state == MEMORY for dependency in task.dependencies):
            if not n_left:
                return True
            n_left -= 1
    return False


def look_again(state: SchedulerState, delay_s: float) -> None:
    """Let a pass be made after this time at the latest; it asks, if it still finds a reason."""
    known = state.next_return
    if known is None or not known.is_pending or known.when > state.awake_s + delay_s:
        state.deadlines.cancel(known)
        state.next_return = state.call_after(delay_s, _do_nothing)


def _do_nothing(state: SchedulerState) -> None:
    """An assignment pass follows every event."""


def on_returned(state: SchedulerState, ws: WorkerHandle, message: m.AttemptsReturned) -> None:
    """A worker gave back attempts that never started."""
    ws.return_asked = False
    take_in(state, ws, message.attempts)


def take_in(state: SchedulerState, ws: WorkerHandle, attempts: Iterable[int]) -> None:
    """Place attempts again that a worker has given back, and what was assigned behind them."""
    tasks: dict[SchedulerTask, None] = {}
    for attempt in attempts:
        if (task := ws.processing.get(attempt)) is not None:
            tasks[task] = None
        else:
            state.counters.reports_stale += 1
            note_attempt_ended(state, ws, attempt)
    state.counters.tasks_returned += len(tasks)
    take_back_from(state, ws, tasks)
    state.story.note(state.now, f"returned by {ws.name}", [task.key for task in tasks])
