"""Tasks that are run again: failed ones on request, others after a pause.

A client asks with `RetryKeys`. A task that has raised waits for the pause that its `retries=`
states, in state no_worker and among `SchedulerState.paused`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from zlib import crc32

from ....protocol.wire import messages as m
from ..moves.reporting import send_states
from ..moves.transitions import activate, enqueue, move
from ..moves.unrunnable import file_unrunnable
from ..records.peers import ClientHandle
from ..records.tasks import ERRED, NO_WORKER, QUEUED, RELEASED, SchedulerTask
from .submission import run_again
from .wanted_keys import want

if TYPE_CHECKING:
    from ..state import SchedulerState


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
