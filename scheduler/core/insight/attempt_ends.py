"""How the attempts of tasks ended, for display.

Attempts that raised are noted, those under which a worker died, and those whose result was lost
later; so tasks that run once, finish and keep their result cost nothing. Where a result was made is
not on record, but copies are listed behind it: its worker is the first holder, and is noted when it
ceases to be that. The table is bounded: the latest tasks are kept.

Attempts that are interrupted, because they are overdue or their task was cancelled, are noted with
how they ended then. A cancelled task is forgotten at once: those of the latest are kept by key.

A new scheduler does not know the ends that the one before it has noted, but for the number of the
exceptions, nor which of the workers that hold a result has made it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ....protocol.wire import messages as m
from ....protocol.wire.failure import RESCHEDULE
from ..records.tasks import MEMORY, SchedulerTask

if TYPE_CHECKING:
    from ....protocol.wire.failure import Failure
    from ..records.peers import WorkerHandle
    from ..state import SchedulerState

#: Tasks whose attempts are kept, and the ends of one task: the latest.
MAX_TASKS: Final = 10_000
MAX_ENDS: Final = 20
#: Cancelled tasks whose interrupted attempts are kept.
MAX_CANCELLED: Final = 1_000
_MAX_TEXT_CHARS: Final = 300

_FINISHED: Final = "finished"
_LOST: Final = "finished; its result was lost later"
_CANCELLED: Final = "was cancelled"
_RAISED_BEFORE: Final = "raised an exception, before the scheduler was restarted"


class InterruptedAttempt:
    """A running attempt that was dropped and is interrupted, until it has ended."""

    __slots__ = ("cause", "is_killed", "key", "since", "task", "when_over", "ws")

    def __init__(
        self, ws: WorkerHandle, key: str, cause: str, since: float, task: SchedulerTask | None
    ) -> None:
        self.ws = ws
        self.key = key
        self.cause = cause
        self.since = since
        #: None = it was cancelled, and may be forgotten
        self.task = task
        #: the supervisor was asked to end its process
        self.is_killed = False
        #: called when it has ended
        self.when_over: Callable[[], object] | None = None


def note_raised(state: SchedulerState, task: SchedulerTask, worker: str, failure: Failure) -> None:
    """Note that an attempt raised, or that its result could not be packed."""
    if failure[0] == "exception" and len(failure) > 4:
        _note(state, task, worker, f"raised {failure[3]}: {failure[4]}")
    elif failure[0] == RESCHEDULE:
        reason = f": {failure[2]}" if failure[2:] and failure[2] else ""
        _note(state, task, worker, f"asked for another worker{reason}")
    else:
        _note(state, task, worker, str(failure[0]))


def note_raised_before(state: SchedulerState, task: SchedulerTask, n_raised: int) -> None:
    """Note exceptions that only an earlier scheduler has read of."""
    for _ in range(min(n_raised, MAX_ENDS)):
        _note(state, task, "", _RAISED_BEFORE)


def note_death(
    state: SchedulerState, task: SchedulerTask, worker: str, reason: str, *, is_served: bool
) -> None:
    """Note that a worker died under an attempt, or (`is_served`) while it served the result."""
    if is_served:
        ends = state.attempt_ends.get(task)
        if ends is not None and ends[-1][:2] == (worker, _LOST):
            ends.pop()
        _note(state, task, worker, f"{_LOST}: the worker died: {reason}")
    else:
        _note(state, task, worker, f"the worker died: {reason}")


def note_overdue(
    state: SchedulerState, ws: WorkerHandle, task: SchedulerTask, timeout_us: int
) -> None:
    """Note that an attempt takes too long. It is dropped and interrupted."""
    cause = f"took longer than its timeout of {timeout_us / 1e6:g} s"
    _note(state, task, ws.name, cause, task.attempt)
    state.interrupted[task.attempt] = InterruptedAttempt(ws, task.key, cause, state.now, task)


def note_cancelled(state: SchedulerState, ws: WorkerHandle, keys: dict[int, str]) -> None:
    """Note that attempts of cancelled tasks are interrupted: {attempt: key}."""
    for attempt, key in keys.items():
        state.interrupted[attempt] = InterruptedAttempt(ws, key, _CANCELLED, state.now, None)


def note_interruption_over(state: SchedulerState, attempt: int, end: int) -> None:
    """Note how an attempt has ended, if it was interrupted."""
    found = state.interrupted.pop(attempt, None)
    if found is None:
        return
    if found.when_over is not None:
        found.when_over()
    after = f"{max(state.now - found.since, 0.0):.2g} s later"
    if end == m.RETURNED:
        _note_end(state, found, attempt, f"it ended by itself {after}")
    elif end == m.INTERRUPTED:
        _note_end(state, found, attempt, f"an exception (TaskInterrupted) ended it {after}")
    elif found.task is not None:
        _note_end(state, found, attempt, "it has ended")


def note_process_over(state: SchedulerState, ws: WorkerHandle) -> None:
    """Note that interrupted attempts have ended with their worker, which is lost."""
    for attempt, found in list(state.interrupted.items()):
        if found.ws is ws:
            del state.interrupted[attempt]
            if found.when_over is not None:
                found.when_over()
            after = f"{max(state.now - found.since, 0.0):.2g} s later"
            how = "its process was ended" if found.is_killed else "its worker was lost"
            _note_end(state, found, attempt, f"{how} {after}")


def _note_end(state: SchedulerState, found: InterruptedAttempt, attempt: int, how: str) -> None:
    noted = found.ws.name, f"{found.cause}; {how}"[:_MAX_TEXT_CHARS], attempt
    if found.task is None:
        known = state.tasks.get(found.key)
        if known is not None:
            _note(state, known, *noted)
            return
        ends = state.cancelled_ends.setdefault(found.key, [])
        state.cancelled_ends.move_to_end(found.key)
        ends.append(noted)
        del ends[:-MAX_ENDS]
        if len(state.cancelled_ends) > MAX_CANCELLED:
            state.cancelled_ends.popitem(last=False)
        return
    ends = state.attempt_ends.get(found.task, [])
    for i, (_, _, other) in enumerate(ends):
        if other == attempt:
            ends[i] = noted


def note_copied(state: SchedulerState, task: SchedulerTask) -> None:
    """Note where a task has finished, before its first holder is forgotten; copies are left."""
    if not _is_noted(state, task):
        _note(state, task, task.replicas[0].name, _FINISHED, task.attempt)


def note_lost(state: SchedulerState, tasks: list[SchedulerTask]) -> None:
    """Note that the last copies of results are lost, before the tasks leave the memory."""
    for task in tasks[-MAX_TASKS:]:
        ends = state.attempt_ends.get(task)
        if ends is not None and _is_noted(state, task):
            _note(state, task, ends.pop()[0], _LOST)
        else:
            _note(state, task, task.replicas[0].name, _LOST)


def attempt_ends(state: SchedulerState, key: str) -> list[tuple[str, str]]:
    """Return `(worker, how it ended)` of the attempts of a task, oldest first.

    Those under way are left out, and so are those that were taken back before they ran. Of a task
    that was cancelled and is forgotten they are those that were interrupted.
    """
    task = state.tasks.get(key)
    if task is None:
        return [(worker, end) for worker, end, _ in state.cancelled_ends.get(key, ())]
    ends = [(worker, end) for worker, end, _ in state.attempt_ends.get(task, ())]
    if task.state == MEMORY and not _is_noted(state, task):
        ends.append((task.replicas[0].name, _FINISHED))
    return ends


def _is_noted(state: SchedulerState, task: SchedulerTask) -> bool:
    """Return whether the attempt that made the present result is on record."""
    ends = state.attempt_ends.get(task)
    return ends is not None and ends[-1][1:] == (_FINISHED, task.attempt)


def _note(
    state: SchedulerState, task: SchedulerTask, worker: str, end: str, attempt: int = 0
) -> None:
    table = state.attempt_ends
    ends = table.get(task)
    if ends is None:
        ends = table[task] = []
        if len(table) > MAX_TASKS:
            table.popitem(last=False)
    ends.append((worker, end[:_MAX_TEXT_CHARS], attempt))
    del ends[:-MAX_ENDS]
