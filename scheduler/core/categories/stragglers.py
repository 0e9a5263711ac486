"""Stragglers: calls that run for much longer than others of their category are begun elsewhere.

Calls that may be run again at any time say after which multiple of the mean (`abort_stragglers=`).
That counts for these alone: others of the category need not be idempotent. Such a call is dropped
and interrupted, as one that takes too long, and begun at once on another worker with a free thread.
While its queue is paused it is left alone: it would be held back there.

That is neither a failure nor a retry. The next time its limit is twice as high, so a call that
takes long wherever it runs comes to its end. Without another free worker it goes on.

The scheduler does not know when an attempt began, but from when on it runs at the latest: when its
worker was seen to have no more attempts than threads. So none is ended too early. The source of the
idea is the fast abort of Work Queue, where the multiple is doubled likewise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..assignment.assignment import Draft, assign, send_draft
from ..blocking.failing import note_failed
from ..interruption.interrupted import note_ended
from ..interruption.interrupting import interrupt
from ..job_queues.feature import is_paused
from ..moves.transitions import abandon, move, take_back_from
from ..records.tasks import MEMORY, NO_WORKER, PROCESSING, QUEUED, WAITING, SchedulerTask
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
    watched = [c for c in categories_of(state).by_name.values() if c.times.are_some]
    if not (watched and state.tasks):
        for one in watched:
            one.times.are_some = False
        stragglers.forget()
        return  # the next submission has it looked again
    stragglers.next_look = state.call_after(LOOK_S, _look)
    before, stragglers.begun = stragglers.begun, {}
    n_aborted, stragglers.n_aborted = stragglers.n_aborted, {}
    late: list[tuple[SchedulerTask, int]] = []
    for ws in state.workers.values():
        all_run = ws.n_busy <= ws.nthreads and not ws.n_behind
        for attempt, task in ws.processing.items():
            options = task.group.options
            multiple = options.category.get("straggler_multiple", 0.0)
            category = category_of(state, options) if multiple else None
            if category is None or attempt in ws.blocked:
                continue
            since = before.get(attempt)
            if since is None:
                if not all_run or any(one.state != MEMORY for one in task.dependencies):
                    continue
                since = state.awake_s
            stragglers.begun[attempt] = since
            known_s = category.times.limit_s(multiple, LEAST_ENDED)
            limit_s = max(known_s, LEAST_RUN_S) * 2 ** n_aborted.get(task, 0)
            is_late = known_s and state.awake_s - since > limit_s
            if is_late and not (ws.is_away or is_paused(state, task)):
                late.append((task, attempt))
    unfinished = (PROCESSING, QUEUED, WAITING, NO_WORKER)
    stragglers.n_aborted = {t: n for t, n in n_aborted.items() if t.state in unfinished}
    for task, attempt in late[:MAX_LATE]:
        # The end of one takes back what was assigned behind it.
        if task.state == PROCESSING and task.attempt == attempt:
            other = _free_worker(state, task)
            if other is not None:
                _abort(state, task, other)


def _free_worker(state: SchedulerState, task: SchedulerTask) -> WorkerHandle | None:
    """Return another worker with a thread for a task, and all else that it asks for."""
    task_class = task.group.task_class
    for ws in task_class.members:
        is_free = not ws.closed and ws.n_busy < ws.nthreads and ws is not task.worker
        if is_free and ws.has_resources_for(task_class):
            return ws
    return None


def _abort(state: SchedulerState, task: SchedulerTask, other: WorkerHandle) -> None:
    """End an attempt, and begin the task on another worker."""
    stragglers, ws, attempt = stragglers_of(state), task.worker, task.attempt
    category = category_of(state, task.group.options)
    assert ws is not None
    assert category is not None
    run_s = state.awake_s - stragglers.begun.pop(attempt)
    text = f"took {run_s:.3g} s, others of its category {category.times.mean_s:.3g} s in the mean"
    note_ended(state, ws, task, text)
    note_failed(state, task, ws, text, moves=True)
    state.story.note(state.now, f"{text}, on {ws.name}", [task.key])
    category.times.n_aborted += 1
    stragglers.n_aborted[task] = stragglers.n_aborted.get(task, 0) + 1
    abandon(state, task)
    take_back_from(state, ws, {task: None})
    interrupt(state, ws, [attempt])  # results of others are at its worker, which may be slow
    # It may be held back, by a limit of its user for instance: then it begins when that is over.
    if task.state == QUEUED:
        move(state, task, WAITING)
        drafts: dict[WorkerHandle, Draft] = {}
        assign(state, drafts, task, other)
        for one, draft in drafts.items():
            send_draft(state, one, draft)
