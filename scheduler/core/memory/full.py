"""Workers whose memory is nearly full, and what a task would add there.

What a worker uses is the size of its process as it was last measured, and the results that have
come and gone since (`used_nbytes`). So garbage, copies and sizes that are not known count from the
next heartbeat on, and measured results at once.

The tasks that a worker has are expected to add what the results of their functions have taken so
far (`Prefix.result_nbytes`). Those whose readers are at the worker, too, are expected to add no
more at a time than one for each thread has: a reader runs right after what it reads. Whether a
worker is full is looked at only where the end of the memory is so near that they may reach it
(`WorkerHandle.watched_above`).

A worker that spills makes room itself, and reports that it is paused while it cannot: it is never
full.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from ....protocol.reported import MEMORY_HIGH
from ....protocol.wire import messages as m
from ..assignment.placement import decide_worker
from ..invariants.checking import differences
from ..moves.taking import close, reopen
from ..records.peers import FULL, NEVER_WATCHED, WorkerHandle
from ..records.prefixes import LARGE_NBYTES
from .records import Memory, expected_at, memory_of
from .usage import spills, used_nbytes

if TYPE_CHECKING:
    from ..records.tasks import SchedulerTask
    from ..state import SchedulerState

#: A worker that uses more than this part of its limit is full.
FULL_SHARE: Final = MEMORY_HIGH
#: Work that was given to one whose expected results would fill more than this is asked back.
CROWDED_SHARE: Final = 0.9
#: A task that a full worker may have may fill it up to this part while it runs.
MEANWHILE_SHARE: Final = 0.93
#: A task that makes a worker larger by less than one part in so many adds nothing to it.
SMALL_PART: Final = 1000
#: The tasks of a thread's backlog fill no more than this before they are reported: they take 30 ms,
#: and memory is written at a few bytes a nanosecond.
SWING_NBYTES: Final = 256 << 20
#: The expected results of so many tasks are added up with each event; of more, at most so often.
MAX_SUMMED: Final = 64
SUM_INTERVAL_S: Final = 0.02
#: The readers of a task that are looked at; with more, it is held for long.
MAX_READERS: Final = 8
#: Full workers that are looked at after one event.
MAX_LOOKED_AT: Final = 64


def note_measured(state: SchedulerState, ws: WorkerHandle) -> None:
    """Note that the size of a worker's process is known, or that the worker is new."""
    if ws.memory_limit and not spills(ws):
        near = FULL_SHARE * ws.memory_limit - SWING_NBYTES * ws.nthreads
        ws.watched_above = ws.nbytes + int(near) - used_nbytes(ws)
        if ws.is_full or ws.nbytes > ws.watched_above:
            look_at(state, ws)


def look_at(state: SchedulerState, ws: WorkerHandle) -> None:
    """Decide whether a worker is full; what it was given too much is asked back."""
    sum_expected(state, ws)
    limit = ws.memory_limit
    if used_nbytes(ws) + expected_at(state, ws).nbytes > CROWDED_SHARE * limit > 0:
        surplus = ws.n_busy - ws.nthreads
        if surplus > 0 and not ws.is_away and ws.may_be_asked_in(state.now) <= 0:
            ws.return_asked = True
            ws.last_asked = state.now
            ws.n_fruitless += 1
            state.send(ws.peer, m.ReturnAttempts(count=surplus))
    _set_full(state, ws, is_full=_is_over(state, ws))


def sum_expected(state: SchedulerState, ws: WorkerHandle) -> None:
    """Add up what the tasks of a worker are expected to add to it.

    Between two sums of many only what is assigned is counted (`note_assigned`).
    """
    if not state.prefixes.has_large:
        return
    expected = expected_at(state, ws)
    if len(ws.processing) > MAX_SUMMED and state.now - expected.summed_at < SUM_INTERVAL_S:
        return
    expected.summed_at = state.now
    unread = n_read = largest = 0
    for task in ws.processing.values():
        nbytes = task.group.prefix.result_nbytes
        if nbytes:
            if is_read_here(task, ws):
                n_read += 1
                largest = max(largest, nbytes)
            else:
                unread += nbytes
    expected.nbytes = unread + min(n_read, ws.nthreads) * largest


def is_read_here(task: SchedulerTask, ws: WorkerHandle) -> bool:
    """Return whether all that are to read a task are at its worker, behind it."""
    readers = task.dependents
    if not readers or task.wanted_by or len(readers) > MAX_READERS:
        return False
    return all(reader.worker is ws for reader in readers)


def _set_full(state: SchedulerState, ws: WorkerHandle, *, is_full: bool) -> None:
    if is_full is ws.is_full:
        return
    if is_full:
        close(state, ws, FULL)
        state.touched[ws] = None
        state.full[ws] = None
        state.busy[Memory] = None
    else:
        reopen(state, ws, FULL)
        del state.full[ws]
        for worker_opened in state.features.worker_opened:
            worker_opened(state, ws)


