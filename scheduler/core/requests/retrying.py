"""Tasks that are run again: failed ones on request, others after a pause or on another worker.

A client asks with `RetryKeys`. A task that has raised waits for the pause that its `retries=`
states, in state no_worker and among `SchedulerState.paused`. A task that has raised `Reschedule`
joins a class that its last workers may not run, while others may.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final
from zlib import crc32

from ....protocol.wire import messages as m
from ....protocol.wire.failure import RESCHEDULE, Failure
from ..moves.eligibility import fill_class
from ..moves.reporting import send_states
from ..moves.transitions import activate, enqueue, move
from ..moves.unrunnable import file_unrunnable
from ..moves.without_recipe import change_group
from ..records.peers import ClientHandle, WorkerHandle
from ..records.tasks import ERRED, NO_WORKER, QUEUED, RELEASED, SchedulerTask, TaskClass
from .submission import run_again
from .wanted_keys import want

if TYPE_CHECKING:
    from ..state import SchedulerState

#: A task avoids so many of the workers on which it has asked for another one: the latest.
MAX_AVOIDED: Final = 4
#: A task may ask for another worker so often without a pause; the pauses after that.
N_AT_ONCE: Final = 3
RESCHEDULE_PAUSES: Final = (0.05, 2.0, 5.0, 0.0)


# -- on request -----------------------------------------------------------------------------------
def on_retry(state: SchedulerState, client: ClientHandle, message: m.RetryKeys) -> None:
    """Run failed tasks again, and those of their inputs that failed; then send their states.

    A task that has not failed is left as it is. The client wants each.
    """
    asked: dict[str, None] = {}
    unknown: dict[str, None] = {}
    inputs: dict[str, None] = {}
    for key in message.keys:
        task = state.tasks.get(key)
        if task is None:
            unknown[key] = None
            continue
        asked[key] = None
        want(client, task)
        if task.state == ERRED:
            again = run_again(state, task)
            state.counters.tasks_retried += len(again)
            inputs.update((t.key, None) for t in again if t in client.wants)
        elif task.state == RELEASED:
            task.delivered = False
            activate(state, task)
    state.story.note(state.now, f"retried by {client.name}", list(asked))
    others = [key for key in inputs if key not in asked]
    state.send_client(client, m.KeysRetried(request=message.request, keys=others))
    send_states(state, client, [*asked, *others])
    if unknown:
        state.send_client(client, m.KeysUnknown(keys=list(unknown)))


# -- after an exception ---------------------------------------------------------------------------
def take_retry(state: SchedulerState, task: SchedulerTask) -> float | None:
    """Take one of the retries of a task whose attempt has failed.

    Return the pause before it, seconds, 0 = none; or None: the task has no retry left.
    """
    options = task.group.options
    n_before = state.n_exceptions.get(task, 0)
    if n_before >= options.retries:
        return None
    state.n_exceptions[task] = n_before + 1
    state.counters.tasks_retried += 1
    return pause_s(options.pauses, task.key, n_before + 1) if options.pauses else 0.0


# -- after a pause --------------------------------------------------------------------------------
def pause_s(pauses: Sequence[float], key: str, n: int) -> float:
    """Return the pause before the n-th retry of a task, seconds.

    The part of it that is left out depends on the key: it is another one for each task.
    """
    first_s, factor, longest_s, jitter = pauses
    if first_s <= 0:
        return 0.0
    # A power of a large number would overflow.
    seconds = first_s
    for _ in range(n - 1):
        if factor <= 1 or seconds >= longest_s:
            break
        seconds *= factor
    share = crc32(f"{n} {key}".encode()) / (1 << 32)
    return min(seconds, longest_s) * (1 - jitter * share)


def pause(state: SchedulerState, task: SchedulerTask, delay_s: float) -> None:
    """Let a task that was taken back wait before it runs again, if it could run now."""
    if task.state == QUEUED:
        move(state, task, NO_WORKER)
        file_unrunnable(state, task)
    if task.state == NO_WORKER:
        state.paused[task] = state.call_after(delay_s, end_pause, task)
        state.story.note(state.now, f"runs again in {delay_s:.3g} s", [task.key])


def end_pause(state: SchedulerState, task: SchedulerTask) -> None:
    """Let a task run that has paused."""
    del state.paused[task]
    if task.group.task_class.members:  # else it waits for a worker
        enqueue(state, task)


# -- on another worker ----------------------------------------------------------------------------
def is_reschedule(failure: Failure) -> bool:
    """Return whether an attempt has not failed, but asks for another worker."""
    return bool(failure[0] == RESCHEDULE)


def avoid(state: SchedulerState, task: SchedulerTask, ws: WorkerHandle) -> float:
    """Let a task avoid the worker on which it has asked for another; return its pause, seconds.

    It is processing there, and about to be taken back.
    """
    old = task.group
    task_class = old.task_class
    if task.is_without_recipe or task_class.is_deferred or not task_class.takes_thread:
        return 0.0  # it stays where it is
    avoided = (*(i for i in task_class.avoided if i != ws.worker_id), ws.worker_id)[-MAX_AVOIDED:]
    key = (task_class.workers, task_class.allow_other_workers, task_class.resources, avoided)
    found = state.classes.get(key)
    if found is None:
        found = state.classes[key] = TaskClass(key, *key)
        fill_class(state, found)
    group = old.in_class(found)
    group.n_rescheduled += 1
    change_group(state, task, group)
    n_late = group.n_rescheduled - N_AT_ONCE
    return pause_s(RESCHEDULE_PAUSES, task.key, n_late) if n_late > 0 else 0.0
