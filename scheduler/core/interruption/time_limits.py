"""Attempts that run for longer than their task allows (`timeout=`).

Their workers report them, because only they know when an attempt began; and their supervisors, if a
task holds the interpreter lock, so that the worker cannot report anything. Such an attempt has
failed like one that raised: it takes a retry, or its task fails. It still runs, so it is dropped
and interrupted (`ending`). A retry begins when it has ended: both might change the same file, and
on one worker they would share the futures of what they submit. It does not wait for long, because
a process that cannot be ended may never end its task.

The limit in the report counts, which is that of the assignment: after a restart a worker may know
it earlier than the scheduler. What the report means nothing for now (its task is not known yet,
say) is reported again later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....protocol.wire import messages as m
from ....protocol.wire.failure import timed_out
from ..blocking.failing import note_failed
from ..moves.transitions import abandon, err, take_back_from
from ..requests.retrying import end_pause, pause, take_retry
from .interrupted import interruptions_of, limiting_category, note_overdue
from .interrupting import END_PROCESS_AFTER_S, interrupt

if TYPE_CHECKING:
    from ..records.peers import SupervisorHandle, WorkerHandle
    from ..records.tasks import SchedulerTask
    from ..state import SchedulerState


def on_overdue(state: SchedulerState, ws: WorkerHandle, message: m.AttemptsOverdue) -> None:
    """Attempts take longer than they may."""
    _end(state, ws, dict(zip(message.attempts, message.timeouts_us, strict=True)))


def on_held_up(
    state: SchedulerState, supervisor: SupervisorHandle, message: m.WorkerHeldUp
) -> None:
    """A worker cannot report anything: end those of its attempts that take longer than they may."""
    ws = state.workers_by_id.get(message.worker_id)
    if ws is None or ws.supervisor_id != supervisor.supervisor_id:
        state.counters.reports_stale += 1
        return
    overdue: dict[int, int] = {}
    for attempt, held_ms in zip(message.attempts, message.held_ms, strict=True):
        task = ws.processing.get(attempt)
        if task is not None and 0 < task.group.options.timeout_us <= held_ms * 1000:
            overdue[attempt] = task.group.options.timeout_us
    _end(state, ws, overdue)


def _end(state: SchedulerState, ws: WorkerHandle, timeouts_us: dict[int, int]) -> None:
    """End attempts that take too long; run their tasks again, or fail them."""
    overdue: list[int] = []
    again: dict[SchedulerTask, float] = {}
    attempts: dict[SchedulerTask, int] = {}
    for attempt, timeout_us in timeouts_us.items():
        task = ws.processing.get(attempt)
        if task is None:
            if not any(dropped(state, ws, attempt) for dropped in state.features.stale_overdue):
                state.counters.reports_stale += 1
            continue
        overdue.append(attempt)
        n_failed = state.n_exceptions.get(task, 0) + 1
        note_overdue(state, ws, task, timeout_us)
        note_failed(state, task, ws, f"took longer than {timeout_us / 1e6:g} s")
        task.group.prefix.note_raised(timeout_us, 0)
        state.story.note(state.now, f"takes too long on {ws.name}", [task.key])
        delay_s = take_retry(state, task)
        if delay_s is not None:
            again[task] = delay_s
            attempts[task] = attempt
            continue
        _fail(state, ws, task, timeout_us, n_failed)
    if not overdue:
        return
    # A failure in the same message may have taken away the need for a retry.
    left = {task: None for task in again if task.worker is ws}
    for task in left:
        abandon(state, task)
    take_back_from(state, ws, left)
    for task in left:
        wait_for_end(state, task, attempts[task], again[task])
    interruptions_of(state).n_timed_out += len(overdue)
    interrupt(state, ws, overdue, "overdue")


def _fail(
    state: SchedulerState, ws: WorkerHandle, task: SchedulerTask, timeout_us: int, n_failed: int
) -> None:
    """Fail a task that has no retry left."""
    can_end = bool(state.supervisors_by_id.get(ws.supervisor_id))
    name = task.group.prefix.name
    failure = timed_out(
        task.key,
        name,
        timeout_us,
        ws.name,
        can_end=can_end,
        attempts=n_failed,
        category=limiting_category(task, timeout_us),
    )
    err(state, task, failure)


def wait_for_end(
    state: SchedulerState, task: SchedulerTask, attempt: int, delay_s: float = 0.0
) -> None:
    """Let a task that was taken back wait for the end of its interrupted attempt, and for a pause.

    It runs again when the process of the attempt has ended, or does not end.
    """
    not_before = state.awake_s + delay_s
    pause(state, task, max(delay_s, END_PROCESS_AFTER_S + 1.0))
    deadline = state.paused.get(task)

    def go_on() -> None:
        if deadline is not None and state.paused.get(task) is deadline:
            state.deadlines.cancel(deadline)
            left_s = max(not_before - state.awake_s, 0.0)
            state.paused[task] = state.call_after(left_s, end_pause, task)

    interruptions_of(state)[attempt].when_over = go_on
