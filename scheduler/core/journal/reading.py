"""Jobs that have ended, and that somebody wants all the same: the journal reads how they ended.

Their client was away for longer than its lease, and asks for them; or the scheduler was started
again before it could tell, and the client submits again all that it wants. Or another client has
got the key. Without this the jobs would run again.

A worker may have had the last copy of a result, or only its client has it.

The task of such a key has no recipe, and waits. A result that was read is submitted as a constant.
A failure is that of the task. What the journal has no more is unknown, like any other key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ....protocol.wire.keys import names_content
from ....protocol.wire.messages import NO_HASH, ResultsReady, SubmitTasks, WantKeys
from ....protocol.wire.options import DONE, NO_OPTIONS
from ....protocol.wire.payload import nbytes_of
from ..moves.transitions import err, move, release_unneeded
from ..moves.without_recipe import change_args, change_group, class_without_recipe, make
from ..records.peers import ClientHandle
from ..records.tasks import (
    MEMORY,
    NO_WORKER,
    PROCESSING,
    QUEUED,
    RELEASED,
    SchedulerTask,
)
from ..requests import wanted_keys
from ..upkeep.slow_readers import waiting_nbytes
from .entries import EndsRead, ReadEnds
from .jobs import DetachedJobs, SubmitsAgain, journal_of
from .resubmission import give_results

if TYPE_CHECKING:
    from ....protocol.wire.payload import Blob
    from ..events import SchedulerTick
    from ..records.deadlines import Deadline
    from ..state import SchedulerState

#: Jobs that are read at a time.
MAX_KEYS: Final = 1000
#: What could not be read is read again after so long.
READ_AGAIN_S: Final = 5.0
#: Bytes of results that were read and that no worker has taken: with more of them none are read
#: for workers. With as many that a client has not read, none are read for it.
MAX_GIVEN_NBYTES: Final = 64 << 20
#: It is looked after so long whether workers or clients have taken some.
LOOK_S: Final = 1.0


class GivenResults(dict[SchedulerTask, int]):
    """The bytes of the results that were read, by the tasks that give them to workers."""

    def __init__(self) -> None:
        super().__init__()
        #: when it is looked again whether one of those that are to be read would be taken
        self.look: Deadline | None = None
        #: the bytes that workers are to take before more is read for them; below 0 = it is read
        self.excess = 0

    @property
    def nbytes(self) -> int:
        """Return the bytes that no worker has taken."""
        return sum(n for task, n in self.items() if task.state in (QUEUED, NO_WORKER))


def given_in(state: SchedulerState) -> GivenResults:
    """Return the results that were read and that no worker has taken."""
    return state.record(GivenResults)


def is_on_record(state: SchedulerState, key: str, _spec_hash: bytes) -> bool:
    """Return whether a key is that of a job that has ended."""
    return journal_of(state).has_ended(key)


def on_needed(state: SchedulerState, task: SchedulerTask) -> None:
    """Have the journal read how a job has ended."""
    journal = journal_of(state)
    if journal.has_ended(task.key):
        journal.reading[task.key] = None
        state.busy[DetachedJobs] = None


def note_client(state: SchedulerState, client: ClientHandle, last_epoch: int) -> None:
    """Note a client; one that was here, or at an earlier scheduler, begins by submitting again.

    Its connection may break meanwhile: then it goes on with that.
    """
    returning = journal_of(state).returning
    if not last_epoch:
        returning.setdefault(client, SubmitsAgain.NOTHING)
    elif returning.setdefault(client, SubmitsAgain.ALL) is SubmitsAgain.NOTHING:
        returning[client] = SubmitsAgain.WANTED


def note_resubmitted(state: SchedulerState, client: ClientHandle) -> None:
    """Note that a client has submitted all again."""
    journal_of(state).returning[client] = SubmitsAgain.NOTHING


def note_gone(state: SchedulerState, client: ClientHandle) -> None:
    """Note that a client is gone."""
    journal_of(state).returning.pop(client, None)


def want_again(
    state: SchedulerState, client: ClientHandle, message: SubmitTasks, rows: list[int]
) -> None:
    """Let a client want jobs that it submits again, and that have ended."""
    keys = [message.keys[row] for row in rows]
    hashes = [message.spec_hashes[row] for row in rows] if message.spec_hashes else []
    pairs = zip(keys, hashes, strict=False)
    hashes = [NO_HASH if names_content(key) else spec_hash for key, spec_hash in pairs]
    wanted_keys.on_want(state, client, WantKeys(keys=keys, spec_hashes=hashes))


def want_delivered(
    state: SchedulerState, client: ClientHandle, message: SubmitTasks, rows: list[int]
) -> None:
    """Let a client want jobs on record whose results it has: they are read if a task needs them."""
    rest = []
    for row in rows:
        key = message.keys[row]
        if (task := state.tasks.get(key)) is None:
            task = make(state, key, message.spec_hashes[row] if message.spec_hashes else NO_HASH)
        if task.state != RELEASED:
            rest.append(row)
            continue
        wanted_keys.want(client, task)
        task.delivered = True
        wanted_keys.note_made(state, [key])  # a worker may have kept it
    want_again(state, client, message, rest)


def on_needed_again(state: SchedulerState, task: SchedulerTask) -> None:
    """Let a job on record whose data is gone be read, unless its client has it begin anew."""
    journal = journal_of(state)
    if journal.is_done(task.key) and task.key not in journal.accepted and _is_plain(task):
        _take_recipe(state, task)


def _take_recipe(state: SchedulerState, task: SchedulerTask) -> None:
    for client in task.wanted_by:
        wanted_keys.keep_function(client, task.group.function)
    group = task.group.in_class(class_without_recipe(state))
    group.options = NO_OPTIONS  # features have nothing to do for it: it is read, or a constant
    group.needed_again = None
    change_group(state, task, group)
    change_args(task, None)
    state.n_exceptions.pop(task, None)  # of calls, which are over
    inputs, task.dependencies = task.dependencies, ()
    for dependency in inputs:
        if isinstance(others := dependency.dependents, dict):
            del others[task]
        if not others or isinstance(others, tuple):
            dependency.dependents = None
    release_unneeded(state, [*inputs])


def _is_plain(task: SchedulerTask) -> bool:
    """Return whether a task is a call like others, and neither a gang's nor an actor."""
    task_class = task.group.task_class
    is_call = task_class.has_recipes and task_class.takes_thread and not task_class.is_deferred
    return is_call and not task.group.function.is_unique


