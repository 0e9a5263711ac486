"""Stragglers: calls that run for much longer than others of their category are begun elsewhere.

Calls that may be run again at any time say after which multiple of the mean. That counts for these
alone: others of the category need not be idempotent. Such a call is begun at once on another worker
with a free thread. With `abort_stragglers=` the first attempt is dropped and interrupted, as one
that takes too long. With `copy_stragglers=` it goes on as a twin: whose result is first counts, and
the other attempt is dropped by the room of recovery, and interrupted by this one. While its queue
is paused a call is left alone: it would be held back there.

That is neither a failure nor a retry. The next time its limit is twice as high, so a call that
takes long wherever it runs comes to its end, and few copies are made of it. Without another free
worker it goes on.

The scheduler does not know when an attempt began, but from when on it runs at the latest: when its
worker was seen to have no more attempts than threads. So none is ended too early. The source of the
idea is the fast abort of Work Queue, where the multiple is doubled likewise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..assignment.assignment import Draft, assign, send_draft
from ..blocking.failing import note_failed
from ..interruption.interrupted import note_beaten, note_ended
from ..interruption.interrupting import interrupt
from ..job_queues.feature import is_paused
from ..moves.transitions import abandon, move, take_back_from
from ..records.tasks import MEMORY, NO_WORKER, PROCESSING, QUEUED, WAITING, SchedulerTask
from ..recovery.merging import run_beside
from ..recovery.records import recovery_of
from .records import Stragglers, categories_of, category_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from ..records.peers import WorkerHandle
    from ..state import SchedulerState
    from .records import CategoryRecord

#: So many calls have to end before their mean counts.
LEAST_ENDED: Final = 10
#: Workers are looked at as often as this, seconds.
LOOK_S: Final = 0.5
#: The least limit of a first attempt, seconds.
LEAST_RUN_S: Final = 1.0
#: Stragglers that are looked at in one look.
MAX_LATE: Final = 100


def stragglers_of(state: SchedulerState) -> Stragglers:
    """Return what is known of attempts that may be stragglers."""
    return state.record(Stragglers)


def declare(state: SchedulerState, category: CategoryRecord, options: Mapping[str, Any]) -> None:
    """Look for stragglers from now on if calls that are submitted may be some."""
    category.times.are_some |= "straggler_multiple" in options
    stragglers = stragglers_of(state)
    if category.times.are_some and stragglers.next_look is None:
        stragglers.next_look = state.call_after(LOOK_S, _look)


def _look(state: SchedulerState) -> None:
    """Look for stragglers; O(workers and what they have), while such a category is known."""
    stragglers = stragglers_of(state)
    stragglers.next_look = None
    _end_copies(state)
    watched = [c for c in categories_of(state).by_name.values() if c.times.are_some]
    if not (watched and state.tasks) and not stragglers.copies:
        for one in watched:
            one.times.are_some = False
        stragglers.forget()
        return  # the next submission has it looked again
    stragglers.next_look = state.call_after(LOOK_S, _look)
    before, stragglers.begun = stragglers.begun, {}
    n_late, stragglers.n_late = stragglers.n_late, {}
    late: list[tuple[SchedulerTask, int]] = []
    for ws in state.workers.values():
        all_run = ws.n_busy <= ws.nthreads and not ws.n_behind
        for attempt, task in ws.processing.items():
            options = task.group.options
            multiple = options.category.get("straggler_multiple", 0.0)
            category = category_of(state, options) if multiple else None
            if category is None or options.gang or attempt in ws.blocked:
                continue
            since = before.get(attempt)
            if since is None:
                if not all_run or any(one.state != MEMORY for one in task.dependencies):
                    continue
                since = state.awake_s
            stragglers.begun[attempt] = since
            known_s = category.times.limit_s(multiple, LEAST_ENDED)
            limit_s = max(known_s, LEAST_RUN_S) * 2 ** n_late.get(task, 0)
            is_late = known_s and state.awake_s - since > limit_s
            if is_late and not (ws.is_away or state.awaits_peers or is_paused(state, task)):
                late.append((task, attempt))
    unfinished = (PROCESSING, QUEUED, WAITING, NO_WORKER)
    stragglers.n_late = {t: n for t, n in n_late.items() if t.state in unfinished}
    n_left = MAX_LATE - len(stragglers.copies) // 2
    for task, attempt in late[: max(n_left, 0)]:
        # The end of one takes back what was assigned behind it.
        if task.state == PROCESSING and task.attempt == attempt:
            other = _free_worker(state, task)
            if other is not None:
                _begin_elsewhere(state, task, other)


def _free_worker(state: SchedulerState, task: SchedulerTask) -> WorkerHandle | None:
    """Return a worker that does not run a task, with a thread for it and all that it asks for."""
    task_class = task.group.task_class
    run_it = {ws for ws, other in stragglers_of(state).copies.values() if other is task}
    for ws in task_class.members:
        is_free = not ws.closed and ws.n_busy < ws.nthreads and ws is not task.worker
        if is_free and ws not in run_it and ws.has_resources_for(task_class):
            return ws
    return None


def _begin_elsewhere(state: SchedulerState, task: SchedulerTask, other: WorkerHandle) -> None:
    """Begin a task on another worker; end the attempt before, or let it run beside that."""
    stragglers, ws, attempt = stragglers_of(state), task.worker, task.attempt
    facts = task.group.options.category
    category = category_of(state, task.group.options)
    assert ws is not None
    assert category is not None
    run_s = state.awake_s - stragglers.begun.pop(attempt)
    text = f"took {run_s:.3g} s, others of its category {category.times.mean_s:.3g} s in the mean"
    note_failed(state, task, ws, text, moves=True)
    category.times.n_late += 1
    stragglers.n_late[task] = stragglers.n_late.get(task, 0) + 1
    is_copied = facts.get("copies_stragglers", False)
    if is_copied:
        state.story.note(state.now, f"{text}, on {ws.name}: it begins elsewhere, too", [task.key])
        run_beside(state, ws, task)
    else:
        state.story.note(state.now, f"{text}, on {ws.name}", [task.key])
        note_ended(state, ws, task, text)
        abandon(state, task)
    take_back_from(state, ws, {task: None})
    if not is_copied:
        interrupt(state, ws, [attempt])  # results of others are at its worker, which may be slow
    # It may be held back, by a limit of its user for instance: then it begins when that is over,
    # and of two attempts the first is the current one again.
    if task.state == QUEUED:
        move(state, task, WAITING)
        drafts: dict[WorkerHandle, Draft] = {}
        assign(state, drafts, task, other)
        for one, draft in drafts.items():
            send_draft(state, one, draft)
        if is_copied:
            stragglers.copies |= {attempt: (ws, task), task.attempt: (other, task)}


def _end_copies(state: SchedulerState) -> None:
    """Interrupt the attempts that have lost against the other one of their task."""
    copies, twins = stragglers_of(state).copies, recovery_of(state).twins
    for attempt, (ws, task) in list(copies.items()):
        is_there = state.workers.get(ws.peer) is ws
        if is_there and (attempt in ws.processing or attempt in twins):
            continue
        del copies[attempt]
        if is_there and attempt in ws.zombies:
            note_beaten(state, ws, task, attempt)
            interrupt(state, ws, [attempt])
