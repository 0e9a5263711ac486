"""Running attempts that were dropped and are interrupted, until they have ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ....protocol.wire import messages as m
from ..ends.attempt_ends import note_interrupted, note_interrupted_end

if TYPE_CHECKING:
    from ..records.peers import WorkerHandle
    from ..records.tasks import SchedulerTask
    from ..state import SchedulerState

_CANCELLED: Final = "was cancelled"


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


class Interruptions(dict[int, InterruptedAttempt]):
    """The interrupted attempts, all zombies of workers: {attempt: interruption}."""

    def __init__(self) -> None:
        super().__init__()
        #: attempts that were asked to end, and those that took longer than their timeout=, so far
        self.n_interrupted = 0
        self.n_timed_out = 0


def interruptions_of(state: SchedulerState) -> Interruptions:
    """Return the interrupted attempts."""
    return state.record(Interruptions)


def _add(state: SchedulerState, attempt: int, found: InterruptedAttempt) -> None:
    interruptions_of(state)[attempt] = found
    state.busy[Interruptions] = None


def _remove(state: SchedulerState, attempt: int) -> InterruptedAttempt | None:
    found = interruptions_of(state).pop(attempt, None)
    if not interruptions_of(state):
        state.busy.pop(Interruptions, None)
    return found


def note_overdue(
    state: SchedulerState, ws: WorkerHandle, task: SchedulerTask, timeout_us: int
) -> None:
    """Note that an attempt takes too long. It is dropped and interrupted."""
    limit = f"{timeout_us / 1e6:g} s"
    if category := limiting_category(task, timeout_us):
        text = f"took longer than the max_wall_time of its category {category!r}, {limit}"
    else:
        text = f"took longer than its timeout of {limit}"
    note_ended(state, ws, task, text)


def limiting_category(task: SchedulerTask, timeout_us: int) -> str:
    """Return the name of the category whose `max_wall_time=` this limit is; "" = of none."""
    category = task.group.options.category
    return category["name"] if category and category.get("max_wall_us") == timeout_us else ""


def note_ended(state: SchedulerState, ws: WorkerHandle, task: SchedulerTask, cause: str) -> None:
    """Note why an attempt is to end. It is dropped and interrupted."""
    note_interrupted(state, task, ws.name, cause, task.attempt)
    _add(state, task.attempt, InterruptedAttempt(ws, task.key, cause, state.now, task))


def note_beaten(state: SchedulerState, ws: WorkerHandle, task: SchedulerTask, attempt: int) -> None:
    """Note that an attempt is to end because another one of its task was first, or is gone."""
    known = task if state.tasks.get(task.key) is task else None
    cause = _CANCELLED if known is None else "another attempt was first"
    if known is not None:
        note_interrupted(state, known, ws.name, cause, attempt)
    _add(state, attempt, InterruptedAttempt(ws, task.key, cause, state.now, known))


def note_cancelled(state: SchedulerState, ws: WorkerHandle, keys: dict[int, str]) -> None:
    """Note that attempts of cancelled tasks are interrupted: {attempt: key}."""
    for attempt, key in keys.items():
        _add(state, attempt, InterruptedAttempt(ws, key, _CANCELLED, state.now, None))


def note_interruption_over(state: SchedulerState, attempt: int, end: int) -> None:
    """Note how an attempt has ended, if it was interrupted."""
    found = _remove(state, attempt)
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
    for attempt, found in list(interruptions_of(state).items()):
        if found.ws is ws:
            _remove(state, attempt)
            if found.when_over is not None:
                found.when_over()
            after = f"{max(state.now - found.since, 0.0):.2g} s later"
            how = "its process was ended" if found.is_killed else "its worker was lost"
            _note_end(state, found, attempt, f"{how} {after}")


def _note_end(state: SchedulerState, found: InterruptedAttempt, attempt: int, how: str) -> None:
    end = f"{found.cause}; {how}"
    note_interrupted_end(state, found.task, found.key, found.ws.name, end, attempt)