def reads(state: SchedulerState, key: str) -> bool:
    """Return whether the journal reads how the job of a key has ended."""
    return key in journal_of(state).reading


def hand_over(state: SchedulerState) -> None:
    """Have the next ends read that tasks wait for and that would be taken, unless some are now."""
    journal, given = journal_of(state), given_in(state)
    if journal.asked or not journal.reading or given.look is not None:
        return
    given.excess = given.nbytes - MAX_GIVEN_NBYTES
    has_room: dict[ClientHandle, bool] = {}
    for key in [*journal.reading]:
        if len(journal.asked) == MAX_KEYS:
            break
        task = state.tasks.get(key)
        if task is None or not _waits(task):
            del journal.reading[key]
        elif journal.ended.get(key) != DONE or _is_taken(state, task, has_room):
            journal.asked.append(key)
    if journal.asked:
        state.after.append(ReadEnds(journal.asked))
    elif journal.reading:
        given.look = state.call_after(LOOK_S, _look)


def _is_taken(
    state: SchedulerState, task: SchedulerTask, has_room: dict[ClientHandle, bool]
) -> bool:
    """Return whether a worker would take the result of a job, or else a client that wants it."""
    if _workers_take(state):
        return True
    for client in () if task.delivered else task.wanted_by:
        if client not in has_room:
            waiting = (
                MAX_GIVEN_NBYTES if client.peer is None else waiting_nbytes(state, client.peer)
            )
            has_room[client] = waiting < MAX_GIVEN_NBYTES
        if has_room[client]:
            return True
    return False


