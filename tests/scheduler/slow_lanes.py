"""The fused lanes of the scheduler once more, as plain moves of the table, one task at a time.

`submission.on_submit`, `assignment.assign` and `completion.on_finished` do in one loop what these
do in small steps. A property test compares the two; nothing else uses these.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from unittest.mock import patch

from weft.protocol.rotation import level_of
from weft.protocol.wire import messages as m
from weft.protocol.wire.options import TaskOptions
from weft.protocol.wire.payload import nbytes_of
from weft.scheduler.core.assignment import assignment, placement
from weft.scheduler.core.assignment.assignment import Draft
from weft.scheduler.core.members import delegation
from weft.scheduler.core.moves import transitions
from weft.scheduler.core.moves.transitions import (
    activate,
    drop_attempt,
    drop_class,
    enqueue,
    move,
    note_ready,
    retire_function,
    stop_waiting,
)
from weft.scheduler.core.records.peers import ClientHandle, WorkerHandle
from weft.scheduler.core.records.priority import base_priority
from weft.scheduler.core.records.tasks import (
    ERRED,
    FORGOTTEN,
    MEMORY,
    PROCESSING,
    QUEUED,
    RELEASED,
    WAITING,
    SchedulerTask,
    TaskClass,
    TaskGroup,
)
from weft.scheduler.core.reports import completion
from weft.scheduler.core.requests import submission, wanted_keys
from weft.scheduler.core.state import SchedulerState


def slow_on_submit(state: SchedulerState, client: ClientHandle, message: m.SubmitTasks) -> None:
    """Create each task as released, tie it, activate it."""
    functions = submission._functions(state, message)
    assert functions is not None
    state.ranks.begin(len(message.keys), state.now)
    classes = []
    known = []
    queued: dict[TaskClass, int] = {}
    for row, key in enumerate(message.keys):
        record = (message.options or [{}])[message.option_of[row] if message.option_of else 0]
        option = TaskOptions.of(record)
        task_class = submission.class_of(state, option)
        function, number = functions[message.function_of[row]], client.number
        generation, user = state.ranks.generation, client.user
        group = TaskGroup(function, task_class, generation, number, options=option, user=user)
        classes.append(task_class)
        task = state.tasks.get(key)
        if task is not None:
            known.append((task, row))
            if task.state == ERRED or task.args is None:
                submission._start_afresh(state, client, message, task, row, group, 0)
            continue
        state.ranks.next += 1
        base = base_priority(option.priority, state.ranks.generation)
        priority = base | (message.ranks[row] if message.ranks else state.ranks.next)
        task = state.tasks[key] = SchedulerTask(key, group, message.args[row], priority)
        user.n_rows += 1
        user.nbytes += nbytes_of(task.args)
        group.function.n_tasks += 1
        group.task_class.n_tasks += 1
        state.counters.n_released += 1
        state.counters.tasks_submitted += 1
        wanted_keys.want(client, task)
        dependencies = message.dependencies[row] if message.dependencies else []
        if dependencies:
            submission.link(state, task, dependencies, is_ranked=bool(message.ranks))
        elif group.task_class.members:
            move(state, task, QUEUED)
            group.task_class.queue.push(task, client.number)
            queued[group.task_class] = level_of(priority)
        else:
            activate(state, task)
    # The class takes its place among those that are ready once, after all rows.
    for task_class, level in queued.items():
        note_ready(state, task_class, level)
    submission._on_known(state, client, message, functions, known)
    for function in functions:
        function.n_tasks -= 1
        if not function.n_tasks:
            retire_function(state, function)
    for task_class in classes:
        drop_class(state, task_class)


def slow_assign(
    state: SchedulerState, drafts: dict[WorkerHandle, Draft], task: SchedulerTask, ws: WorkerHandle
) -> None:
    """Move one task, then the tasks that may follow it, last found first."""
    stack = [task]
    state.touched[ws] = None
    if not ws.processing and not ws.zombies:
        ws.last_progress = state.now
    draft = drafts.setdefault(ws, Draft())
    message = draft.message
    while stack:
        task = stack.pop()
        if task.state == PROCESSING:
            continue
        if task.state == WAITING:
            state.counters.tasks_assigned_ahead += 1
        move(state, task, PROCESSING)
        task.group.prefix.n_processing -= 1  # the draft counts its tasks when it is sent
        task.worker = ws
        task.attempt = state.next_attempt
        state.next_attempt += 1
        task.estimate_ns = task.group.prefix.estimate_ns
        ws.processing[task.attempt] = task
        ws.occupancy_ns += task.estimate_ns
        ws.hold(task.group.task_class.resources)
        place = task.group.function, task.group.client, task.group.task_class.resources
        message.function_of.append(
            draft.function_index.setdefault(place, len(draft.function_index))
        )
        message.keys.append(task.key)
        message.attempts.append(task.attempt)
        message.priorities.append(task.priority)
        message.args.append(task.args)
        message.wanted.append(int(bool(task.wanted_by)))
        message.n_raised.append(state.n_exceptions.get(task, 0))
        message.dependencies.append([d.key for d in task.dependencies])
        for dependency in task.dependencies:
            if dependency.state == MEMORY and ws not in dependency.replicas:
                draft.located[dependency] = None
        stack.extend(
            dependent
            for dependent in task.dependents or ()
            if dependent.state == WAITING
            and ws.occupancy_ns < ws.backlog_ns
            and placement.ahead_worker(dependent, state.ahead) is ws
        )


def slow_send_draft(state: SchedulerState, ws: WorkerHandle, draft: Draft) -> None:
    """Leave out columns without values, as the lane does from the start."""
    if not any(draft.message.dependencies):
        draft.message.dependencies = []
    if not any(draft.message.n_raised):
        draft.message.n_raised = []
    send_draft(state, ws, draft)


send_draft = assignment.send_draft


def slow_on_finished(state: SchedulerState, ws: WorkerHandle, message: m.AttemptsFinished) -> None:
    """Move each finished task to memory, wake its dependents, notify the clients that want it."""
    rows = []
    state.prefixes.durations.add_all(message.durations_us)
    for row, attempt in enumerate(message.attempts):
        task = ws.processing.get(attempt)
        if task is None or any(task is other for other, _ in rows):
            state.counters.reports_stale += 1
            drop_attempt(state, ws, attempt)
        else:
            rows.append((task, row))
    unneeded: list[SchedulerTask] = []
    for task, row in rows:
        attempt = task.attempt
        move(state, task, MEMORY)
        state.out_of_reach.pop(task, None)
        task.attempt = attempt
        task.nbytes = message.nbytes[row]
        task.replicas = (ws,)
        ws.has_what[task] = None
        ws.nbytes += task.nbytes
        state.counters.tasks_completed += 1
        for dependent in task.dependents or ():
            if dependent.state == WAITING:
                assert dependent.waiting_on is not None
                del dependent.waiting_on[task]
                if dependent.waiting_on:
                    state.ahead[dependent] = None
                else:
                    enqueue(state, dependent)
        stop_waiting(task, unneeded)
        if not task.wanted_by and not task.n_waiters:
            unneeded.append(task)
    for prefix, group in groupby(rows, key=lambda entry: entry[0].group.prefix):
        places = [row for _, row in group]
        prefix.learn(
            len(places),
            sum(message.durations_us[row] * 1000 for row in places),
        )
        prefix.series.nbytes += sum(message.nbytes[row] for row in places)
        prefix.series.queued_us += sum(
            message.queued_us[row] for row in places if message.queued_us
        )
        for row in places:
            prefix.series.fetched_us += message.fetched_us[row] if message.fetched_us else 0
    ws.last_progress = state.now
    state.touched[ws] = None
    for task, row in rows:
        blob = message.results[row]
        if task.wanted_by:
            task.delivered = blob is not None
        for client in task.wanted_by:
            if blob is not None:
                state.send_client(client, m.ResultsReady(keys=[task.key], results=[blob]))
            else:
                state.send_client(
                    client,
                    m.KeysInMemory(
                        keys=[task.key],
                        nbytes=[task.nbytes],
                        holder_of=[0],
                        holders=[ws.address],
                    ),
                )
    slow_release_unneeded(state, unneeded)


def slow_release_unneeded(state: SchedulerState, stack: list[SchedulerTask]) -> None:
    """Release each task by a move of the table, and forget it by another one."""
    while stack:
        task = stack.pop()
        if task.wanted_by or task.n_waiters or task.state == FORGOTTEN:
            continue
        if task.state != RELEASED:
            was_active = task.state in transitions.ACTIVE
            transitions.drop_at_workers(state, task)
            move(state, task, RELEASED)
            if was_active:
                stop_waiting(task, stack)
        if not task.dependents:
            transitions.forget(state, task, stack)


@contextmanager
def slow_lanes(state: SchedulerState) -> Iterator[None]:
    """Let a state use these instead of the fused lanes."""
    for handlers in state._handlers.values():
        for kind, slow in (
            (m.SubmitTasks, slow_on_submit),
            (m.AttemptsFinished, slow_on_finished),
        ):
            # The handler of clients in tasks calls that of clients.
            if kind in handlers and handlers[kind] is not delegation.on_submit:
                assert handlers[kind] in {submission.on_submit, completion.on_finished, slow}
                handlers[kind] = slow
    with (
        patch.object(assignment, "assign", slow_assign),
        patch.object(assignment, "send_draft", slow_send_draft),
        patch.object(wanted_keys, "release_unneeded", slow_release_unneeded),
        patch.object(submission, "release_unneeded", slow_release_unneeded),
        patch.object(transitions, "release_unneeded", slow_release_unneeded),
    ):
        yield