def look_at_full(state: SchedulerState) -> None:
    """Find out which full workers have room again: results are released without their reports."""
    full = state.full
    for ws in list(islice(full, MAX_LOOKED_AT)):
        look_at(state, ws)
        if ws in full and len(full) > MAX_LOOKED_AT:
            del full[ws]  # the others get their turn after the next event
            full[ws] = None


def note_assigned(state: SchedulerState, ws: WorkerHandle, task: SchedulerTask) -> None:
    """Note, within an assignment pass, what a worker was given: it may be full now."""
    nbytes = task.group.prefix.result_nbytes
    if nbytes and not is_read_here(task, ws):
        expected_at(state, ws).nbytes += nbytes
        if ws.nbytes > ws.watched_above and _is_over(state, ws):
            # What its functions make may be known to be smaller by now. It must not be found to
            # have room after the pass, for nothing would be assigned then.
            sum_expected(state, ws)
            _set_full(state, ws, is_full=_is_over(state, ws))


def _is_over(state: SchedulerState, ws: WorkerHandle) -> bool:
    return used_nbytes(ws) + expected_at(state, ws).nbytes > FULL_SHARE * ws.memory_limit > 0


def forget_worker(state: SchedulerState, ws: WorkerHandle) -> None:
    """Forget a worker that is gone."""
    state.full.pop(ws, None)
    memory_of(state).expected.pop(ws, None)
    ws.is_full = False
    ws.watched_above = NEVER_WATCHED


# -- what a task adds ------------------------------------------------------------------------------
def growth(task: SchedulerTask, ws: WorkerHandle) -> int:
    """Return by how many bytes a worker is larger after a task; below 0 = smaller.

    A result of a size that is not known, or that is small, counts as nothing. An input that is
    fetched for it stays there as a copy if it is still needed then.
    """
    nbytes: int = task.group.prefix.result_nbytes
    for dependency in task.dependencies:
        if is_let_go(dependency):
            if ws in dependency.replicas:
                nbytes -= dependency.nbytes
        elif ws not in dependency.replicas:
            nbytes += dependency.nbytes
    return nbytes


def is_let_go(dependency: SchedulerTask) -> bool:
    """Return whether an input is dropped when the task has ended that is to read it."""
    return dependency.n_waiters == 1 and not dependency.wanted_by


def adds_to(state: SchedulerState, task: SchedulerTask, ws: WorkerHandle) -> bool:
    """Return whether a full worker must not get a task: it would be larger after it, or burst.

    One that runs nothing, and is not full of results, gets a task all the same if it fits: nothing
    else would make room there.
    """
    if not ws.is_full:
        return False
    need: int = task.group.prefix.result_nbytes
    need += sum(d.nbytes for d in task.dependencies if ws not in d.replicas)
    if need < LARGE_NBYTES:
        return False
    expected = expected_at(state, ws).nbytes
    if used_nbytes(ws) + expected + need > MEANWHILE_SHARE * ws.memory_limit:
        return True
    if growth(task, ws) < max(LARGE_NBYTES, ws.memory_limit // SMALL_PART):
        return False
    return bool(ws.processing) or is_full_of_results(ws)


def is_full_of_results(ws: WorkerHandle) -> bool:
    """Return whether results take most of what a full worker uses, so that others can make room."""
    return ws.nbytes * 2 >= used_nbytes(ws)


def decide_worker_with_memory(
    state: SchedulerState, task: SchedulerTask, with_room: WorkerHandle
) -> WorkerHandle:
    """Choose as `placement.decide_worker` does, but no full worker for a task that adds to it."""
    ws = decide_worker(task, with_room, state.now)
    return with_room if adds_to(state, task, ws) else ws


# -- invariants ------------------------------------------------------------------------------------
#: {what holds: what breaks it}
FULL_INVARIANTS: Final[dict[str, Callable[[SchedulerState], Iterable[Any]]]] = {
    "full lists the workers that are full": lambda s: differences(
        s.full, [ws for ws in s.workers.values() if ws.is_full]
    ),
    "a full worker has a limit": lambda s: [ws for ws in s.full if not ws.memory_limit],
    "a worker is watched if it has a limit and does not spill": lambda s: [
        ws
        for ws in s.workers.values()
        if (ws.memory_limit > 0 and not spills(ws)) != (ws.watched_above != NEVER_WATCHED)
    ],
    "nothing is expected of a worker that is gone": lambda s: [
        ws for ws in memory_of(s).expected if s.workers_by_id.get(ws.worker_id) is not ws
    ],
}