def _workers_take(state: SchedulerState) -> bool:
    return bool(state.default_class.members) and given_in(state).excess <= 0


def is_given(task: SchedulerTask) -> bool:
    """Return whether the result of a job is at a worker, or was given to one."""
    return task.state == MEMORY or (task.is_without_recipe and task.state == PROCESSING)


def _look(state: SchedulerState) -> None:
    """Read on, if something is taken now."""
    given_in(state).look = None
    state.busy[DetachedJobs] = None


def on_assigned(state: SchedulerState, tasks: list[SchedulerTask]) -> None:
    """Keep no result that a worker is sent: it is read again if that worker is lost."""
    given = given_in(state)
    for task in tasks:
        if (nbytes := given.pop(task, None)) is not None:
            given.excess -= nbytes
            _take_recipe(state, task)
    if given.look is not None and given.excess <= 0:
        state.deadlines.cancel(given.look)
        given.look = None
        hand_over(state)  # the journal's entries of this event were handed over before


def on_ticked(state: SchedulerState, event: SchedulerTick) -> None:
    """Give the tasks that wait for it what was read."""
    for report in event.journal:
        if isinstance(report, EndsRead):
            _on_read(state, report)


def _on_read(state: SchedulerState, read: EndsRead) -> None:
    journal = journal_of(state)
    if read.problem != journal.read_problem and read.problem:
        state.log("warning", f"{read.problem}; it is tried again", "journal-failed")
    journal.read_problem = read.problem
    if read.problem:
        state.call_after(READ_AGAIN_S, _go_on)
        return
    found = {end.key: (end, spec_hash) for end, spec_hash in read.ends}
    results: dict[str, tuple[Blob, bytes]] = {}
    for key in journal.asked[: len(journal.asked) - len(read.rest)]:
        task = state.tasks.get(key)
        if task is not None and _waits(task):
            end, spec_hash = found.get(key, (None, NO_HASH))
            if end is None:
                journal.ended.pop(key, None)
                _give_up(state, task)
            elif _is_other(task, spec_hash):
                _give_up(state, task)
            elif end.result is not None:
                if _workers_take(state):
                    results[key] = end.result, spec_hash
                elif _send(state, task, end.result):
                    continue  # it is read again for a worker
            elif end.failure is not None:
                err(state, task, end.failure)
        journal.reading.pop(key, None)
    give_results(state, results)
    given = given_in(state)
    for key, (result, _) in results.items():
        given[state.tasks[key]] = nbytes_of(result)
    _go_on(state)


def _send(state: SchedulerState, task: SchedulerTask, result: Blob) -> bool:
    """Send a result to clients, since no worker takes it now; return whether a task needs it."""
    message = ResultsReady(keys=[task.key], results=[result])
    for client in () if task.delivered else task.wanted_by:
        state.send_client(client, message)
    if not task.n_waiters:
        move(state, task, RELEASED)
    task.delivered = True
    return task.n_waiters > 0


def _go_on(state: SchedulerState) -> None:
    """Have what is left read with this event."""
    journal_of(state).asked = []
    state.busy[DetachedJobs] = None


def _waits(task: SchedulerTask) -> bool:
    return task.is_without_recipe and task.state == NO_WORKER


def _is_other(task: SchedulerTask, spec_hash: bytes) -> bool:
    """Return whether another call of the same name is on record."""
    if names_content(task.key):
        return False
    return NO_HASH not in (known := task.spec_hash or NO_HASH, spec_hash) and known != spec_hash


def _give_up(state: SchedulerState, task: SchedulerTask) -> None:
    """Let the clients that want a task submit it."""
    for recipe_needed in state.features.recipe_needed:
        recipe_needed(state, task)
