"""The times of attempts, for the task stream: reported only while the scheduler asks for them.

The executor measures durations, and not when each task began: on the thread of a slot tasks follow
each other without a gap, and a report is made when its last task ends. So their ends are counted
back from the time of the report, as if those that raised had followed the others: a report has
the two apart, and not their order. One that takes more than a millisecond is the last of its
report, so ends are exact to about a millisecond, and the rows of a report in which none raised
are in the order in which they ended.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from ....protocol.wire.failure import Failure
from ....protocol.wire.messages import (
    AttemptsFinished,
    AttemptsRunning,
    AttemptTimes,
    DiskTimes,
    RecordTimes,
)
from ..events import ChunkDone
from ..feature import WorkerFeature
from ..reports import sparse
from ..tasks import Slot

if TYPE_CHECKING:
    from ..state import WorkerState


_NAME: Final = "times"
_RUNNING: Final = "running"
#: Attempts that run for a shorter time are not listed: their ends come soon.
LEAST_AGE_US: Final = 500_000
#: Characters of the name of a type.
MAX_TYPE_CHARS: Final = 100


def _on_record_times(state: WorkerState, message: RecordTimes) -> None:
    """The scheduler wants the times of attempts, or does not want them any more."""
    state.set_busy(_NAME, message.on)
    state.set_busy(_RUNNING, message.on and message.running)


def _stop(state: WorkerState) -> None:
    """Report none until this scheduler, or the next one, asks for them."""
    state.set_busy(_NAME, False)
    state.set_busy(_RUNNING, False)


def records_times(state: WorkerState) -> bool:
    """Return whether the scheduler wants the times of attempts."""
    return _NAME in state.busy


def running_report(
    state: WorkerState, running: Iterable[tuple[int, int, int]]
) -> AttemptsRunning | None:
    """Return what to send about attempts that run, if the scheduler wants that.

    Args:
        state: of the worker.
        running: (attempt, thread, microseconds since it began).
    """
    rows = [row for row in running if row[2] >= LEAST_AGE_US] if _RUNNING in state.busy else []
    if not rows:
        return None
    attempts, threads, ages_us = map(list, zip(*rows, strict=True))
    return AttemptsRunning(attempts=attempts, threads=threads, ages_us=ages_us)


def disk_report(
    state: WorkerState, times: Iterable[tuple[float, float, int, bool]], now: float
) -> DiskTimes | None:
    """Return what to send about values that have gone to disk or come back, likewise.

    Args:
        state: of the worker.
        times: (start, stop, bytes, whether they were read).
        now: by the same clock.
    """
    if _RUNNING not in state.busy or not (rows := list(times)):
        return None
    return DiskTimes(
        ages_us=[max(int((now - start) * 1e6), 0) for start, *_ in rows],
        durations_us=[int((stop - start) * 1e6) for start, stop, *_ in rows],
        nbytes=[nbytes for _, _, nbytes, _ in rows],
        reads=[int(is_read) for *_, is_read in rows],
    )


def _report_times(state: WorkerState, event: ChunkDone, slot: Slot) -> None:
    """Report the times of attempts, before their ends are reported."""
    new = _times_of(state, event, slot)
    if not new.attempts:
        return
    sent = state.to_scheduler
    last = sent[-1] if sent else None
    if last.__class__ is AttemptsFinished and len(sent) > 1:
        last = sent[-2]  # both go on growing while they wait, see `reports`
    if isinstance(last, AttemptTimes):
        _extend(last, new)
    else:
        sent.append(new)


def _times_of(state: WorkerState, event: ChunkDone, slot: Slot) -> AttemptTimes:
    n, n_failed = len(event.attempts), len(event.failed_attempts)
    attempts = event.attempts + event.failed_attempts
    durations_us = event.durations_us + event.failed_durations_us
    waited_us = [event.waited_us.get(one, 0) for one in attempts] if event.waited_us else []
    ended_us: list[int] = []
    end_us = int(state.now * 1e6)
    for i in reversed(range(n + n_failed)):
        ended_us.append(max(end_us, 0))
        end_us -= durations_us[i] + (waited_us[i] if waited_us else 0)
    ended_us.reverse()
    tasks = [state.by_attempt.get(attempt) for attempt in attempts]
    with_inputs = [task if task is not None and task.fetched else None for task in tasks]
    return AttemptTimes(
        attempts=attempts,
        ended_us=ended_us,
        durations_us=durations_us,
        threads=[slot.index] * (n + n_failed),
        nbytes=event.nbytes + [0] * n_failed,
        types=(event.types or [""] * n) + [_type_of(failure) for failure in event.failures],
        failed=[0] * n + [1] * n_failed if n_failed else [],
        waited_us=waited_us,
        arrived_us=sparse((0 if one is None else int(one.arrived * 1e6) for one in with_inputs), 0),
        fetched_us=sparse((0 if one is None else int(one.fetched * 1e6) for one in with_inputs), 0),
    )


def _extend(message: AttemptTimes, more: AttemptTimes) -> None:
    """Append rows to a message that was not sent yet."""
    n, n_more = len(message.attempts), len(more.attempts)
    for name in AttemptTimes.optional_columns:
        column, rows = getattr(message, name), getattr(more, name)
        if column or rows:
            # The column is empty, or has a row for each attempt.
            column += [0] * (n - len(column))
            column += rows or [0] * n_more
    for name in AttemptTimes.columns:
        column = getattr(message, name)
        column += getattr(more, name)


def _type_of(failure: Failure) -> str:
    """Return the name of the exception of a failure, or else its kind."""
    is_exception = failure[0] == "exception" and len(failure) > 3
    return str(failure[3] if is_exception else failure[0])[:MAX_TYPE_CHARS]


FEATURE: Final = WorkerFeature(
    name=_NAME,
    patient=frozenset({AttemptTimes}),
    messages={RecordTimes: _on_record_times},
    chunk_done=((_NAME, _report_times),),
    session_opening=(_stop,),
    session_lost=(_stop,),
)
