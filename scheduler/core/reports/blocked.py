"""Attempts that wait for something and hold no thread of their worker meanwhile.

Such a task has begun and has not ended, so it stays in state processing, with its resources. But
its worker runs others in its place: it counts neither as busy nor for the work that the worker has.

The thread of an actor is none of the worker's slots, so its waits count for nothing but cycles.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ....protocol.wire import messages as m
from ..actors.actors import living
from ..coordination import cycles
from ..moves.transitions import assigned_behind
from ..records.peers import ActorWait, BlockedWait, WorkerHandle
from ..records.tasks import SchedulerTask

if TYPE_CHECKING:
    from ..state import SchedulerState


def on_blocked(state: SchedulerState, ws: WorkerHandle, message: m.AttemptsBlocked) -> None:
    """Let the worker have other work instead of these attempts."""
    for i, attempt in enumerate(message.attempts):
        task = ws.processing.get(attempt)
        if task is not None and task.dependents:
            _ask_back_behind(state, ws, task)
        if task is None and attempt not in ws.zombies:
            state.counters.reports_stale += 1
            continue
        if task is not None:
            ws.occupancy_ns -= task.estimate_ns
            task.estimate_ns = 0
        wait = BlockedWait(
            state.awake_s,
            message.keys[i] if message.keys else (),
            message.actors[i] if message.actors else (),
            message.calls[i] if message.calls else (),
        )
        ws.blocked[attempt] = wait
        if wait.keys or wait.actors:
            node = cycles.Attempt(ws, attempt)
            cycles.suspect(state, node, wait, partial(_fail, state, ws, attempt))
    ws.last_progress = state.now
    state.touched[ws] = None


def _ask_back_behind(state: SchedulerState, ws: WorkerHandle, task: SchedulerTask) -> None:
    """Ask for what was assigned ahead behind a task that waits, as far as it has not started.

    The task may wait for others that only this worker can run, and these would find no room.
    """
    attempts = [one.attempt for one in assigned_behind([task], ws)]
    if attempts:
        # The worker gives back what no other task there reads, so the last ones come first.
        state.send(ws.peer, m.WithdrawAttempts(attempts=sorted(attempts, reverse=True)))


def _fail(state: SchedulerState, ws: WorkerHandle, attempt: int, text: str) -> None:
    state.send(ws.peer, m.FailWaits(attempts=[attempt], texts=[text]))


def on_resumed(state: SchedulerState, ws: WorkerHandle, message: m.AttemptsResumed) -> None:
    """Count these attempts as work of their worker again."""
    for attempt in message.attempts:
        if attempt not in ws.blocked:
            state.counters.reports_stale += 1
            continue
        resume(ws, attempt)
    state.touched[ws] = None


def resume_all(ws: WorkerHandle) -> None:
    """Count all attempts of a worker as its work, until it reports anew which are blocked."""
    for attempt in list(ws.blocked):
        resume(ws, attempt)
    ws.actor_waits.clear()


def resume(ws: WorkerHandle, attempt: int) -> None:
    """Count a blocked attempt as work of its worker again."""
    del ws.blocked[attempt]
    task = ws.processing.get(attempt)
    if task is not None:
        task.estimate_ns = task.group.prefix.estimate_ns
        ws.occupancy_ns += task.estimate_ns


# -- actors ---------------------------------------------------------------------------------------
def on_actors_blocked(state: SchedulerState, ws: WorkerHandle, message: m.ActorsBlocked) -> None:
    """Note what actors wait for; those of an earlier scheduler may have no task yet."""
    for i, (key, attempt) in enumerate(zip(message.names, message.attempts, strict=True)):
        is_claimed = attempt in ws.claims and attempt not in ws.zombies
        if not (is_claimed or living(state, ws, key, attempt)):
            state.counters.reports_stale += 1
            continue
        wait = BlockedWait(state.awake_s, message.keys[i], message.actors[i], message.calls[i])
        begun = [call for text in message.begun[i] if (call := m.call_of(text)) is not None]
        last = {holder: numbers for holder, *numbers in begun}
        ws.actor_waits[attempt] = ActorWait(wait, key, last, frozenset(message.open[i]))
        if wait.keys or wait.actors:
            node = cycles.Attempt(ws, attempt)
            cycles.suspect(state, node, wait, partial(_fail, state, ws, attempt))


def on_actors_resumed(state: SchedulerState, ws: WorkerHandle, message: m.ActorsResumed) -> None:
    """Forget the waits of these actors."""
    for attempt in message.attempts:
        if ws.actor_waits.pop(attempt, None) is None:
            state.counters.reports_stale += 1
