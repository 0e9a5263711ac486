"""Attempts that wait for something and hold no thread of their worker meanwhile.

Such a task has begun and has not ended, so it stays in state processing, with its resources. But
its worker runs others in its place: it counts neither as busy nor for the work that the worker has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....protocol.wire import messages as m
from ..moves.transitions import assigned_behind
from ..records.peers import BlockedWait, WorkerHandle
from ..records.tasks import SchedulerTask

if TYPE_CHECKING:
    from ..state import SchedulerState


def on_blocked(state: SchedulerState, ws: WorkerHandle, message: m.AttemptsBlocked) -> None:
    """Let the worker have other work instead of these attempts."""
    for i, attempt in enumerate(message.attempts):
        task = ws.processing.get(attempt)
        if task is not None and (task.dependents or ws.n_behind):
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
        ws.hold(())
        for attempt_blocked in state.features.attempt_blocked:
            attempt_blocked(state, ws, attempt, wait)
    ws.last_progress = state.now
    state.touched[ws] = None


def _ask_back_behind(state: SchedulerState, ws: WorkerHandle, task: SchedulerTask) -> None:
    """Ask for what was assigned behind a task that waits, as far as it has not started.

    That is what reads it, and what needs amounts that it keeps. The task may wait for others that
    only this worker can run, and these would find no room.
    """
    kept = [n for n, _ in task.group.task_class.resources if ws.free_resources[n] < 0.0]
    waiting = [one for one in ws.processing.values() if _asks_for(one, kept)] if kept else []
    waiting = [one for one in waiting if one is not task and one.attempt not in ws.blocked]
    behind = dict.fromkeys([*waiting, *assigned_behind([task, *waiting], ws)])
    if behind:
        # The worker gives back what no other task there reads, so the last ones come first.
        attempts = sorted((one.attempt for one in behind), reverse=True)
        state.send(ws.peer, m.WithdrawAttempts(attempts=attempts))


def _asks_for(task: SchedulerTask, names: list[str]) -> bool:
    """Return whether a task may wait for amounts; a deferred one was given what was free."""
    task_class = task.group.task_class
    return not task_class.is_deferred and any(name in names for name, _ in task_class.resources)


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


def resume(ws: WorkerHandle, attempt: int) -> None:
    """Count a blocked attempt as work of its worker again."""
    del ws.blocked[attempt]
    task = ws.processing.get(attempt)
    if task is not None:
        task.estimate_ns = task.group.prefix.estimate_ns
        ws.occupancy_ns += task.estimate_ns
        ws.hold(())
        if (moved := task.group.user.moved) is not None:
            moved.append(task)
