"""Handles the reports of workers about attempts: finished, raised.

`on_finished` is the hottest loop of the scheduler: one pass over the columns, results straight into
the columns of the clients that want them. It is the fused form of `move(processing -> memory)` plus
`stop_waiting` plus waking dependents; a property test compares the two.

A report of an attempt that is not current is stale: it is counted, and the worker is sent a drop of
that attempt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ....protocol.wire import messages as m
from ....protocol.wire.failure import after_attempts
from ....protocol.wire.payload import Blob
from ..moves.reporting import report_results
from ..moves.transitions import (
    drop_attempt,
    enqueue,
    err,
    free_resources,
    note_attempt_ended,
    release_unneeded,
    take_back_from,
)
from ..records.peers import ClientHandle, WorkerHandle
from ..records.prefixes import Prefix
from ..records.tasks import ERRED, MEMORY, WAITING, SchedulerTask, TaskGroup
from ..requests.retrying import pause, take_retry

if TYPE_CHECKING:
    from ..state import SchedulerState

#: A wait at a worker that is worth a word in the story of a task.
LONG_WAIT_US: Final = 100_000


def on_finished(state: SchedulerState, ws: WorkerHandle, message: m.AttemptsFinished) -> None:
    """Attempts finished: their data is at `ws`, small wanted results are in the message."""
    processing = ws.processing
    out_of_reach = state.out_of_reach
    has_what = ws.has_what
    here = ws.alone
    unneeded: list[SchedulerTask] = []
    sole_client: tuple[ClientHandle, ...] = ()
    ready_keys: list[str] = []
    ready_blobs: list[Blob | None] = []
    others: list[tuple[SchedulerTask, Blob | None]] = []
    prefix: Prefix | None = None
    group: TaskGroup | None = None
    moved: list[SchedulerTask] | None = None
    first: SchedulerTask | None = None  # of those in a row that one submission has made
    first_queued_us = 0
    queue_times = state.prefixes.queue_times
    if message.fetched_us:
        _note_fetched(ws, message)
    queued = message.queued_us or [0] * len(message.attempts)  # an earlier version reports none
    n = us_total = queued_us_total = occupancy_ns = nbytes_total = n_stale = 0
    # as they were before the rows of `prefix`, and of `group`
    n_before = us_before = queued_us_before = nbytes_before = n_before_group = 0
    for attempt, nbytes, duration_us, queued_us, blob in zip(
        message.attempts, message.nbytes, message.durations_us, queued, message.results, strict=True
    ):
        task = processing.pop(attempt, None)
        if task is None:
            n_stale += 1
            if not note_attempt_ended(state, ws, attempt, outcome=nbytes):
                drop_attempt(state, ws, attempt)
            continue
        occupancy_ns += task.estimate_ns
        task.state = MEMORY
        task.worker = None
        task.estimate_ns = 0
        task.replicas = here
        task.nbytes = nbytes
        has_what[task] = None
        if task.group is not group:
            if first is not None:
                queue_times.add(_queue_time_us(first, first_queued_us), n - n_before_group)
                free_resources(ws, first.group.task_class.resources, n - n_before_group)
            group, moved = task.group, task.group.user.moved
            first, first_queued_us, n_before_group = task, queued_us, n
            if group.prefix is not prefix:
                if prefix is not None:
                    prefix.finish(
                        n - n_before,
                        us_total - us_before,
                        queued_us_total - queued_us_before,
                        nbytes_total - nbytes_before,
                    )
                prefix = group.prefix
                n_before, us_before = n, us_total
                queued_us_before, nbytes_before = queued_us_total, nbytes_total
        if moved is not None:
            moved.append(task)
        n += 1
        us_total += duration_us
        queued_us_total += queued_us
        nbytes_total += nbytes
        if task.dependents:
            for dependent in task.dependents:
                if dependent.state == WAITING:
                    missing = dependent.waiting_on
                    assert missing is not None
                    del missing[task]
                    if not missing:
                        enqueue(state, dependent)
                    else:
                        state.ahead[dependent] = None
        if task.dependencies:
            if out_of_reach:
                out_of_reach.pop(task, None)
            for dependency in task.dependencies:
                dependency.n_waiters -= 1
                if not dependency.n_waiters and not dependency.wanted_by:
                    unneeded.append(dependency)
        wanted_by = task.wanted_by
        if wanted_by:
            if blob is not None and (wanted_by is sole_client or not sole_client):
                sole_client = wanted_by
                ready_keys.append(task.key)
                ready_blobs.append(blob)
                task.delivered = True
            else:
                others.append((task, blob))
        elif not task.n_waiters:
            unneeded.append(task)
    if prefix is not None and first is not None:
        prefix.finish(
            n - n_before,
            us_total - us_before,
            queued_us_total - queued_us_before,
            nbytes_total - nbytes_before,
        )
        queue_times.add(_queue_time_us(first, first_queued_us), n - n_before_group)
        free_resources(ws, first.group.task_class.resources, n - n_before_group)
    ws.occupancy_ns -= occupancy_ns
    if ws.blocked:
        for attempt in message.attempts:
            ws.blocked.pop(attempt, None)
    ws.nbytes += nbytes_total
    ws.last_progress = state.now
    ws.n_fruitless = 0
    state.touched[ws] = None
    state.counters.n_memory += n
    state.counters.tasks_completed += n
    state.counters.reports_stale += n_stale
    state.prefixes.durations.add_all(message.durations_us)
    for attempts_finished in state.features.attempts_finished:
        attempts_finished(state, ws, message)
    for client in sole_client:
        state.send_client(client, m.ResultsReady(keys=ready_keys, results=ready_blobs))
    if ready_keys:
        state.story.note(state.now, _finish_text(ws, message), ready_keys)
    if others:
        if state.threadless:
            for values_stored in state.features.values_stored:
                values_stored(state, [task for task, _ in others])
        report_results(state, ws, others, _finish_text(ws, message))
    if unneeded:
        release_unneeded(state, unneeded)


def _queue_time_us(task: SchedulerTask, queued_us: int) -> int:
    """Return the time that a task waited for a worker, and there `queued_us`, until its start."""
    since = getattr(task, "since", task.group.submitted)
    return max(int((task.assigned - since) * 1e6), 0) + queued_us


def _note_fetched(ws: WorkerHandle, message: m.AttemptsFinished | m.AttemptsErred) -> None:
    """Add up the times in which inputs were fetched, by function."""
    for attempt, fetched_us in zip(message.attempts, message.fetched_us, strict=True):
        task = ws.processing.get(attempt)
        if task is not None:
            task.group.prefix.series.fetched_us += fetched_us


def _finish_text(ws: WorkerHandle, message: m.AttemptsFinished) -> str:
    """Return what the story says of finished tasks: also how long they waited, if that is long."""
    text = f"finished on {ws.name}"
    if not message.queued_us or (queued_us := max(message.queued_us)) < LONG_WAIT_US:
        return text
    fetched_us = max(message.fetched_us, default=0)
    fetched = f", {fetched_us / 1e6:.3g} s for inputs" if fetched_us >= LONG_WAIT_US else ""
    return f"{text}; from arrival to start at most {queued_us / 1e6:.3g} s{fetched}"


def on_erred(state: SchedulerState, ws: WorkerHandle, message: m.AttemptsErred) -> None:
    """Attempts raised.

    They are run again while their group's `retries` last; after that they fail, with all their
    dependents.
    """
    again: dict[SchedulerTask, None] = {}
    pauses: dict[SchedulerTask, float] = {}
    for attempts_erred in state.features.attempts_erred:
        attempts_erred(state, ws, message)
    if message.fetched_us:
        _note_fetched(ws, message)
    queued = message.queued_us or [0] * len(message.attempts)
    for attempt, failure, duration_us, queued_us in zip(
        message.attempts, message.failures, message.durations_us, queued, strict=True
    ):
        task = ws.processing.get(attempt)
        if task is None:
            state.counters.reports_stale += 1
            if not note_attempt_ended(state, ws, attempt, outcome=failure):
                drop_attempt(state, ws, attempt)
            continue
        if task in again:
            continue  # a row that comes twice counts once
        for attempt_raised in state.features.attempt_raised:
            attempt_raised(state, task, ws.name, failure)
        n_before = state.n_exceptions.get(task, 0)
        if (moves_on := state.features.moves_on.get(failure[0])) is not None:
            delay_s: float | None = moves_on(state, task, ws)
        else:
            task.group.prefix.note_raised(duration_us, queued_us)
            delay_s = take_retry(state, task)
        if delay_s is not None:
            again[task] = None
            pauses[task] = delay_s
            drop_attempt(state, ws, attempt)
            continue
        if n_before and failure[0] == "exception":
            failure = after_attempts(failure, n_before + 1)
        err(state, task, state.failures.fit(failure), reported=True)
        if task.state == ERRED:
            state.failed_at[task] = (ws, attempt)
        else:
            drop_attempt(state, ws, attempt)
    ws.last_progress = state.now
    state.touched[ws] = None
    # A failure in the same message may have taken away the need for a retry.
    again = {task: None for task in again if task.worker is ws}
    take_back_from(state, ws, again)
    for task, delay_s in pauses.items():
        if delay_s and task in again:
            pause(state, task, delay_s)


def on_ended(state: SchedulerState, ws: WorkerHandle, message: m.AttemptsEnded) -> None:
    """Dropped attempts hold no thread and no resources any more."""
    ends = message.ends or [m.NOT_BEGUN] * len(message.attempts)
    for attempt, end in zip(message.attempts, ends, strict=True):
        note_attempt_ended(state, ws, attempt, end)
