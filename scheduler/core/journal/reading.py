"""Jobs that have ended, and that somebody wants all the same: the journal reads how they ended.

Their client was away for longer than its lease, and asks for them; or the scheduler was started
again before it could tell, and the client submits again all that it wants. Or another client has
got the key. Without this the jobs would run again.

The task of such a key has no recipe, and waits. A result that was read is submitted as a constant.
A failure is that of the task. What the journal has no more is unknown, like any other key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ....protocol.wire.messages import NO_HASH, SubmitTasks, WantKeys
from ..moves.transitions import err
from ..records.peers import ClientHandle
from ..records.tasks import NO_WORKER, SchedulerTask
from ..requests import wanted_keys
from .entries import EndsRead, ReadEnds
from .jobs import DetachedJobs, journal_of
from .resubmission import give_results

if TYPE_CHECKING:
    from ..events import SchedulerTick
    from ..state import SchedulerState

#: Jobs that are read at a time.
MAX_KEYS: Final = 1000
#: What could not be read is read again after so long.
READ_AGAIN_S: Final = 5.0


def is_on_record(state: SchedulerState, key: str, _spec_hash: bytes) -> bool:
    """Return whether a key is that of a job that has ended."""
    return journal_of(state).has_ended(key)


def on_needed(state: SchedulerState, task: SchedulerTask) -> None:
    """Have the journal read how a job has ended."""
    journal = journal_of(state)
    if journal.has_ended(task.key) and task.key not in journal.reading:
        journal.reading[task.key] = None
        journal.unread.append(task.key)
        state.busy[DetachedJobs] = None


def note_client(state: SchedulerState, client: ClientHandle, last_epoch: int) -> None:
    """Note a client of an earlier scheduler: what it submits at first is submitted again."""
    if 0 < last_epoch < state.epoch:
        journal_of(state).returning[client] = None


def note_resubmitted(state: SchedulerState, client: ClientHandle) -> None:
    """Note that a client has submitted all again, or that it is gone."""
    journal_of(state).returning.pop(client, None)


def want_again(
    state: SchedulerState, client: ClientHandle, message: SubmitTasks, rows: list[int]
) -> None:
    """Let a client want jobs that it submits again, and that have ended."""
    hashes = [message.spec_hashes[row] for row in rows] if message.spec_hashes else []
    keys = [message.keys[row] for row in rows]
    wanted_keys.on_want(state, client, WantKeys(keys=keys, spec_hashes=hashes))


def reads(state: SchedulerState, key: str) -> bool:
    """Return whether the journal reads how the job of a key has ended."""
    return key in journal_of(state).reading


def hand_over(state: SchedulerState) -> None:
    """Have those read that were needed since the last pass."""
    journal = journal_of(state)
    for first in range(0, len(journal.unread), MAX_KEYS):
        state.after.append(ReadEnds(journal.unread[first : first + MAX_KEYS]))
    journal.unread = []


def on_ticked(state: SchedulerState, event: SchedulerTick) -> None:
    """Give the tasks that wait for it what was read."""
    for report in event.journal:
        if isinstance(report, EndsRead):
            _on_read(state, report)


def _on_read(state: SchedulerState, read: EndsRead) -> None:
    journal = journal_of(state)
    if read.problem:
        state.log("warning", f"{read.problem}; it is tried again")
        state.call_after(READ_AGAIN_S, _read_again, read.asked.keys)
        return
    _read_again(state, read.rest)
    found = {end.key: (end, spec_hash) for end, spec_hash in read.ends}
    results = {}
    for key in read.asked.keys[: len(read.asked.keys) - len(read.rest)]:
        del journal.reading[key]
        task = state.tasks.get(key)
        if task is None or not _waits(task):
            continue
        end, spec_hash = found.get(key, (None, NO_HASH))
        if end is None or _is_other(task, spec_hash):
            _give_up(state, task)
        elif end.result is not None:
            results[key] = end.result
        elif end.failure is not None:
            err(state, task, end.failure)
    give_results(state, results)


def _read_again(state: SchedulerState, keys: list[str]) -> None:
    """Have keys read that were not."""
    if keys:
        journal_of(state).unread += keys
        state.busy[DetachedJobs] = None


def _waits(task: SchedulerTask) -> bool:
    return task.is_without_recipe and task.state == NO_WORKER


def _is_other(task: SchedulerTask, spec_hash: bytes) -> bool:
    """Return whether another call of the same name is on record."""
    return NO_HASH not in (known := task.spec_hash or NO_HASH, spec_hash) and known != spec_hash


def _give_up(state: SchedulerState, task: SchedulerTask) -> None:
    """Let the clients that want a task submit it."""
    journal_of(state).ended.pop(task.key, None)
    for recipe_needed in state.features.recipe_needed:
        recipe_needed(state, task)
